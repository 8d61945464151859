//! Packets that are far apart: polling soon after each while the near segment loses some (SPEC.md,
//! section 7.4).

use super::Established;
use super::timeouts::SOON;
use std::time::{Duration, Instant};

/// The near segment is lossy for this time after a packet was declared lost.
const LOSSY: Duration = Duration::from_secs(10);
/// The most packets of the log among which one is far from the others. A message may take two.
const MOST: usize = 2;

/// Whether the latest packets are far from those before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lone {
    /// The oldest packet of the log left a near RTT or more after the one before.
    is_apart: bool,
    /// When a packet was last declared lost.
    lost_at: Option<Instant>,
}

impl Established {
    /// Notes a packet that is being sent while the log is empty.
    pub(super) fn note_lone(&mut self, now: Instant) {
        let apart = self.near_rtt.smoothed().zip(self.history.last_sent());
        self.lone.is_apart = apart.is_some_and(|(near_rtt, sent)| sent + near_rtt <= now);
    }

    /// Notes that a packet was declared lost.
    pub(super) fn note_loss(&mut self, now: Instant) {
        self.lone.lost_at = Some(now);
    }

    /// How soon after its latest packet the sender polls, if the log has few packets, they are far
    /// from those before, and the near segment is lossy. A POLL does not overtake a packet that it
    /// follows at this distance.
    pub(super) fn poll_delay(&self) -> Option<Duration> {
        let latest = self.history.last_sent()?;
        let is_lossy = self.lone.lost_at.is_some_and(|lost| latest < lost + LOSSY);
        let is_lone = self.lone.is_apart && self.history.pending.len() <= MOST;
        // The proxy reports such packets by itself.
        let terms = &self.granted;
        let is_reported = terms.every_packets.is_some_and(|n| usize::from(n.get()) <= MOST)
            || terms.every.is_some_and(|every| every <= SOON)
            || self.epoch.steady.holds();
        let is_lone = is_lone && !is_reported;
        let delay = self.near_rtt.overtaking_by_jitter().filter(|_| is_lossy && is_lone)?;
        Some(delay.min(self.near_rtt.probe_timeout()))
    }
}
