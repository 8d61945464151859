//! Downloads and uploads in virtual time past a proxy that is far away: the gain by parity, and its
//! cost.
//! `docs/results.md` has the figures.
//!
//! `make tables` accepts a new table.

use sidekick_netem::record::RunRecord;

use crate::support::jobs::{goodput, median_of, runs};
use crate::support::seeds::some;
use crate::support::table::Table;

/// The server's controllers: a name and the setting.
const CUBIC: &str = "flow.cc=cubic";
const RENO: &str = "flow.cc=reno";
const BBR2: &str = "flow.cc=bbr2";
/// The far proxies: Packrat's networks, and a geostationary satellite.
const GEO: [&str; 2] = ["near.delay_ms=280", "far.delay_ms=10"];
const HELP: [(&str, &[&str]); 4] = [
    ("no help", &["sidekick.mode=off"]),
    ("requests", &["sidekick.mode=receive", "sidekick.repair=requests"]),
    ("auto", &["sidekick.mode=receive"]),
    ("agent in order", &["sidekick.mode=agent-in-order"]),
];
const PLAIN: &[&str] = HELP[0].1;
const AUTO: &[&str] = HELP[2].1;

fn overhead(records: &[RunRecord]) -> f64 {
    median_of(records, |record| record.repeats.unwrap_or_default().near_overhead_percent)
}

/// The packets that the server sent again, beyond those that were lost before the proxy, in percent
/// of its packets.
fn needless(records: &[RunRecord]) -> f64 {
    median_of(records, |record| {
        let again = record.packets.retransmitted.unwrap().saturating_sub(record.packets.lost_far);
        100.0 * again as f64 / record.packets.sent.max(1) as f64
    })
}

/// A row: a network and its scenario, the settings of the path, the server and its help.
struct Row {
    name: String,
    scenario: &'static str,
    settings: Vec<&'static str>,
}

/// The rows of one table for all networks.
fn rows() -> Vec<Row> {
    let networks = [
        (
            "cellular",
            "packrat-cellular",
            &[][..],
            &[("CUBIC", CUBIC), ("Reno", RENO), ("BBR2", BBR2)][..],
        ),
        ("satellite", "packrat-satellite", &[], &[("CUBIC", CUBIC), ("BBR2", BBR2)]),
        ("geostationary", "packrat-satellite", &GEO, &[("BBR2", BBR2)]),
    ];
    let mut rows = Vec::new();
    for (network, scenario, path, servers) in networks {
        for (server, controller) in servers {
            for (help, mode) in HELP {
                let name = format!("{network}, {server}, {help}");
                let settings = [path, mode, &[controller, "flow.bytes=10000000"]].concat();
                rows.push(Row { name, scenario, settings });
            }
        }
    }
    rows
}

/// At higher loss, runs without help would take minutes.
const LOSSES: [&str; 4] = ["0", "1", "4", "10"];
const SNAPSHOT: &str = include_str!("../snapshots/parity__goodput_past_a_far_proxy.snap");

fn table() -> Table {
    Table {
        corner: "near loss, percent",
        columns: LOSSES.map(str::to_owned).to_vec(),
        rows: rows().into_iter().map(|row| row.name).collect(),
        name: 36,
        width: 7,
        slow: &["no help"],
    }
}

#[test]
fn goodput_past_a_far_proxy() {
    const SEEDS: u64 = 9;
    let rows = rows();
    assert_snapshot!(
        "parity__goodput_past_a_far_proxy",
        table().text(SNAPSHOT, |row, column| {
            let (row, loss) = (&rows[row], format!("near.loss_percent={}", LOSSES[column]));
            format!("{:.2}", goodput(&runs(row.scenario, SEEDS, &[&row.settings, &[&loss]])))
        })
    );
}

/// Uploads beside the agent: what it does, and the settings.
const UPLOADS: [(&str, &[&str]); 3] = [
    ("no help", &["sidekick.mode=off"]),
    ("agent in order", &["sidekick.mode=agent-in-order"]),
    ("its parity", &["sidekick.mode=agent-in-order", "sidekick.upload_parity=on"]),
];
const UPLOAD_SNAPSHOT: &str = include_str!("../snapshots/parity__uploads_past_a_far_proxy.snap");

fn upload_rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (network, scenario) in
        [("cellular", "packrat-cellular"), ("satellite", "packrat-satellite")]
    {
        for (client, controller) in [("CUBIC", CUBIC), ("BBR2", BBR2)] {
            for (help, mode) in UPLOADS {
                let name = format!("{network}, {client}, {help}");
                let flow = ["flow.kind=upload", controller, "flow.bytes=10000000"];
                rows.push(Row { name, scenario, settings: [mode, &flow].concat() });
            }
        }
    }
    rows
}

fn upload_table() -> Table {
    Table { rows: upload_rows().into_iter().map(|row| row.name).collect(), ..table() }
}

