//! What the second link carries while the first one is silent (SPEC.md, section 7.15).

use crate::sender::Sender;
use std::time::{Duration, Instant};

/// So much of the rate may be saved up.
const BURST: Duration = Duration::from_millis(100);

/// What the second link may carry, of one flow or of several: a rate, and the bytes of all time.
/// The default is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Carry {
    /// Bytes a second.
    rate: f64,
    /// The bytes that are left of all.
    left: u64,
    saved: f64,
    at: Option<Instant>,
}

impl Carry {
    /// As many Mbit/s each way, and `budget` bytes in total.
    #[must_use]
    pub fn new(mbit: f64, budget: u64) -> Self {
        Self { rate: mbit * 1e6 / 8.0, left: budget, saved: 0.0, at: None }
    }

    /// Whether it may carry anything.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.rate > 0.0
    }

    /// The bytes that it may still carry.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Charges the bytes of what arrived, which nobody can refuse.
    pub fn charge(&mut self, len: usize) {
        self.left = self.left.saturating_sub(len as u64);
        self.saved -= len as f64;
    }

    /// Whether more may be requested.
    fn is_open(&mut self, now: Instant) -> bool {
        self.is_any() && self.spend(0, now) && self.left > 0
    }

    /// Spends the bytes of a datagram, if there are so many.
    fn spend(&mut self, len: usize, now: Instant) -> bool {
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

/// Which datagrams of a flow the second link carries, while the first is silent.
#[derive(Clone, Debug, Default)]
pub struct Carrying {
    /// The tags of those that it carried, in ascending order.
    carried: Vec<u64>,
    /// The next that it may carry, while the first link is silent.
    from: Option<u64>,
}

impl Carrying {
    /// Whether the second link carried the datagram with this tag. The proxy does not count it, so
    /// it is found lost later, and needs no repair then.
    #[must_use]
    pub fn has(&self, tag: u64) -> bool {
        self.carried.binary_search(&tag).is_ok()
    }

    /// While the first link is silent, relays what left and is not reported, each datagram once,
    /// and requests what arrives, as far as `may` allows. `datagram` returns the one with a tag, if
    /// it is kept, and `next` is the tag of what leaves next; `class` is the traffic class of what
    /// is relayed. Returns how many were relayed. Call it after each input of the sender.
    pub fn carry<'a>(
        &mut self,
        sender: &mut Sender,
        may: &mut Carry,
        (next, class): (u64, u8),
        now: Instant,
        mut datagram: impl FnMut(u64) -> Option<&'a [u8]>,
    ) -> u64 {
        if !sender.first_link_is_silent() {
            self.from = None;
            return 0;
        }
        if may.is_open(now) {
            sender.fetch_by_second_link(now);
        }
        let tags: Vec<u64> = match self.from.replace(next) {
            Some(from) => (from..next).collect(),
            None => {
                // What was sent again has its old tag.
                let mut tags: Vec<u64> = sender.unreported().collect();
                tags.sort_unstable();
                let first = tags.first().copied().unwrap_or(next);
                self.carried.retain(|tag| *tag >= first);
                tags
            }
        };
        let before = self.carried.len();
        for tag in tags {
            let is_new = self.carried.last().is_none_or(|last| *last < tag);
            let Some(payload) = datagram(tag).filter(|_| is_new) else { continue };
            if may.spend(payload.len(), now) && sender.relay(class, payload, now) {
                self.carried.push(tag);
            }
        }
        (self.carried.len() - before) as u64
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
