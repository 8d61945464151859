//! The last packets sent, as they were sent.

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
    pub(super) sequence: u32,
    /// 0 is the first.
    pub(super) attempt: u8,
}

impl Transmission {
    pub(super) fn tag(self) -> u64 {
        u64::from(self.sequence) << 8 | u64::from(self.attempt)
    }

    pub(super) fn from_tag(tag: u64) -> Option<Self> {
        let [.., attempt] = tag.to_be_bytes();
        Some(Self { sequence: u32::try_from(tag >> 8).ok()?, attempt })
    }
}

#[derive(Debug)]
pub(super) struct Kept {
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
    /// The sequence number of the first that is kept.
    first: u32,
    capacity: usize,
}

impl Store {
    pub(super) fn new(capacity: usize) -> Self {
        Self { kept: VecDeque::with_capacity(capacity), first: 0, capacity }
    }

    /// The sequence number of the next packet.
    pub(super) fn next(&self) -> u32 {
        self.first.saturating_add(u32::try_from(self.kept.len()).unwrap_or(u32::MAX))
    }

    /// Keeps the next packet, which `write` writes over what is in its buffer.
    pub(super) fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        // The buffer of a packet that gives way is used again.
        let mut datagram = Vec::new();
        if self.kept.len() >= self.capacity
            && let Some(oldest) = self.kept.pop_front()
        {
            self.first = self.first.saturating_add(1);
            datagram = oldest.datagram;
        }
        write(&mut datagram);
        self.kept.push_back(Kept { datagram, attempt: 0, again: None });
    }

    pub(super) fn get(&mut self, sequence: u32) -> Option<&mut Kept> {
        let index = sequence.checked_sub(self.first)?;
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
            store.push(|out| {
                out.clear();
                out.push(number);
            });
        }
        assert!(store.get(6).is_none() && store.get(10).is_none() && store.get(u32::MAX).is_none());
        for number in 7..10 {
            assert_eq!(store.get(number.into()).unwrap().datagram, [number]);
        }
    }

    #[test]
    fn tags_read_back() {
        for transmission in [
            Transmission { sequence: 0, attempt: 255 },
            Transmission { sequence: u32::MAX, attempt: 0 },
            Transmission { sequence: 7, attempt: 3 },
        ] {
            assert_eq!(Transmission::from_tag(transmission.tag()), Some(transmission));
        }
        assert_eq!(Transmission::from_tag(u64::MAX), None);
    }
}
