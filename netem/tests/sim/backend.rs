//! Backend `sim`: the guarantees that readers of its figures need.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use sidekick_netem::record::RunRecord;
use sidekick_netem::scenario::Scenario;
use sidekick_netem::sim::{self, SimError};

const LAB: &str = env!("CARGO_BIN_EXE_sidekick-lab");

fn try_run(scenario: &str, settings: &[&str], seed: u64) -> Result<RunRecord, SimError> {
    let scenario = Scenario::with(scenario, settings).unwrap();
    sim::run(&scenario, seed, None, &mut |_: Duration, _| {})
}

fn run(scenario: &str, settings: &[&str], seed: u64) -> RunRecord {
    try_run(scenario, settings, seed).unwrap_or_else(|error| panic!("{settings:?}: {error}"))
}

const MEGABYTE: &str = "flow.bytes=1000000";

/// A run's record, and its capture files.
fn capture(name: &str, settings: &[&str], seed: u64) -> (RunRecord, Vec<(PathBuf, Vec<u8>)>) {
    let directory = tempfile::tempdir().unwrap();
    let scenario = Scenario::with(name, settings).unwrap();
    let record = sim::run(&scenario, seed, Some(directory.path()), &mut |_, _| {}).unwrap();
    let mut files: Vec<_> = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|file| file.unwrap().path())
        .map(|path| (path.file_name().unwrap().into(), std::fs::read(path).unwrap()))
        .collect();
    files.sort();
    (record, files)
}

/// What a policer drops is congestion, and counts among the losses of its segment.
#[test]
fn a_policer_limits_the_goodput_and_its_drops_are_counted() {
    for kind in ["upload", "download"] {
        let kind = format!("flow.kind={kind}");
        let policed = ["far.rate_mbit=unlimited", "far.policer_mbit=5", "near.loss_percent=0"];
        let settings = [&policed[..], &[&kind, "flow.cc=bbr2", MEGABYTE]].concat();
        let record = run("upload-paper", &settings, 1);
        let far = record.links.far;
        let data = if record.is_download() { far.to_sender } else { far.to_receiver };
        let dropped = data.link.lost_policer;
        assert!(dropped > 0 && record.goodput_mbit_s < 5.4, "{kind}: {record:?}");
        assert_eq!((record.packets.lost_far, data.link.congested()), (dropped, dropped));
    }
}

/// Of two plain flows of one kind, either may be the first one. So the shares change places.
#[test]
fn a_second_flow_can_begin_before_the_first() {
    let shares = |start: &str, seconds: &str| {
        let plain = ["near.loss_percent=0", "flow.cc=cubic-rfc9438", "flow.bytes=1000000000"];
        let beside = ["competitor.cc=cubic-rfc9438", start, seconds];
        let record = run("upload-paper", &[plain, beside].concat(), 1);
        let competitor = record.competitor.unwrap();
        (record.time_s, record.goodput_mbit_s, competitor.beside_mbit_s, competitor.goodput_mbit_s)
    };
    // Both flows last from 3 s to 10 s.
    let (time, _, first, second) = shares("competitor.start_ms=3000", "flow.seconds=10");
    assert_eq!(time, 10.0);
    let (time, goodput, late, early) = shares("competitor.start_ms=-3000", "flow.seconds=7");
    assert_eq!((time, goodput), (7.0, late));
    let close = |one: f64, other: f64| (one / other - 1.0).abs() < 0.05;
    assert!(close(early, first) && close(late, second), "{early} {first}, {late} {second}");
    assert!(first > 1.2 * second, "the shares must differ to tell the flows apart");
}

