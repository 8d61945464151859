//! The pace at which a session's copies leave (SPEC.md, section 6.8).
//!
//! A range may have 64 copies, and a request 16 ranges. Sent at once, they would overflow the queue
//! of the near segment, and be lost again. So copies leave at a multiple of the flow's own recent
//! rate, with a burst like that of a new connection (RFC 9002, section 7.7). The owner refills the
//! pacer when it learns the time, and waits a tick when it is empty, so no copy needs a timer of
//! its own.

use std::time::{Duration, Instant};

/// Copies leave at this multiple of the rate of the flow. Repairs then overtake the flow, also when
/// it loses half of its datagrams.
const FACTOR: u128 = 4;
/// The bytes that may leave at once: sixteen full datagrams.
const BURST: usize = 24 << 10;
/// A short datagram costs the near segment as much as one of this many bytes.
const LEAST_COST: usize = 256;
/// How long to wait when nothing is left.
const TICK: Duration = Duration::from_millis(1);
/// The rate of a new flow is computed over at least this time.
const LEAST_SPAN: Duration = Duration::from_millis(10);

/// The cost of a datagram of this many bytes, in bytes.
pub(super) fn cost(len: usize) -> usize {
    len.max(LEAST_COST)
}

/// The recent traffic of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Passed {
    /// The [`cost`] of all datagrams.
    pub(super) cost: usize,
    /// The time since the first of them.
    pub(super) span: Duration,
}

#[derive(Debug)]
pub(super) struct Pacer {
    left: usize,
    refilled: Option<Instant>,
}

impl Default for Pacer {
    fn default() -> Self {
        Self { left: BURST, refilled: None }
    }
}

impl Pacer {
    /// Adds the bytes that may leave for the time since the last call.
    pub(super) fn refill(&mut self, passed: Passed, now: Instant) {
        let last = self.refilled.map_or(now, |last| last.min(now));
        let elapsed = now.saturating_duration_since(last).as_nanos();
        let span = passed.span.max(LEAST_SPAN).as_nanos().max(1);
        let cost = u128::try_from(passed.cost).unwrap_or(u128::MAX);
        let more = cost.saturating_mul(FACTOR).saturating_mul(elapsed) / span;
        self.left =
            self.left.saturating_add(usize::try_from(more).unwrap_or(usize::MAX)).min(BURST);
        self.refilled = Some(now);
    }

    /// Spends the cost of a datagram of this many bytes. Returns false, and spends nothing, if less
    /// is left.
    pub(super) fn spend(&mut self, len: usize) -> bool {
        let left = self.left.checked_sub(cost(len));
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }

    /// When to refill the pacer if nothing is left.
    pub(super) fn next(&self) -> Option<Instant> {
        self.refilled.map(|at| at + TICK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    #[allow(clippy::disallowed_methods, reason = "any instant will do to begin with")]
    fn start() -> Instant {
        Instant::now()
    }

    /// How many datagrams of this length leave within this many ticks.
    fn leave(passed: Passed, len: usize, ticks: u32) -> usize {
        let (mut pacer, mut now, mut count) = (Pacer::default(), start(), 0);
        for _ in 0..=ticks {
            pacer.refill(passed, now);
            while pacer.spend(len) {
                count += 1;
            }
            now = pacer.next().unwrap();
        }
        count
    }

    #[test]
    fn a_burst_leaves_at_once_and_the_rest_at_four_times_the_rate() {
        // 10 Mbit/s: 1250 bytes a millisecond.
        let passed = Passed { cost: 250_000, span: 200 * MS };
        assert_eq!(leave(passed, 1500, 0), 16);
        assert_eq!(leave(passed, 1000, 100), (BURST + 4 * 125_000) / 1000);
        assert_eq!(leave(passed, 4, 0), BURST / LEAST_COST, "short ones are not free");
        let slow = Passed { cost: 1500, span: 1000 * MS };
        assert_eq!(leave(slow, 1500, 1000), 20);
        let begun = Passed { cost: 1500, span: Duration::ZERO };
        assert_eq!(leave(begun, 1500, 10), 20, "at the rate of the first ten milliseconds");
    }

    proptest! {
        #[test]
        fn no_more_leaves_than_the_burst_and_the_rate_allow(
            steps in prop::collection::vec((0_u64..5_000, 1_usize..1500), 1..200),
            cost in 0_usize..4_000_000,
            span in 0_u64..1_000,
        ) {
            let passed = Passed { cost, span: Duration::from_millis(span) };
            let (mut pacer, mut now, mut spent, mut elapsed) = (Pacer::default(), start(), 0, 0);
            pacer.refill(passed, now);
            for (wait, len) in steps {
                now += Duration::from_micros(wait);
                elapsed += u128::from(wait);
                pacer.refill(passed, now);
                while pacer.spend(len) {
                    spent += super::cost(len);
                }
                let span = u128::from(span.max(10)) * 1000;
                let most = BURST as u128 + cost as u128 * FACTOR * elapsed / span;
                prop_assert!(spent as u128 <= most, "{spent} of {most}");
            }
        }
    }
}
