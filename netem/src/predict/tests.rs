use super::*;
use crate::record::Audio;

const RECORDING: &str = "sidekick-trace 1\nr 0 20500\nr 0 21000\nu 500 1200\nu 500 1200 -\n\
                         d 500 1200\nend 500\n";

/// A prediction by a recording in a directory that must last as long.
fn predicted(directory: &tempfile::TempDir, text: &str, set: &[&str]) -> Prediction {
    let file = directory.path().join("link.trace");
    std::fs::write(&file, text).unwrap();
    let trace: sidekick_proxy::Trace = text.parse().unwrap();
    let file = file.display().to_string();
    Prediction { file, summary: trace.summary(), set: crate::words(set) }
}

#[test]
fn the_path_is_that_of_the_recording() {
    let directory = tempfile::tempdir().unwrap();
    let prediction = predicted(&directory, RECORDING, &[]);
    let planned = prediction.plan().unwrap();
    assert_eq!(planned.len(), FLOWS.iter().map(|flow| flow.senders.len()).sum::<usize>());
    for one in &planned {
        let near = one.scenario.near.link(crate::scenario::Direction::ToSender);
        assert_eq!(near.delay, Duration::from_micros(10_250));
        assert_eq!((near.loss.get(), near.rate.unwrap().bits_per_second()), (0.0, 1_000_000));
        assert!(near.replay.is_some());
    }
    let text = prediction.assumptions(&planned, 8);
    assert!(
        text.contains("10.25 ms and 1 Mbit/s each way; behind it 25 ms and 10 Mbit/s"),
        "{text}"
    );
    assert!(text.contains("--set near.rate_mbit=N") && !text.contains("changed"), "{text}");
    let again = planned[0].command();
    let (_, rest) = again.split_once("upload-paper ").unwrap();
    let settings: Vec<_> =
        rest.split("--set '").filter_map(|set| Some(set.rsplit_once('\'')?.0)).collect();
    assert_eq!(Scenario::with("upload-paper", &settings).unwrap(), planned[0].scenario);
}

#[test]
fn settings_replace_those_of_the_recording() {
    let directory = tempfile::tempdir().unwrap();
    let set = ["near.rate_mbit=50", "far.delay_ms=5", "near.loss_percent=1"];
    let prediction = predicted(&directory, RECORDING, &set);
    let planned = prediction.plan().unwrap();
    for one in &planned {
        assert_eq!(one.scenario.near.both.rate.unwrap().bits_per_second(), 50_000_000);
        assert_eq!(one.scenario.near.both.loss.get(), 1.0);
        assert_eq!(one.scenario.far.both.delay, Duration::from_millis(5));
    }
    assert!(!prediction.assumptions(&planned, 1).contains("near.rate_mbit"));
    let delays = |set: &[&str]| {
        let none = "sidekick-trace 1\nu 500 1200\nend 500\n";
        predicted(&directory, none, set).lacks_a_delay()
    };
    assert!(delays(&[]) && !delays(&["near.delay_ms=3"]));
}

#[test]
fn a_link_that_changed_is_not_trusted() {
    let directory = tempfile::tempdir().unwrap();
    let lossy = "u 1000 1200\nu 1000 1200 -\n".repeat(600);
    let clean = "u 1000 1200\n".repeat(6000);
    let text = format!("sidekick-trace 1\nr 0 20000\n{lossy}{clean}end 0\n");
    let prediction = predicted(&directory, &text, &[]);
    let text = prediction.assumptions(&prediction.plan().unwrap(), 8);
    assert!(text.contains("The link changed during the recording, so do not trust"), "{text}");
}

#[test]
fn a_failed_run_counts() {
    let directory = tempfile::tempdir().unwrap();
    let planned = predicted(&directory, RECORDING, &[]).plan().unwrap();
    let call = Some(Audio { late: 5, played: 95, ..Audio::default() });
    let record = RunRecord { goodput_mbit_s: 4.0, audio: call, ..RunRecord::default() };
    let outcomes: Vec<Outcome> = runs(&planned, 3)
        .iter()
        .map(|run| if run.seed == 2 { Err("a timeout".to_owned()) } else { Ok(record.clone()) })
        .collect();
    let rows = rows(&planned, &outcomes);
    assert!(rows.iter().all(|row| (row.runs, row.failed) == (3, 1)));
    assert_eq!(rows[0].goodput_mbit_s, Some(Spread { median: 4.0, least: 0.0, most: 4.0 }));
    let last = rows.last().unwrap();
    assert_eq!(last.late_percent, Some(Spread { median: 5.0, least: 5.0, most: 100.0 }));
    assert_eq!((rows[0].late_percent, last.goodput_mbit_s), (None, None));
    let text = table(&rows);
    for words in ["4.00 (0.00 to 4.00)", "5.0 (5.0 to 100.0)", "20 runs failed", "in order"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}
