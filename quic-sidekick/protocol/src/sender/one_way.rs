//! How long lists waited in a queue (SPEC.md, appendix A.8).

use crate::clock::Least;
use crate::wire::ListTime;
use std::time::{Duration, Instant};

/// A delay tells of the queue for so long.
const FRESH: Duration = Duration::from_millis(100);

/// The delays of lists from the proxy to here. Their clocks differ, so only differences count.
#[derive(Debug, Default)]
pub(super) struct OneWay {
    /// When the first list arrived, and its time.
    begun: Option<(Instant, ListTime)>,
    /// The least delay of late, in units of the list's time.
    least: Least<i16>,
    /// The queue of the latest list, and when it arrived.
    latest: Option<(Duration, Instant)>,
}

impl OneWay {
    /// Notes a list of this time. Returns how long it waited in a queue.
    pub(super) fn note(&mut self, time: ListTime, now: Instant) -> Duration {
        let (at, first) = *self.begun.get_or_insert((now, time));
        let here = ListTime::since(at, now).after(ListTime::default());
        // A delay beyond half a second wraps, and makes other delays look long for a while.
        let delay = here.wrapping_sub(time.after(first)).cast_signed();
        self.least.note(delay, now);
        let over = delay.wrapping_sub(self.least.get().unwrap_or(delay));
        let queue = ListTime::UNIT * u32::try_from(over).unwrap_or(0);
        self.latest = Some((queue, now));
        queue
    }

    /// How long the latest list waited, if it arrived a short time ago.
    pub(super) fn queue(&self, now: Instant) -> Option<Duration> {
        let latest = self.latest.filter(|(_, at)| now.saturating_duration_since(*at) < FRESH);
        latest.map(|(queue, _)| queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    #[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
    fn a_queue_shows_although_clocks_differ_and_wrap() {
        let (begun, mut one_way) = (Instant::now(), OneWay::default());
        let mut seen = |at: Duration, delay: Duration| {
            let now = begun + at + delay;
            let queue = one_way.note(ListTime::since(begun, begun + at + 777 * MS), now);
            assert_eq!(one_way.queue(now + 99 * MS), Some(queue));
            assert_eq!(one_way.queue(now + 100 * MS), None);
            queue
        };
        for step in 0..500 {
            let delay = if step % 5 == 4 { 7 * MS } else { 2 * MS };
            let queue = seen(step * 20 * MS, delay);
            assert!(queue.abs_diff(delay - 2 * MS) <= ListTime::UNIT, "{step}: {queue:?}");
        }
        // The least delay is shorter than the first one was.
        assert_eq!(seen(11_000 * MS, MS), Duration::ZERO);
        assert!(seen(11_001 * MS, 2 * MS).abs_diff(MS) <= ListTime::UNIT);
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
    fn any_time_gives_a_queue_below_half_a_second() {
        let (begun, mut one_way) = (Instant::now(), OneWay::default());
        let mut time: u16 = 1;
        for step in 0..100_000 {
            time = time.wrapping_mul(31_011).wrapping_add(7);
            let queue = one_way.note(ListTime(time), begun + step * MS);
            assert!(queue <= ListTime::UNIT * 32_768, "{step}: {queue:?}");
        }
    }
}
