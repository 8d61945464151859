//! What the second uplink may carry while the first one is silent.

use std::time::{Duration, Instant};

/// So much of the rate may be saved up.
const BURST: Duration = Duration::from_millis(100);

/// The bytes that the second uplink may carry for all flows together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Carry {
    /// Bytes a second.
    rate: f64,
    /// The bytes that are left of all.
    left: u64,
    saved: f64,
    at: Option<Instant>,
}

impl Carry {
    pub(super) fn new(mbit: f64, budget: u64) -> Self {
        Self { rate: mbit * 1e6 / 8.0, left: budget, saved: 0.0, at: None }
    }

    /// Charges the bytes of what arrived, which nobody can refuse.
    pub(super) fn charge(&mut self, len: usize) {
        self.left = self.left.saturating_sub(len as u64);
        self.saved -= len as f64;
    }

    /// Whether more may be requested.
    pub(super) fn is_open(&mut self, now: Instant) -> bool {
        self.rate > 0.0 && self.spend(0, now) && self.left > 0
    }

    /// Spends the bytes of a datagram, if there are so many.
    pub(super) fn spend(&mut self, len: usize, now: Instant) -> bool {
        let burst = self.rate * BURST.as_secs_f64();
        let earned =
            self.at.map_or(burst, |at| self.rate * now.saturating_duration_since(at).as_secs_f64());
        self.at = Some(now);
        self.saved = (self.saved + earned).min(burst);
        let (bytes, cost) = (len as u64, len as f64);
        let affords = bytes <= self.left && cost <= self.saved;
        if affords {
            self.left -= bytes;
            self.saved -= cost;
        }
        affords
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares with the rate over the whole time, and with the budget.
        #[test]
        #[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
        fn a_second_uplink_carries_no_more_than_it_may(
            mbit in 0_u32..50,
            budget in 0_u64..2_000_000,
            datagrams in prop::collection::vec((1_usize..1500, 0_u64..20_000), 1..400),
        ) {
            let begun = Instant::now();
            let (mut now, mut carried) = (begun, 0);
            let mut carry = Carry::new(mbit.into(), budget);
            for (len, pause) in datagrams {
                now += Duration::from_micros(pause);
                if carry.spend(len, now) {
                    carried += len as u64;
                }
                let rate = f64::from(mbit) * 1e6 / 8.0;
                let most = rate * (now - begun + BURST).as_secs_f64();
                prop_assert!(carried <= budget && carried as f64 <= most + 1.0);
            }
            // What a rate allows passes, as far as the budget goes.
            let mut steady = Carry::new(8.0, budget);
            let passed = (0..100).filter(|at| {
                steady.spend(1000, begun + Duration::from_millis(*at))
            });
            prop_assert_eq!(passed.count() as u64, 100.min(budget / 1000));
        }
    }
}