#[test]
fn uploads_past_a_far_proxy() {
    const SEEDS: u64 = 15;
    let rows = upload_rows();
    assert_snapshot!(
        "parity__uploads_past_a_far_proxy",
        upload_table().text(UPLOAD_SNAPSHOT, |row, column| {
            let (row, loss) = (&rows[row], format!("near.loss_percent={}", LOSSES[column]));
            format!("{:.2}", goodput(&runs(row.scenario, SEEDS, &[&row.settings, &[&loss]])))
        })
    );
}

#[test]
fn the_document_shows_the_uploads_as_they_are() {
    upload_table()
        .assert_shown(UPLOAD_SNAPSHOT, include_str!("../../../docs/results.md"), |_| true);
}

/// What leaves gets parity, too, if the user wants it, and costs no more bytes than its cap.
#[test]
fn parity_of_uploads_is_worth_its_bytes() {
    const SEEDS: u64 = 9;
    let cases = [
        ("packrat-cellular", CUBIC, 4, 10.0, 25.0),
        ("packrat-satellite", CUBIC, 10, 12.0, 45.0),
        ("packrat-cellular", BBR2, 10, 1.8, 45.0),
        ("packrat-satellite", CUBIC, 4, 8.0, 25.0),
    ];
    for (scenario, controller, loss, gain, most) in some(2, cases) {
        let loss = format!("near.loss_percent={loss}");
        let path = [&*loss, controller, "flow.kind=upload", "flow.bytes=10000000"];
        let [plain, helped] =
            [UPLOADS[0].1, UPLOADS[2].1].map(|mode| runs(scenario, SEEDS, &[&path[..], mode]));
        let (before, after) = (goodput(&plain), goodput(&helped));
        // Parity, lists and messages, beyond the bytes of the same upload without help.
        let near = |records: &[RunRecord]| {
            median_of(records, |it| it.links.near.to_receiver.link.delivered_bytes as f64)
        };
        let added = 100.0 * (near(&helped) / near(&plain) - 1.0);
        println!("{scenario}, {controller}, {loss}: {before:.2} to {after:.2}, {added:.1} % added");
        assert!(after >= gain * before, "{scenario}, {loss}: {after} of {before}");
        assert!(added <= most, "{scenario}, {loss}: {added} % more bytes");
    }
}

#[test]
fn the_document_shows_the_table_as_it_is() {
    let is_shown = |name: &str| {
        !name.contains("Reno") && (!name.ends_with("requests") || name.contains("CUBIC"))
    };
    table().assert_shown(SNAPSHOT, include_str!("../../../docs/results.md"), is_shown);
}

/// Downloads of 20 MB through Packrat's networks. At 20 % loss, the proxy reaches its cap on
/// parity.
#[test]
fn parity_fills_a_long_near_segment() {
    const SEEDS: u64 = 20;
    let cases = [
        ("packrat-cellular", &[][..], 4, CUBIC, 16.0, 15.0),
        ("packrat-cellular", &[], 4, RENO, 12.5, 15.0),
        ("packrat-cellular", &[], 4, BBR2, 16.5, 15.0),
        ("packrat-cellular", &[], 10, BBR2, 16.0, 33.0),
        ("packrat-satellite", &[], 4, CUBIC, 10.0, 16.0),
        ("packrat-satellite", &[], 4, BBR2, 14.5, 15.0),
        ("packrat-satellite", &[], 10, BBR2, 14.0, 33.0),
        ("packrat-satellite", &GEO, 4, BBR2, 5.4, 15.0),
    ];
    for (scenario, path, loss, controller, least, most) in some(4, cases) {
        let loss = format!("near.loss_percent={loss}");
        let records = runs(scenario, SEEDS, &[path, AUTO, &[&loss, controller]]);
        let (goodput, overhead, needless) =
            (goodput(&records), overhead(&records), needless(&records));
        let case = format!("{scenario} {path:?} {loss} {controller}");
        println!("{case}: {goodput:.2} Mbit/s, {overhead:.1} % more, {needless:.2} % needless");
        assert!(goodput >= least, "{case}: {goodput} Mbit/s");
        assert!(overhead <= most, "{case}: {overhead} % more bytes");
        assert!(needless <= 1.0, "{case}: {needless} % sent again without need");
        let timeouts = median_of(&records, |record| record.packets.probe_timeouts.unwrap() as f64);
        assert!(timeouts <= 3.0, "{case}: {timeouts} probe timeouts");
    }
}

