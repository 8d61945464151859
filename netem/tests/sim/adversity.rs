//! A thousand uploads in virtual time, or some of them. Each has its own mixture of faults. Each is
//! compared with the same sender without a Sidekick under the same faults.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sidekick_netem::record::RunRecord;

use crate::support::adversity::{self, BYTES, Draws, Group, band};
use crate::support::many;
use crate::support::seeds::{few_or_all, seeds};

const FEW_SEEDS: u64 = 120;
const ALL_SEEDS: u64 = 1000;
/// The modes, each with the controller below it. Early loss uses CUBIC of RFC 9438. quiche's own
/// CUBIC undoes most reactions to losses that it detects end to end, so a few percent of loss
/// hardly affect it.
const MODES: [(&str, &str); 3] =
    [("early-loss", "cubic-rfc9438"), ("pacubic", "cubic-rfc9438"), ("path-aware-bbr", "bbr2")];
const FAULTS: [(&str, u32); 4] =
    [("quack-loss", 31), ("quack-duplicate", 31), ("quack-reorder", 31), ("quack-corrupt", 11)];

/// The faults in the run of a seed.
struct Mixture {
    mode: usize,
    loss_percent: u32,
    lies: bool,
    settings: Vec<String>,
}

fn mixture(seed: u64) -> Mixture {
    let mut draws = Draws::new(seed);
    let mode = draws.index(MODES.len());
    let loss_percent = draws.loss_percent();
    let mut events = draws.events(&FAULTS);
    let lie = draws.lie(&["too-much", "too-little", "garbage"]);
    let lies = lie.is_some();
    events.extend(lie);
    let mut settings = draws.settings(loss_percent, &events);
    settings.extend(draws.discovery());
    Mixture { mode, loss_percent, lies, settings }
}

fn upload(mixture: &Mixture, assisted: bool, seed: u64) -> Result<RunRecord, String> {
    let (mode, cc) = MODES[mixture.mode];
    let mode = if assisted { mode } else { "off" };
    let mut settings = mixture.settings.clone();
    settings.extend([format!("sidekick.mode={mode}"), format!("flow.cc={cc}")]);
    adversity::run("upload-paper", &settings, seed)
}

#[test]
fn a_thousand_uploads_arrive_and_lose_nothing_by_their_help() {
    let mut groups: BTreeMap<(usize, &str, u32), Group> = BTreeMap::new();
    let (mut early, mut alone) = (0, 0);
    let mut failures = Vec::new();
    let seeds = seeds(FEW_SEEDS, ALL_SEEDS);
    // Of a few seeds, chance decides the ratio of a smaller group, which then has no bound.
    let enough = few_or_all(10, 1);
    let runs = many::run((0..seeds).collect(), |&seed| {
        let mixture = mixture(seed);
        (upload(&mixture, true, seed), upload(&mixture, false, seed))
    });
    for (seed, (assisted, plain)) in (0..).zip(runs) {
        let mixture = mixture(seed);
        let assisted = match assisted {
            Ok(assisted) => assisted,
            Err(error) => {
                failures.push(error);
                continue;
            }
        };
        let Ok(plain) = plain else {
            // Without help, the upload has not arrived, so there is no time to compare with.
            alone += 1;
            continue;
        };
        assert_eq!((&assisted.sha256, assisted.bytes), (&plain.sha256, BYTES), "seed {seed}");
        early += assisted.packets.lost_early;
        let honest = if mixture.lies { "lies" } else { "honest" };
        let group = groups.entry((mixture.mode, honest, band(mixture.loss_percent))).or_default();
        // A lying proxy may cost two seconds.
        let grace = if mixture.lies { 2.0 } else { 0.0 };
        group.add(seed, (assisted.time_s - grace).max(0.0), plain.time_s);
    }
    let mut table = String::from(
        "mode, proxy, near loss from: runs, time plain / assisted, geometric mean of the runs, runs \
         below 0.95, worst\n",
    );
    for ((mode, honest, band), group) in &groups {
        let Group { runs, slower, worst: (worst, seed), .. } = group;
        let (ratio, typical) = (group.ratio(), group.typical());
        writeln!(
            table,
            "{}, {honest}, {band}: {runs}, {ratio:.3}, {typical:.3}, {slower}, {worst:.2} (seed \
             {seed})",
            MODES[*mode].0
        )
        .unwrap();
        // A band has few runs, so chance affects its ratio.
        if *runs >= enough && ratio < 0.9 {
            failures.push(format!("{}, {honest}, {band} %: {ratio:.3}", MODES[*mode].0));
        }
    }
    for (mode, honest) in (0..MODES.len()).flat_map(|mode| [(mode, "honest"), (mode, "lies")]) {
        let bands = || groups.iter().filter(|(key, _)| (key.0, key.1) == (mode, honest));
        let plain: f64 = bands().map(|(_, group)| group.plain_s).sum();
        let assisted: f64 = bands().map(|(_, group)| group.helped_s).sum();
        let ratio = plain / assisted;
        writeln!(table, "{}, {honest}, all: {ratio:.3}", MODES[mode].0).unwrap();
        let runs: u32 = bands().map(|(_, group)| group.runs).sum();
        if runs >= enough && ratio < 0.95 {
            failures.push(format!("{}, {honest}: {ratio:.3}", MODES[mode].0));
        }
    }
    println!(
        "{table}{early} packets were declared lost early; {alone} uploads arrived only with help"
    );
    assert!(early > 10 * seeds, "{early} packets were declared lost early");
    assert!(failures.is_empty(), "{}\n{table}", failures.join("\n"));
}
