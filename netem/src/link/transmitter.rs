//! When packets leave a link's queue, and when their transmission ends.

use std::sync::Arc;
use std::time::Duration;

use super::config::LinkConfig;
use super::trace::{Cursor, Trace};
use crate::units::{BitRate, Percent};

/// mahimahi counts less than a whole frame: it has 4 bytes before the IP header, not 14. This is
/// the difference.
const TRACE_LESS_BYTES: u64 = 10;

#[derive(Debug)]
enum Pace {
    Unlimited,
    Rate(BitRate),
    Trace(Arc<Trace>, Cursor),
}

/// Sends one packet after the other, by a rate or a trace.
#[derive(Debug)]
pub(super) struct Transmitter {
    pace: Pace,
    overhead_bytes: u64,
    idle_at: Duration,
    /// When this configuration began. The room of an earlier trace is lost.
    since: Duration,
}

impl Transmitter {
    pub(super) fn new(config: &LinkConfig) -> Self {
        let pace = match (&config.trace, config.rate) {
            (Some(trace), _) => Pace::Trace(Arc::clone(trace), Cursor::default()),
            (None, Some(rate)) => Pace::Rate(rate),
            (None, None) => Pace::Unlimited,
        };
        Self {
            pace,
            overhead_bytes: config.overhead_bytes,
            idle_at: Duration::ZERO,
            since: Duration::ZERO,
        }
    }

    /// Applies another configuration. The packet in transmission does not change.
    pub(super) fn set_config(&mut self, now: Duration, config: &LinkConfig) {
        let mut next = Self::new(config);
        (next.idle_at, next.since) = (self.idle_at, now);
        if let (Pace::Trace(old, at), Pace::Trace(new, cursor)) = (&self.pace, &mut next.pace)
            && old == new
        {
            *cursor = *at;
        }
        *self = next;
    }

    /// When the last packet has left.
    pub(super) fn idle_at(&self) -> Duration {
        self.idle_at
    }

    /// When a packet can begin to leave if it waits from `since` on.
    pub(super) fn ready_at(&self, since: Duration) -> Duration {
        let since = since.max(self.idle_at).max(self.since);
        match &self.pace {
            Pace::Trace(trace, cursor) => cursor.ready_at(trace, since),
            Pace::Unlimited | Pace::Rate(_) => since,
        }
    }

    /// Sends a frame that begins to leave at `start`, and returns when it has left. `share`: of the
    /// rate, if only that is left.
    pub(super) fn send(
        &mut self,
        start: Duration,
        frame_bytes: u64,
        share: Option<Percent>,
    ) -> Duration {
        let bytes = frame_bytes + self.overhead_bytes;
        let bytes = share.map_or(bytes, |share| slowed(bytes, share));
        self.idle_at = match &mut self.pace {
            Pace::Unlimited => start,
            Pace::Rate(rate) => start + rate.time_for(bytes),
            Pace::Trace(trace, cursor) => {
                cursor.send(trace, start, bytes.saturating_sub(TRACE_LESS_BYTES))
            }
        };
        self.idle_at
    }
}

/// The bytes that take as long at the full rate.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a product of positive numbers far below 2^63"
)]
fn slowed(bytes: u64, share: Percent) -> u64 {
    (bytes as f64 * 100.0 / share.get().max(1.0)).round() as u64
}
