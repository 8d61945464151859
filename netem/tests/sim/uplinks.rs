//! A sender with two uplinks: repairs by the second, all of the flow while the first is silent, and
//! packets that take both in turn. `docs/results.md` has the tables.

use std::collections::HashMap;

use sidekick_netem::record::RunRecord;
use sidekick_netem::report::percentile;

use crate::support::jobs::{goodput, median_of, runs};
use crate::support::seeds::few_or_all;
use crate::support::table::Table;

const OFF: &[&str] = &["sidekick.mode=off"];
const AGENT: &[&str] = &["sidekick.mode=agent-in-order"];
const PLUGIN: &[&str] = &["sidekick.mode=auto"];
const CARRY: &str = "sidekick.carry_mbit=20";
const CUBIC: &str = "flow.cc=cubic";
const BBR2: &str = "flow.cc=bbr2";
const CONTROLLERS: [(&str, &str); 2] = [("CUBIC", CUBIC), ("BBR2", BBR2)];
const DOCUMENT: &str = include_str!("../../../docs/results.md");

/// The second uplink of a cell tower's user.
const SECOND: [&str; 3] = ["second.delay_ms=10", "second.rate_mbit=50", "second.queue_bytes=65000"];
const LOSSY: [&str; 3] = ["flow.bytes=10000000", "near.loss_percent=1", "second.loss_percent=1"];
/// What a user has, with these settings of an agent and of a second uplink: a name, and all
/// settings.
fn uplinks(
    agent: &'static [&'static str],
    second: &'static [&'static str],
) -> [(&'static str, Vec<&'static str>); 4] {
    [
        ("one, no help", OFF.to_vec()),
        ("one, agent", agent.to_vec()),
        ("two, repairs", [agent, second].concat()),
        ("two, carrying", [agent, second, &[CARRY]].concat()),
    ]
}

/// Outages of the first uplink.
const OUTAGES: [(&str, &[&str]); 3] = [
    ("none", &[]),
    ("0.6 s", &["faults.events=near-outage at 3000 for 600"]),
    ("2 s", &["faults.events=near-outage at 3000 for 2000"]),
];
const OUTAGE_SNAPSHOT: &str = include_str!("../snapshots/uplinks__outages.snap");

struct Row {
    name: String,
    settings: Vec<&'static str>,
}

fn outage_rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (way, kind) in [("upload", "flow.kind=upload"), ("download", "flow.kind=download")] {
        for (server, controller) in CONTROLLERS {
            for (has, settings) in uplinks(AGENT, &SECOND) {
                let name = format!("{way}, {server}, {has}");
                // A second uplink that a sender lacks loses nothing.
                let lossy = if has.starts_with("two") { &LOSSY[..] } else { &LOSSY[..2] };
                let settings = [&settings[..], lossy, &[kind, controller]].concat();
                rows.push(Row { name, settings });
            }
            if way == "upload" && controller != BBR2 {
                // The plugin has a controller of its own.
                continue;
            }
            let [_, one, _, two] = uplinks(PLUGIN, &SECOND);
            for (has, settings, lossy) in
                [("one", one.1, &LOSSY[..2]), ("two, carrying", two.1, &LOSSY)]
            {
                let name = format!("{way}, {server}, plugin, {has}");
                let settings = [&settings[..], lossy, &[kind, controller]].concat();
                rows.push(Row { name, settings });
            }
        }
    }
    rows
}

fn outage_table() -> Table {
    Table {
        corner: "seconds by outage",
        columns: OUTAGES.map(|(name, _)| name.to_owned()).to_vec(),
        rows: outage_rows().into_iter().map(|row| row.name).collect(),
        name: 38,
        width: 8,
        slow: &["no help"],
    }
}

fn seconds(records: &[RunRecord]) -> f64 {
    median_of(records, |record| record.time_s)
}

#[test]
fn outages() {
    const SEEDS: u64 = 9;
    let rows = outage_rows();
    assert_snapshot!(
        "uplinks__outages",
        outage_table().text(OUTAGE_SNAPSHOT, |row, column| {
            let (settings, outage) = (&rows[row].settings, OUTAGES[column].1);
            format!("{:.1}", seconds(&runs("packrat-cellular", SEEDS, &[settings, outage])))
        })
    );
}

