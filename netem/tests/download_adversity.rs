//! Downloads in virtual time, each with its own mixture of what can go wrong, and each beside the
//! same download without help under the same faults.
//!
//! `SIDEKICK_SEEDS=1000 cargo test --release -p sidekick-netem --test download_adversity` runs a
//! thousand. As in `adversity.rs`, one run and its twin differ by chance, so times are compared by
//! groups of runs.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are outside what clippy takes for tests")]

#[path = "support/many.rs"]
mod many;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use sidekick_netem::record::RunRecord;
use sidekick_netem::scenario::Scenario;
use sidekick_netem::sim;

virtual_time::in_force!();

/// How many, unless the environment says otherwise.
const SEEDS: u64 = 200;
const BYTES: u64 = 1 << 20;
const HEAVY_LOSS: u32 = 16;
/// A run that takes so much longer than without help is printed with its settings.
const FAR_BELOW: f64 = 0.6;
/// The server's.
const CONTROLLERS: [&str; 4] = ["cubic", "cubic-rfc9438", "reno", "bbr2"];
const LIES: [&str; 6] =
    ["too-much", "too-little", "garbage", "wrong-copies", "no-copies", "unasked-copies"];

/// What happens in the run of a seed.
struct Mixture {
    controller: usize,
    loss_percent: u32,
    lies: bool,
    settings: Vec<String>,
}

fn mixture(seed: u64) -> Mixture {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut below = |most: u32| random.next_u32() % most;
    let controller = usize::try_from(below(4)).unwrap();
    let loss_percent = if below(4) == 0 { 0 } else { below(31) };
    let mut events = Vec::new();
    for (fault, most) in [("message-loss", 31), ("repeat-loss", 31), ("quack-loss", 31)] {
        if below(2) == 0 {
            events.push(format!("{fault} {} at 0", below(most)));
        }
    }
    if below(3) == 0 {
        events.push(format!("proxy-restart at {} for {}", 100 + below(1500), 1 + below(300)));
    }
    match below(6) {
        0 => events.push(format!("near-delay {} at {}", 1 + below(20), below(2000))),
        1 => events.push(format!("far-delay {} at {}", 10 + below(40), below(2000))),
        _ => {}
    }
    // A NAT that forgets a client which has nothing to send ends a download, with help and without.
    if below(6) == 0 {
        events.push(format!("migration at {}", 100 + below(1000)));
    }
    let lies = below(4) == 0;
    if lies {
        let lie = LIES[usize::try_from(below(6)).unwrap()];
        events.push(format!("proxy-lies {lie} at {}", below(1000)));
    }
    let events = if events.is_empty() { "none".to_owned() } else { events.join("; ") };
    let mut settings = vec![
        format!("flow.bytes={BYTES}"),
        format!("flow.cc={}", CONTROLLERS[controller]),
        format!("near.loss_percent={loss_percent}"),
        format!("near.reorder_percent={}", below(4)),
        format!("near.duplicate_percent={}", below(3)),
        format!("near.corrupt_percent={}", below(3)),
        format!("far.loss_percent={}", ["0", "0", "0", "0.1"][usize::try_from(below(4)).unwrap()]),
        format!("faults.events={events}"),
    ];
    if below(4) == 0 {
        settings.push(format!("flow.window_bytes={}", 16_384 << (2 * below(3))));
    }
    if below(2) == 0 {
        settings.push("sidekick.proxy=found".to_owned());
    }
    Mixture { controller, loss_percent, lies, settings }
}

fn download(mixture: &Mixture, mode: &str, seed: u64) -> Result<RunRecord, String> {
    let mut scenario = Scenario::load("download-paper").unwrap();
    let mut settings = mixture.settings.clone();
    settings.push(format!("sidekick.mode={mode}"));
    scenario.apply(&settings).unwrap();
    let record = sim::run(&scenario, seed, None, &mut |_, _| {});
    record.map_err(|error| format!("seed {seed}, {settings:?}: {error}"))
}

/// Whether chance ends such connections without help too: by their idle timeout, or because
/// quiche's server gives up the path of a migrated client, and then breaks the connection at the
/// client's next packet.
fn chance_ends(error: &str) -> bool {
    error.contains("timed out") || (error.contains("migration") && error.contains("code 0xa"))
}

/// Times of a group of runs.
#[derive(Default)]
struct Group {
    runs: u32,
    helped_s: f64,
    plain_s: f64,
    /// Of the worst run, which is among them: with help, and without.
    worst_s: (f64, f64),
    slower: u32,
    worst: (f64, u64),
    helped_timeouts: u64,
    plain_timeouts: u64,
}

