//! Frames of one flow with long packets.

#![allow(dead_code, unreachable_pub, reason = "tests and benchmarks take it in as a module")]

use super::random;

/// Bytes of a frame.
pub const LEN: usize = 14 + 20 + 8 + 1400;

/// Ethernet frames of QUIC-like datagrams over IPv4, one after the other.
pub struct LongFrames(Vec<[u8; LEN]>);

impl LongFrames {
    /// This many frames, each with another payload. The seed chooses them.
    pub fn new(frames: usize, seed: u64) -> Self {
        let frame = |number: u64| {
            let mut frame = [0x40; LEN];
            frame[12..14].copy_from_slice(&[0x08, 0x00]);
            let total = u16::try_from(LEN - 14).unwrap_or(0).to_be_bytes();
            frame[14..26]
                .copy_from_slice(&[0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, 17, 0, 0]);
            frame[26..34].copy_from_slice(&[192, 0, 2, 1, 198, 51, 100, 7]);
            let len = u16::try_from(LEN - 34).unwrap_or(0).to_be_bytes();
            frame[34..42].copy_from_slice(&[0x0f, 0xa0, 0x01, 0xbb, len[0], len[1], 0, 0]);
            random::fill(&mut frame[LEN - 64..], seed << 16 | number);
            frame
        };
        Self((0..frames as u64).map(frame).collect())
    }

    /// The frames, this many at a time.
    pub fn together(&self, many: usize) -> impl Iterator<Item = &[[u8; LEN]]> {
        self.0.chunks(many)
    }
}
