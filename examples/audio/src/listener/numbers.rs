//! Sequence numbers: their packets' places in the stream, which of them were repeated, to the byte,
//! and which were reported as duplicates.

use crate::ntp::low16;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

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

/// The window of the replay protection.
const CAPACITY: usize = 1024;

/// The recent datagrams that arrived. SRTP's replay protection rejects a repetition and a forgery
/// with the same number alike. The sum of the datagram distinguishes them.
#[derive(Debug)]
pub(super) struct Repeats {
    /// The sum of each whole datagram, and the content's sequence number in the media. A collision
    /// of sums is worth no more than the datagram itself.
    seen: Vec<Option<(u64, u16)>>,
    /// Sequence numbers in the media.
    reported: Vec<Option<u16>>,
}

fn sum(datagram: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    datagram.hash(&mut hasher);
    hasher.finish()
}

impl Repeats {
    pub(super) fn new() -> Self {
        Self { seen: vec![None; CAPACITY], reported: vec![None; CAPACITY] }
    }

    /// Packets of different SSRCs may displace each other. Then a repetition counts as forged.
    fn place(&mut self, ssrc: u32, sequence: u16) -> Option<&mut Option<(u64, u16)>> {
        let spread = usize::try_from(ssrc % 2).unwrap_or(0) * CAPACITY / 2;
        self.seen.get_mut((usize::from(sequence) + spread) % CAPACITY)
    }

    pub(super) fn note(&mut self, datagram: &[u8], ssrc: u32, sequence: u16, original: u16) {
        if let Some(place) = self.place(ssrc, sequence) {
            *place = Some((sum(datagram), original));
        }
    }

    /// The media's sequence number in the datagram that this one repeats, if it repeats one.
    pub(super) fn original(&mut self, datagram: &[u8], ssrc: u32, sequence: u16) -> Option<u16> {
        let (seen, original) = (*self.place(ssrc, sequence)?)?;
        (seen == sum(datagram)).then_some(original)
    }

    /// Records that a new packet has this number in the media.
    pub(super) fn begins(&mut self, original: u16) {
        if let Some(reported) = self.reported.get_mut(usize::from(original) % CAPACITY) {
            *reported = None;
        }
    }

    /// Records a duplicate's report. False if one was recorded before.
    pub(super) fn record_report(&mut self, original: u16) -> bool {
        let reported = self.reported.get_mut(usize::from(original) % CAPACITY);
        reported.is_some_and(|reported| reported.replace(original) != Some(original))
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

    #[test]
    fn only_an_identical_datagram_is_a_repetition() {
        let mut repeats = Repeats::new();
        let datagram = [7; 40];
        assert_eq!(repeats.original(&datagram, 1, 9), None);
        repeats.note(&datagram, 1, 9, 8);
        assert_eq!(repeats.original(&datagram, 1, 9), Some(8));
        let mut altered = datagram;
        altered[20] ^= 1;
        assert_eq!(repeats.original(&altered, 1, 9), None);
        assert_eq!(repeats.original(&datagram, 2, 9), None);
        assert_eq!(repeats.original(&[7; 3], 1, 9), None);
        repeats.note(&altered, 1, 9 + 1024, 5);
        assert_eq!(repeats.original(&datagram, 1, 9), None, "the later number replaces it");
    }

    #[test]
    fn a_packet_is_reported_once() {
        let mut repeats = Repeats::new();
        assert!(
            repeats.record_report(9)
                && !repeats.record_report(9)
                && repeats.record_report(10)
                && !repeats.record_report(9)
        );
        repeats.begins(9);
        assert!(
            repeats.record_report(9) && !repeats.record_report(10),
            "the number belongs to another packet"
        );
    }
}