#[test]
fn the_document_shows_the_outages_as_they_are() {
    outage_table().assert_shown(OUTAGE_SNAPSHOT, DOCUMENT, |_| true);
}

/// An outage of two seconds costs less than one, and half of what it would, if the second uplink
/// carries the flow.
#[test]
fn a_silent_uplink_is_carried_by_the_second() {
    let seeds = few_or_all(2, 6);
    for (help, kind) in [
        (AGENT, "flow.kind=upload"),
        (AGENT, "flow.kind=download"),
        (PLUGIN, "flow.kind=upload"),
        (PLUGIN, "flow.kind=download"),
    ] {
        let [_, one, _, two] = uplinks(help, &SECOND);
        let time = |settings: &[&str], outage: &[&str]| {
            let flow = [kind, BBR2];
            seconds(&runs("packrat-cellular", seeds, &[settings, &LOSSY[..2], &flow, outage]))
        };
        let cost = |settings: &[&str]| time(settings, OUTAGES[2].1) - time(settings, OUTAGES[0].1);
        let (alone, carried) = (cost(&one.1), cost(&two.1));
        assert!(alone > 1.5, "{help:?}, {kind}: {alone:.2} s by one uplink");
        let is_little = carried < 1.0 && carried < alone / 2.0;
        assert!(is_little, "{help:?}, {kind}: {carried:.2} s by two");
    }
}

/// What the second uplink loses of what it carries waits for its repetition, so that a controller
/// that forgives no loss hardly slows down.
#[test]
fn what_the_second_uplink_loses_comes_in_order() {
    let seeds = few_or_all(3, 6);
    for (help, kind, bound) in [
        (AGENT, "flow.kind=upload", 0.95),
        (AGENT, "flow.kind=download", 0.75),
        (PLUGIN, "flow.kind=download", 0.75),
    ] {
        let [_, one, _, two] = uplinks(help, &SECOND);
        let time = |settings: &[&str], lossy: &[&str]| {
            let flow = [kind, "flow.cc=cubic-rfc9438", OUTAGES[2].1[0]];
            seconds(&runs("packrat-cellular", seeds, &[settings, lossy, &flow]))
        };
        let (alone, carried) = (time(&one.1, &LOSSY[..2]), time(&two.1, &LOSSY));
        let is = format!("{help:?}, {kind}: {alone:.2} s by one uplink, {carried:.2} s by two");
        println!("{is}");
        assert!(carried < bound * alone, "{is}");
    }
}

/// Calls of twenty seconds: who is behind the near segment, and the settings.
const CALLS: [(&str, &str); 2] =
    [("talking", "flow.kind=audio"), ("listening", "flow.kind=listen")];
const CALL_SNAPSHOT: &str = include_str!("../snapshots/uplinks__calls.snap");

fn call_rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (way, kind) in CALLS {
        for (has, help) in uplinks(&["sidekick.mode=agent"], &SECOND) {
            let call = [kind, "flow.seconds=20", "near.loss_percent=1"];
            rows.push(Row { name: format!("{way}, {has}"), settings: [&help[..], &call].concat() });
        }
    }
    rows
}

fn call_table() -> Table {
    let columns = ["p95", "p99", "longest"];
    Table {
        corner: "waits, ms",
        columns: columns.map(str::to_owned).to_vec(),
        rows: call_rows().into_iter().map(|row| row.name).collect(),
        name: 26,
        width: 9,
        slow: &[],
    }
}

#[test]
fn calls_with_an_outage() {
    const SEEDS: u64 = 5;
    let rows = call_rows();
    let outage = ["faults.events=near-outage at 10000 for 2000"];
    assert_snapshot!(
        "uplinks__calls",
        call_table().text(CALL_SNAPSHOT, |row, column| {
            let records = runs("audio-paper", SEEDS, &[&rows[row].settings, &outage]);
            let wait = median_of(&records, |record| {
                let waits = record.audio.unwrap().dejitter_ms;
                [waits.p95, waits.p99, waits.max][column]
            });
            format!("{wait:.1}")
        })
    );
}

