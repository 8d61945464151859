//! Uploads in virtual time with faults. Each upload arrives, and loses at most the stated share of
//! its goodput.

use std::sync::OnceLock;

use sidekick_netem::record::{FaultCounts, RunRecord};
use sidekick_netem::scenario::Scenario;
use sidekick_netem::sim::{self, SimError};

use crate::support::jobs::many;
use crate::support::seeds::some;

const SEEDS: std::ops::RangeInclusive<u64> = 1..=3;
/// The modes, each with the controller below it.
const MODES: [(&str, &str); 3] =
    [("early-loss", "cubic"), ("pacubic", "cubic-rfc9438"), ("path-aware-bbr", "bbr2")];

fn scenario(mode: &str, cc: &str, events: &str) -> Scenario {
    let mut scenario = Scenario::load("upload-paper").unwrap();
    let settings = [
        "near.loss_percent=2".to_owned(),
        "flow.bytes=4194304".to_owned(),
        format!("sidekick.mode={mode}"),
        format!("flow.cc={cc}"),
        format!("faults.events={events}"),
    ];
    scenario.apply(&settings).unwrap();
    scenario
}

fn run(scenario: &Scenario, seed: u64) -> Result<RunRecord, SimError> {
    sim::run(scenario, seed, None, &mut |_, _| {})
}

fn upload(mode: &str, cc: &str, events: &str, seed: u64) -> RunRecord {
    run(&scenario(mode, cc, events), seed)
        .unwrap_or_else(|error| panic!("{mode}, {events}, seed {seed}: {error}"))
}

fn uploads(mode: &str, cc: &str, events: &str) -> Vec<RunRecord> {
    let records: Vec<_> = SEEDS.map(|seed| upload(mode, cc, events, seed)).collect();
    for (record, plain) in records.iter().zip(&undisturbed().0) {
        assert_eq!(record.sha256, plain.sha256, "{mode}, {events}, seed {}", record.seed);
        assert_eq!(record.bytes, 4 * 1024 * 1024);
    }
    records
}

fn median(records: &[RunRecord]) -> f64 {
    let mut goodput: Vec<f64> = records.iter().map(|record| record.goodput_mbit_s).collect();
    goodput.sort_by(f64::total_cmp);
    goodput[goodput.len() / 2]
}

/// Plain uploads of the first controller, and the median goodput of each mode without a fault.
fn undisturbed() -> &'static (Vec<RunRecord>, [f64; 3]) {
    static UNDISTURBED: OnceLock<(Vec<RunRecord>, [f64; 3])> = OnceLock::new();
    UNDISTURBED.get_or_init(|| {
        let all = |mode, cc| many(SEEDS.collect(), |&seed| upload(mode, cc, "none", seed));
        (all("off", "cubic"), MODES.map(|(mode, cc)| median(&all(mode, cc))))
    })
}

