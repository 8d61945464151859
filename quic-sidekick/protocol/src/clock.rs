//! Small helpers for time as an argument.

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

/// A small generator (splitmix64) for session ids, epochs and poll tokens. Its seed comes from the caller, so that a
/// daemon can be unpredictable and a simulation repeatable.
#[derive(Clone, Debug)]
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Never 0, which the wire keeps for "none".
    pub(crate) fn next_u32(&mut self) -> u32 {
        let bytes = self.next_u64().to_be_bytes();
        u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).max(1)
    }
}