/// A proxy's identifiers are bytes of the ciphertexts. A few of them collide, which changes a run.
/// So the ciphertexts have to be the same, too.
#[test]
fn a_seed_gives_the_same_bytes_on_whatever_thread() {
    let cases: [(&str, &[&str]); 7] = [
        ("upload-paper", &[MEGABYTE, "sidekick.mode=pacubic", "near.loss_percent=4"]),
        ("upload-paper", &[MEGABYTE, "sidekick.mode=path-aware-bbr", "near.loss_percent=15"]),
        ("upload-paper", &[MEGABYTE, "flow.split=near", "far.queue=codel", "near.jitter_ms=3"]),
        ("upload-paper", &[MEGABYTE, "flow.kind=download", "flow.pmtud=on", "flow.cc=bbr2"]),
        (
            "upload-paper",
            &["flow.kind=requests", "flow.bytes=5000", "flow.requests=5", "flow.zero_rtt=on"],
        ),
        ("audio-paper", &["flow.seconds=10", "sidekick.mode=reinject"]),
        ("packrat-wifi", &[MEGABYTE, "flow.tunnel=ordered"]),
    ];
    for (scenario, settings) in cases {
        let here = capture(scenario, settings, 7);
        let there = std::thread::scope(|scope| {
            scope.spawn(|| capture(scenario, settings, 7)).join().unwrap()
        });
        assert_eq!(here.0, there.0, "{settings:?}");
        assert!(here.1.len() > 1 && here.1 == there.1, "{settings:?}: the captures differ");
        let other = capture(scenario, settings, 8);
        assert_ne!(here.0, other.0, "{settings:?}: another seed is another run");
    }
}

/// The sender fills the window of the near half. Then it sends nothing until it receives credit.
#[test]
fn a_split_proxy_gives_the_sender_credit() {
    let settings = [MEGABYTE, "flow.split=near", "flow.window_bytes=65536"];
    assert_eq!(run("upload-paper", &settings, 1).bytes, 1_000_000);
}

