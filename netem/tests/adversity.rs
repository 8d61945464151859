//! A thousand uploads in virtual time, each with its own mixture of what can go wrong, and each
//! beside the same sender without a Sidekick under the same faults.
//!
//! Which packets a link loses depends on what else crosses it, so one run and its twin differ by
//! chance, and under heavy loss by a lot: a handshake may stall for seconds. What is compared are
//! the times of groups of runs.

#![allow(clippy::unwrap_used, reason = "helpers of tests are outside what clippy takes for tests")]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use sidekick_netem::record::RunRecord;
use sidekick_netem::scenario::Scenario;
use sidekick_netem::sim;

virtual_time::in_force!();

const SEEDS: u64 = 1000;
const BYTES: u64 = 1 << 20;
/// Each mode, and a controller that it stands on. Early loss has RFC 9438's CUBIC: quiche's own
/// takes most losses back afterwards, when they are found end to end, and so hardly reacts to a few
/// percent of them.
const MODES: [(&str, &str); 3] =
    [("early-loss", "cubic-rfc9438"), ("pacubic", "cubic-rfc9438"), ("path-aware-bbr", "bbr2")];

/// What happens in the run of a seed.
struct Mixture {
    mode: usize,
    loss_percent: u32,
    lies: bool,
    settings: Vec<String>,
}

fn mixture(seed: u64) -> Mixture {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut below = |most: u32| random.next_u32() % most;
    let mode = usize::try_from(below(3)).unwrap();
    let loss_percent = if below(4) == 0 { 0 } else { below(31) };
    let mut events = Vec::new();
    for (fault, most) in
        [("quack-loss", 31), ("quack-duplicate", 31), ("quack-reorder", 31), ("quack-corrupt", 11)]
    {
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
    let lies = below(4) == 0;
    if lies {
        let lie = ["too-much", "too-little", "garbage"][usize::try_from(below(3)).unwrap()];
        events.push(format!("proxy-lies {lie} at {}", below(1000)));
    }
    let events = if events.is_empty() { "none".to_owned() } else { events.join("; ") };
    let mut settings = vec![
        format!("flow.bytes={BYTES}"),
        format!("near.loss_percent={loss_percent}"),
        format!("near.reorder_percent={}", below(4)),
        format!("near.duplicate_percent={}", below(3)),
        format!("near.corrupt_percent={}", below(3)),
        format!("far.loss_percent={}", ["0", "0", "0", "0.1"][usize::try_from(below(4)).unwrap()]),
        format!("faults.events={events}"),
    ];
    if below(2) == 0 {
        settings.push("sidekick.proxy=found".to_owned());
    }
    Mixture { mode, loss_percent, lies, settings }
}

fn upload(mixture: &Mixture, assisted: bool, seed: u64) -> Result<RunRecord, String> {
    let mut scenario = Scenario::load("upload-paper").unwrap();
    let (mode, cc) = MODES[mixture.mode];
    let mode = if assisted { mode } else { "off" };
    let mut settings = mixture.settings.clone();
    settings.extend([format!("sidekick.mode={mode}"), format!("flow.cc={cc}")]);
    scenario.apply(&settings).unwrap();
    let record = sim::run(&scenario, seed, None, &mut |_, _| {});
    record.map_err(|error| format!("seed {seed}, {settings:?}: {error}"))
}

/// Times of a group of runs.
#[derive(Default)]
struct Group {
    runs: u32,
    assisted_s: f64,
    plain_s: f64,
    slower: u32,
    worst: f64,
}

#[test]
fn a_thousand_uploads_arrive_and_lose_nothing_by_their_help() {
    let mut groups: BTreeMap<(usize, &str, u32), Group> = BTreeMap::new();
    let (mut early, mut alone) = (0, 0);
    let mut failures = Vec::new();
    for seed in 0..SEEDS {
        let mixture = mixture(seed);
        let (assisted, plain) = (upload(&mixture, true, seed), upload(&mixture, false, seed));
        let assisted = match assisted {
            Ok(assisted) => assisted,
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
        assert_eq!((&assisted.sha256, assisted.bytes), (&plain.sha256, BYTES), "seed {seed}");
        early += assisted.packets.lost_early;
        let band = match mixture.loss_percent {
            0 => 0,
            1..8 => 1,
            8..16 => 8,
            _ => 16,
        };
        let honest = if mixture.lies { "lies" } else { "honest" };
        let group = groups.entry((mixture.mode, honest, band)).or_default();
        group.runs += 1;
        // What a liar may cost is two seconds.
        let grace = if mixture.lies { 2.0 } else { 0.0 };
        group.assisted_s += (assisted.time_s - grace).max(0.0);
        group.plain_s += plain.time_s;
        let ratio = plain.time_s / (assisted.time_s - grace).max(plain.time_s / 100.0);
        group.slower += u32::from(ratio < 0.95);
        group.worst = if group.runs == 1 { ratio } else { group.worst.min(ratio) };
    }
    let mut table = String::from(
        "mode, proxy, near loss from: runs, time plain / assisted, runs below 0.95, worst\n",
    );
    for ((mode, honest, band), group) in &groups {
        let Group { runs, assisted_s, plain_s, slower, worst } = group;
        let ratio = plain_s / assisted_s;
        writeln!(
            table,
            "{}, {honest}, {band}: {runs}, {ratio:.3}, {slower}, {worst:.2}",
            MODES[*mode].0
        )
        .unwrap();
        // A band has few runs, and chance its share in them.
        if ratio < 0.9 {
            failures.push(format!("{}, {honest}, {band} %: {ratio:.3}", MODES[*mode].0));
        }
    }
    for (mode, honest) in (0..MODES.len()).flat_map(|mode| [(mode, "honest"), (mode, "lies")]) {
        let bands = || groups.iter().filter(|(key, _)| (key.0, key.1) == (mode, honest));
        let plain: f64 = bands().map(|(_, group)| group.plain_s).sum();
        let assisted: f64 = bands().map(|(_, group)| group.assisted_s).sum();
        let ratio = plain / assisted;
        writeln!(table, "{}, {honest}, all: {ratio:.3}", MODES[mode].0).unwrap();
        if ratio < 0.95 {
            failures.push(format!("{}, {honest}: {ratio:.3}", MODES[mode].0));
        }
    }
    println!(
        "{table}{early} packets were declared lost early; {alone} uploads arrived only with help"
    );
    assert!(early > 10_000, "{early} packets were declared lost early");
    assert!(failures.is_empty(), "{}\n{table}", failures.join("\n"));
}
