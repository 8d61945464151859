//! CUBIC as in RFC 9438, and path-aware CUBIC (PACUBIC) on top of it.
//!
//! quiche's own CUBIC follows a draft and undoes reductions that it takes for spurious. This one follows the RFC to the
//! letter and undoes nothing (section 4.9 leaves that open), so that it can serve as the published baseline.
//!
//! PACUBIC: let r be the round-trip time of the near segment divided by that of the whole path. A connection that ended at
//! the proxy would have r times the window, and a loss on the near segment would cost it r (1 - beta) of the whole. So
//! such a loss is answered with beta* = 1 - r (1 - beta) and, until the next congestion event, C* = C / r³. Any other loss
//! is answered as in the RFC, also when it comes in the same round trip as a near loss: else frequent near losses would
//! hide the far ones, and the flow would take more than its share behind the proxy.
//!
//! With r = 1, and with no near loss, PACUBIC is RFC 9438. Windows are in bytes, times in seconds; the RFC counts windows
//! in segments, hence the divisions by the segment size.
#![warn(missing_docs, missing_debug_implementations, unreachable_pub, unused_qualifications)]
#![warn(clippy::all, clippy::expect_used, clippy::unwrap_used)]

use std::time::Instant;

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
    state_str: reno::state_str,
    debug_fmt,
};

/// Multiplicative decrease factor, section 4.6.
const BETA: f64 = 0.7;
/// Aggressiveness of the window's growth in segments per cubic second, section 5.1.
const C: f64 = 0.4;
/// A near segment shorter than this fraction of the path is treated as this; C* stays finite.
const MIN_NEAR_RATIO: f64 = 0.01;

/// How one congestion event was answered; holds until the next.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Answer {
    /// What is left of the window.
    beta: f64,
    /// Growth of the curve that leads back.
    c: f64,
}

impl Answer {
    const PLAIN: Self = Self { beta: BETA, c: C };

    fn near(ratio: f64) -> Self {
        Self { beta: 1.0 - ratio * (1.0 - BETA), c: C / ratio.powi(3) }
    }

    /// Segments per round trip at which an additive increase that goes with `beta` gets Reno's average window,
    /// section 4.3. It belongs to the decrease that was made: with a smaller decrease, the same increase would be more than
    /// Reno's share.
    fn alpha(self) -> f64 {
        3.0 * (1.0 - self.beta) / (1.0 + self.beta)
    }
}

/// The variables of section 4.1.2.
#[derive(Debug)]
pub(super) struct State {
    /// Set for the duration of one call of `congestion_event`.
    near_ratio: Option<f64>,
    answer: Answer,
    /// The latest event answered in full; a near loss does not move it.
    last_plain: Option<Instant>,
    /// When the present stage of congestion avoidance began, moved on by the time spent limited by the application.
    epoch_start: Option<Instant>,
    /// Since when the application has been limiting the flow.
    limited_since: Option<Instant>,
    last_ack: Option<Instant>,
    /// The window before the latest reduction.
    cwnd_prior: f64,
    /// 0 until the first congestion event or the first stage of congestion avoidance.
    w_max: f64,
    /// `w_max` before the latest congestion event.
    w_max_prior: f64,
    w_est: f64,
    alpha: f64,
    k: f64,
    /// Growth that does not make a whole segment yet. The window grows by segments, so that no packet is sent just to
    /// fill a few bytes.
    growth: f64,
}

impl Default for State {
    fn default() -> Self {
        Self {
            near_ratio: None,
            answer: Answer::PLAIN,
            last_plain: None,
            epoch_start: None,
            limited_since: None,
            last_ack: None,
            cwnd_prior: 0.0,
            w_max: 0.0,
            w_max_prior: 0.0,
            w_est: 0.0,
            alpha: Answer::PLAIN.alpha(),
            k: 0.0,
            growth: 0.0,
        }
    }
}

impl State {
    /// Says where the loss of the next congestion event happened: on the near segment, with this ratio, or anywhere.
    pub(super) fn set_near_ratio(&mut self, ratio: Option<f64>) {
        self.near_ratio = ratio.filter(|ratio| *ratio > 0.0).map(|ratio| ratio.clamp(MIN_NEAR_RATIO, 1.0));
    }

    /// W_cubic(t), section 4.2.
    fn w_cubic(&self, t: f64, segment: f64) -> f64 {
        self.answer.c * (t - self.k).powi(3) * segment + self.w_max
    }

    /// Begins a stage of congestion avoidance with this window, sections 4.2 and 4.3: right after the reduction, since
    /// QUIC's recovery is a period of time and not another way of sending (RFC 9002, section 7.3.2). Without a congestion
    /// event before it (HyStart++ ended slow start), K is 0 and the growth convex from here, section 4.10.
    fn begin_stage(&mut self, cwnd: f64, segment: f64, now: Instant) {
        if self.w_max == 0.0 {
            self.w_max = cwnd;
            self.cwnd_prior = cwnd;
        }
        let below = (self.w_max - cwnd).max(0.0) / segment;
        self.k = (below / self.answer.c).cbrt();
        self.w_est = cwnd;
        self.alpha = self.answer.alpha();
        self.limited_since = None;
        self.epoch_start = Some(now);
    }

    /// Counts the time of an application-limited phase out of t, section 4.2.
    fn end_limited_phase(&mut self, now: Instant) {
        if let (Some(since), Some(start)) = (self.limited_since.take(), self.epoch_start.as_mut()) {
            *start += now.saturating_duration_since(since);
        }
    }
}

