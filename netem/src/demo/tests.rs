use super::*;
use crate::record::{Packets, Quacks};

fn row(sender: Sender, goodput: f64, hash: &str) -> Row {
    Row::of(sender, vec![record(sender, goodput, hash)], &file()).unwrap()
}

fn record(sender: Sender, goodput: f64, hash: &str) -> RunRecord {
    record_of(UPLOAD, sender, goodput, hash)
}

pub(super) fn record_of(scenario: &str, sender: Sender, goodput: f64, hash: &str) -> RunRecord {
    let scenario = Scenario::with(scenario, sender.settings).unwrap();
    RunRecord {
        scenario: scenario.name.clone(),
        flow: scenario.flow.kind.name().to_owned(),
        backend: "user".to_owned(),
        seed: 1,
        mode: scenario.sidekick.mode.name().to_owned(),
        cc: scenario.congestion_control().name().to_owned(),
        bytes: 1000,
        time_s: 0.008 / goodput,
        goodput_mbit_s: goodput,
        packets: Packets {
            sent: 7900,
            retransmitted: Some(80),
            lost_near: 81,
            lost_middle: None,
            lost_far: 3,
            spurious: 0,
            lost_early: 70,
            lost_end_to_end: Some(10),
            probe_timeouts: None,
        },
        quacks: Quacks { received: 300, bytes: 30_000, undecodable: 0, epochs: 0, polls: 5 },
        ack_packets: 4000,
        assisted: true,
        assistance: "assisted".to_owned(),
        near_rtt_ms: Some(2.1),
        rtt_ms: Some(53.0),
        sha256: hash.to_owned(),
        ..RunRecord::default()
    }
}

pub(super) fn file() -> SourceFile {
    SourceFile { path: "f".into(), bytes: 1000, sha256: "ab".to_owned() }
}

pub(super) fn first(pacubic: f64, bbr: f64) -> Vec<Row> {
    vec![
        row(STOCK_CUBIC, 3.0, "ab"),
        row(RFC_CUBIC, 2.0, "ab"),
        row(BBR2, bbr, "ab"),
        row(PACUBIC, pacubic, "ab"),
    ]
}

#[test]
fn the_words_follow_the_figures() {
    let good = first_sentence(&first(9.0, 9.2));
    assert!(good.contains("4.5 times as fast as CUBIC of RFC 9438, and 3.0 times"), "{good}");
    assert!(good.contains("is as good at this loss: 9.20 against 9.00 Mbit/s"), "{good}");
    assert!(good.contains("70 of its 80 losses"), "{good}");
    assert!(first_sentence(&first(4.0, 9.2)).contains("is faster at this loss"));
    assert!(first_sentence(&first(9.0, 2.0)).contains("is slower at this loss"));
    let second = second_sentence(&[row(BBR2, 2.0, "ab"), row(PATH_AWARE_BBR2, 9.0, "ab")]);
    assert!(
        second.contains("alone has 2.00 Mbit/s.") && second.contains("9.00 Mbit/s, 4.5 times"),
        "{second}"
    );
}

#[test]
fn a_check_passes_at_its_bound_and_not_below() {
    let passed = |pacubic| check(&first(pacubic, 9.0), RFC_CUBIC, PACUBIC, 3.0, &file()).passed;
    assert!(passed(6.0));
    assert!(!passed(5.9));
}

#[test]
fn several_runs_show_their_median_with_its_range() {
    let runs = [3.9, 2.0, 2.4].map(|goodput| record(BBR2, goodput, "ab")).to_vec();
    let slow = Row::of(BBR2, runs, &file()).unwrap();
    assert_eq!(
        (slow.record.goodput_mbit_s, slow.goodput_range_mbit_s, slow.runs),
        (2.4, (2.0, 3.9), 3)
    );
    let rows = vec![slow, row(PATH_AWARE_BBR2, 6.0, "ab")];
    let compared = Comparison::of(&SECOND, rows, &file());
    assert!(compared.check.passed, "{:?}", compared.check);
    let text = print(&compared, &file());
    assert!(
        text.contains("; of 3 runs each, the median run") && text.contains("2.40 (2.00 to 3.90)"),
        "{text}"
    );
}

#[test]
fn the_median_does_not_hide_a_changed_file() {
    let runs = vec![record(BBR2, 1.0, "ab"), record(BBR2, 2.0, "ab"), record(BBR2, 3.0, "cd")];
    let rows = [Row::of(BBR2, runs, &file()).unwrap(), row(PATH_AWARE_BBR2, 9.0, "ab")];
    assert!(!check(&rows, BBR2, PATH_AWARE_BBR2, 2.5, &file()).passed);
}

#[test]
fn a_file_that_differs_fails_the_check() {
    let mut rows = first(9.0, 9.0);
    rows[2] = row(BBR2, 9.0, "cd");
    assert!(!check(&rows, RFC_CUBIC, PACUBIC, 3.0, &file()).passed);
}

#[test]
fn the_print_shows_failure_and_missing_help() {
    let mut rows = first(5.0, 9.0);
    rows[3].record.assisted = false;
    rows[3].record.assistance = "no proxy answered".to_owned();
    let text = print(&Comparison::of(&FIRST, rows, &file()), &file());
    assert!(
        text.contains(
            "Sidekick, PACUBIC at least 3 times as fast as CUBIC, RFC 9438: 2.50 times, FAILED."
        ),
        "{text}"
    );
    assert!(
        text.contains("Sidekick, PACUBIC: the sender was not assisted: no proxy answered"),
        "{text}"
    );
}

#[test]
fn a_file_that_is_too_small_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("small");
    std::fs::write(&path, "small").unwrap();
    assert!(objection(&path).unwrap().contains("has 5 bytes"));
    assert!(objection(directory.path()).unwrap().ends_with("is not a file"));
    assert!(objection(&directory.path().join("none")).unwrap().starts_with("cannot read"));
}
