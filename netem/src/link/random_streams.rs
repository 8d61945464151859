//! The random numbers of a link: a stream for each impairment.
//!
//! Each impairment has its own stream, so an impairment does not change the effect of another one.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Each impairment draws from the link's stream plus a multiple of this number. A link's own stream
/// must be below it.
const CAUSES_APART: u64 = 1 << 32;

/// The random numbers of a link.
#[derive(Debug)]
pub(super) struct RandomStreams {
    loss: ChaCha8Rng,
    loss_state: ChaCha8Rng,
    pub(super) jitter: ChaCha8Rng,
    pub(super) reorder: ChaCha8Rng,
    duplicate: ChaCha8Rng,
    corrupt: ChaCha8Rng,
    pub(super) red: ChaCha8Rng,
}

/// The random numbers for one packet that reaches the link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draws {
    pub(super) loss: u64,
    pub(super) loss_state: u64,
    pub(super) duplicate: u64,
    pub(super) corrupt: u64,
    pub(super) corrupt_place: u64,
}

impl RandomStreams {
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        let cause = |number: u64| {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            random.set_stream(stream.wrapping_add(number * CAUSES_APART));
            random
        };
        Self {
            loss: cause(0),
            loss_state: cause(1),
            jitter: cause(2),
            reorder: cause(3),
            duplicate: cause(4),
            corrupt: cause(5),
            red: cause(6),
        }
    }

    /// Draws all numbers for the next packet, also those of impairments that are off, so the draws
    /// of the n-th packet depend only on n.
    pub(super) fn draw(&mut self) -> Draws {
        Draws {
            loss: self.loss.next_u64(),
            loss_state: self.loss_state.next_u64(),
            duplicate: self.duplicate.next_u64(),
            corrupt: self.corrupt.next_u64(),
            corrupt_place: self.corrupt.next_u64(),
        }
    }
}