fn on_packet_sent(r: &mut Congestion, sent_bytes: usize, bytes_in_flight: usize, now: Instant) {
    let state = &mut r.cubic_rfc9438_state;
    // Idle until now: not part of t either. An application-limited phase that already runs includes it.
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
    if r.in_congestion_recovery(packet.time_sent) {
        r.prr.on_packet_acked(packet.size, bytes_in_flight, r.ssthresh.get(), r.max_datagram_size);
    } else if r.app_limited {
        // No growth that was not made use of, section 5.8.
        r.cubic_rfc9438_state.limited_since.get_or_insert(now);
    } else if r.congestion_window < r.ssthresh.get() {
        slow_start(r, packet, now, rtt_stats);
    } else {
        congestion_avoidance(r, packet.size as f64, now, rtt_stats);
    }
}

/// Slow start with HyStart++, section 4.10.
fn slow_start(r: &mut Congestion, packet: &Acked, now: Instant, rtt_stats: &RttStats) {
    let growth = if r.hystart.in_css() { r.hystart.css_cwnd_inc(packet.size) } else { packet.size };
    grow(r, growth as f64);
    if r.hystart.on_packet_acked(packet, rtt_stats.latest_rtt, now) {
        r.ssthresh.update(r.congestion_window, true);
    }
}

/// Sections 4.2 to 4.5, for one acknowledged packet.
fn congestion_avoidance(r: &mut Congestion, acked: f64, now: Instant, rtt_stats: &RttStats) {
    let segment = r.max_datagram_size as f64;
    let state = &mut r.cubic_rfc9438_state;
    let cwnd = r.congestion_window as f64 + state.growth;
    state.end_limited_phase(now);
    if state.epoch_start.is_none() {
        state.begin_stage(cwnd, segment, now);
    }
    let t = state.epoch_start.map_or(0.0, |start| now.saturating_duration_since(start).as_secs_f64());

    // Section 4.3. From Reno's window before the reduction on, Reno's growth.
    state.w_est += state.alpha * segment * acked / cwnd;
    if state.w_est >= state.cwnd_prior {
        state.alpha = 1.0;
    }
    let growth = if state.w_cubic(t, segment) < state.w_est {
        state.w_est - cwnd
    } else {
        // Sections 4.4 and 4.5.
        let target = state.w_cubic(t + rtt_stats.rtt().as_secs_f64(), segment).clamp(cwnd, 1.5 * cwnd);
        (target - cwnd) / cwnd * acked
    };
    grow(r, growth.max(0.0));
}

/// Lets the window grow, in whole segments.
fn grow(r: &mut Congestion, bytes: f64) {
    let segment = r.max_datagram_size as f64;
    let state = &mut r.cubic_rfc9438_state;
    let total = state.growth + bytes;
    let segments = (total / segment).floor();
    state.growth = total - segments * segment;
    // A float becomes an integer by saturation: no window grows past what a `usize` can hold.
    #[allow(clippy::cast_possible_truncation, reason = "the value is whole, and the cast saturates")]
    let whole = (segments * segment) as usize;
    r.congestion_window = r.congestion_window.saturating_add(whole);
}

fn congestion_event(
    r: &mut Congestion,
    bytes_in_flight: usize,
    _lost_bytes: usize,
    largest_lost: &Sent,
    now: Instant,
) {
    let in_recovery = r.in_congestion_recovery(largest_lost.time_sent);
    let state = &mut r.cubic_rfc9438_state;
    let answer = state.near_ratio.take().map_or(Answer::PLAIN, Answer::near);
    // Once per round trip. A plain loss in a recovery that a near loss began gets its own answer, in its place.
    let deepens = in_recovery
        && answer == Answer::PLAIN
        && state.last_plain.is_none_or(|at| largest_lost.time_sent > at);
    if in_recovery && !deepens {
        return;
    }
    let (cwnd, w_max) = if deepens {
        (state.cwnd_prior, state.w_max_prior)
    } else {
        (r.congestion_window as f64, state.w_max)
    };

    // Fast convergence, section 4.7.
    state.w_max_prior = w_max;
    state.w_max = if cwnd < w_max { cwnd * (1.0 + answer.beta) / 2.0 } else { cwnd };

    // Section 4.6, from the window rather than the flight: an application-limited flow has not grown it.
    state.cwnd_prior = cwnd;
    #[allow(clippy::cast_possible_truncation, reason = "less than the window, which is an integer")]
    let reduced = ((cwnd * answer.beta) as usize).min(r.congestion_window);
    let ssthresh = reduced.max(r.max_datagram_size * MINIMUM_WINDOW_PACKETS);
    state.answer = answer;
    state.growth = 0.0;
    state.begin_stage(ssthresh as f64, r.max_datagram_size as f64, now);
    if answer == Answer::PLAIN {
        state.last_plain = Some(now);
    }
    r.congestion_recovery_start_time = Some(now);
    r.ssthresh.update(ssthresh, r.hystart.in_css());
    r.congestion_window = ssthresh;
    if r.hystart.in_css() {
        r.hystart.congestion_event();
    }
    r.prr.congestion_event(bytes_in_flight);
}

fn debug_fmt(r: &Congestion, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
    write!(f, "cubic_rfc9438={:?} ", r.cubic_rfc9438_state)
}

#[cfg(test)]
mod tests;