#[test]
fn the_document_shows_the_calls_as_they_are() {
    call_table().assert_shown(CALL_SNAPSHOT, DOCUMENT, |_| true);
}

/// Two links of a train: short fades, and each ten seconds or so no service for up to one. A client
/// fetches a video in chunks of 1 MB.
const FADES: [&str; 16] = [
    "near.delay_ms=25",
    "near.rate_mbit=15",
    "near.loss_percent=0",
    "near.good_ms=2000",
    "near.bad_ms=12",
    "near.bad_loss_percent=90",
    "near.handover_every_ms=10000",
    "near.handover_ms=200-1000",
    "near.handover_delay_ms=10",
    "near.queue_bytes=200000",
    "far.delay_ms=45",
    "far.rate_mbit=100",
    "far.queue_bytes=500000",
    "flow.kind=requests",
    "flow.bytes=1000000",
    "flow.requests=40",
];
const BESIDE: [&str; 9] = [
    "second.delay_ms=25",
    "second.rate_mbit=15",
    "second.good_ms=2000",
    "second.bad_ms=12",
    "second.bad_loss_percent=90",
    "second.handover_every_ms=11700",
    "second.handover_ms=200-1000",
    "second.handover_delay_ms=10",
    "second.queue_bytes=200000",
];
const CHUNK_SNAPSHOT: &str = include_str!("../snapshots/uplinks__chunks.snap");

fn chunk_rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (server, controller) in CONTROLLERS {
        for (has, help) in uplinks(AGENT, &BESIDE) {
            let name = format!("{server}, {has}");
            rows.push(Row { name, settings: [&FADES[..], &help, &[controller]].concat() });
        }
    }
    rows
}

fn chunk_table() -> Table {
    let columns = ["median", "p95", "p99", "first byte", "second, %"];
    Table {
        corner: "chunks, ms",
        columns: columns.map(str::to_owned).to_vec(),
        rows: chunk_rows().into_iter().map(|row| row.name).collect(),
        name: 22,
        width: 11,
        slow: &[],
    }
}

/// The times of all chunks. One is asked for when the one before is there.
fn chunks(records: &[RunRecord]) -> Vec<f64> {
    let of = |record: &RunRecord| {
        let begun = record.first_byte_ms.iter().copied();
        let ended = begun.clone().skip(1).chain([record.time_s * 1e3]);
        begun.zip(ended).map(|(begun, ended)| ended - begun).collect::<Vec<_>>()
    };
    records.iter().flat_map(of).collect()
}

/// What the second uplink carried both ways, in percent of the bytes of the flow.
fn second_percent(records: &[RunRecord]) -> f64 {
    let carried = |record: &RunRecord| {
        let second = record.links.second.unwrap_or_default();
        let both = second.to_receiver.link.delivered_bytes + second.to_sender.link.delivered_bytes;
        100.0 * both as f64 / record.bytes as f64
    };
    records.iter().map(carried).sum::<f64>() / records.len() as f64
}

#[test]
fn chunks_over_links_of_a_train() {
    const SEEDS: u64 = 20;
    let rows = chunk_rows();
    let mut known: HashMap<usize, Vec<RunRecord>> = HashMap::new();
    assert_snapshot!(
        "uplinks__chunks",
        chunk_table().text(CHUNK_SNAPSHOT, |row, column| {
            let records = known
                .entry(row)
                .or_insert_with(|| runs("packrat-cellular", SEEDS, &[&rows[row].settings]));
            let at = |percent| percentile(chunks(records).into_iter(), percent).unwrap();
            match column {
                0 => format!("{:.0}", at(50)),
                1 => format!("{:.0}", at(95)),
                2 => format!("{:.0}", at(99)),
                3 => format!("{:.0}", median_of(records, |record| record.first_byte_ms[0])),
                _ => format!("{:.2}", second_percent(records)),
            }
        })
    );
}

