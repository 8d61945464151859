//! TCP Hybla for QUIC (Caini and Firrincieli, "TCP Hybla: a TCP enhancement for heterogeneous
//! networks", 2004): a controller for satellites, whose window grows in time as that of a flow with
//! a round trip of 25 ms does.
//!
//! Let rho be the round-trip time divided by 25 ms, and at least 1. For each acknowledged segment
//! the window grows by 2^rho - 1 segments in slow start, and by rho² / W segments after it, where W
//! is the window in segments. The reaction to a loss is NewReno's.
//!
//! The authors begin with a slow-start threshold of rho times the reference flow's. They leave the
//! reference open; here it is 65,535 bytes, the largest window of RFC 793. Without a threshold,
//! slow start over a geostationary satellite would multiply the window by some millions in one
//! round trip.
#![warn(missing_docs, missing_debug_implementations, unreachable_pub, unused_qualifications)]
#![warn(clippy::all, clippy::expect_used, clippy::unwrap_used)]

use std::time::{Duration, Instant};

use super::recovery::Acked;
use super::rtt::RttStats;
use super::{reno, Congestion, CongestionControlOps};
use crate::recovery::{Sent, LOSS_REDUCTION_FACTOR, MINIMUM_WINDOW_PACKETS};

/// The controller, as quiche's table of functions.
pub(crate) static HYBLA: CongestionControlOps = CongestionControlOps {
    on_init: reno::on_init,
    on_packet_sent: reno::on_packet_sent,
    on_packets_acked,
    congestion_event,
    checkpoint: |_| {},
    rollback: |_| false,
    #[cfg(feature = "qlog")]
    state_str: reno::state_str,
    debug_fmt,
};

/// The round-trip time of the reference flow.
const REFERENCE_RTT: Duration = Duration::from_millis(25);
/// The slow-start threshold of the reference flow, in bytes.
const REFERENCE_THRESHOLD: f64 = 65_535.0;
/// rho counts as no more than this, which is a round trip of 2.5 s, so that all powers are finite.
const MOST_RHO: f64 = 100.0;

/// The remainder of the window below a byte.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The fraction of a byte that the window is larger than the published one.
    fraction: f64,
}

fn rho(rtt_stats: &RttStats) -> f64 {
    let rtt = rtt_stats.min_rtt().unwrap_or(REFERENCE_RTT);
    (rtt.as_secs_f64() / REFERENCE_RTT.as_secs_f64()).clamp(1.0, MOST_RHO)
}

fn on_packets_acked(
    r: &mut Congestion,
    _bytes_in_flight: usize,
    packets: &mut Vec<Acked>,
    _now: Instant,
    rtt_stats: &RttStats,
) {
    let rho = rho(rtt_stats);
    for packet in packets.drain(..) {
        if !r.app_limited && !r.in_congestion_recovery(packet.time_sent) {
            grow(r, packet.size as f64, rho);
        }
    }
}

/// Grows the window for this many acknowledged bytes.
fn grow(r: &mut Congestion, acked: f64, rho: f64) {
    let window = r.congestion_window as f64 + r.hybla_state.fraction;
    let threshold = match r.ssthresh.get() {
        usize::MAX => REFERENCE_THRESHOLD * rho,
        known => known as f64,
    };
    let (window, ends) = if window < threshold {
        let grown = window + (rho.exp2() - 1.0) * acked;
        (grown.min(threshold), grown >= threshold)
    } else {
        (window + rho * rho * r.max_datagram_size as f64 * acked / window, false)
    };
    // The cast saturates, so no window exceeds a `usize`.
    #[allow(clippy::cast_possible_truncation, reason = "the fraction is kept, and the cast saturates")]
    let published = window as usize;
    r.congestion_window = published;
    r.hybla_state.fraction = window.fract();
    if ends {
        r.ssthresh.update(published, true);
    }
}

fn congestion_event(
    r: &mut Congestion,
    _bytes_in_flight: usize,
    _lost_bytes: usize,
    largest_lost: &Sent,
    now: Instant,
) {
    if r.in_congestion_recovery(largest_lost.time_sent) {
        return;
    }
    r.congestion_recovery_start_time = Some(now);
    let least = r.max_datagram_size * MINIMUM_WINDOW_PACKETS;
    #[allow(clippy::cast_possible_truncation, reason = "a share of a window is a window")]
    let reduced = (r.congestion_window as f64 * LOSS_REDUCTION_FACTOR) as usize;
    r.congestion_window = reduced.max(least);
    r.hybla_state.fraction = 0.0;
    r.ssthresh.update(r.congestion_window, false);
}

fn debug_fmt(r: &Congestion, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
    write!(f, "hybla={:?} ", r.hybla_state)
}

#[cfg(test)]
mod tests;
