//! Downloads in virtual time from unmodified servers: the gain by help, and its cost for others.
//! `docs/results.md` has the figures.
//!
//! `make tables` accepts a new table.

use sidekick_netem::record::RunRecord;

use crate::support::jobs::{goodput, median_of, runs, times};
use crate::support::seeds::some;
use crate::support::table::Table;

/// The server's controllers: the name and the setting of each.
const SERVERS: [(&str, &str); 4] = [
    ("stock CUBIC", "flow.cc=cubic"),
    ("RFC 9438 CUBIC", "flow.cc=cubic-rfc9438"),
    ("Reno", "flow.cc=reno"),
    ("BBR2", "flow.cc=bbr2"),
];
const HELP: [(&str, &str); 2] = [("", "sidekick.mode=off"), ("helped, ", "sidekick.mode=receive")];
/// An agent that knows nothing of the connection, beside a plain client.
const AGENT: (&str, &str) = ("agent in order, ", "sidekick.mode=agent-in-order");
/// At higher loss, some downloads without help never end.
const LOSSES: [&str; 6] = ["0", "1", "2", "4", "8", "15"];

/// Copies that arrived, in percent of the payload's packets.
fn copies(record: &RunRecord) -> f64 {
    const PAYLOAD: f64 = 1350.0;
    let repeats = record.repeats.unwrap_or_default().repeats_received as f64;
    100.0 * repeats * PAYLOAD / record.bytes.max(1) as f64
}

const SNAPSHOT: &str =
    include_str!("../snapshots/downloads__goodput_of_downloads_against_near_loss.snap");

/// The rows of the table: whether the client has help, and the server.
fn rows() -> Vec<(&'static str, &'static str, String)> {
    let of = |(help, mode)| {
        SERVERS.into_iter().map(move |(server, cc)| (mode, cc, format!("{help}{server}")))
    };
    HELP.into_iter().chain([AGENT]).flat_map(of).collect()
}

fn table() -> Table {
    Table {
        corner: "near loss, percent",
        columns: LOSSES.map(str::to_owned).to_vec(),
        rows: rows().into_iter().map(|(.., name)| name).collect(),
        name: 31,
        width: 7,
        slow: &[],
    }
}

#[test]
fn goodput_of_downloads_against_near_loss() {
    const SEEDS: u64 = 5;
    let rows = rows();
    assert_snapshot!(
        "downloads__goodput_of_downloads_against_near_loss",
        table().text(SNAPSHOT, |row, column| {
            let (mode, cc, _) = &rows[row];
            let loss = format!("near.loss_percent={}", LOSSES[column]);
            let settings = [*mode, *cc, &loss, "flow.bytes=4194304"];
            format!("{:.2}", goodput(&runs("download-paper", SEEDS, &[&settings])))
        })
    );
}

/// Small downloads consist of handshakes and tails, where a loss costs a timeout.
#[test]
fn small_downloads_wait_for_fewer_timeouts() {
    const SEEDS: u64 = 200;
    for bytes in some(3, [10_000, 100_000, 1_000_000]) {
        let of = |help: &str| {
            let bytes = format!("flow.bytes={bytes}");
            let settings = [help, &bytes, "near.loss_percent=4", "flow.cc=cubic"];
            let (p50, p99) = times(&runs("download-paper", SEEDS, &[&settings]));
            println!("{settings:?}: {p50:.0} ms, 99th percentile {p99:.0} ms");
            (p50, p99)
        };
        let (plain, helped) = (of(HELP[0].1), of(HELP[1].1));
        assert!(
            helped.0 <= 1.01 * plain.0,
            "{bytes} bytes: {helped:?}, and {plain:?} without help"
        );
        assert!(helped.1 <= 0.3 * plain.1, "{bytes} bytes: {helped:?}, {plain:?} without help");
    }
}

