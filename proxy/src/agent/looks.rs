//! Whether the packets of a flow look encrypted, and whether they end alike, without I/O.

use sidekick_protocol::Position;

/// Bytes at the end of a packet that are examined.
const EXAMINED: usize = 64;
/// Bytes at the beginning of a longer packet that are not: a header.
const HEADER: usize = 16;
/// Pairs of equal bytes that must be expected of encrypted packets before they are judged. Shorter
/// packets show too little.
const LEAST: u32 = 3;
/// The latest packets whose ends are compared.
const ENDS: usize = 8;

/// What some packets of a flow look like.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Looks {
    packets: u32,
    /// Pairs of equal bytes within the packets.
    equal: u32,
    /// Pairs of bytes. Of those of random bytes, one in 256 is equal.
    pairs: u32,
    ends: Alike,
}

impl Looks {
    /// Notes a packet.
    pub(super) fn note(&mut self, payload: &[u8]) {
        let header = HEADER.min(payload.len() / 4).max(payload.len().saturating_sub(EXAMINED));
        let mut counts = [0_u8; 256];
        let mut examined = 0_u32;
        for byte in payload.get(header..).unwrap_or_default() {
            if let Some(count) = counts.get_mut(usize::from(*byte)) {
                self.equal += u32::from(*count);
                self.pairs += examined;
                *count += 1;
                examined += 1;
            }
        }
        self.packets += 1;
        self.ends.note(payload);
    }

    pub(super) fn packets(&self) -> u32 {
        self.packets
    }

    /// Whether the packets look encrypted: their bytes are as different as random ones, and no two
    /// packets end alike. Compressed packets look the same.
    pub(super) fn are_encrypted(&self) -> bool {
        let expected = self.pairs / 256;
        // Five standard deviations, since the pairs of random bytes are nearly independent.
        let most = expected + 5 * expected.isqrt() + 1;
        expected >= LEAST && self.equal <= most && !self.end_alike()
    }

    /// Whether two packets ended alike.
    pub(super) fn end_alike(&self) -> bool {
        self.ends.repeated + self.ends.same > 0
    }
}

/// The hash of a packet, and its last bytes, by which a proxy names packets that are encrypted.
type Names = (Option<u32>, Option<u32>);

/// Counts packets that end like one of the latest.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Alike {
    latest: [Names; ENDS],
    /// The packets.
    pub(super) noted: u32,
    /// Of these, packets that differ elsewhere.
    pub(super) repeated: u32,
    /// Those that are the same, or copies that the network made.
    pub(super) same: u32,
}

impl Alike {
    /// Notes a packet.
    pub(super) fn note(&mut self, payload: &[u8]) {
        let names @ (whole, end) =
            (Position::Whole.of_copy(payload), Position::End.of_copy(payload));
        let known = |find: &dyn Fn(&Names) -> bool| self.latest.iter().any(find);
        if whole.is_some() && known(&|(other, _)| *other == whole) {
            self.same += 1;
        } else if end.is_some() && known(&|(_, other)| *other == end) {
            self.repeated += 1;
        }
        self.noted = self.noted.saturating_add(1);
        self.latest.rotate_right(1);
        self.latest[0] = names;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::flows::tests::frames;

    fn random(seed: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        frames::fill(&mut bytes, seed);
        bytes
    }

    fn looks(packets: impl IntoIterator<Item = Vec<u8>>) -> Looks {
        let mut looks = Looks::default();
        packets.into_iter().for_each(|packet| looks.note(&packet));
        looks
    }

    #[test]
    fn encrypted_packets_are_recognised() {
        for len in [33, 40, 60, 200, 1400] {
            for seed in 0..200_u64 {
                let header = [&[0x48, 0, 0, 0, 0, 0, 0, 1][..], &[0; 4]].concat();
                let packet = |number: u64| [&header[..], &random(seed * 8 + number, len)].concat();
                let looks = looks((0..8).map(packet));
                assert!(looks.are_encrypted(), "{len} {seed}: {looks:?}");
            }
        }
    }

    #[test]
    fn other_packets_are_not() {
        let text = |number: u64| format!("app.requests.latency:{number}|ms|@0.1").into_bytes();
        let log = |number: u64| format!("<13>Nov 28 06:06:09 host app[7]: item {number}").into();
        let fields = |number: u64| {
            let fields = (0..12_u32).map(|field| f64::from(field) + number as f64 / 7.0);
            fields.flat_map(f64::to_le_bytes).collect()
        };
        let padded = |number: u64| [random(number, 100), vec![0; 16]].concat();
        let alike = |number: u64| [random(number, 100), vec![1, 2, 3, 4]].concat();
        let silence = |number: u64| [&number.to_be_bytes()[..], &[0x7f; 160]].concat();
        let short = |number: u64| random(number, 8);
        let kinds: [&dyn Fn(u64) -> Vec<u8>; 7] =
            [&text, &log, &fields, &padded, &alike, &silence, &short];
        for (kind, packet) in kinds.into_iter().enumerate() {
            assert!(!looks((0..8).map(packet)).are_encrypted(), "{kind}");
        }
        assert!(looks((0..2).map(alike)).end_alike() && looks((0..8).map(silence)).end_alike());
        assert!(!looks([Vec::new(), vec![1]]).are_encrypted());
    }
}
