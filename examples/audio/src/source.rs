//! Where the content of packets comes from: random bytes, or Opus made of a tone or of a WAV file.

mod opus;
mod tone;
mod wav;

pub use self::opus::{BITRATE, FRAME_MS, OpusError, OpusSource};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::fmt;
pub use tone::Tone;
pub use wav::{WavError, WavSource};

/// Gives the content of one packet after another.
pub trait Source: fmt::Debug + Send {
    /// Writes the next packet's content over what is in `out`, 1 to [`crate::talker::MAX_PAYLOAD`]
    /// bytes. False if there is no more: the stream ends.
    fn next(&mut self, out: &mut Vec<u8>) -> bool;
}

/// Random bytes without end, as in the Sidekick paper's calls.
#[derive(Clone, Debug)]
pub struct RandomBytes {
    seed: u64,
    len: usize,
    packet: u64,
}

impl RandomBytes {
    /// `len` bytes a packet. The n-th packet's follow from `seed` and n alone.
    #[must_use]
    pub fn new(seed: u64, len: usize) -> Self {
        Self { seed, len, packet: 0 }
    }
}

impl Source for RandomBytes {
    fn next(&mut self, out: &mut Vec<u8>) -> bool {
        self.packet += 1;
        out.clear();
        out.resize(self.len, 0);
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        random.set_stream(self.packet);
        random.fill_bytes(out);
        true
    }
}

/// Gives sound, one channel of 48,000 samples a second, each from -1 to 1.
pub trait Pcm: fmt::Debug + Send {
    /// Fills `out` with the next samples from its beginning, and says how many there were; fewer
    /// than it holds at the end.
    fn fill(&mut self, out: &mut [f32]) -> usize;
}
