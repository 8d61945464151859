//! Lone packets: while the near segment is lossy, the sender polls soon after a packet that follows
//! a long gap (SPEC.md, appendix A.2).

use super::Established;
use super::timeouts::SOON;
use std::time::{Duration, Instant};

/// The near segment counts as lossy for this time after a packet is declared lost.
const LOSSY: Duration = Duration::from_secs(10);
/// The most packets that count as lone: a message may fill two.
const MOST: usize = 2;

/// The state for lone packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lone {
    /// The identifier of the latest packet that was sent while the log was empty. `None` unless the
    /// packet before it left at least a near RTT earlier.
    first: Option<u32>,
    /// When a packet was last declared lost. `None` if the proxy has reported such a packet since.
    lost_at: Option<Instant>,
}

impl Established {
    /// Records a packet that is sent while the log is empty.
    pub(super) fn note_lone(&mut self, identifier: u32, now: Instant) {
        let near_rtt = self.near_rtt.smoothed().map(|_| self.near_rtt.rough());
        let is_apart = near_rtt
            .zip(self.history.last_sent())
            .is_some_and(|(near_rtt, sent)| sent + near_rtt <= now);
        self.lone.first = is_apart.then_some(identifier);
    }

    /// Records that a packet was declared lost.
    pub(super) fn note_loss(&mut self, now: Instant) {
        self.lone.lost_at = Some(now);
    }

    /// Records that the proxy reported a packet that had been declared lost.
    pub(super) fn note_false_loss(&mut self) {
        self.lone.lost_at = None;
    }

    /// The time from the latest packet to a poll, if the packets of the log are lone. A POLL this
    /// long after a packet does not overtake it.
    pub(super) fn poll_delay(&self) -> Option<Duration> {
        let pending = &self.history.pending;
        let first = pending.front()?.identifier;
        let is_lossy = self.lone.lost_at.zip(self.history.last_sent());
        let is_lossy = is_lossy.is_some_and(|(lost, latest)| latest < lost + LOSSY);
        if !is_lossy || self.lone.first != Some(first) || pending.len() > MOST {
            return None;
        }
        // The proxy reports some packets by itself.
        let terms = &self.granted;
        let is_reported =
            terms.every_packets.is_some_and(|n| usize::from(n.get()) <= pending.len())
                || terms.every.is_some_and(|every| every <= SOON)
                || self.scheduling.watches();
        let delay = self.near_rtt.overtaking_by_jitter().filter(|_| !is_reported)?;
        Some(delay.min(self.near_rtt.probe_timeout()))
    }
}
