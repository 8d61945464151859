//! How long lists waited in a queue (SPEC.md, appendix A.8).

use crate::clock::Least;
use crate::wire::ListTime;
use std::time::{Duration, Instant};

/// How long the delay of a list stands for that of the packets around it.
const FRESH: Duration = Duration::from_millis(100);

/// Times are modulo this.
const MODULUS: i64 = 1 << 16;
/// From this difference on, a delay is up to 0.26 s shorter than the least one, instead of up to
/// 0.79 s longer: a stall is longer than the shortest delay falls at once.
const LEAST_SHORTER: u16 = 0xc000;

/// The delays of lists from the proxy to here. Their clocks differ, so only differences count.
#[derive(Debug, Default)]
pub(super) struct OneWay {
    /// When the first list arrived, and its time.
    begun: Option<(Instant, ListTime)>,
    /// The least delay of late, in units of the list's time.
    least: Least<i64>,
    /// The queue of the latest list, and when it arrived.
    latest: Option<(Duration, Instant)>,
}

impl OneWay {
    /// Notes a list of this time. Returns how long it waited in a queue.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "modulo 2^16")]
    pub(super) fn note(&mut self, time: ListTime, now: Instant) -> Duration {
        let (at, first) = *self.begun.get_or_insert((now, time));
        let delay = ListTime::since(at, now).0.wrapping_sub(time.after(first));
        let least = self.least.get().unwrap_or(0);
        // Modulo 2^16, most differences are a longer delay, and the highest ones a shorter one.
        let over = delay.wrapping_sub(least.rem_euclid(MODULUS) as u16);
        let over = i64::from(over) - if over < LEAST_SHORTER { 0 } else { MODULUS };
        self.least.note(least + over, now);
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
        // A stall is no shorter delay, nor does it hide a queue afterwards.
        assert!(seen(10_500 * MS, 602 * MS) > 590 * MS);
        assert!(seen(11_200 * MS, 7 * MS).abs_diff(5 * MS) <= ListTime::UNIT);
        // The least delay is shorter than the first one was.
        assert_eq!(seen(11_300 * MS, MS), Duration::ZERO);
        assert!(seen(11_301 * MS, 2 * MS).abs_diff(MS) <= ListTime::UNIT);
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
    fn any_time_gives_a_queue_below_a_second() {
        let (begun, mut one_way) = (Instant::now(), OneWay::default());
        let mut time: u16 = 1;
        for step in 0..100_000 {
            time = time.wrapping_mul(31_011).wrapping_add(7);
            let queue = one_way.note(ListTime(time), begun + step * MS);
            assert!(queue < ListTime::UNIT * u32::from(LEAST_SHORTER), "{step}: {queue:?}");
        }
    }
}
