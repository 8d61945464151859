//! Arithmetic of times and deadlines, and random numbers from a seed.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::fmt;
use std::time::{Duration, Instant};

/// `duration` times `numerator / denominator`, saturating; `denominator` is not 0. Inlined, so that
/// the usual denominators, which are constants, cost no division.
#[inline(always)]
pub(crate) fn scale(duration: Duration, numerator: u32, denominator: u32) -> Duration {
    let denominator = denominator.max(1);
    let scaled = u64::try_from(duration.as_nanos())
        .ok()
        .and_then(|nanoseconds| nanoseconds.checked_mul(numerator.into()));
    match scaled {
        Some(scaled) => Duration::from_nanos(scaled / u64::from(denominator)),
        // More than five centuries.
        None => duration.saturating_mul(numerator) / denominator,
    }
}

/// `duration` in whole microseconds, as the wire carries it.
pub(crate) fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

/// The earlier of two optional deadlines.
pub(crate) fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Random keys, nonces, session numbers and poll tokens: the output of a stream cipher, so that an
/// attacker who sees some cannot predict others. The caller supplies the key: a daemon draws it at
/// random, and a simulation repeats it.
#[derive(Clone)]
pub(crate) struct Numbers(ChaCha20Rng);

impl fmt::Debug for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Numbers(..)")
    }
}

impl Numbers {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self(ChaCha20Rng::from_seed(seed))
    }

    pub(crate) fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// A poll token. It is never 0, which means "no token" on the wire.
    pub(crate) fn token(&mut self) -> u16 {
        u16::try_from(self.0.next_u32() >> 16).unwrap_or(1).max(1)
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }

    /// A seed or key of `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.fill(&mut bytes);
        bytes
    }
}