impl Group {
    fn add(&mut self, seed: u64, helped: &RunRecord, plain: &RunRecord) {
        self.runs += 1;
        self.helped_s += helped.time_s;
        self.plain_s += plain.time_s;
        self.helped_timeouts += helped.packets.probe_timeouts;
        self.plain_timeouts += plain.packets.probe_timeouts;
        let ratio = plain.time_s / helped.time_s;
        self.slower += u32::from(ratio < 0.95);
        if self.runs == 1 || ratio < self.worst.0 {
            self.worst = (ratio, seed);
            self.worst_s = (helped.time_s, plain.time_s);
        }
    }

    fn ratio(&self) -> f64 {
        self.plain_s / self.helped_s
    }

    /// The same without the worst run. quiche's server waits for its probe timeout
    /// before it repeats a lost PATH_CHALLENGE: one migration in a hundred takes 10 s, with help
    /// and without.
    fn ratio_of_others(&self) -> f64 {
        (self.plain_s - self.worst_s.1) / (self.helped_s - self.worst_s.0)
    }
}

#[test]
fn downloads_arrive_and_lose_nothing_by_their_help() {
    let seeds = std::env::var("SIDEKICK_SEEDS").map_or(SEEDS, |seeds| seeds.parse().unwrap());
    let runs = many::run((0..seeds).collect(), |&seed| {
        let mixture = mixture(seed);
        (download(&mixture, "receive", seed), download(&mixture, "off", seed))
    });
    let mut groups: BTreeMap<(usize, &str, u32), Group> = BTreeMap::new();
    let (mut repeats, mut alone, mut without, mut failures) = (0, 0, 0, Vec::new());
    for (seed, (helped, plain)) in (0..).zip(runs) {
        let Mixture { controller, loss_percent, lies, settings } = mixture(seed);
        let helped = match helped {
            Ok(helped) => helped,
            // Under such loss, chance ends some connections, with help and without.
            Err(error) if loss_percent >= HEAVY_LOSS && chance_ends(&error) => {
                println!("{error}");
                without += u32::from(plain.is_ok());
                continue;
            }
            Err(error) => {
                failures.push(error);
                continue;
            }
        };
        let Ok(plain) = plain else {
            // Without help it has not arrived at all; there is nothing to compare with.
            alone += 1;
            continue;
        };
        assert_eq!((&helped.sha256, helped.bytes), (&plain.sha256, BYTES), "seed {seed}");
        let ratio = plain.time_s / helped.time_s;
        if ratio < FAR_BELOW {
            println!("seed {seed}, {settings:?}: {ratio:.2}");
        }
        repeats += helped.repeats.unwrap().repeats_received;
        let band = match loss_percent {
            0 => 0,
            1..8 => 1,
            8..16 => 8,
            _ => 16,
        };
        let honest = if lies { "lies" } else { "honest" };
        groups.entry((controller, honest, band)).or_default().add(seed, &helped, &plain);
    }
    let mut table = String::from(
        "controller, proxy, near loss from: runs, time plain / helped, runs below 0.95, worst, \
         the server's probe timeouts plain, helped\n",
    );
    let mut all: BTreeMap<&str, (f64, f64, u64, u64)> = BTreeMap::new();
    for ((controller, honest, band), group) in &groups {
        let Group { runs, slower, worst, plain_timeouts, helped_timeouts, .. } = group;
        let (ratio, (worst, seed)) = (group.ratio(), worst);
        writeln!(
            table,
            "{}, {honest}, {band}: {runs}, {ratio:.3}, {slower}, {worst:.2} (seed {seed}), \
             {plain_timeouts}, {helped_timeouts}",
            CONTROLLERS[*controller]
        )
        .unwrap();
        let sums = all.entry(honest).or_default();
        sums.0 += group.plain_s;
        sums.1 += group.helped_s;
        sums.2 += plain_timeouts;
        sums.3 += helped_timeouts;
        // A band has few runs, and chance its share in them.
        let ratio = group.ratio_of_others();
        if *runs >= 10 && ratio < 0.9 {
            failures.push(format!("{}, {honest}, {band} %: {ratio:.3}", CONTROLLERS[*controller]));
        }
    }
    for (honest, (plain, helped, plain_timeouts, helped_timeouts)) in all {
        let ratio = plain / helped;
        writeln!(table, "{honest}, all: {ratio:.3}, {plain_timeouts}, {helped_timeouts}").unwrap();
        if ratio < 0.95 {
            failures.push(format!("{honest}: {ratio:.3}"));
        }
        // A hold that lasted longer than the server waits would add to them.
        if helped_timeouts > plain_timeouts {
            failures.push(format!(
                "{honest}: {helped_timeouts} probe timeouts, and {plain_timeouts} without help"
            ));
        }
    }
    println!(
        "{table}{repeats} copies arrived; {alone} downloads arrived only with help, {without} only \
         without"
    );
    assert!(without <= alone.max(1), "{without} downloads arrived only without help");
    assert!(repeats > 10 * seeds, "{repeats} copies arrived");
    assert!(failures.is_empty(), "{}\n{table}", failures.join("\n"));
}
