//! Which of the last packets came, to the byte: so a datagram that was sent or doubled twice is
//! told from a forgery with the same number, which SRTP's replay protection refuses alike. And of
//! which packets the talker was told that they came twice.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// As many as the replay protection looks back.
const CAPACITY: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct Seen {
    ssrc: u32,
    sequence: u16,
    /// Of the whole datagram. Who finds other bytes with this sum gains nothing over sending the
    /// datagram itself.
    sum: u64,
    /// The number that its content has in the media.
    original: u16,
}

#[derive(Debug)]
pub(super) struct Repeats {
    seen: Vec<Option<Seen>>,
    /// Numbers in the media.
    told: Vec<Option<u16>>,
}

fn sum(datagram: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    datagram.hash(&mut hasher);
    hasher.finish()
}

impl Repeats {
    pub(super) fn new() -> Self {
        Self { seen: vec![None; CAPACITY], told: vec![None; CAPACITY] }
    }

    /// Packets of different SSRCs may take each other's places; then a repetition counts as forged.
    fn place(&mut self, ssrc: u32, sequence: u16) -> Option<&mut Option<Seen>> {
        let spread = usize::try_from(ssrc % 2).unwrap_or(0) * CAPACITY / 2;
        self.seen.get_mut((usize::from(sequence) + spread) % CAPACITY)
    }

    pub(super) fn note(&mut self, datagram: &[u8], ssrc: u32, sequence: u16, original: u16) {
        if let Some(place) = self.place(ssrc, sequence) {
            *place = Some(Seen { ssrc, sequence, sum: sum(datagram), original });
        }
    }

    /// The number in the media of what this datagram repeats, if it is one that came.
    pub(super) fn original(&mut self, datagram: &[u8], ssrc: u32, sequence: u16) -> Option<u16> {
        let seen = (*self.place(ssrc, sequence)?)?;
        (seen.ssrc == ssrc && seen.sequence == sequence && seen.sum == sum(datagram))
            .then_some(seen.original)
    }
}

impl Repeats {
    /// The packet with this number in the media is a new one.
    pub(super) fn begins(&mut self, original: u16) {
        if let Some(told) = self.told.get_mut(usize::from(original) % CAPACITY) {
            *told = None;
        }
    }

    /// Whether the talker is to be told that this packet came twice: once, however often it did.
    pub(super) fn tell(&mut self, original: u16) -> bool {
        let told = self.told.get_mut(usize::from(original) % CAPACITY);
        told.is_some_and(|told| told.replace(original) != Some(original))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repetition_is_the_same_to_the_byte() {
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
        assert_eq!(repeats.original(&datagram, 1, 9), None, "it gave way");
    }

    #[test]
    fn a_packet_is_told_of_once() {
        let mut repeats = Repeats::new();
        assert!(repeats.tell(9) && !repeats.tell(9) && repeats.tell(10) && !repeats.tell(9));
        repeats.begins(9);
        assert!(repeats.tell(9) && !repeats.tell(10), "the number is another packet's");
    }
}
