//! Conversion between the 16 bits of a sequence number and a packet's place in the stream.

use crate::ntp::low16;

/// The number of packets before the first arrival that are requested if it is not marked as the
/// stream's first, because they may be lost. At 4 % of loss, three in a row are lost once in 16,000
/// calls.
pub(super) const LOOKBACK: u32 = 3;

/// The numbers of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    /// The number and the place of the first packet that arrived.
    sequence: u16,
    pub(super) place: u32,
    /// The highest place so far.
    pub(super) highest: u32,
}

impl Numbers {
    pub(super) fn new(sequence: u16, place: u32) -> Self {
        Self { sequence, place, highest: place }
    }

    /// The place with this number that is nearest to the highest. `None` if it lies before the
    /// stream.
    pub(super) fn place(&self, sequence: u16) -> Option<u32> {
        let step = sequence.wrapping_sub(self.sequence_of(self.highest)).cast_signed();
        self.highest.checked_add_signed(step.into())
    }

    /// Records that the packet at this place is authentic.
    pub(super) fn record(&mut self, place: u32) {
        self.highest = self.highest.max(place);
    }

    /// The 16 bits of a place.
    pub(super) fn sequence_of(&self, place: u32) -> u16 {
        self.sequence.wrapping_add(low16(place.wrapping_sub(self.place)))
    }

    /// The extended highest sequence number of reports (RFC 3550, section 6.4.1).
    pub(super) fn extended(&self) -> u32 {
        u32::from(self.sequence).wrapping_add(self.highest.wrapping_sub(self.place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_are_followed_through_rollovers(sequence in any::<u16>(), steps in proptest::collection::vec(-30_000..30_000_i32, 1..200)) {
            let mut numbers = Numbers::new(sequence, LOOKBACK);
            let mut place = LOOKBACK;
            for step in steps {
                let Some(next) = place.checked_add_signed(step) else { continue };
                let wire = numbers.sequence_of(next);
                if next.abs_diff(numbers.highest) < 32_768 {
                    prop_assert_eq!(numbers.place(wire), Some(next));
                    numbers.record(next);
                    place = next;
                }
            }
        }
    }

    #[test]
    fn a_number_before_the_stream_has_no_place() {
        let numbers = Numbers::new(2, LOOKBACK);
        assert_eq!(numbers.place(65_535), Some(0));
        assert_eq!(numbers.place(65_534), None);
        assert_eq!(numbers.extended(), 2);
    }
}