#[test]
fn five_runs_are_five_lines_and_always_the_same() {
    let arguments = "run upload-paper --set sidekick.mode=off --set flow.cc=reno --runs 5 --json";
    let lines = || {
        let output = Command::new(LAB).args(arguments.split(' ')).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let first = lines();
    assert_eq!(first.lines().count(), 5);
    for (line, seed) in first.lines().zip(1..) {
        let record: RunRecord = serde_json::from_str(line).unwrap();
        assert_eq!((record.seed, record.bytes, record.backend.as_str()), (seed, 10_485_760, "sim"));
        assert_eq!(record.sha256.len(), 64);
    }
    assert_eq!(first, lines());
}

#[test]
fn a_run_that_cannot_finish_ends_with_its_seed() {
    // No packet passes, so the connection times out.
    let error = try_run("upload-paper", &["near.loss_percent=100"], 3).unwrap_err().to_string();
    assert!(error.contains("timed out") && error.ends_with("repeat it with --seed 3"), "{error}");
    // The call receives no more packets. The talker gives up, or the lab does.
    let settings =
        ["near.outages_ms=500+60000,60500+60000,120500+60000", "near.loss_from_percent=0"];
    let error = try_run("audio-paper", &settings, 4).unwrap_err().to_string();
    assert!(error.contains("--seed 4"), "{error}");
}

#[test]
fn packets_are_accounted_for() {
    let record = run("upload-paper", &["sidekick.mode=pacubic", "near.loss_percent=4"], 1);
    let (near, far) = (record.links.near.to_receiver.link, record.links.far.to_receiver.link);
    assert_eq!(record.packets.lost_near, near.lost());
    // The proxy forwards every packet except messages to itself.
    assert!(
        far.packets <= near.delivered
            && far.packets + record.quacks.polls * 2 + 20 >= near.delivered
    );
    let found = record.packets.lost_early + record.packets.lost_end_to_end.unwrap();
    let lost = record.packets.lost_near + record.packets.lost_far;
    assert!(found <= lost && found * 100 >= lost * 90, "{:?}", record.packets);
}

#[test]
fn early_data_saves_a_round_trip_where_a_request_may_be_replayed() {
    let first_byte = |early: &str, replayable: &str| {
        let (early, replayable) =
            (format!("flow.zero_rtt={early}"), format!("flow.replayable={replayable}"));
        let settings =
            ["flow.kind=requests", "flow.bytes=1000", "near.loss_percent=0", &early, &replayable];
        run("upload-paper", &settings, 1).first_byte_ms[0]
    };
    let full = first_byte("off", "on");
    let early = first_byte("on", "on");
    let waits = first_byte("on", "off");
    // The path's round trip is 52 ms.
    assert!((full - early - 52.0).abs() < 5.0, "{full} ms in full, {early} ms early");
    assert!(
        waits > early + 45.0,
        "a request that must not be replayed came after {waits} ms, early ones {early} ms"
    );
}

#[test]
fn the_receiver_acknowledges_as_it_is_told() {
    let acks = |packets: &str, delay: &str| {
        let (packets, delay) =
            (format!("flow.ack_packets={packets}"), format!("flow.ack_delay_ms={delay}"));
        let settings =
            ["flow.cc=bbr2", "near.loss_percent=0", "far.queue_bytes=1000000", &packets, &delay];
        let record = run("upload-paper", &settings, 1);
        record.ack_packets as f64 / record.packets.sent as f64
    };
    assert!(acks("1", "0") > 0.95);
    let every_second = acks("2", "25");
    assert!((0.48..0.56).contains(&every_second), "{every_second}");
    assert!(acks("65535", "100") < 0.05);
}

#[test]
fn a_larger_payload_takes_fewer_packets_and_discovery_finds_it() {
    let sent = |settings: &[&str]| {
        let base = ["flow.cc=bbr2", "near.loss_percent=0", "flow.bytes=4000000"];
        run("upload-paper", &[&base, settings].concat(), 1).packets.sent
    };
    let (small, large) = (sent(&["flow.payload_bytes=1200"]), sent(&["flow.payload_bytes=1400"]));
    let discovered = sent(&["flow.payload_bytes=1400", "flow.pmtud=on"]);
    assert!(large * 13 < small * 12, "{small} and {large} packets");
    assert!(
        (large..large + large / 20).contains(&discovered),
        "{discovered} packets, {large} without discovery"
    );
    let held_back = sent(&["flow.payload_bytes=1400", "flow.pmtud=on", "far.mtu_bytes=1300"]);
    assert!(held_back > discovered + discovered / 20, "{held_back} packets through 1300 bytes");
}

#[test]
fn ciphers_cost_nothing_in_virtual_time() {
    let with = |cipher: &str| run("upload-paper", &[MEGABYTE, &format!("flow.cipher={cipher}")], 2);
    assert_eq!(with("aes"), with("chacha20"));
}

#[test]
fn jains_index_measures_how_two_flows_share_the_path() {
    let settings = [
        "flow.bytes=1000000000",
        "flow.seconds=20",
        "near.loss_percent=0",
        "flow.cc=bbr2",
        "competitor.cc=bbr2",
        "competitor.start_ms=1000",
    ];
    let shared = run("upload-paper", &settings, 1).competitor.unwrap();
    let (one, other) = (shared.beside_mbit_s, shared.goodput_mbit_s);
    assert!((7.0..10.0).contains(&(one + other)), "{shared:?}");
    let jain = (one + other).powi(2) / (2.0 * (one * one + other * other));
    assert!((shared.jain - jain).abs() < 1e-9 && (0.5..=1.0).contains(&shared.jain), "{shared:?}");
}

#[test]
fn a_capture_matches_the_counters() {
    let directory = tempfile::tempdir().unwrap();
    let scenario = Scenario::with("upload-paper", &[MEGABYTE, "near.loss_percent=2"]).unwrap();
    let record = sim::run(&scenario, 1, Some(directory.path()), &mut |_: Duration, _| {}).unwrap();
    let plain = sim::run(&scenario, 1, None, &mut |_: Duration, _| {}).unwrap();
    assert_eq!(record, plain, "a capture does not change the record");
    let (up, down) = (record.links.near.to_receiver.link, record.links.near.to_sender.link);
    let length = std::fs::metadata(directory.path().join("near-delivered.pcap")).unwrap().len();
    let frames = up.delivered + down.delivered;
    assert_eq!(length, 24 + 16 * frames + up.delivered_bytes + down.delivered_bytes);
}
