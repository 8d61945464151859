//! Frames as a capture keeps them, and pseudo-random numbers.

#![allow(dead_code, unreachable_pub, reason = "tests and benchmarks take it in as a module")]

/// Bytes of each of many [`Frames`] that the capture kept.
pub const CUT: usize = 128;
/// Bytes of each of them on the wire.
pub const LEN: u16 = HEADERS + 1200;
/// Bytes of each of the [`LongFrames`].
const LONG_LEN: u16 = HEADERS + 1400;
/// Bytes before a payload.
const HEADERS: u16 = 14 + 20 + 8;

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
            let mut frame = frame(LEN, [10, 0, high, low], [0x40 + high, low]);
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

/// Whole frames of one flow with long packets.
pub struct LongFrames(Vec<[u8; LONG_LEN as usize]>);

impl LongFrames {
    /// This many frames, each with another payload. The seed chooses them.
    pub fn new(frames: usize, seed: u64) -> Self {
        let frame = |number: u64| {
            let mut frame = frame(LONG_LEN, [192, 0, 2, 1], [0x0f, 0xa0]);
            fill(frame.last_chunk_mut::<64>().unwrap_or(&mut [0; 64]), seed << 16 | number);
            frame
        };
        Self((0..frames as u64).map(frame).collect())
    }

    /// The frames, this many at a time.
    pub fn together(&self, many: usize) -> impl Iterator<Item = &[[u8; LONG_LEN as usize]]> {
        self.0.chunks(many)
    }
}

/// The first bytes of a frame of `len` bytes, from this address and port.
fn frame<const N: usize>(len: u16, source: [u8; 4], port: [u8; 2]) -> [u8; N] {
    let mut frame = [0x40; N];
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    let total = (len - 14).to_be_bytes();
    frame[14..26].copy_from_slice(&[0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame[26..30].copy_from_slice(&source);
    frame[30..34].copy_from_slice(&[198, 51, 100, 7]);
    let len = (len - 34).to_be_bytes();
    frame[34..42].copy_from_slice(&[port[0], port[1], 0x01, 0xbb, len[0], len[1], 0, 0]);
    frame
}

/// A generator of pseudo-random numbers (Vigna's SplitMix64).
pub fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Fills bytes so that they look encrypted. Each number, below 2^32, gives others.
pub fn fill(bytes: &mut [u8], number: u64) {
    let mut state = number << 32;
    for bytes in bytes.chunks_mut(8) {
        bytes.copy_from_slice(&next(&mut state).to_be_bytes()[..bytes.len()]);
    }
}
