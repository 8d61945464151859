//! Lone packets: polling soon after a packet that is far from those before, while the near segment
//! loses some (SPEC.md, section 7.4).

use super::Established;
use super::timeouts::SOON;
use std::time::{Duration, Instant};

/// The near segment is lossy for this time after a packet was declared lost.
const LOSSY: Duration = Duration::from_secs(10);
/// The most packets that count as lone: a message may take two.
const MOST: usize = 2;

/// The state for lone packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lone {
    /// The identifier of the latest packet that was sent while the log was empty, if that was a
    /// near RTT or more after the packet before it.
    first: Option<u32>,
    /// When a packet was last declared lost, if none was reported since that had been.
    lost_at: Option<Instant>,
}

impl Established {
    /// Notes a packet that is being sent while the log is empty.
    pub(super) fn note_lone(&mut self, identifier: u32, now: Instant) {
        let near_rtt = self.near_rtt.smoothed().map(|_| self.near_rtt.rough());
        let is_apart = near_rtt
            .zip(self.history.last_sent())
            .is_some_and(|(near_rtt, sent)| sent + near_rtt <= now);
        self.lone.first = is_apart.then_some(identifier);
    }

    /// Notes that a packet was declared lost.
    pub(super) fn note_loss(&mut self, now: Instant) {
        self.lone.lost_at = Some(now);
    }

    /// Notes that a packet was reported although it had been declared lost.
    pub(super) fn note_false_loss(&mut self) {
        self.lone.lost_at = None;
    }

    /// How soon after its latest packet the sender polls, if the packets of the log are lone. A
    /// POLL does not overtake a packet that it follows at this distance.
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
                || self.epoch.steady.holds();
        let delay = self.near_rtt.overtaking_by_jitter().filter(|_| !is_reported)?;
        Some(delay.min(self.near_rtt.probe_timeout()))
    }
}
