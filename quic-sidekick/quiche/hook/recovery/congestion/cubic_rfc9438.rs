//! CUBIC as in RFC 9438, and path-aware CUBIC (PACUBIC) on top of it.
//!
//! quiche's own CUBIC follows a draft and undoes reductions that it considers spurious. This one
//! follows the RFC to the letter and undoes nothing (section 4.9 leaves that open), so that it can
//! serve as the published baseline.
//!
//! PACUBIC: let r be the near segment's round-trip time divided by that of the whole path. A
//! connection that ended at the proxy would have r times the window, and a loss on the near segment
//! would cost it r (1 - beta) of the whole. So PACUBIC answers such a loss with beta* = 1 - r (1 -
//! beta), and recovers with C* = C / r³.
//!
//! Two windows separate the two kinds of losses, as a proxy that splits the connection would. One
//! answers the losses behind the proxy, exactly as in the RFC; the other those before it. The
//! smaller is the congestion window, and only the one that limits the flow grows. So frequent near
//! losses can neither hide the far ones nor hasten the recovery from them. For the near window a
//! round trip is one of the near segment. That determines how often it answers losses, how long its
//! recovery takes, and how often it grows by alpha in the Reno-friendly region (section 4.3).
//!
//! With r = 1, and with no near loss, PACUBIC is RFC 9438. Windows are in bytes, times in seconds;
//! the RFC counts windows in segments, hence the divisions by the segment size.
#![warn(missing_docs, missing_debug_implementations, unreachable_pub, unused_qualifications)]
#![warn(clippy::all, clippy::expect_used, clippy::unwrap_used)]

use std::time::{Duration, Instant};

use super::recovery::Acked;
use super::rtt::RttStats;
use super::{reno, Congestion, CongestionControlOps};
use crate::recovery::{Sent, MINIMUM_WINDOW_PACKETS};

/// The controller, as quiche's table of functions.
pub(crate) static CUBIC_RFC9438: CongestionControlOps = CongestionControlOps {
    on_init: reno::on_init,
    on_packet_sent,
    on_packets_acked,
    congestion_event,
    checkpoint: |_| {},
    rollback: |_| false,
    #[cfg(feature = "qlog")]
    state_str,
    debug_fmt,
};

/// Multiplicative decrease factor, section 4.6.
const BETA: f64 = 0.7;
/// Aggressiveness of the window's growth, in segments per cubic second, section 5.1.
const C: f64 = 0.4;
/// The smallest fraction of the path that a near segment counts as, so that C* stays finite.
const MIN_NEAR_RATIO: f64 = 0.01;
/// The additive increase, in segments per round trip, that with beta gives Reno's average window,
/// section 4.3.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// A window and its variables of section 4.1.2.
#[derive(Debug)]
struct Window {
    /// The window in bytes, with fractions.
    bytes: f64,
    /// r, or 1 for the window of the far segment.
    ratio: f64,
    /// The latest loss that it answered.
    answered: Option<Instant>,
    /// When the current stage of congestion avoidance began, moved forward by application-limited
    /// time.
    epoch_start: Option<Instant>,
    /// The window before the latest reduction.
    prior: f64,
    /// 0 until the first congestion event or the first stage of congestion avoidance.
    w_max: f64,
    w_est: f64,
    alpha: f64,
    k: f64,
}

impl Window {
    fn new(bytes: f64, ratio: f64) -> Self {
        let (prior, w_max, w_est, k) = (0.0, 0.0, 0.0, 0.0);
        Self { bytes, ratio, answered: None, epoch_start: None, prior, w_max, w_est, alpha: ALPHA, k }
    }

    /// C*, and C where r is 1.
    fn c(&self) -> f64 {
        C / self.ratio.powi(3)
    }

    /// W_cubic(t), section 4.2.
    fn w_cubic(&self, t: f64, segment: f64) -> f64 {
        self.c() * (t - self.k).powi(3) * segment + self.w_max
    }

    /// Begins a stage of congestion avoidance, sections 4.2 and 4.3, right after the reduction:
    /// QUIC's recovery is a period of time and not another way of sending (RFC 9002, section
    /// 7.3.2). Without a congestion event before it (HyStart++ ended slow start), K is 0 and the
    /// growth is convex from here, section 4.10.
    fn begin_stage(&mut self, segment: f64, now: Instant) {
        if self.w_max == 0.0 {
            self.w_max = self.bytes;
            self.prior = self.bytes;
        }
        let below = (self.w_max - self.bytes).max(0.0) / segment;
        self.k = (below / self.c()).cbrt();
        self.w_est = self.bytes;
        self.alpha = ALPHA;
        self.epoch_start = Some(now);
    }

