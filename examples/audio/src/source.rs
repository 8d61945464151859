//! Sources of content: random bytes, or Opus of a tone or a WAV file. Sound has one channel of
//! 48,000 samples per second, each from -1 to 1.

#[cfg(feature = "programs")]
mod sound;
#[cfg(feature = "programs")]
mod wav;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
#[cfg(feature = "programs")]
pub use sound::{BITRATE, FRAME_MS, opus, tone};
#[cfg(feature = "programs")]
pub use wav::WavSource;

/// Random bytes without end, as in the Sidekick paper's calls: `len` bytes per packet. `seed` and n
/// alone determine the n-th packet.
pub fn random_bytes(seed: u64, len: usize) -> impl Iterator<Item = Vec<u8>> + Send {
    (1..).map(move |packet| {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(packet);
        let mut bytes = vec![0; len];
        random.fill_bytes(&mut bytes);
        bytes
    })
}