/// A fault, a check that it occurred, and the least share of a goodput that each mode must keep.
type Row = (&'static str, fn(&RunRecord, &FaultCounts) -> bool, [f64; 3]);

/// The goodput to compare with.
#[derive(Clone, Copy, Debug)]
enum With {
    /// The goodput of the same mode without the fault.
    Undisturbed,
    /// The goodput of the same controller without a Sidekick, under the same fault.
    Plain,
}

/// Runs the rows in each mode, prints a line of the table, and hands the records to `look`.
fn table(with: With, rows: &[Row], mut look: impl FnMut(&str, &RunRecord)) {
    let rows: Vec<_> = some(4, rows).collect();
    let cells = rows.iter().flat_map(|row| (0..MODES.len()).map(move |number| (row.0, number)));
    // The two of a cell are the faulty uploads, and the goodput to compare with.
    let mut cells = many(cells.collect(), |&(events, number)| {
        let (mode, cc) = MODES[number];
        let compared = match with {
            With::Undisturbed => undisturbed().1[number],
            With::Plain => median(&uploads("off", cc, events)),
        };
        (uploads(mode, cc, events), compared)
    })
    .into_iter();
    let mut failures = Vec::new();
    for &(events, came_to_pass, floors) in rows {
        let mut line = format!("| {events} |");
        for (((mode, _), floor), (records, compared)) in
            MODES.into_iter().zip(floors).zip(&mut cells)
        {
            let (goodput, assisted) =
                (median(&records), records.iter().filter(|record| record.assisted).count());
            line += &format!(" {goodput:.2} of {compared:.2}, {assisted} assisted |");
            if goodput < floor * compared {
                let what = format!("{goodput:.2} Mbit/s is below {floor} of {compared:.2}");
                failures.push(format!("{events}, {mode}: {what}, seeds {SEEDS:?}"));
            }
            for record in &records {
                let seen = record.faults.is_some_and(|counts| came_to_pass(record, &counts));
                assert!(seen, "{events}, {mode}, seed {}: {:?}", record.seed, record.faults);
                look(mode, record);
            }
        }
        println!("{line}");
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// quACKs are cumulative, so the loss or delay of some costs little. Very late quACKs slow down
/// only PACUBIC. If the receiver reports a loss first, PACUBIC reacts at CUBIC's own pace, as to a
/// loss behind the proxy. Stock CUBIC undoes reactions by a count of losses. For that reason alone,
/// its runs differ by a fifth.
#[test]
fn harm_to_quacks_costs_at_most_a_known_share() {
    let rows: &[Row] = &[
        ("quack-loss 50 at 0", |_, faults| faults.quacks_lost > 0, [0.75, 0.7, 0.95]),
        ("quack-loss 100 at 1000 for 500", |_, faults| faults.quacks_lost > 0, [0.75, 0.7, 0.9]),
        ("quack-duplicate 50 at 0", |_, faults| faults.quacks_duplicated > 0, [0.75, 0.95, 0.95]),
        ("quack-reorder 50 at 0", |_, faults| faults.quacks_reordered > 0, [0.75, 0.95, 0.95]),
        ("quack-delay 5 at 0", |_, faults| faults.quacks_delayed > 0, [0.75, 0.95, 0.95]),
        (
            "quack-delay 40 at 1000 for 500",
            |_, faults| faults.quacks_delayed > 0,
            [0.75, 0.55, 0.9],
        ),
        ("capture-drops 0.1 at 0", |_, faults| faults.packets_not_seen > 0, [0.75, 0.95, 0.95]),
    ];
    table(With::Undisturbed, rows, |mode, record| {
        assert!(record.assisted, "{mode}, seed {}: {}", record.seed, record.assistance);
    });
}

/// Damage that no checksum has detected breaks a quACK's seal. The sender drops the quACK like a
/// lost one, so the damage cannot declare any packet lost.
#[test]
fn damaged_quacks_cost_some_of_the_help() {
    let rows: &[Row] =
        &[("quack-corrupt 10 at 0", |_, faults| faults.quacks_corrupted > 0, [0.9, 0.9, 0.9])];
    table(With::Undisturbed, rows, |mode, record| {
        assert_eq!(record.packets.spurious, 0, "{mode}, seed {}", record.seed);
    });
    let rows: &[Row] =
        &[("quack-corrupt 50 at 0", |_, faults| faults.quacks_corrupted > 0, [0.8, 0.9, 0.9])];
    table(With::Plain, rows, |_, _| {});
}

#[test]
fn a_restarted_proxy_helps_again() {
    let rows: &[Row] = &[
        ("proxy-restart at 1500", |_, faults| faults.proxy_restarts == 1, [0.75, 0.95, 0.95]),
        (
            "proxy-restart at 1500 for 800",
            |_, faults| faults.proxy_restarts == 1,
            [0.75, 0.65, 0.9],
        ),
        (
            "proxy-restart at 500 for 2000",
            |_, faults| faults.proxy_restarts == 1,
            [0.75, 0.5, 0.85],
        ),
    ];
    table(With::Undisturbed, rows, |mode, record| {
        assert!(
            record.assisted && record.quacks.epochs >= 2,
            "{mode}, seed {}: {record:?}",
            record.seed
        );
    });
}

/// If a proxy omits packets, the receiver's acknowledgements refute its reports. A proxy may count
/// packets that no host sent, or report garbage. Then the sender declares no received packet lost.
#[test]
fn a_lying_proxy_is_not_much_worse_than_none() {
    let least = [0.9; 3];
    let rows: &[Row] = &[
        ("proxy-lies too-little at 0", |_, faults| faults.packets_not_seen > 0, least),
        ("proxy-lies too-little at 500", |_, faults| faults.packets_not_seen > 0, least),
    ];
    table(With::Plain, rows, |mode, record| {
        let stood_down =
            record.assistance.starts_with("unassisted: packets that the proxy had missed");
        assert!(stood_down, "{mode}, seed {}: {}", record.seed, record.assistance);
        assert!(record.packets.spurious < 40, "{mode}, seed {}: {:?}", record.seed, record.packets);
    });
    let rows: &[Row] = &[
        ("proxy-lies too-much at 0", |_, faults| faults.packets_invented > 0, least),
        ("proxy-lies too-much at 500", |_, faults| faults.packets_invented > 0, least),
        ("proxy-lies garbage at 0", |_, faults| faults.quacks_falsified > 0, least),
        ("proxy-lies garbage at 500", |_, faults| faults.quacks_falsified > 0, least),
    ];
    table(With::Plain, rows, |mode, record| {
        let undecodable = record.quacks.undecodable;
        assert!(undecodable > 0 && record.packets.spurious == 0, "{mode}, seed {}", record.seed);
    });
}

/// A packet that the capture misses looks like a loss. If such packets are too large a share of all
/// losses, the sender stands down, as for a lying proxy.
#[test]
fn a_capture_that_drops_packets_leaves_plain_quic_at_worst() {
    let rows: &[Row] = &[
        ("capture-drops 1 at 0", |_, faults| faults.packets_not_seen > 0, [0.8, 0.9, 0.9]),
        ("capture-drops 5 at 0", |_, faults| faults.packets_not_seen > 0, [0.8, 0.9, 0.9]),
    ];
    table(With::Plain, rows, |mode, record| {
        assert!(record.packets.spurious < 40, "{mode}, seed {}: {:?}", record.seed, record.packets);
    });
}

#[test]
fn quacks_that_are_always_late_leave_plain_quic_at_worst() {
    let rows: &[Row] = &[("quack-delay 40 at 0", |_, faults| faults.quacks_delayed > 0, [0.9; 3])];
    table(With::Plain, rows, |_, _| {});
}

fn near_outage(record: &RunRecord, _faults: &FaultCounts) -> bool {
    record.links.near.to_receiver.link.lost_outage > 0
}

fn far_outage(record: &RunRecord, _faults: &FaultCounts) -> bool {
    record.links.far.to_receiver.link.lost_outage > 0
}

#[test]
fn outages_and_changes_of_the_path_cost_no_more_than_with_plain_quic() {
    let changed = |_: &RunRecord, faults: &FaultCounts| faults.path_changes == 1;
    let rows: &[Row] = &[
        ("near-outage at 1500 for 500", near_outage, [0.8, 0.9, 0.9]),
        ("near-outage at 1500 for 2000", near_outage, [0.8, 0.9, 0.9]),
        ("far-outage at 1500 for 500", far_outage, [0.8, 0.9, 0.9]),
        ("far-outage at 1500 for 2000", far_outage, [0.8, 0.9, 0.9]),
        ("near-delay 20 at 1500", changed, [0.8, 0.9, 0.9]),
        ("near-delay 20 at 0; near-delay 1 at 1500", changed, [0.8, 0.9, 0.9]),
        ("near-rate 5 at 1500", changed, [0.8, 0.9, 0.9]),
    ];
    table(With::Plain, rows, |mode, record| {
        assert!(record.assisted, "{mode}, seed {}: {}", record.seed, record.assistance);
    });
}

/// The proxy counts the flow that HELLO names, by the port that the sender knows (SPEC.md, section
/// 10). After a rebinding, the proxy sees another port. So the rest of the upload is plain QUIC,
/// and its report states that.
#[test]
fn after_a_nat_rebinding_the_rest_is_plain_quic() {
    let unseen = "unassisted: the proxy answers, but does not see this connection's packets";
    let runs = MODES.into_iter().flat_map(|modes| SEEDS.map(move |seed| (modes, seed)));
    many(runs.collect(), |&((mode, cc), seed)| {
        let mut scenario = scenario(mode, cc, "nat-rebinding at 1500");
        scenario.apply(&["near.loss_percent=0"]).unwrap();
        let record =
            run(&scenario, seed).unwrap_or_else(|error| panic!("{mode}, seed {seed}: {error}"));
        assert_eq!(record.sha256, undisturbed().0[usize::try_from(seed).unwrap() - 1].sha256);
        assert_eq!(record.faults.unwrap().nat_rebindings, 1);
        assert_eq!(
            (record.assistance.as_str(), record.packets.spurious),
            (unseen, 0),
            "{mode}, seed {seed}"
        );
    });
}

/// With losses, quiche's server sometimes gives up the validation of the new path, and then the
/// connection. A Sidekick does not cause this. All other connections continue.
#[test]
fn a_lossy_nat_rebinding_ends_as_it_does_without_a_sidekick() {
    let mut ended = [0, 0];
    let senders = MODES.into_iter().flat_map(|(mode, cc)| [(0, "off", cc), (1, mode, cc)]);
    let runs: Vec<_> = senders.flat_map(|sender| SEEDS.map(move |seed| (sender, seed))).collect();
    let ends = many(runs.clone(), |&((_, mode, cc), seed)| {
        run(&scenario(mode, cc, "nat-rebinding at 1500"), seed)
    });
    for (((sidekick, mode, _), seed), end) in runs.into_iter().zip(ends) {
        match end {
            Ok(record) => {
                assert_eq!(record.faults.unwrap().nat_rebindings, 1);
                assert!(!record.assisted, "{mode}, seed {seed}: {}", record.assistance);
                assert_eq!(
                    record.packets.spurious * u64::from(mode != "off"),
                    0,
                    "{mode}, seed {seed}"
                );
            }
            Err(SimError::Failed { what, .. }) if what.contains("code 0xa") => {
                ended[sidekick] += 1;
            }
            Err(other) => panic!("{mode}, seed {seed}: {other}"),
        }
    }
    println!("of 15 connections each, {} plain and {} helped ones ended", ended[0], ended[1]);
    assert!(ended[0] <= 3 && ended[1] <= ended[0].max(1), "{ended:?}");
}

/// One to five random events.
fn random_events(state: &mut u64) -> String {
    let mut below = |bound: u64| virtual_time::next_random(state) % bound;
    let count = 1 + below(5);
    let mut event = || {
        let (percent, ms, at, length) = (below(101), below(60), below(2500), 1 + below(1500));
        let what = match below(15) {
            0 => "near-outage".to_owned(),
            1 => "far-outage".to_owned(),
            2 => format!("near-delay {ms}"),
            3 => format!("far-delay {ms}"),
            4 => format!("near-rate {}", 1 + ms),
            5 => format!("quack-loss {percent}"),
            6 => format!("quack-duplicate {percent}"),
            7 => format!("quack-reorder {percent}"),
            8 => format!("quack-corrupt {percent}"),
            9 => format!("quack-delay {ms}"),
            10 => "proxy-restart".to_owned(),
            11 if ms < 20 => "proxy-lies too-much".to_owned(),
            11 if ms < 40 => "proxy-lies too-little".to_owned(),
            11 => "proxy-lies garbage".to_owned(),
            12 => format!("capture-drops {percent}"),
            13 => "far-rate unlimited".to_owned(),
            _ => return format!("nat-rebinding at {at}"),
        };
        format!("{what} at {at} for {length}")
    };
    (0..count).map(|_| event()).collect::<Vec<_>>().join("; ")
}

#[test]
fn any_combination_arrives_or_fails_with_a_reason_and_a_seed_repeats_it() {
    let (mut state, mut arrived) = (1, 0);
    let runs: Vec<_> = (1..=20).map(|seed| (seed, random_events(&mut state))).collect();
    let mode_of = |seed: u64| MODES[usize::try_from(seed).unwrap() % 3];
    let ends = many(runs.clone(), |(seed, events)| {
        let (mode, cc) = mode_of(*seed);
        let mut scenario = scenario(mode, cc, events);
        scenario.apply(&["flow.bytes=2097152"]).unwrap();
        let once = || run(&scenario, *seed).map_err(|error| error.to_string());
        let (first, second) = (once(), once());
        assert_eq!(first, second, "{mode}, {events}, seed {seed}");
        first
    });
    for ((seed, events), end) in runs.into_iter().zip(ends) {
        let (mode, _) = mode_of(seed);
        match end {
            Ok(record) => {
                arrived += 1;
                assert_eq!(
                    (record.bytes, record.sha256.len()),
                    (2 * 1024 * 1024, 64),
                    "{events}, seed {seed}"
                );
            }
            Err(error) => {
                println!("{mode}, {events}: {error}");
                assert!(
                    error.ends_with(&format!("repeat it with --seed {seed}")),
                    "{events}: {error}"
                );
            }
        }
    }
    assert!(arrived >= 17, "only {arrived} of 20 arrived");
}
