//! A satellite between two proxies, in virtual time: the gain by a Sidekick, compared with proxies
//! that split the connection. `docs/results.md` has the figures.
//!
//! `make tables` accepts new tables.

use sidekick_netem::record::RunRecord;
use sidekick_netem::report::percentile;

use crate::support::jobs::{median_of, runs};
use crate::support::seeds::few_or_all;
use crate::support::table::Table;

/// Reno transfers from 3 to 19 MB over the same path, depending on the seed.
const SEEDS: u64 = 20;

const ORBITS: [(&str, &str); 2] = [("LEO", "smaq-leo"), ("GEO", "smaq-geo")];
const OFF: &str = "sidekick.mode=off";
const RECEIVE: &str = "sidekick.mode=receive";
const SPLIT: &[&str] = &[OFF, "flow.cc=reno", "flow.split=both", "flow.split_cc=hybla"];
/// All but the last two use NewReno, as SMAQ's baseline does.
const DOWNLOADS: [(&str, &[&str]); 7] = [
    ("Reno", &[OFF, "flow.cc=reno"]),
    ("Reno, two split proxies with Hybla", SPLIT),
    ("Reno, requests", &[RECEIVE, "sidekick.repair=requests", "flow.cc=reno"]),
    ("Reno, parity", &[RECEIVE, "sidekick.repair=parity", "flow.cc=reno"]),
    ("Reno, both", &[RECEIVE, "sidekick.repair=both", "flow.cc=reno"]),
    ("BBR2", &[OFF, "flow.cc=bbr2"]),
    ("BBR2, both", &[RECEIVE, "sidekick.repair=both", "flow.cc=bbr2"]),
];
const UPLOADS: [(&str, &[&str]); 3] = [
    ("upload, Reno", &["flow.kind=upload", OFF, "flow.cc=reno"]),
    ("upload, BBR2", &["flow.kind=upload", OFF, "flow.cc=bbr2"]),
    ("upload, auto", &["flow.kind=upload", "sidekick.mode=auto"]),
];

/// The tables: a row for each orbit and sender, and a column for each loss.
struct Satellites {
    losses: &'static [&'static str],
    senders: Vec<(&'static str, &'static [&'static str])>,
}

impl Satellites {
    fn megabytes() -> Self {
        let senders = [&DOWNLOADS[..], &UPLOADS].concat();
        Self { losses: &["0.01", "0.1"], senders }
    }

    fn pages() -> Self {
        Self { losses: &["0.01", "0.1", "1"], senders: DOWNLOADS.to_vec() }
    }

    fn table(&self) -> Table {
        let row = |orbit| self.senders.iter().map(move |(sender, _)| format!("{orbit}, {sender}"));
        Table {
            corner: "middle loss, percent",
            columns: self.losses.iter().map(ToString::to_string).collect(),
            rows: ORBITS.iter().flat_map(|(orbit, _)| row(orbit)).collect(),
            name: 42,
            width: 13,
            slow: &["split proxies", "GEO"],
        }
    }

    fn runs(&self, row: usize, column: usize, more: &[&str]) -> Vec<RunRecord> {
        let (_, scenario) = ORBITS[row / self.senders.len()];
        let (_, sender) = self.senders[row % self.senders.len()];
        let loss = format!("middle.loss_percent={}", self.losses[column]);
        runs(scenario, SEEDS, &[sender, &[&loss], more])
    }
}

const MEGABYTES: &str = include_str!("../snapshots/satellites__megabytes_in_thirty_seconds.snap");
const PAGES: &str = include_str!("../snapshots/satellites__time_to_load_a_page.snap");

/// Seconds: the median, and the 95th percentile.
#[test]
fn time_to_load_a_page() {
    let all = Satellites::pages();
    let page = ["flow.kind=page", "flow.bytes=2000000", "flow.seconds=600"];
    assert_snapshot!(
        "satellites__time_to_load_a_page",
        all.table().text(PAGES, |row, column| {
            let records = all.runs(row, column, &page);
            let at =
                |percent| percentile(records.iter().map(|record| record.time_s), percent).unwrap();
            format!("{:.2}, {:.2}", at(50), at(95))
        })
    );
}

#[test]
fn the_document_shows_the_tables_as_they_are() {
    let results = include_str!("../../../docs/results.md");
    let omitted = ["upload", "Reno, requests", "Reno, both"];
    let is_shown = |name: &str| !omitted.iter().any(|words| name.contains(words));
    Satellites::megabytes().table().assert_shown(MEGABYTES, results, is_shown);
    Satellites::pages().table().assert_shown(PAGES, results, is_shown);
}

/// Help comes from the proxy behind the satellite, whether the sender is configured with it or
/// discovers it. A proxy before the satellite sees no loss.
#[test]
fn help_comes_from_behind_the_satellite() {
    let parity = [RECEIVE, "sidekick.repair=parity", "flow.cc=reno", "middle.loss_percent=0.1"];
    let rebuilt = |at: &[&str]| {
        let records = runs("smaq-leo", few_or_all(1, 3), &[&parity, at]);
        median_of(&records, |record| record.repeats.unwrap_or_default().parity_rebuilt as f64)
    };
    assert_eq!(rebuilt(&["sidekick.at=first"]), 0.0);
    for at in [
        &["sidekick.at=second"][..],
        &["sidekick.at=second", "sidekick.proxy=found"],
        &["sidekick.at=both", "sidekick.proxy=found"],
    ] {
        assert!(rebuilt(at) > 10.0, "{at:?}");
    }
}

/// If one of its segments fails, the whole path fails.
#[test]
fn the_middle_segment_is_a_part_of_the_path() {
    let short = ["flow.bytes=1000000", "middle.loss_percent=0", OFF];
    let time = |setting: &str| {
        let records = runs("smaq-leo", 1, &[&short, &[setting]]);
        assert_eq!(records[0].bytes, 1_000_000);
        records[0].time_s
    };
    let usual = time("middle.loss_percent=0");
    assert!(time("middle.delay_ms=100") > usual + 0.3);
    assert!(time("faults.events=middle-outage at 200 for 2000") > usual + 1.0);
    let lossy = runs("smaq-leo", 1, &[&short, &["middle.loss_percent=5"]]);
    let packets = lossy[0].packets;
    assert!(packets.lost_middle.unwrap() > 0 && packets.lost_near + packets.lost_far == 0);
}

/// What takes long: each figure is of twenty runs of thirty seconds.
mod full {
    use super::*;

    #[test]
    fn megabytes_in_thirty_seconds() {
        let all = Satellites::megabytes();
        assert_snapshot!(
            "satellites__megabytes_in_thirty_seconds",
            all.table().text(MEGABYTES, |row, column| {
                let records = all.runs(row, column, &[]);
                format!("{:.1}", median_of(&records, |record| record.bytes as f64 / 1e6))
            })
        );
    }
}