/// A radio whose jitter is half of the near round trip has no queue.
#[test]
fn jitter_leaves_the_help_in_force() {
    const SEEDS: u64 = 5;
    let path = ["near.loss_percent=4", "near.jitter_ms=10"];
    for (controller, least) in some(2, [(CUBIC, 5.0), (BBR2, 1.05)]) {
        let run = |help| goodput(&runs("packrat-cellular", SEEDS, &[help, &path, &[controller]]));
        let (plain, helped) = (run(PLAIN), run(AUTO));
        println!("{controller}: {helped:.2} of {plain:.2} Mbit/s");
        assert!(helped >= least * plain, "{controller}: {helped} of {plain} Mbit/s");
    }
}

/// A download of a megabyte ends before a loss-based server leaves slow start, unless a loss ends
/// slow start.
#[test]
fn a_megabyte_over_a_cellular_hop() {
    const SEEDS: u64 = 21;
    let records = runs(
        "packrat-cellular",
        SEEDS,
        &[AUTO, &["near.loss_percent=10", CUBIC, "flow.bytes=1000000"]],
    );
    let time = median_of(&records, |record| record.time_s);
    println!("{time:.2} s");
    assert!(time <= 1.1, "{time} s");
}

/// What takes long: comparisons with the same download without help, which are close.
mod full {
    use super::*;

    /// Losses on a congested near segment mean congestion. Parity must neither hide them nor add to
    /// them.
    #[test]
    fn parity_does_not_fill_a_congested_near_segment() {
        const SEEDS: u64 = 3;
        let path = ["near.loss_percent=0", "near.rate_mbit=20", "far.rate_mbit=50"];
        let both = ["flow.bytes=1000000000", "flow.seconds=25", "competitor.start_ms=5000"];
        for (controller, beside) in [
            (CUBIC, "competitor.cc=cubic"),
            (RENO, "competitor.cc=reno"),
            (BBR2, "competitor.cc=bbr2"),
        ] {
            let alone = |help| runs("packrat-cellular", SEEDS, &[help, &path, &[controller]]);
            let (plain, records) = (goodput(&alone(PLAIN)), alone(AUTO));
            let (helped, overhead) = (goodput(&records), overhead(&records));
            println!("{controller} alone: {helped:.2} of {plain:.2} Mbit/s, {overhead:.1} % more");
            assert!(helped >= 0.93 * plain, "{controller}: {helped} of {plain} Mbit/s");
            assert!(overhead <= 6.0, "{controller}: {overhead} % more bytes");
            let share = |help| {
                let records =
                    runs("packrat-cellular", SEEDS, &[help, &path, &both, &[controller, beside]]);
                median_of(&records, |record| record.competitor.as_ref().unwrap().beside_mbit_s)
            };
            let (plain, helped) = (share(PLAIN), share(AUTO));
            println!(
                "{controller} beside its like: {helped:.2}, and {plain:.2} Mbit/s without help"
            );
            assert!(
                helped <= 1.2 * plain,
                "{controller}: {helped}, and {plain} Mbit/s without help"
            );
        }
        // There even a full queue delays packets by less than half of the near round trip.
        let other = |help| {
            let cubic = [CUBIC, "competitor.cc=cubic"];
            let records = runs("packrat-satellite", SEEDS, &[help, &path, &both, &cubic]);
            median_of(&records, |record| record.competitor.as_ref().unwrap().goodput_mbit_s)
        };
        let (plain, helped) = (other(PLAIN), other(AUTO));
        println!(
            "the other flow over a satellite: {helped:.2}, and {plain:.2} Mbit/s without help"
        );
        assert!(helped >= 0.8 * plain, "{helped}, and {plain} Mbit/s without help");
    }

    /// If the near segment loses no packets, parity costs next to nothing, whatever else the
    /// segment does.
    #[test]
    fn nothing_lost_costs_nothing() {
        const SEEDS: u64 = 7;
        let nothing = ["near.loss_percent=0"];
        const ALL: &[&str] = &[CUBIC, RENO, BBR2];
        for (scenario, more, controllers) in [
            ("packrat-cellular", &[][..], ALL),
            ("packrat-cellular", &["near.jitter_ms=5"], ALL),
            ("packrat-cellular", &["near.reorder_percent=1"], ALL),
            ("packrat-satellite", &[], ALL),
            // Reno sends few packets there, so the parity of the last datagrams is a large share.
            ("packrat-satellite", &GEO, &[CUBIC, BBR2]),
        ] {
            for controller in controllers {
                let run = |help| runs(scenario, SEEDS, &[more, help, &nothing, &[*controller]]);
                let (plain, records) = (goodput(&run(PLAIN)), run(AUTO));
                let (helped, overhead) = (goodput(&records), overhead(&records));
                let case = format!("{scenario} {more:?} {controller}");
                println!("{case}: {helped:.2} of {plain:.2} Mbit/s, {overhead:.1} % more bytes");
                assert!(helped >= 0.97 * plain, "{case}: {helped} of {plain} Mbit/s");
                assert!(overhead <= 7.0, "{case}: {overhead} % more bytes");
            }
        }
    }
}
