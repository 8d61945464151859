//! Sources of content: random bytes, or Opus of a tone or a WAV file. Sound has one channel of
//! 48,000 samples per second, each from -1 to 1.

#[cfg(feature = "programs")]
mod opus;
#[cfg(feature = "programs")]
mod tone;
#[cfg(feature = "programs")]
mod wav;

#[cfg(feature = "programs")]
pub use self::opus::{BITRATE, FRAME_MS, OpusSource};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::fmt;
#[cfg(feature = "programs")]
pub use tone::tone;
#[cfg(feature = "programs")]
pub use wav::WavSource;

/// The content of one packet after another.
pub trait Source: fmt::Debug + Send {
    /// Replaces the contents of `out` by those of the next packet, 1 to
    /// [`crate::talker::MAX_PAYLOAD`] bytes. False at the end of the stream.
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
    /// `len` bytes per packet. `seed` and n alone determine the n-th packet.
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
