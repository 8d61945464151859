//! Flows with a steady interval, of which the proxy reports overdue packets instead of arrivals
//! (SPEC.md, appendix A.3).

use super::Established;
use crate::sender::effects::Context;
use crate::wire::Quack;
use std::time::{Duration, Instant};

/// A packet is lost if it was due this long before a report of silence.
const LATE: Duration = Duration::from_millis(1);

/// The state of an epoch.
#[derive(Debug, Default)]
pub(super) struct Steadiness {
    /// The newest reported packet: its identifier, and when it was sent.
    latest: Option<(u32, Instant)>,
    /// When the sender sent the latest unexpected packet. The proxy does not expect it, and so does
    /// not report it as overdue.
    unexpected: Option<Instant>,
}

impl Steadiness {
    /// Records the newest reported packet, and when it was sent.
    pub(super) fn on_progress(&mut self, identifier: u32, sent: Instant) {
        self.latest = Some((identifier, sent));
    }
}

impl Established {
    /// Records a packet that is sent, if it is unexpected: a re-injected one keeps to no interval,
    /// and the proxy may mistake a packet soon after another for that one.
    #[inline]
    pub(super) fn note_unexpected(&mut self, identifier: u32, now: Instant) {
        // This runs for every packet, and few flows are steady.
        if !self.scheduling.watches() {
            return;
        }
        let soon = self.scheduling.interval() / 2;
        let is_soon = self.history.last_sent().is_some_and(|sent| now < sent + soon);
        if is_soon || self.history.is_declared_lost(identifier) {
            self.epoch.steady.unexpected = Some(now);
        }
    }

    /// When the latest packet was sent that the sender polls for after the near probe timeout.
    /// `None` if the proxy itself reports overdue packets.
    pub(super) fn awaited_since(&self) -> Option<Instant> {
        let is_watched = self.scheduling.watches();
        if is_watched { self.epoch.steady.unexpected } else { self.history.last_sent() }
    }

    /// Handles a report of silence that decoded. Packets that were due before it are lost (SPEC.md,
    /// section 7.4).
    pub(super) fn on_silence(&mut self, quack: &Quack<'_>, context: &mut Context<'_>) {
        let is_last = |(identifier, _): &(u32, Instant)| *identifier == quack.last;
        let Some((_, sent)) = self.epoch.steady.latest.filter(is_last) else { return };
        let waited = Duration::from_micros(quack.age_us.into());
        if self.scheduling.watches() && quack.token == 0 && waited > LATE {
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
