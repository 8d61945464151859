//! Flows with a steady interval: the sender asks the proxy to report overdue packets instead of
//! arrivals (SPEC.md, section 7.4).

use super::{Epoch, Established};
use crate::clock::{micros, scale};
use crate::sender::config::SenderConfig;
use crate::sender::effects::Context;
use crate::wire::{Quack, Steady};
use std::time::{Duration, Instant};

/// The proxy also sends a quACK about this often, so that the sender detects a silent proxy.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);
/// The most packets between two quACKs.
const MOST_PACKETS: u128 = 64;
/// The most requests for an interval in an epoch. A proxy that does not support STEADY drops it.
const ATTEMPTS: u32 = 5;
/// A packet is lost if it was due this long before a report of silence.
const LATE: Duration = Duration::from_millis(1);
/// For this many intervals, the proxy may still report a packet that was declared lost.
const GRACE: u32 = 3;

/// The latest request of an epoch.
#[derive(Clone, Copy, Debug)]
struct Asked {
    interval: Duration,
    token: u16,
    again: Instant,
    attempts: u32,
}

/// The state of an epoch.
#[derive(Debug, Default)]
pub(super) struct Steadiness {
    asked: Option<Asked>,
    /// The interval that the proxy watches; zero if it watches none.
    agreed: Duration,
    /// The newest reported packet: its identifier, and when it was sent.
    latest: Option<(u32, Instant)>,
    /// When the sender sent the latest unexpected packet. The proxy does not expect it, and so does
    /// not report it as overdue.
    unexpected: Option<Instant>,
}

impl Steadiness {
    /// Whether the proxy reports overdue packets.
    pub(super) fn holds(&self) -> bool {
        !self.agreed.is_zero()
    }

    /// Records the newest reported packet, and when it was sent.
    pub(super) fn on_progress(&mut self, identifier: u32, sent: Instant) {
        self.latest = Some((identifier, sent));
    }

    /// Records that the proxy answered the message with this token.
    pub(super) fn answered(&mut self, token: u16) {
        if let Some(asked) = self.asked.filter(|asked| asked.token == token) {
            self.agreed = asked.interval;
        }
    }

    /// The proxy also sends a quACK after this many packets.
    pub(super) fn every_packets(&self) -> u16 {
        every_packets(self.agreed)
    }

    /// How much longer than in other flows the proxy may report a packet that was declared lost.
    pub(super) fn grace(&self) -> Duration {
        scale(self.agreed, GRACE, 1)
    }
}

/// The flow's interval if it is steady and the proxy watches it, and otherwise zero.
fn interval(config: &SenderConfig) -> Duration {
    let steady = config.steady.filter(|interval| *interval <= Steady::LONGEST_INTERVAL);
    Duration::from_micros(steady.map_or(0, micros).into())
}

/// The number of packets from one quACK to the next while none is overdue.
fn every_packets(interval: Duration) -> u16 {
    let packets = REPORT_INTERVAL.as_micros().checked_div(interval.as_micros()).unwrap_or(1);
    u16::try_from(packets.clamp(1, MOST_PACKETS)).unwrap_or(u16::MAX)
}

impl Established {
    /// When to ask the proxy to watch the flow, or to stop. The sender waits until it can read the
    /// quACKs of the epoch.
    pub(super) fn steady_at(&self, config: &SenderConfig) -> Option<Instant> {
        let Epoch { steady, sequence, .. } = &self.epoch;
        let is_ready = sequence.is_some() && self.renewing.is_none() && self.epoch.wanted_sums == 0;
        let is_measured = self.near_rtt.smoothed().is_some();
        let wanted = interval(config);
        if !is_ready || !is_measured || wanted == steady.agreed {
            return None;
        }
        self.reconciler.aligned_count()?;
        match steady.asked.filter(|asked| asked.interval == wanted) {
            None => Some(self.last_quack_at),
            Some(asked) => (asked.attempts < ATTEMPTS).then_some(asked.again),
        }
    }

    /// Queues a STEADY, which the proxy answers like a POLL.
    pub(super) fn ask_to_watch(&mut self, context: &mut Context<'_>) {
        let Some((token, _)) = self.begin_poll(context) else { return };
        let interval = interval(context.config);
        let asked = self.epoch.steady.asked.filter(|asked| asked.interval == interval);
        let attempts = asked.map_or(0, |asked| asked.attempts) + 1;
        let again = context.now + self.near_rtt.retry_interval();
        self.epoch.steady.asked = Some(Asked { interval, token, again, attempts });
        self.steady_waits = Some(Steady {
            epoch: self.epoch.number,
            token,
            interval_us: micros(interval),
            every_packets: every_packets(interval),
        });
    }

    /// Records a packet that is sent, if it is unexpected. A re-injected one keeps to no interval.
    /// The proxy may mistake a packet soon after another for that one.
    #[inline]
    pub(super) fn note_unexpected(&mut self, identifier: u32, now: Instant) {
        // This runs for every packet, and few flows are steady.
        if !self.epoch.steady.holds() {
            return;
        }
        let soon = self.epoch.steady.agreed / 2;
        let is_soon = self.history.last_sent().is_some_and(|sent| now < sent + soon);
        if is_soon || self.history.is_declared_lost(identifier) {
            self.epoch.steady.unexpected = Some(now);
        }
    }

    /// When the latest packet was sent that the sender polls for after the near probe timeout.
    /// `None` if the proxy itself reports overdue packets.
    pub(super) fn awaited_since(&self) -> Option<Instant> {
        let steady = &self.epoch.steady;
        if steady.holds() { steady.unexpected } else { self.history.last_sent() }
    }

    /// Handles a report of silence that decoded. Packets that were due before it are lost (SPEC.md,
    /// section 7.4).
    pub(super) fn on_silence(&mut self, quack: &Quack<'_>, context: &mut Context<'_>) {
        let is_last = |(identifier, _): &(u32, Instant)| *identifier == quack.last;
        let Some((_, sent)) = self.epoch.steady.latest.filter(is_last) else { return };
        let waited = Duration::from_micros(quack.age_us.into());
        if self.epoch.steady.holds() && quack.token == 0 && waited > LATE {
            self.declare_tail((sent + waited - LATE).min(context.now), context);
        }
    }

    /// Forgets the unexpected packet once it is settled. Call this after a quACK decodes.
    pub(super) fn forget_unexpected(&mut self) {
        let oldest = self.history.oldest();
        let is_settled = |at: &Instant| oldest.is_none_or(|oldest| oldest > *at);
        let unexpected = &mut self.epoch.steady.unexpected;
        *unexpected = unexpected.filter(|at| !is_settled(at));
    }
}
