//! Mixtures of faults for transfers, and the times of transfers with and without help under the
//! same faults.
//!
//! The packets that a link loses depend on the other packets on it. So a run and its twin differ by
//! chance. Under heavy loss they differ a lot: a handshake may stall for seconds. So tests compare
//! the times of groups of runs.

use std::collections::BTreeMap;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use sidekick_netem::record::RunRecord;
use sidekick_netem::scenario::Scenario;
use sidekick_netem::sim;

/// The bytes of each transfer.
pub(crate) const BYTES: u64 = 1 << 20;
/// A run counts as slower than its twin if the ratio of their times is below this.
const SLOWER: f64 = 0.95;

/// The random choices of a seed.
pub(crate) struct Draws(ChaCha8Rng);

impl Draws {
    pub(crate) fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// A number below `most`.
    pub(crate) fn below(&mut self, most: u32) -> u32 {
        self.0.next_u32() % most
    }

    pub(crate) fn one<T: Copy>(&mut self, things: &[T]) -> T {
        things[self.index(things.len())]
    }

    /// An index below `count`.
    pub(crate) fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.below(u32::try_from(count).unwrap())).unwrap()
    }

    /// The loss of the near segment, in percent.
    pub(crate) fn loss_percent(&mut self) -> u32 {
        if self.below(4) == 0 { 0 } else { self.below(31) }
    }

    /// Events: some of these faults, each with a share below its limit in percent. There may also
    /// be a restart of the proxy, and another delay of a segment.
    pub(crate) fn events(&mut self, faults: &[(&str, u32)]) -> Vec<String> {
        let mut events = Vec::new();
        for (fault, most) in faults {
            if self.below(2) == 0 {
                events.push(format!("{fault} {} at 0", self.below(*most)));
            }
        }
        if self.below(3) == 0 {
            let (at, lasts) = (100 + self.below(1500), 1 + self.below(300));
            events.push(format!("proxy-restart at {at} for {lasts}"));
        }
        match self.below(6) {
            0 => {
                let (delay, at) = (1 + self.below(20), self.below(2000));
                events.push(format!("near-delay {delay} at {at}"));
            }
            1 => {
                let (delay, at) = (10 + self.below(40), self.below(2000));
                events.push(format!("far-delay {delay} at {at}"));
            }
            _ => {}
        }
        events
    }

    /// One of `lies`. Most runs have none.
    pub(crate) fn lie(&mut self, lies: &[&str]) -> Option<String> {
        (self.below(4) == 0).then(|| {
            let lie = self.one(lies);
            format!("proxy-lies {lie} at {}", self.below(1000))
        })
    }

    /// The settings of the path and of the events.
    pub(crate) fn settings(&mut self, loss_percent: u32, events: &[String]) -> Vec<String> {
        let events = if events.is_empty() { "none".to_owned() } else { events.join("; ") };
        vec![
            format!("flow.bytes={BYTES}"),
            format!("near.loss_percent={loss_percent}"),
            format!("near.reorder_percent={}", self.below(4)),
            format!("near.duplicate_percent={}", self.below(3)),
            format!("near.corrupt_percent={}", self.below(3)),
            format!("far.loss_percent={}", self.one(&["0", "0", "0", "0.1"])),
            format!("faults.events={events}"),
        ]
    }

    /// How the sender finds the proxy, if it is not configured with its address.
    pub(crate) fn discovery(&mut self) -> Option<String> {
        (self.below(2) == 0).then(|| "sidekick.proxy=found".to_owned())
    }
}

/// The faults in the run of a seed.
pub(crate) struct Mixture {
    /// The index of the sender.
    pub(crate) sender: usize,
    pub(crate) loss_percent: u32,
    pub(crate) lies: bool,
    pub(crate) settings: Vec<String>,
}

impl Mixture {
    /// The record of a run with more settings, or a sentence with the command that repeats it.
    pub(crate) fn run(&self, name: &str, more: &[String], seed: u64) -> Result<RunRecord, String> {
        let settings = [&self.settings[..], more].concat();
        let scenario = Scenario::with(name, &settings).unwrap();
        let record = sim::run(&scenario, seed, None, &mut |_, _| {});
        record.map_err(|error| format!("seed {seed}, {settings:?}: {error}"))
    }

