//! Many frames of many flows, as a capture keeps them.

#![allow(dead_code, unreachable_pub, reason = "tests and benchmarks take it in as a module")]

use super::random::next;

/// Bytes of each frame that the capture kept.
pub const CUT: usize = 128;
/// Bytes of each frame on the wire.
pub const LEN: u16 = 14 + 20 + 8 + 1200;

/// Ethernet frames of QUIC-like datagrams over IPv4, one after the other.
pub struct Frames(Vec<[u8; CUT]>);

impl Frames {
    /// This many frames of this many flows in random order, which depends only on the seed.
    pub fn new(frames: usize, flows: u16, seed: u64) -> Self {
        let mut state = seed;
        let frame = |_| {
            let (flow, random) =
                (next(&mut state) % u64::from(flows), next(&mut state).to_be_bytes());
            let [_, _, _, _, _, _, high, low] = flow.to_be_bytes();
            let mut frame = [0x40; CUT];
            frame[12..14].copy_from_slice(&[0x08, 0x00]);
            let total = (LEN - 14).to_be_bytes();
            let ip = [0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, 17, 0, 0];
            frame[14..26].copy_from_slice(&ip);
            frame[26..34].copy_from_slice(&[10, 0, high, low, 198, 51, 100, 7]);
            let len = (LEN - 34).to_be_bytes();
            frame[34..42].copy_from_slice(&[0x40 + high, low, 0x01, 0xbb, len[0], len[1], 0, 0]);
            frame[42 + 21..42 + 29].copy_from_slice(&random);
            frame
        };
        Self((0..frames).map(frame).collect())
    }

    /// The kept bytes of the frames, this many at a time.
    pub fn together(&self, many: usize) -> impl Iterator<Item = &[[u8; CUT]]> {
        self.0.chunks(many)
    }

    /// The kept bytes of each frame, and its length.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], usize)> {
        self.0.iter().map(|frame| (&frame[..], LEN.into()))
    }
}
