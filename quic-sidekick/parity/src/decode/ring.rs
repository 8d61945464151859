//! The latest datagrams of the flow, by their order of arrival.

use crate::LENGTH_LEN;

/// Datagrams that are remembered.
pub(super) const DATAGRAMS: usize = 256;

/// Bytes of a symbol's buffer: the longest symbol in whole vectors and cache lines.
pub(super) const ROOM: usize = 1536;

/// A source symbol.
#[derive(Clone)]
#[repr(align(64))]
struct Slot {
    bytes: [u8; ROOM],
    len: usize,
}

pub(super) struct Ring {
    /// As many as were needed so far.
    slots: Vec<Slot>,
    /// Apart from the bytes, so that a search reads nothing else.
    identifiers: Box<[u32; DATAGRAMS]>,
    /// It arrived, and neither as a copy nor rebuilt.
    originals: [bool; DATAGRAMS],
    /// The sequence number of the next datagram. They count arrivals, and no proxy knows them.
    next: u64,
    /// The datagram that a search expects, since lists are almost in the order of arrival.
    expected: u64,
}

#[allow(clippy::cast_possible_truncation, reason = "a remainder")]
fn place(sequence: u64) -> usize {
    (sequence % DATAGRAMS as u64) as usize
}

impl Ring {
    pub(super) const BYTES: usize = DATAGRAMS * (size_of::<Slot>() + size_of::<u32>());

    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            identifiers: Box::new([0; DATAGRAMS]),
            originals: [false; DATAGRAMS],
            next: 0,
            expected: 0,
        }
    }

    pub(super) fn clear(&mut self) {
        (self.next, self.expected) = (0, 0);
    }

    /// Remembers a datagram, whose length is in range, in place of the oldest. Returns its sequence
    /// number.
    pub(super) fn push(&mut self, datagram: &[u8], identifier: u32, original: bool) -> u64 {
        let sequence = self.next;
        if place(sequence) >= self.slots.len() {
            // The places are taken one after another.
            self.slots.push(Slot { bytes: [0; ROOM], len: 0 });
        }
        let slot = &mut self.slots[place(sequence)];
        let length = u16::try_from(datagram.len()).unwrap_or(0);
        if let Some((front, body)) = slot.bytes.split_first_chunk_mut::<LENGTH_LEN>()
            && let Some(body) = body.get_mut(..usize::from(length))
        {
            *front = length.to_be_bytes();
            body.copy_from_slice(datagram);
            slot.len = LENGTH_LEN + datagram.len();
        }
        self.identifiers[place(sequence)] = identifier;
        self.originals[place(sequence)] = original;
        self.next += 1;
        sequence
    }

    /// The datagram of an identifier, and whether it is an original. An original is preferred.
    pub(super) fn find(&mut self, identifier: u32) -> Option<(u64, bool)> {
        let found = self
            .at(self.expected, identifier)
            .filter(|(_, original)| *original)
            .or_else(|| self.search(identifier))?;
        self.expected = found.0 + 1;
        Some(found)
    }

    /// The datagram of a sequence number, if it has the identifier.
    fn at(&self, sequence: u64, identifier: u32) -> Option<(u64, bool)> {
        let same = self.holds(sequence) && self.identifiers[place(sequence)] == identifier;
        same.then(|| (sequence, self.originals[place(sequence)]))
    }

    fn search(&self, identifier: u32) -> Option<(u64, bool)> {
        const GROUP: usize = 32;
        let oldest = self.next.saturating_sub(DATAGRAMS as u64);
        let mut found = None;
        for (group, identifiers) in self.identifiers.chunks_exact(GROUP).enumerate() {
            // Without an early exit, the compiler compares several at once.
            if !identifiers.iter().fold(false, |any, &other| any | (other == identifier)) {
                continue;
            }
            for index in group * GROUP..(group + 1) * GROUP {
                // The sequence number of this place.
                let after = (index + DATAGRAMS - place(oldest)) % DATAGRAMS;
                match self.at(oldest + after as u64, identifier) {
                    Some(original @ (_, true)) => return Some(original),
                    other => found = found.or(other),
                }
            }
        }
        found
    }

    fn holds(&self, sequence: u64) -> bool {
        sequence < self.next && self.next - sequence <= DATAGRAMS as u64
    }

    /// The source symbol of a datagram, if it is still remembered.
    pub(super) fn symbol(&self, sequence: u64) -> Option<&[u8]> {
        let slot = self.slots.get(place(sequence))?;
        slot.bytes.get(..slot.len).filter(|_| self.holds(sequence))
    }

    /// A datagram, if it is still remembered.
    pub(super) fn datagram(&self, sequence: u64) -> Option<&[u8]> {
        self.symbol(sequence)?.get(LENGTH_LEN..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_datagrams_are_found_in_any_order() {
        let mut ring = Ring::new();
        assert_eq!(ring.find(0), None);
        for number in 0..1000_u32 {
            ring.push(&number.to_be_bytes(), number, number % 3 != 0);
            for identifier in [number, number.saturating_sub(200), number / 2, number + 1] {
                let remembered = identifier <= number && number - identifier < 256;
                let expected = remembered.then_some((identifier.into(), identifier % 3 != 0));
                assert_eq!(ring.find(identifier), expected, "{number}");
                let bytes = identifier.to_be_bytes();
                let datagram = remembered.then_some(&bytes[..]);
                assert_eq!(ring.datagram(identifier.into()), datagram, "{number}");
            }
        }
        assert_eq!(ring.symbol(999), Some(&[0, 4, 0, 0, 3, 231][..]));
        ring.clear();
        assert_eq!((ring.find(999), ring.datagram(999)), (None, None));
    }

    #[test]
    fn an_original_is_preferred_to_a_copy() {
        for order in [[false, true, false], [true, false, false], [false, false, true]] {
            let mut ring = Ring::new();
            for original in order {
                ring.push(&[7; 4], 7, original);
            }
            let original = order.iter().position(|original| *original).unwrap() as u64;
            assert_eq!(ring.find(7), Some((original, true)), "{order:?}");
        }
    }
}