    fn key(&self) -> Key {
        let band = match self.loss_percent {
            0 => 0,
            1..8 => 1,
            8..16 => 8,
            _ => 16,
        };
        (self.sender, if self.lies { "lies" } else { "honest" }, band)
    }
}

/// A sender, whether its proxy is honest, and the least loss of a band in percent.
type Key = (usize, &'static str, u32);

/// Runs and their twins, by sender, honesty and loss.
#[derive(Default)]
pub(crate) struct Groups(pub(crate) BTreeMap<Key, Group>);

impl Groups {
    /// Adds a run and its twin, which have carried the same file. The time with help counts without
    /// `grace`.
    pub(crate) fn add(
        &mut self,
        mixture: &Mixture,
        seed: u64,
        (helped, plain): (&RunRecord, &RunRecord),
        grace: f64,
    ) {
        assert_eq!((&helped.sha256, helped.bytes), (&plain.sha256, BYTES), "seed {seed}");
        let group = self.0.entry(mixture.key()).or_default();
        group.add(seed, (helped.time_s - grace).max(0.0), plain.time_s);
        group.helped_timeouts += helped.packets.probe_timeouts.unwrap();
        group.plain_timeouts += plain.packets.probe_timeouts.unwrap();
    }

    /// The sums of some groups.
    pub(crate) fn sum(&self, of: impl Fn(&Key) -> bool) -> Group {
        let mut sum = Group::default();
        for (_, group) in self.0.iter().filter(|(key, _)| of(key)) {
            sum.runs += group.runs;
            sum.helped_s += group.helped_s;
            sum.plain_s += group.plain_s;
            sum.helped_timeouts += group.helped_timeouts;
            sum.plain_timeouts += group.plain_timeouts;
        }
        sum
    }

    /// A table of the groups, with the names of the senders.
    pub(crate) fn table(&self, names: &[&str]) -> String {
        let mut table = String::from(
            "sender, proxy, near loss from: runs, time plain / helped, geometric mean of the runs, \
             runs below 0.95, worst, probe timeouts plain, helped\n",
        );
        for ((sender, honest, band), group) in &self.0 {
            let Group { runs, slower, worst: (worst, seed), .. } = group;
            let Group { plain_timeouts, helped_timeouts, .. } = group;
            let (name, ratio, typical) = (names[*sender], group.ratio(), group.typical());
            table += &format!(
                "{name}, {honest}, {band}: {runs}, {ratio:.3}, {typical:.3}, {slower}, {worst:.2} \
                 (seed {seed}), {plain_timeouts}, {helped_timeouts}\n"
            );
        }
        table
    }
}

/// The times of a group of runs and their twins, in seconds, and the data senders' probe timeouts.
#[derive(Default)]
pub(crate) struct Group {
    pub(crate) runs: u32,
    helped_s: f64,
    plain_s: f64,
    pub(crate) helped_timeouts: u64,
    pub(crate) plain_timeouts: u64,
    /// Runs that took longer with help.
    slower: u32,
    /// The lowest ratio of a run, and its seed.
    worst: (f64, u64),
    logarithms: f64,
}

impl Group {
    /// Adds the run of this seed. Its ratio counts as at most 100.
    fn add(&mut self, seed: u64, helped_s: f64, plain_s: f64) {
        self.runs += 1;
        self.helped_s += helped_s;
        self.plain_s += plain_s;
        let ratio = plain_s / helped_s.max(plain_s / 100.0);
        self.slower += u32::from(ratio < SLOWER);
        self.logarithms += ratio.ln();
        if self.runs == 1 || ratio < self.worst.0 {
            self.worst = (ratio, seed);
        }
    }

    /// The time of all runs without help, as a multiple of the time with help.
    pub(crate) fn ratio(&self) -> f64 {
        self.plain_s / self.helped_s
    }

    /// The geometric mean of the ratios of all runs. A run that takes ten times as long weighs as
    /// much as one that takes a tenth. In the sums of [`Group::ratio`], it would outweigh the other
    /// runs of a small group.
    pub(crate) fn typical(&self) -> f64 {
        (self.logarithms / f64::from(self.runs)).exp()
    }
}