    /// Answers a loss at a window of `cwnd`, sections 4.6 and 4.7.
    fn reduce(&mut self, cwnd: f64, segment: f64, now: Instant) {
        let beta = 1.0 - self.ratio * (1.0 - BETA);
        // Fast convergence.
        self.w_max = if cwnd < self.w_max { cwnd * (1.0 + beta) / 2.0 } else { cwnd };
        self.prior = cwnd;
        self.bytes = (cwnd * beta).floor().min(self.bytes).max(segment * MINIMUM_WINDOW_PACKETS as f64);
        self.answered = Some(now);
        self.begin_stage(segment, now);
    }

    /// Grows the window for acknowledged bytes, sections 4.2 to 4.5.
    fn grow(&mut self, acked: f64, segment: f64, rtt: f64, now: Instant) {
        if self.epoch_start.is_none() {
            self.begin_stage(segment, now);
        }
        let t = self.epoch_start.map_or(0.0, |start| now.saturating_duration_since(start).as_secs_f64());
        let bytes = self.bytes;
        // The bytes of a round trip; for the near window, one of the near segment.
        let round = bytes * self.ratio;

        // Section 4.3. Past the window before the reduction, grow as Reno.
        self.w_est += self.alpha * segment * acked / round;
        if self.w_est >= self.prior {
            self.alpha = 1.0;
        }
        let growth = if self.w_cubic(t, segment) < self.w_est {
            self.w_est - bytes
        } else {
            // Sections 4.4 and 4.5.
            let target = self.w_cubic(t + rtt * self.ratio, segment).clamp(bytes, 1.5 * bytes);
            (target - bytes) * (acked / round).min(1.0)
        };
        self.bytes += growth.max(0.0);
    }
}

/// Both windows and their common state.
#[derive(Debug)]
pub(super) struct State {
    /// The near ratio of the current call of `congestion_event`.
    near_ratio: Option<f64>,
    /// The window that answers losses anywhere.
    far: Window,
    /// The window that answers losses on the near segment, after the first one.
    near: Option<Window>,
    /// The congestion window as last published, to detect a change by other code.
    left: usize,
    /// When the application began to limit the flow.
    limited_since: Option<Instant>,
    /// When the near window began to limit the flow.
    near_since: Option<Instant>,
    last_ack: Option<Instant>,
}

impl Default for State {
    fn default() -> Self {
        let far = Window::new(0.0, 1.0);
        let (limited_since, near_since, last_ack) = (None, None, None);
        Self { near_ratio: None, far, near: None, left: 0, limited_since, near_since, last_ack }
    }
}

impl State {
    /// Sets where the loss of the next congestion event happened: on the near segment, with this
    /// ratio, or anywhere.
    pub(super) fn set_near_ratio(&mut self, ratio: Option<f64>) {
        self.near_ratio = ratio.filter(|ratio| *ratio > 0.0).map(|ratio| ratio.clamp(MIN_NEAR_RATIO, 1.0));
    }

    /// Adopts a window that other code set: initially, and with another segment size.
    fn follow(&mut self, cwnd: usize) {
        if cwnd != self.left {
            self.far.bytes = cwnd as f64;
            self.near = None;
            self.left = cwnd;
        }
    }

    fn bytes(&self) -> f64 {
        self.near.as_ref().map_or(self.far.bytes, |near| near.bytes.min(self.far.bytes))
    }

    /// Excludes the time of an application-limited phase from t, section 4.2.
    fn end_limited_phase(&mut self, now: Instant) {
        let Some(since) = self.limited_since.take() else { return };
        let stages = [Some(&mut self.far), self.near.as_mut()].into_iter().flatten();
        for start in stages.filter_map(|window| window.epoch_start.as_mut()) {
            // The stage may have begun later.
            *start += now.saturating_duration_since(since.max(*start));
        }
    }

    /// Excludes the time in which the near window was the limit from the far window's t, likewise.
    /// Times up to a round trip still count, so that near losses that are repaired at once do not
    /// slow its growth.
    fn end_near_phase(&mut self, rtt: Duration, now: Instant) {
        let since = self.near_since.take();
        if let (Some(since), Some(start)) = (since, self.far.epoch_start.as_mut()) {
            let time = now.saturating_duration_since(since.max(*start));
            if time > rtt {
                *start += time;
            }
        }
    }
}

/// Publishes the smaller window as the connection's. It grows by whole segments, so that no packet
/// is sent just to fill a few bytes.
fn publish(r: &mut Congestion) {
    let segment = r.max_datagram_size as f64;
    let (old, new) = (r.congestion_window as f64, r.cubic_rfc9438_state.bytes());
    let published = if new < old { new } else { old + ((new - old) / segment).floor() * segment };
    // The cast saturates, so no window exceeds a `usize`.
    #[allow(clippy::cast_possible_truncation, reason = "the window is in whole bytes, and the cast saturates")]
    let published = published as usize;
    r.congestion_window = published;
    r.cubic_rfc9438_state.left = published;
}

fn on_packet_sent(r: &mut Congestion, sent_bytes: usize, bytes_in_flight: usize, now: Instant) {
    let state = &mut r.cubic_rfc9438_state;
    // Idle time is not part of t, either. An application-limited phase that already runs includes
    // it.
    if sent_bytes > 0 && bytes_in_flight == 0 && state.limited_since.is_none() {
        state.limited_since = state.last_ack;
        state.end_limited_phase(now);
    }
}

