//! `quic_sidekick::tune` in virtual time, compared with every payload and ACK delay of SEC-QUIC's
//! tables. `docs/results.md` has the range of the ratios.
//!
//! `make tables` accepts a new table.

use std::fmt::Write;

use crate::support::jobs::{median_of, runs};

/// 100 Mbit/s at a round trip of 200 ms. The queues hold as many bytes as the path does.
const PATH: [&str; 7] = [
    "sidekick.mode=off",
    "near.delay_ms=5",
    "far.delay_ms=95",
    "near.rate_mbit=100",
    "far.rate_mbit=100",
    "near.queue_bytes=2500000",
    "far.queue_bytes=2500000",
];
const ENDS: [&[&str]; 3] = [
    &["flow.cc=cubic-rfc9438", "flow.ack_packets=65535"],
    &["flow.cc=bbr2", "flow.ack_packets=65535"],
    &["flow.cc=bbr2", "flow.ack_packets=2"],
];
const PAYLOADS: [&[&str]; 3] = [
    &["flow.payload_bytes=1200"],
    &["flow.payload_bytes=1400"],
    &["flow.payload_bytes=1452", "flow.pmtud=on"],
];
const ACK_DELAYS: [&str; 3] =
    ["flow.ack_delay_ms=15", "flow.ack_delay_ms=25", "flow.ack_delay_ms=35"];
/// The name, the bytes, and the number of seeds.
const SIZES: [(&str, &str, u64); 4] = [
    ("1 kB", "flow.bytes=1000", 9),
    ("10 kB", "flow.bytes=10000", 9),
    ("1 MB", "flow.bytes=1000000", 9),
    ("10 MB", "flow.bytes=10000000", 3),
];

/// The median time of an upload over the path, in seconds.
fn seconds(seeds: u64, settings: &[&[&str]]) -> f64 {
    let records = runs("upload-paper", seeds, &[&[&PATH[..]], settings].concat());
    median_of(&records, |record| record.time_s)
}

/// The least time of the nine cells with these endpoints.
fn best(seeds: u64, size: &[&str], ends: &[&str]) -> f64 {
    let cells = PAYLOADS.iter().flat_map(|payload| ACK_DELAYS.map(|delay| (payload, delay)));
    cells
        .map(|(payload, delay)| seconds(seeds, &[size, ends, payload, &[delay]]))
        .min_by(f64::total_cmp)
        .unwrap()
}

/// Without the hint, BBR2 uses its first guess of 333 ms as the path's round trip.
#[test]
fn a_geostationary_path_is_faster_when_tune_hears_of_it() {
    let seconds = |settings: &[&str]| {
        let bulk = ["flow.kind=upload", "flow.bytes=10000000", "middle.loss_percent=0.1"];
        let settings = [&bulk[..], &["sidekick.mode=off", "flow.tune=on"], settings];
        median_of(&runs("smaq-geo", 5, &settings), |record| record.time_s)
    };
    let (blind, told) = (seconds(&[]), seconds(&["flow.network=geo"]));
    assert!(told < 0.8 * blind, "{told} against {blind}");
}

/// Path MTU discovery finds the largest payload that passes. The rest of a large object uses
/// payloads of that size.
#[test]
fn a_narrow_path_gets_payloads_that_pass() {
    let narrow = ["near.mtu_bytes=1380", "near.loss_percent=0", "flow.bytes=20000000"];
    let records = runs("upload-paper", 1, &[&PATH, &narrow, &["flow.tune=on"]]);
    let tuned = records[0].packets.sent;
    // 20 MB in payloads of at most 1352 bytes, and of 1200 bytes during the search.
    assert!((14_800..16_500).contains(&tuned), "{tuned}");
}

/// What takes long: each row is compared with the best of 27 cells.
mod full {
    use super::*;

    /// Seconds: the best cell of each pair of endpoints, `tune`, and its ratio to the best of all.
    #[test]
    fn tune_is_as_fast_as_the_best_cell() {
        let mut table = format!(
            "{:20} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "loss, size", "CUBIC", "BBR2", "BBR2, 2", "tune", "ratio"
        );
        for loss in ["0.1", "1"] {
            for (name, bytes, seeds) in SIZES {
                let loss_setting = format!("near.loss_percent={loss}");
                let size = [bytes, &loss_setting];
                let cells = ENDS.map(|ends| best(seeds, &size, ends));
                let tuned = seconds(seeds, &[&size, &["flow.tune=on"]]);
                let ratio = tuned / cells.into_iter().min_by(f64::total_cmp).unwrap();
                write!(table, "\n{:20}", format!("{loss} %, {name}")).unwrap();
                for time in cells.into_iter().chain([tuned]) {
                    write!(table, " {time:>9.3}").unwrap();
                }
                write!(table, " {ratio:>9.2}").unwrap();
                assert!(ratio <= 1.03, "{loss} %, {name}: {ratio}");
            }
        }
        assert_snapshot!("tune__tune_is_as_fast_as_the_best_cell", table);
    }
}
