//! A satellite between two proxies, in virtual time: the gain by a Sidekick, compared with proxies
//! that split the connection. `docs/results.md` has the figures.
//!
//! `INSTA_UPDATE=always` accepts a new table, as for `tables.rs`.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are outside what clippy takes for tests")]

#[path = "support/jobs.rs"]
mod jobs;

use std::fmt::Write;

use jobs::{job, median_of, run_all};
use sidekick_netem::record::RunRecord;
use sidekick_netem::report::percentile;

virtual_time::in_force!();

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

/// Runs the first `seeds` seeds of a scenario.
fn runs(scenario: &'static str, seeds: u64, settings: &[&[&str]]) -> Vec<RunRecord> {
    let settings = settings.concat();
    run_all(&(1..=seeds).map(|seed| job(scenario, &settings, seed)).collect::<Vec<_>>())
}

fn megabytes(records: &[RunRecord]) -> f64 {
    median_of(records, |record| record.bytes as f64 / 1e6)
}

/// A table with a row for each orbit and sender, and a column for each loss.
fn table(
    losses: &[&str],
    senders: &[(&str, &[&str])],
    figures: impl Fn(&'static str, &[&[&str]]) -> String,
) -> String {
    let mut table = format!("{:42}", "middle loss, percent");
    losses.iter().for_each(|loss| write!(table, " {loss:>12}").unwrap());
    for (orbit, scenario) in ORBITS {
        for (sender, settings) in senders {
            write!(table, "\n{:42}", format!("{orbit}, {sender}")).unwrap();
            for loss in losses {
                let loss = format!("middle.loss_percent={loss}");
                write!(table, " {:>12}", figures(scenario, &[settings, &[&loss]])).unwrap();
            }
        }
    }
    table
}

#[test]
fn megabytes_in_thirty_seconds() {
    let senders = [&DOWNLOADS[..], &UPLOADS].concat();
    insta::assert_snapshot!(table(&["0.01", "0.1"], &senders, |scenario, settings| {
        format!("{:.1}", megabytes(&runs(scenario, SEEDS, settings)))
    }));
}

/// Seconds: the median, and the 95th percentile.
#[test]
fn time_to_load_a_page() {
    let page = ["flow.kind=page", "flow.bytes=2000000", "flow.seconds=600"];
    insta::assert_snapshot!(table(&["0.01", "0.1", "1"], &DOWNLOADS, |scenario, settings| {
        let records = runs(scenario, SEEDS, &[settings, &[&page]].concat());
        let at = |percent| percentile(records.iter().map(|record| record.time_s), percent).unwrap();
        format!("{:.2}, {:.2}", at(50), at(95))
    }));
}

/// Checks the rows of the tables in docs/results.md.
#[test]
fn the_document_shows_the_tables_as_they_are() {
    let results = include_str!("../../docs/results.md");
    let mut rows = 0;
    for snapshot in [
        include_str!("snapshots/satellites__megabytes_in_thirty_seconds.snap"),
        include_str!("snapshots/satellites__time_to_load_a_page.snap"),
    ] {
        for (name, figures) in snapshot.lines().filter_map(|line| line.split_at_checked(42)) {
            if !name.starts_with("LEO, ") && !name.starts_with("GEO, ") {
                continue;
            }
            // A column has a space and twelve characters.
            let columns = figures.as_bytes().chunks(13);
            let figures: Vec<_> =
                columns.map(|column| std::str::from_utf8(column).unwrap().trim()).collect();
            let row = format!("| {} | {} |\n", name.trim(), figures.join(" | "));
            assert!(results.contains(&row), "docs/results.md lacks {row}");
            rows += 1;
        }
    }
    assert_eq!(rows, 2 * (10 + 7));
}

/// Help comes from the proxy behind the satellite, whether the sender is configured with it or
/// discovers it. A proxy before the satellite sees no loss.
#[test]
fn help_comes_from_behind_the_satellite() {
    let parity = [RECEIVE, "sidekick.repair=parity", "flow.cc=reno", "middle.loss_percent=0.1"];
    let rebuilt = |at: &[&str]| {
        let records = runs("smaq-leo", 3, &[&parity, at]);
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
