//! Which recent datagrams arrived, to the byte, and which packets were reported as duplicates.
//!
//! SRTP's replay protection rejects a repetition and a forgery with the same number alike. The sum
//! of the datagram distinguishes them.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// The window of the replay protection.
const CAPACITY: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct Seen {
    ssrc: u32,
    sequence: u16,
    /// The sum of the whole datagram. A collision is worth no more than the datagram itself.
    sum: u64,
    /// The content's sequence number in the media.
    original: u16,
}

#[derive(Debug)]
pub(super) struct Repeats {
    seen: Vec<Option<Seen>>,
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
    fn place(&mut self, ssrc: u32, sequence: u16) -> Option<&mut Option<Seen>> {
        let spread = usize::try_from(ssrc % 2).unwrap_or(0) * CAPACITY / 2;
        self.seen.get_mut((usize::from(sequence) + spread) % CAPACITY)
    }

    pub(super) fn note(&mut self, datagram: &[u8], ssrc: u32, sequence: u16, original: u16) {
        if let Some(place) = self.place(ssrc, sequence) {
            *place = Some(Seen { ssrc, sequence, sum: sum(datagram), original });
        }
    }

    /// The media's sequence number in the datagram that this one repeats, if it repeats one.
    pub(super) fn original(&mut self, datagram: &[u8], ssrc: u32, sequence: u16) -> Option<u16> {
        let seen = (*self.place(ssrc, sequence)?)?;
        (seen.ssrc == ssrc && seen.sequence == sequence && seen.sum == sum(datagram))
            .then_some(seen.original)
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
        repeats.note(&datagram, 1, 9 + 1024, 5);
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