fn on_packets_acked(
    r: &mut Congestion,
    bytes_in_flight: usize,
    packets: &mut Vec<Acked>,
    now: Instant,
    rtt_stats: &RttStats,
) {
    r.cubic_rfc9438_state.last_ack = Some(now);
    for packet in packets.drain(..) {
        on_packet_acked(r, bytes_in_flight, &packet, now, rtt_stats);
    }
}

fn on_packet_acked(
    r: &mut Congestion,
    bytes_in_flight: usize,
    packet: &Acked,
    now: Instant,
    rtt_stats: &RttStats,
) {
    r.cubic_rfc9438_state.follow(r.congestion_window);
    if r.in_congestion_recovery(packet.time_sent) {
        r.prr.on_packet_acked(packet.size, bytes_in_flight, r.ssthresh.get(), r.max_datagram_size);
        return;
    }
    let state = &mut r.cubic_rfc9438_state;
    if r.app_limited {
        // An unused window does not grow, section 5.8.
        state.limited_since.get_or_insert(now);
        return;
    }
    state.end_limited_phase(now);
    let (segment, acked) = (r.max_datagram_size as f64, packet.size as f64);
    let rtt = rtt_stats.rtt();
    if let Some(near) = state.near.as_mut().filter(|near| near.bytes <= state.far.bytes) {
        let recovery = rtt.mul_f64(near.ratio);
        if near.answered.is_none_or(|at| now > at + recovery) {
            near.grow(acked, segment, rtt.as_secs_f64(), now);
        }
        if near.bytes <= state.far.bytes {
            state.near_since.get_or_insert(now);
            publish(r);
            return;
        }
        // Nor does the near window where the far one limits the flow.
        near.bytes = near.bytes.min(state.far.bytes + segment);
    }
    state.end_near_phase(rtt, now);
    if state.far.bytes < r.ssthresh.get() as f64 {
        // Slow start with HyStart++, section 4.10.
        let growth = if r.hystart.in_css() { r.hystart.css_cwnd_inc(packet.size) } else { packet.size };
        state.far.bytes += growth as f64;
        publish(r);
        if r.hystart.on_packet_acked(packet, rtt_stats.latest_rtt, now) {
            r.ssthresh.update(r.congestion_window, true);
        }
        return;
    }
    state.far.grow(acked, segment, rtt.as_secs_f64(), now);
    publish(r);
}

fn congestion_event(
    r: &mut Congestion,
    bytes_in_flight: usize,
    _lost_bytes: usize,
    largest_lost: &Sent,
    now: Instant,
) {
    let in_recovery = r.in_congestion_recovery(largest_lost.time_sent);
    let segment = r.max_datagram_size as f64;
    let state = &mut r.cubic_rfc9438_state;
    state.follow(r.congestion_window);
    // Reduce from the window, not the flight: an application-limited flow did not grow it.
    let cwnd = r.congestion_window as f64;
    // Once per round trip of the segment in question.
    let answered = |window: &Window| window.answered.is_some_and(|at| largest_lost.time_sent <= at);
    let reduced_near = state.near.as_ref().filter(|near| answered(near)).map(|near| near.prior);
    if let Some(ratio) = state.near_ratio.take() {
        if in_recovery || reduced_near.is_some() {
            return;
        }
        let near = state.near.get_or_insert_with(|| Window::new(cwnd, ratio));
        near.ratio = ratio;
        near.reduce(cwnd, segment, now);
        publish(r);
        return;
    }
    if in_recovery {
        return;
    }
    // This answer replaces that to a near loss in the same round trip.
    let cwnd = reduced_near.map_or(cwnd, |prior| prior.min(state.far.bytes).max(cwnd));
    state.far.reduce(cwnd, segment, now);
    state.near_since = None;
    publish(r);
    r.congestion_recovery_start_time = Some(now);
    r.ssthresh.update(r.congestion_window, r.hystart.in_css());
    if r.hystart.in_css() {
        r.hystart.congestion_event();
    }
    r.prr.congestion_event(bytes_in_flight);
}

/// The state's name in qlog.
#[cfg(feature = "qlog")]
fn state_str(r: &Congestion, now: Instant) -> &'static str {
    let slow_start_is_over = r.cubic_rfc9438_state.far.bytes >= r.ssthresh.get() as f64;
    match reno::state_str(r, now) {
        // The near window may fall below the threshold long after slow start.
        "slow_start" if slow_start_is_over && r.in_congestion_recovery(now) => "recovery",
        "slow_start" if slow_start_is_over => "congestion_avoidance",
        other => other,
    }
}

fn debug_fmt(r: &Congestion, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
    write!(f, "cubic_rfc9438={:?} ", r.cubic_rfc9438_state)
}

#[cfg(test)]
mod tests;
