//! What an agent measures of a link, beside what the link did, and what a replay of its trace
//! predicts, beside the truth. `docs/lab.md` has the table.

use std::fs::File;
use std::path::{Path, PathBuf};

use sidekick_netem::record::RunRecord;
use sidekick_proxy::{DirectionSummary, Summary};

use crate::support::jobs::{Job, job, run_all};
use crate::support::measured::{assert_near, lost, measured};
use crate::support::table::Table;

const LINK: &[&str] = &["near.delay_ms=10", "near.rate_mbit=50", "near.loss_percent=0"];
/// A minute of a flow that does not fill the near segment.
const RECORDS: &[&str] = &["sidekick.mode=measure", "flow.cc=bbr2", "flow.bytes=62000000"];
const LINKS: [(&str, &[&str]); 6] = [
    ("random", &["near.loss_percent=2"]),
    ("bursts", &["near.bad_enter_percent=0.5", "near.bad_leave_percent=25"]),
    ("fades", &["near.good_ms=400", "near.bad_ms=20"]),
    ("reordering", &["near.reorder_percent=2"]),
    ("jitter", &["near.jitter_ms=5"]),
    ("outages", &["near.outages_ms=5000+300,15000+800,25000+200,40000+500,50000+300"]),
];
const UP: &str = "upload-paper";
const DOWN: &str = "download-paper";
const TRANSFER: &str = "flow.bytes=5000000";
const CALL: &[&str] = &["flow.seconds=30", "flow.playout_ms=40"];
/// The columns: a name, the scenario of the recording, and that of the prediction.
const FLOWS: [(&str, &str, &str, &[&str]); 9] = [
    ("up CUBIC", UP, UP, &["sidekick.mode=off", "flow.cc=cubic", TRANSFER]),
    ("up BBR2", UP, UP, &["sidekick.mode=off", "flow.cc=bbr2", TRANSFER]),
    ("up auto", UP, UP, &["sidekick.mode=auto", TRANSFER]),
    ("talk", UP, "audio-paper", CALL),
    ("down CUBIC", DOWN, DOWN, &["sidekick.mode=off", "flow.cc=cubic", TRANSFER]),
    ("agent", DOWN, DOWN, &["sidekick.mode=agent-in-order", "flow.cc=cubic", TRANSFER]),
    ("down BBR2", DOWN, DOWN, &["sidekick.mode=off", "flow.cc=bbr2", TRANSFER]),
    ("agent", DOWN, DOWN, &["sidekick.mode=agent-in-order", "flow.cc=bbr2", TRANSFER]),
    ("listen", DOWN, "audio-far-proxy", CALL),
];
const TRACES: u64 = 4;
const STARTS: u64 = 10;
const SNAPSHOT: &str = include_str!("../snapshots/measure__predictions.snap");

fn recording(scenario: &'static str, settings: &[&str], seed: u64) -> Job {
    job(scenario, &[LINK, RECORDS, settings].concat(), seed)
}