/// A fast path whose far queue has room for one round trip. The client must not release
/// acknowledgements in bursts.
#[test]
fn a_fast_path_is_filled() {
    const SEEDS: u64 = 5;
    let path = [
        "near.delay_ms=2",
        "near.rate_mbit=500",
        "near.queue_bytes=1000000",
        "near.loss_percent=4",
        "far.delay_ms=10",
        "far.rate_mbit=100",
        "far.queue_bytes=300000",
        "flow.bytes=50000000",
        "sidekick.mode=receive",
    ];
    for server in some(2, ["flow.cc=cubic", "flow.cc=bbr2"]) {
        let goodput = goodput(&runs("download-paper", SEEDS, &[&path, &[server]]));
        println!("{server}: {goodput:.2} Mbit/s");
        assert!(goodput >= 85.0, "{server}: {goodput} Mbit/s");
    }
}

/// The records of a download without help and with it.
fn both(path: &[&str], cc: &str, seeds: u64) -> [Vec<RunRecord>; 2] {
    HELP.map(|(_, mode)| runs("download-paper", seeds, &[path, &[cc, mode]]))
}

/// A queue of 4 ms drops packets and hardly delays them.
#[test]
fn a_short_queue_before_the_client_is_left_to_the_server() {
    let path = [
        "near.delay_ms=2",
        "near.rate_mbit=30",
        "near.loss_percent=0",
        "near.queue_bytes=15000",
        "far.rate_mbit=300",
        "far.queue_bytes=1500000",
        "flow.bytes=20000000",
    ];
    for (cc, least) in [("flow.cc=bbr2", 0.97), ("flow.cc=cubic-rfc9438", 1.0)] {
        let records = both(&path, cc, 5);
        let [plain, helped] = records.each_ref().map(|records| goodput(records));
        println!("{cc}: {helped:.2} of {plain:.2} Mbit/s");
        assert!(helped >= least * plain, "{cc}: {helped} of {plain} Mbit/s");
    }
}

/// A tenth of the packets overtake others by 2 ms, and none is lost there.
#[test]
fn reordering_without_loss_draws_few_copies() {
    let path = [
        "near.delay_ms=2",
        "near.loss_percent=0",
        "near.reorder_percent=10",
        "far.delay_ms=40",
        "far.rate_mbit=20",
        "far.queue_bytes=250000",
    ];
    for (cc, least) in [("flow.cc=bbr2", 0.98), ("flow.cc=cubic", 2.0)] {
        let records = both(&path, cc, 3);
        let [plain, helped] = records.each_ref().map(|records| goodput(records));
        let more = median_of(&records[1], |record| record.repeats.unwrap().near_overhead_percent);
        println!("{cc}: {helped:.2} of {plain:.2} Mbit/s, {more:.1} % more bytes");
        assert!(helped >= least * plain, "{cc}: {helped} of {plain} Mbit/s");
        assert!(more <= 3.0, "{cc}: {more} % more bytes");
    }
}

/// A copy has ten bytes more than its original.
#[test]
fn copies_of_packets_that_just_fit_come_in_parts() {
    let path = ["near.loss_percent=4", "near.mtu_bytes=1380", "flow.bytes=4194304"];
    let records = both(&path, "flow.cc=cubic-rfc9438", 3);
    let [plain, helped] = records.each_ref().map(|records| goodput(records));
    let requests = median_of(&records[1], |record| {
        let repeats = record.repeats.unwrap();
        repeats.repeats_requested as f64 / repeats.repeats_received.max(1) as f64
    });
    println!("{helped:.2} of {plain:.2} Mbit/s, {requests:.1} requests for a copy");
    assert!(helped >= 5.0 * plain, "{helped} of {plain} Mbit/s");
    assert!(requests <= 4.0, "{requests} requests for a copy");
}

#[test]
fn the_document_shows_the_table_as_it_is() {
    let results = include_str!("../../../docs/results.md");
    for (name, server) in [
        ("CUBIC, stock quiche", "stock CUBIC"),
        ("BBR2", "BBR2"),
        ("**CUBIC, stock quiche, helped**", "helped, stock CUBIC"),
        ("**BBR2, helped**", "helped, BBR2"),
    ] {
        let row = table().markdown(SNAPSHOT, server, name);
        assert!(results.contains(&row), "docs/results.md lacks {row}");
    }
}

