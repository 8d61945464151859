//! Mixtures of faults for transfers, and the times of transfers with and without help under the
//! same faults.
//!
//! The packets that a link loses depend on the other packets on it. So a run and its twin differ by
//! chance. Under heavy loss they differ a lot: a handshake may stall for seconds. So tests compare
//! the times of groups of runs.

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

    /// One of `things`.
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

/// The record of a run, or a sentence with the command that repeats it.
pub(crate) fn run(name: &str, settings: &[String], seed: u64) -> Result<RunRecord, String> {
    let scenario = Scenario::with(name, settings).unwrap();
    let record = sim::run(&scenario, seed, None, &mut |_, _| {});
    record.map_err(|error| format!("seed {seed}, {settings:?}: {error}"))
}

/// The least loss of the band of `loss_percent`, in percent.
pub(crate) fn band(loss_percent: u32) -> u32 {
    match loss_percent {
        0 => 0,
        1..8 => 1,
        8..16 => 8,
        _ => 16,
    }
}

/// The times of a group of runs and their twins, in seconds.
#[derive(Default)]
pub(crate) struct Group {
    pub(crate) runs: u32,
    pub(crate) helped_s: f64,
    pub(crate) plain_s: f64,
    /// Runs that took longer with help.
    pub(crate) slower: u32,
    /// The lowest ratio of a run, and its seed.
    pub(crate) worst: (f64, u64),
    logarithms: f64,
}

impl Group {
    /// Adds the run of this seed. Its ratio counts as at most 100.
    pub(crate) fn add(&mut self, seed: u64, helped_s: f64, plain_s: f64) {
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
