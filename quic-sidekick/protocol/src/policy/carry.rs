//! What the second link carries while the first one is silent (SPEC.md, section 7.15).

use crate::sender::{LostRelay, RelayAs, Sender};
use crate::wire::MAX_KEPT_LEN;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// So much of the rate may be saved up, which the queue of most links has room for, but no less
/// than one datagram.
const BURST: Duration = Duration::from_millis(20);
const LEAST_BURST: f64 = 1500.0;
/// What waits to be carried takes no longer than this.
const MOST_WAITING: Duration = Duration::from_millis(100);

/// How long what it carries waits for what it lost, at a receiver that minds the order.
pub(crate) const CARRIED_WAIT_MS: u8 = 100;

/// Shorter datagrams are taken for acknowledgements, which need no order.
const ORDERED_FROM: usize = 512;

/// Whether what a flow sends one way needs order, by the mean length of datagrams.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MindsOrder {
    mean: Option<usize>,
}

impl MindsOrder {
    /// Notes a datagram, and says whether it needs order.
    pub(crate) fn note(&mut self, len: usize) -> bool {
        let mean = self.mean.map_or(len, |mean| (15 * mean + len) / 16);
        self.mean = Some(mean);
        mean >= ORDERED_FROM
    }
}

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

    /// The bytes that may wait to be carried.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "below 2^53, and positive"
    )]
    fn most_waiting(&self) -> usize {
        (self.rate * MOST_WAITING.as_secs_f64()).max(LEAST_BURST) as usize
    }

    /// The most bytes that may be saved up.
    fn burst(&self) -> f64 {
        (self.rate * BURST.as_secs_f64()).max(LEAST_BURST)
    }

    /// Spends the bytes of a datagram, if there are so many.
    fn spend(&mut self, len: usize, now: Instant) -> bool {
        let burst = if self.is_any() { self.burst() } else { 0.0 };
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
    /// Those that wait for the rate.
    waiting: VecDeque<Waiting>,
    lost: Vec<LostRelay>,
    minds_order: MindsOrder,
}

/// A datagram that waits to be carried.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    tag: u64,
    /// It was relayed, and lost.
    again: Option<LostRelay>,
    len: usize,
}

/// How datagrams are carried.
#[derive(Clone, Copy, Debug)]
pub struct CarryAs {
    /// The tag of what leaves next.
    pub next: u64,
    /// The traffic class with which they leave the proxy.
    pub class: u8,
    /// They wait there for those that the second link lost.
    pub in_order: bool,
}

impl Carrying {
    /// Whether the second link carried the datagram with this tag. The proxy does not count it, so
    /// it is found lost later, and needs no repair then.
    #[must_use]
    pub fn has(&self, tag: u64) -> bool {
        self.carried.binary_search(&tag).is_ok()
    }

    /// While the first link is silent, relays what left and is not reported, each datagram once,
    /// and requests what arrives, as far as `may` allows. What the second link lost is relayed
    /// again. `datagram` returns the one with a tag, if it is kept. Returns how many were relayed
    /// for the first time. Call it after each input of the sender.
    pub fn carry<'a>(
        &mut self,
        sender: &mut Sender,
        may: &mut Carry,
        CarryAs { next, class, in_order }: CarryAs,
        now: Instant,
        mut datagram: impl FnMut(u64) -> Option<&'a [u8]>,
    ) -> u64 {
        sender.drain_lost_relays(&mut self.lost);
        for lost in self.lost.drain(..).rev() {
            if let Some(payload) = datagram(lost.tag).filter(|_| may.is_any()) {
                let (tag, again, len) = (lost.tag, Some(lost), payload.len());
                self.waiting.push_front(Waiting { tag, again, len });
            }
        }
        if sender.first_link_is_silent() {
            if may.is_open(now) {
                sender.fetch_by_second_link(now);
            }
            self.add_new(sender, may, next, &mut datagram);
        } else {
            self.from = None;
            self.waiting.retain(|it| it.again.is_some());
        }
        if self.waiting.is_empty() {
            return 0;
        }
        if !sender.repairs_by_second_link(now) {
            self.waiting.clear();
        }
        let mut carried = 0;
        while let Some(Waiting { tag, again, .. }) = self.waiting.front().copied() {
            if let Some(payload) = datagram(tag).filter(|it| it.len() as u64 <= may.left) {
                if !may.spend(payload.len(), now) {
                    break;
                }
                // The next acknowledgement stands for a lost one, too.
                let confirm = self.minds_order.note(payload.len()) || !in_order;
                let wait_ms = if confirm && in_order { CARRIED_WAIT_MS } else { 0 };
                let relay = RelayAs { tag, again, class, wait_ms, confirm };
                let is_sent = sender.relay(relay, payload, now);
                if is_sent && again.is_none() {
                    self.carried.push(tag);
                    carried += 1;
                }
            }
            self.waiting.pop_front();
        }
        carried
    }

    /// Adds what left since the last time, or, if the first link has just fallen silent, what is
    /// not reported, as long as it need not wait for long.
    fn add_new<'a>(
        &mut self,
        sender: &Sender,
        may: &Carry,
        next: u64,
        mut datagram: impl FnMut(u64) -> Option<&'a [u8]>,
    ) {
        let Self { carried, from, waiting, .. } = self;
        let tags: Vec<u64> = match from.replace(next) {
            Some(from) => (from..next).collect(),
            None => {
                // What was sent again has its old tag.
                let mut tags: Vec<u64> = sender.unreported().collect();
                tags.sort_unstable();
                let first = tags.first().copied().unwrap_or(next);
                carried.retain(|tag| *tag >= first);
                tags
            }
        };
        let mut bytes: usize = waiting.iter().map(|it| it.len).sum();
        for tag in tags {
            let is_new = carried.last().is_none_or(|last| *last < tag);
            let Some(len) = datagram(tag).filter(|_| is_new).map(<[u8]>::len) else { continue };
            if len <= MAX_KEPT_LEN && bytes + len <= may.most_waiting() {
                waiting.push_back(Waiting { tag, again: None, len });
                bytes += len;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn data_need_order_and_acknowledgements_do_not() {
        let minds = |lengths: &[usize]| {
            let mut minds = MindsOrder::default();
            lengths.iter().map(|len| minds.note(*len)).collect::<Vec<_>>()
        };
        assert_eq!(minds(&[1200, 40, 1200, 40, 40, 1200]), [true; 6], "with some of the peer's");
        assert_eq!(minds(&[40, 40, 300, 40, 1200, 40]), [false; 6], "with some data");
        let turned = minds(&[[40; 10], [1200; 10]].concat());
        assert!(turned[..12].iter().all(|it| !it) && turned[19]);
    }

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
                let burst = if mbit > 0 { carry.burst() } else { 0.0 };
                let most = burst + rate * (now - begun).as_secs_f64();
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