/// What takes long: comparisons with the same download without help, which are close.
mod full {
    use super::*;

    /// A queue before the proxy means congestion, and the server must learn of it. Beside a plain
    /// flow, the shares are as even as those of two plain flows, and copies are few.
    #[test]
    fn a_helped_download_shares_a_congested_near_segment() {
        const SEEDS: u64 = 3;
        let path = ["near.loss_percent=0", "near.rate_mbit=10", "far.rate_mbit=100"];
        let run = ["flow.bytes=1000000000", "flow.seconds=40", "competitor.start_ms=5000"];
        for cc in ["cubic-rfc9438", "reno", "bbr2"] {
            let (server, beside) = (format!("flow.cc={cc}"), format!("competitor.cc={cc}"));
            let flows = |help: &str| {
                let settings = [&path[..], &run, &[&server, &beside, help]];
                let records = runs("download-paper", SEEDS, &settings);
                let jain = median_of(&records, |record| record.competitor.as_ref().unwrap().jain);
                (jain, median_of(&records, copies))
            };
            let ((plain, _), (helped, copies)) = (flows(HELP[0].1), flows(HELP[1].1));
            println!("{cc}: {helped:.3} with {copies:.2} % copies, and {plain:.3} without help");
            assert!(helped >= 0.95 * plain && copies <= 5.0, "{cc}: {helped}, {copies} %, {plain}");
        }
    }

    /// If the near segment is the longer one, a repair would hold acknowledgements for too long.
    #[test]
    fn a_long_near_segment_costs_nothing() {
        const SEEDS: u64 = 10;
        for delay in ["near.delay_ms=50", "near.delay_ms=100"] {
            let path = [
                delay,
                "near.loss_percent=2",
                "near.queue_bytes=500000",
                "far.rate_mbit=20",
                "far.queue_bytes=500000",
            ];
            let records = both(&path, "flow.cc=bbr2", SEEDS);
            let [plain, helped] = records.each_ref().map(|records| goodput(records));
            println!("{delay}: {helped:.2} Mbit/s, and {plain:.2} without help");
            assert!(helped >= 0.98 * plain, "{delay}: {helped} Mbit/s, and {plain} without help");
        }
    }
}

/// The order helps plain CUBIC both ways where the near round trip is nearly a third of the whole
/// one. Where it is more, parity helps a download, and an upload has no harm.
#[test]
fn order_reaches_a_third_of_the_round_trip_and_parity_farther() {
    let reach = [
        ("download-paper", [("5", 6.0), ("12", 6.0), ("15", 6.0), ("40", 5.0)]),
        ("upload-paper", [("5", 6.0), ("12", 4.0), ("15", 0.95), ("40", 0.95)]),
    ];
    for (scenario, delays) in reach {
        for (delay, least) in delays {
            let delay = format!("near.delay_ms={delay}");
            let path = [&*delay, "near.loss_percent=4", "flow.bytes=4194304", "flow.cc=cubic"];
            let modes = ["sidekick.mode=off", "sidekick.mode=agent-in-order"];
            let [plain, ordered] =
                modes.map(|mode| goodput(&runs(scenario, 5, &[&path[..], &[mode]])));
            println!("{scenario}, {delay}: {ordered:.2} Mbit/s, and {plain:.2} without help");
            assert!(ordered >= least * plain, "{scenario}, {delay}: {ordered} of {plain}");
        }
    }
}

/// A marker may overtake the first packet of its connection, as here for seed 4.
#[test]
fn order_over_a_reordering_link_arrives() {
    let settings = [
        "near.loss_percent=0",
        "near.reorder_percent=25",
        "flow.bytes=100000",
        "flow.cc=cubic",
        "sidekick.mode=agent-in-order",
    ];
    for record in runs("download-paper", 5, &[&settings]) {
        assert!(record.repeats.is_some_and(|repeats| repeats.held_ms.p50 > 0.0), "{record:?}");
    }
}