#[test]
fn the_second_link_carries_less_than_the_first_one_loses() {
    for row in chunk_rows().iter().filter(|row| row.name.ends_with("carrying")) {
        for record in runs("packrat-cellular", few_or_all(1, 5), &[&row.settings]) {
            let second = record.links.second.unwrap_or_default().to_sender.link.delivered;
            let lost = record.links.near.to_sender.link.lost();
            assert!(second > 100 && second < lost, "{}: {second}, {lost} lost", row.name);
        }
    }
}

#[test]
fn the_document_shows_the_chunks_as_they_are() {
    chunk_table().assert_shown(CHUNK_SNAPSHOT, DOCUMENT, |_| true);
}

/// One packet number space over two paths, whose packets overtake each other.
const PATHS: [&str; 11] = [
    "flow.kind=download",
    "flow.bytes=10000000",
    "near.delay_ms=2",
    "near.rate_mbit=50",
    "near.queue_bytes=100000",
    "near.loss_percent=1",
    "second.rate_mbit=50",
    "second.queue_bytes=100000",
    "second.loss_percent=1",
    "far.rate_mbit=20",
    "far.queue_bytes=100000",
];
const ACKS: [&str; 3] = ["1", "2", "10"];
const SPACE_SNAPSHOT: &str = include_str!("../snapshots/uplinks__one_number_space.snap");

fn space_rows() -> Vec<Row> {
    let both = "flow.uplinks=both";
    let mut rows = Vec::new();
    for (server, controller) in CONTROLLERS {
        for (skew, delay) in [(2, "second.delay_ms=4"), (10, "second.delay_ms=12")] {
            for (paths, how) in [
                ("one path", OFF.to_vec()),
                ("both in turn", [OFF, &[both]].concat()),
                ("both, in order", [AGENT, &[both]].concat()),
            ] {
                if paths == "one path" && skew > 2 {
                    continue;
                }
                let name = match paths {
                    "one path" => format!("{server}, {paths}"),
                    _ => format!("{server}, {skew} ms apart, {paths}"),
                };
                rows.push(Row {
                    name,
                    settings: [&PATHS[..], &how, &[delay, controller]].concat(),
                });
            }
        }
    }
    rows
}

fn space_table() -> Table {
    Table {
        corner: "packets per ACK",
        columns: ACKS.map(str::to_owned).to_vec(),
        rows: space_rows().into_iter().map(|row| row.name).collect(),
        name: 36,
        width: 15,
        slow: &[],
    }
}

/// Packets that were sent again although none of theirs was lost, in percent of all.
fn spurious_percent(record: &RunRecord) -> f64 {
    let links = &record.links;
    let second = links.second.unwrap_or_default();
    let lost = [links.near, second, links.far].iter().map(|it| it.to_sender.link.lost()).sum();
    let again = record.packets.retransmitted.unwrap().saturating_sub(lost);
    100.0 * again as f64 / record.packets.sent as f64
}

#[test]
fn one_number_space_over_two_paths() {
    const SEEDS: u64 = 9;
    let rows = space_rows();
    assert_snapshot!(
        "uplinks__one_number_space",
        space_table().text(SPACE_SNAPSHOT, |row, column| {
            let acks = format!("flow.ack_packets={}", ACKS[column]);
            let records = runs("packrat-cellular", SEEDS, &[&rows[row].settings, &[&acks]]);
            let spurious = median_of(&records, spurious_percent);
            format!("{:.2} ({spurious:.1} %)", goodput(&records))
        })
    );
}

#[test]
fn the_document_shows_one_number_space_as_it_is() {
    space_table().assert_shown(SPACE_SNAPSHOT, DOCUMENT, |_| true);
}

/// If the paths' delays differ by no more than a near round trip, the order makes one path of them.
#[test]
fn order_makes_one_path_of_two() {
    let seeds = few_or_all(1, 5);
    let row = |name: &str| {
        let rows = space_rows();
        let row = rows.iter().find(|row| row.name == name).unwrap();
        goodput(&runs("packrat-cellular", seeds, &[&row.settings]))
    };
    let [one, turn, order] = ["one path", "2 ms apart, both in turn", "2 ms apart, both, in order"]
        .map(|name| row(&format!("CUBIC, {name}")));
    assert!(turn < 0.7 * one, "{turn:.2} of {one:.2}");
    assert!(order > one, "{order:.2} of {one:.2}");
}
