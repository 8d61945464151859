//! Which of the last packets came, by the tags that authenticate them: so a datagram that was sent or doubled twice is told
//! from a forgery with the same number, which SRTP's replay protection refuses alike.

use crate::srtp::TAG_LEN;

/// As many as the replay protection looks back.
const CAPACITY: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct Seen {
    ssrc: u32,
    sequence: u16,
    tag: [u8; TAG_LEN],
    /// The number that its content has in the media.
    original: u16,
}

#[derive(Debug)]
pub(super) struct Repeats(Vec<Option<Seen>>);

impl Repeats {
    pub(super) fn new() -> Self {
        Self(vec![None; CAPACITY])
    }

    /// Packets of different SSRCs may take each other's places; then a repetition counts as forged.
    fn place(&mut self, ssrc: u32, sequence: u16) -> Option<&mut Option<Seen>> {
        let spread = usize::try_from(ssrc % 2).unwrap_or(0) * CAPACITY / 2;
        self.0.get_mut((usize::from(sequence) + spread) % CAPACITY)
    }

    pub(super) fn note(&mut self, datagram: &[u8], ssrc: u32, sequence: u16, original: u16) {
        let Some(&tag) = datagram.last_chunk() else { return };
        if let Some(place) = self.place(ssrc, sequence) {
            *place = Some(Seen { ssrc, sequence, tag, original });
        }
    }

    /// The number in the media of what this datagram repeats, if it is one that came.
    pub(super) fn original(&mut self, datagram: &[u8], ssrc: u32, sequence: u16) -> Option<u16> {
        let tag: &[u8; TAG_LEN] = datagram.last_chunk()?;
        let seen = (*self.place(ssrc, sequence)?)?;
        (seen.ssrc == ssrc && seen.sequence == sequence && seen.tag == *tag).then_some(seen.original)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repetition_is_the_same_to_its_tag() {
        let mut repeats = Repeats::new();
        let datagram = [7; 40];
        assert_eq!(repeats.original(&datagram, 1, 9), None);
        repeats.note(&datagram, 1, 9, 8);
        assert_eq!(repeats.original(&datagram, 1, 9), Some(8));
        assert_eq!(repeats.original(&[8; 40], 1, 9), None);
        assert_eq!(repeats.original(&datagram, 2, 9), None);
        assert_eq!(repeats.original(&[7; 3], 1, 9), None);
        repeats.note(&datagram, 1, 9 + 1024, 5);
        assert_eq!(repeats.original(&datagram, 1, 9), None, "it gave way");
    }
}
