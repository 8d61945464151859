//! The last packets sent: their contents, and the last datagram that carried each.
//!
//! A [`sidekick_protocol::Store`] is enough to re-inject datagrams. This one is also for
//! retransmissions of their contents, and keeps what NACKs and quACKs report of each packet.

use sidekick_protocol::Allowance;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The most re-injections of a packet. A burst of losses may drop several in a row, and the proxy
/// reports each.
const MAX_REINJECTED: u8 = 6;
/// The talker re-injects no packet that is older: most listeners have skipped it. One that still
/// needs it sends a NACK.
const MAX_AGE: Duration = Duration::from_secs(1);
/// The largest budget, in bytes.
const MAX_ALLOWANCE: usize = 64 * 1024;

/// Why a packet was sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Nack,
    Quack,
}

/// One transmission of a packet, which makes the datagram's tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transmission {
    /// The packet's place in the stream, from 0.
    pub(super) index: u32,
    /// 0 is the first.
    pub(super) attempt: u8,
}

impl Transmission {
    /// The tag of a datagram that is never sent again.
    pub(super) const NONE: u64 = u64::MAX;

    pub(super) fn tag(self) -> u64 {
        u64::from(self.index) << 8 | u64::from(self.attempt)
    }

    pub(super) fn from_tag(tag: u64) -> Option<Self> {
        let [.., attempt] = tag.to_be_bytes();
        Some(Self { index: u32::try_from(tag >> 8).ok()?, attempt })
    }
}

#[derive(Debug)]
pub(super) struct Kept {
    pub(super) content: Vec<u8>,
    /// RTP timestamp.
    pub(super) timestamp: u32,
    /// The last datagram: the packet itself, or its retransmission.
    pub(super) datagram: Vec<u8>,
    /// The last transmission.
    pub(super) attempt: u8,
    /// The proxy reported the last transmission.
    pub(super) passed: bool,
    /// When it was first sent.
    sent: Instant,
    reinjected: u8,
    /// When and why it was last sent again.
    pub(super) again: Option<(Instant, Cause)>,
}

/// The last `capacity` packets, with one budget for re-injections and retransmissions.
#[derive(Debug)]
pub(super) struct Store {
    kept: VecDeque<Kept>,
    /// The place of the first packet kept.
    first: u32,
    capacity: usize,
    allowance: Allowance,
}

impl Store {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            kept: VecDeque::with_capacity(capacity),
            first: 0,
            capacity,
            allowance: Allowance::new(MAX_ALLOWANCE),
        }
    }

    /// The place of the next packet.
    pub(super) fn next(&self) -> u32 {
        self.first.saturating_add(u32::try_from(self.kept.len()).unwrap_or(u32::MAX))
    }

    /// Keeps the next packet.
    pub(super) fn push(
        &mut self,
        content: Vec<u8>,
        timestamp: u32,
        datagram: Vec<u8>,
        now: Instant,
    ) {
        if self.kept.len() >= self.capacity {
            self.kept.pop_front();
            self.first = self.first.saturating_add(1);
        }
        self.allowance.earn(datagram.len());
        self.kept.push_back(Kept {
            content,
            timestamp,
            datagram,
            attempt: 0,
            passed: false,
            sent: now,
            reinjected: 0,
            again: None,
        });
    }

    /// Records that a packet is sent again, and returns its transmission. `None` if it is not kept,
    /// was re-injected too often, is too old, or exceeds the budget.
    pub(super) fn send_again(
        &mut self,
        index: u32,
        cause: Cause,
        now: Instant,
    ) -> Option<Transmission> {
        let at = self.at(index)?;
        let kept = self.kept.get_mut(at)?;
        let attempt = kept.attempt.checked_add(1)?;
        let by_quack = cause == Cause::Quack;
        let too_late = now.saturating_duration_since(kept.sent) > MAX_AGE;
        if by_quack && (kept.reinjected >= MAX_REINJECTED || too_late)
            || !self.allowance.spend(kept.datagram.len())
        {
            return None;
        }
        kept.reinjected += u8::from(by_quack);
        (kept.attempt, kept.passed) = (attempt, false);
        kept.again = Some((now, cause));
        Some(Transmission { index, attempt })
    }

    pub(super) fn get(&mut self, index: u32) -> Option<&mut Kept> {
        let at = self.at(index)?;
        self.kept.get_mut(at)
    }

    fn at(&self, index: u32) -> Option<usize> {
        usize::try_from(index.checked_sub(self.first)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn the_last_packets_are_kept() {
        let now = testing::start();
        let mut store = Store::new(3);
        for number in 0..10_u8 {
            assert_eq!(store.next(), u32::from(number));
            store.push(vec![number], number.into(), vec![number, number], now);
        }
        for (number, content) in [(6, None), (7, Some([7])), (9, Some([9])), (10, None)] {
            let kept = store.get(number).map(|kept| kept.content.clone());
            assert_eq!(kept, content.map(Vec::from), "{number}");
        }
    }

    #[test]
    fn tags_read_back() {
        for (index, attempt) in [(0, 255), (u32::MAX, 0), (7, 3)] {
            let transmission = Transmission { index, attempt };
            assert_eq!(Transmission::from_tag(transmission.tag()), Some(transmission));
        }
        assert_eq!(Transmission::from_tag(Transmission::NONE), None);
    }
}
