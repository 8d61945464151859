//! Measurements of the path, and what they reveal about the near segment.

use quiche::{BufFactory, Connection};
use sidekick_protocol::Sender;
use std::time::{Duration, Instant};

/// A queue that fills up delays packets by more than this. It also delays them by more than the
/// near round trip without it. A smaller delay is jitter, for example of a radio.
const STANDING_QUEUE: Duration = Duration::from_millis(5);
/// CUBIC fills a queue until it overflows. For CUBIC a full queue also delays packets by more than
/// this share of the whole round trip. So a proxy that answers slowly does not look like a queue.
const FULL_QUEUE: f64 = 0.1;
/// A proxy that takes a larger share of the round trip is nearer to the receiver.
const FAR_SHARE: f64 = 0.5;
/// The near round trip is a part of the whole one. But both are averages, so the near one may
/// exceed the whole one by this factor.
const PROMPT: f64 = 1.25;
/// A queue must stand for this many round trips of the whole path. BBR2 fills a queue when it
/// searches for bandwidth, and drains it within them. A random loss meanwhile is no congestion.
/// After a loss in a queue that stands, the near segment counts as congested for as long.
const ROUND_TRIPS: u32 = 3;
/// quACKs that are further apart than this, and than a round trip, show no queue that stands.
const IDLE: Duration = Duration::from_millis(100);
/// How long a loss in a queue that overflows counts for CUBIC. It fills the queue again later.
const MEMORY: Duration = Duration::from_secs(1);

/// Measurements of the path when packets turn out to be lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// The smoothed round-trip time to the proxy.
    pub(crate) near: Duration,
    /// The smoothed delay that the near segment adds now, by a queue or by a radio.
    pub(crate) queueing: Duration,
    /// The least delay that the near segment added to any of the latest packets. Only a queue
    /// delays all of them.
    pub(crate) standing: Duration,
    /// The round-trip time of the whole path.
    pub(crate) whole: Duration,
}

impl Measured {
    /// The present measurements of a path; `None` until both round-trip times are measured.
    pub(crate) fn of<F: BufFactory>(
        sender: &Sender,
        conn: &Connection<F>,
        path_id: usize,
    ) -> Option<Self> {
        let (near, whole) = (sender.near_rtt()?, conn.sidekick_rtt(path_id)?);
        let queueing = sender.near_queueing().unwrap_or_default();
        let standing = sender.near_standing_queue().unwrap_or_default();
        Some(Self { near, queueing, standing, whole })
    }

    /// Whether this delay before the proxy is a queue that fills up.
    fn is_queue(self, delay: Duration) -> bool {
        delay > STANDING_QUEUE.max(self.near.saturating_sub(self.queueing))
    }

    /// Whether a queue stands before the proxy.
    fn is_queued(self) -> bool {
        self.is_queue(self.standing)
    }

    /// Whether a queue before the proxy is about to overflow, for a controller that fills queues.
    /// It holds also where quACKs are so far apart that a queue drains between them.
    pub(crate) fn is_overflowing(self) -> bool {
        self.queueing > self.whole.mul_f64(FULL_QUEUE) && self.is_queue(self.queueing)
    }

    /// Whether the proxy is nearer to the receiver than to the sender, by time, and answers about
    /// as fast as the receiver.
    pub(crate) fn is_prompt_far_proxy(self) -> bool {
        self.near > self.whole.mul_f64(FAR_SHARE) && self.near < self.whole.mul_f64(PROMPT)
    }
}

/// The queue before the proxy as time passes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NearQueue {
    standing_since: Option<Instant>,
    observed: Option<Instant>,
    congested_until: Option<Instant>,
}

impl NearQueue {
    /// Notes the measurements at `now`, whether packets were lost or not.
    pub(crate) fn observe(&mut self, measured: Measured, now: Instant) {
        // While a connection is idle, nothing measures the queue, and it may drain.
        let before = self.observed.replace(now);
        let idle = measured.whole.max(IDLE);
        let is_fresh = before.is_some_and(|at| now.saturating_duration_since(at) <= idle);
        let since = self.standing_since.filter(|_| is_fresh).unwrap_or(now);
        self.standing_since = measured.is_queued().then_some(since);
    }

    /// Whether losses at `now` are congestion: a queue stands, or did when packets were lost a
    /// short time ago.
    pub(crate) fn is_congested(&mut self, measured: Option<Measured>, now: Instant) -> bool {
        if let Some(measured) = measured {
            let long = ROUND_TRIPS * measured.whole;
            let stands = |since| now.saturating_duration_since(since) >= long;
            if self.standing_since.is_some_and(stands) {
                self.congested_until = Some(now + long);
            }
        }
        self.is_remembered(now)
    }

    /// As [`is_congested`](Self::is_congested), for a controller that fills queues.
    pub(crate) fn is_overflowing(&mut self, measured: Option<Measured>, now: Instant) -> bool {
        if measured.is_some_and(Measured::is_overflowing) {
            self.congested_until = Some(now + MEMORY);
        }
        self.is_remembered(now)
    }

    fn is_remembered(&self, now: Instant) -> bool {
        self.congested_until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const MS: Duration = Duration::from_millis(1);

    pub(crate) fn measured(near: u32, queueing: u32, whole: u32) -> Measured {
        let queueing = queueing * MS;
        Measured { near: near * MS, queueing, standing: queueing, whole: whole * MS }
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "any instant will do")]
    fn a_queue_stands_only_while_it_is_measured() {
        let begun = Instant::now();
        for (idle, is_congested) in [(0, true), (60, true), (2000, false)] {
            let mut queue = NearQueue::default();
            let standing = measured(30, 25, 50);
            let (first, second) = ((0..10).map(|n| n * 20), (10..15).map(|n| n * 20 + idle));
            for at in first.chain(second) {
                queue.observe(standing, begun + at * MS);
            }
            let now = begun + (14 * 20 + idle) * MS;
            assert_eq!(queue.is_congested(Some(standing), now), is_congested, "{idle} ms");
        }
    }

    #[test]
    fn a_queue_that_overflows_is_a_part_of_the_round_trip() {
        for (measured, overflows) in [
            (measured(9, 7, 80), false),
            (measured(50, 48, 100), true),
            (measured(300, 20, 700), false),
        ] {
            assert_eq!(measured.is_overflowing(), overflows, "{measured:?}");
        }
    }
}
