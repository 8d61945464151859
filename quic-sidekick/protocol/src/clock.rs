//! Small helpers for time as an argument.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::time::{Duration, Instant};

/// `duration` times `numerator / denominator`, saturating; `denominator` is not 0.
pub(crate) fn scale(duration: Duration, numerator: u32, denominator: u32) -> Duration {
    duration.saturating_mul(numerator) / denominator.max(1)
}

/// `duration` in whole microseconds, as the wire carries it.
pub(crate) fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

/// The earlier of two deadlines, either of which may not be set.
pub(crate) fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Session ids, epochs and poll tokens: a stream cipher's output, so that who sees some of them cannot tell the others. Its
/// key comes from the caller, so that a daemon can draw it at random and a simulation can repeat itself.
#[derive(Clone, Debug)]
pub(crate) struct Numbers(ChaCha8Rng);

impl Numbers {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self(ChaCha8Rng::from_seed(seed))
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Never 0, which the wire keeps for "none".
    pub(crate) fn next_u32(&mut self) -> u32 {
        self.0.next_u32().max(1)
    }
}