#[test]
fn an_agent_measures_what_the_link_does() {
    let jobs: Vec<_> = LINKS.iter().map(|(_, settings)| recording(DOWN, settings, 1)).collect();
    let records = run_all(&jobs);
    for ((name, _), record) in LINKS.iter().zip(&records) {
        let Summary { up, down, near_rtt_ms, change, .. } = measured(record);
        let near_rtt = near_rtt_ms.unwrap();
        assert_eq!(record.agent.unwrap().resent, 0, "{name}: it only watches");
        assert_eq!(change, None, "{name}");
        let links = &record.links.near;
        let [truth_up, truth_down] = [&links.to_receiver.link, &links.to_sender.link];
        let sure = |of: &DirectionSummary, truth: f64| {
            assert!(
                of.loss_least_percent <= truth && truth <= of.loss_most_percent,
                "{name}: {of:?}"
            );
        };
        sure(&down, lost(truth_down));
        assert!(down.packets * 10 > truth_down.packets * 8, "{name}: {down:?}");
        match *name {
            "random" => {
                sure(&up, lost(truth_up));
                assert_near(down.loss_percent, lost(truth_down), 0.1, name);
                assert_near(down.run_packets, 1.02, 0.1, name);
            }
            "bursts" => {
                sure(&up, lost(truth_up));
                assert_near(down.loss_percent, lost(truth_down), 0.1, name);
                assert_near(down.run_packets, 4.0, 0.1, name);
            }
            "fades" => {
                assert_near(down.loss_percent, 100.0 * 20.0 / 420.0, 0.1, name);
                assert_near(down.run_ms, 20.0, 0.1, name);
            }
            "reordering" => {
                let truth = 100.0 * truth_down.reordered as f64 / truth_down.packets as f64;
                assert_near(down.late_percent, truth, 0.1, name);
                assert_near(near_rtt.median, 20.0, 0.1, name);
            }
            // Two directions, each of which varies by 5 ms at most to either side.
            "jitter" => assert!((2.0..=5.0).contains(&near_rtt.jitter), "{near_rtt:?}"),
            _ => {
                assert_eq!((up.outages, down.outages), (5, 5));
                // A server that hears nothing sends rarely, so an outage seems to end late.
                assert_near(down.outage_ms, 2100.0, 0.2, name);
                assert_near(down.longest_outage_ms, 800.0, 0.2, name);
            }
        }
    }
}

/// Records a link some times.
fn traces(scenario: &'static str, settings: &[&str], directory: &Path) -> Vec<PathBuf> {
    let jobs: Vec<_> = (1..=TRACES).map(|seed| recording(scenario, settings, seed)).collect();
    let write = |(at, record): (usize, RunRecord)| {
        let path = directory.join(at.to_string());
        record.trace.unwrap().write(&mut File::create(&path).unwrap()).unwrap();
        path
    };
    run_all(&jobs).into_iter().enumerate().map(write).collect()
}

/// The mean goodput, or the mean share of a call's packets that are played in time.
fn mean(jobs: &[Job]) -> f64 {
    let figure = |record: &RunRecord| match record.audio {
        Some(audio) => audio.played as f64 / (audio.late + audio.played) as f64,
        None => record.goodput_mbit_s,
    };
    run_all(jobs).iter().map(figure).sum::<f64>() / jobs.len() as f64
}

/// The mean over replays divided by that over the link itself.
fn prediction(row: usize, column: usize) -> f64 {
    let (_, settings) = LINKS[row];
    let (_, recorded, scenario, flow) = FLOWS[column];
    let directory = tempfile::tempdir().unwrap();
    let replays: Vec<_> = traces(recorded, settings, directory.path())
        .into_iter()
        .flat_map(|path| {
            let replay = format!("near.replay={}", path.display());
            (1..=STARTS).map(move |seed| job(scenario, &[LINK, flow, &[&replay]].concat(), seed))
        })
        .collect();
    let truth = [LINK, flow, settings].concat();
    let truth: Vec<_> = (1..=TRACES * STARTS).map(|seed| job(scenario, &truth, seed)).collect();
    mean(&replays) / mean(&truth)
}

fn table() -> Table {
    Table {
        corner: "ratio",
        columns: FLOWS.map(|(name, ..)| name.to_owned()).to_vec(),
        rows: LINKS.map(|(name, _)| name.to_owned()).to_vec(),
        name: 12,
        width: 11,
        slow: &[],
    }
}

#[test]
fn predictions() {
    assert_snapshot!(
        "measure__predictions",
        table().text(SNAPSHOT, |row, column| format!("{:.2}", prediction(row, column)))
    );
}

#[test]
fn the_document_shows_the_predictions_as_they_are() {
    table().assert_shown(SNAPSHOT, include_str!("../../../docs/lab.md"), |_| true);
}
