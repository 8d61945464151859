//! The last packets sent: their contents, and the last datagram in which each went out.

use std::collections::VecDeque;
use std::time::Instant;

/// Why a packet was sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Nack,
    Quack,
}

/// One transmission of a packet; it is the tag by which the protocol's sender knows the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transmission {
    /// The packet's place in the stream, from 0.
    pub(super) index: u32,
    /// 0 is the first.
    pub(super) attempt: u8,
}

impl Transmission {
    /// The tag of a datagram that is not sent again.
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
    /// What went out last: the packet itself, or a retransmission of it.
    pub(super) datagram: Vec<u8>,
    /// The last transmission.
    pub(super) attempt: u8,
    /// When and why it was sent again, if it was.
    pub(super) again: Option<(Instant, Cause)>,
}

/// The last `capacity` packets.
#[derive(Debug)]
pub(super) struct Store {
    kept: VecDeque<Kept>,
    /// The place of the first that is kept.
    first: u32,
    capacity: usize,
}

impl Store {
    pub(super) fn new(capacity: usize) -> Self {
        Self { kept: VecDeque::with_capacity(capacity), first: 0, capacity }
    }

    /// The place of the next packet.
    pub(super) fn next(&self) -> u32 {
        self.first.saturating_add(u32::try_from(self.kept.len()).unwrap_or(u32::MAX))
    }

    /// Keeps the next packet.
    pub(super) fn push(&mut self, content: Vec<u8>, timestamp: u32, datagram: Vec<u8>) {
        if self.kept.len() >= self.capacity {
            self.kept.pop_front();
            self.first = self.first.saturating_add(1);
        }
        self.kept.push_back(Kept { content, timestamp, datagram, attempt: 0, again: None });
    }

    pub(super) fn get(&mut self, index: u32) -> Option<&mut Kept> {
        let index = index.checked_sub(self.first)?;
        self.kept.get_mut(usize::try_from(index).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_packets_are_kept() {
        let mut store = Store::new(3);
        for number in 0..10_u8 {
            assert_eq!(store.next(), u32::from(number));
            store.push(vec![number], number.into(), vec![number, number]);
        }
        assert!(store.get(6).is_none() && store.get(10).is_none() && store.get(u32::MAX).is_none());
        for number in 7..10 {
            assert_eq!(store.get(number.into()).unwrap().content, [number]);
        }
    }

    #[test]
    fn tags_read_back() {
        for transmission in [
            Transmission { index: 0, attempt: 255 },
            Transmission { index: u32::MAX, attempt: 0 },
            Transmission { index: 7, attempt: 3 },
        ] {
            assert_eq!(Transmission::from_tag(transmission.tag()), Some(transmission));
        }
        assert_eq!(Transmission::from_tag(Transmission::NONE), None);
    }
}
