//! The bounds on the number of sums.

use core::{error::Error, fmt};

/// The largest threshold: the most sums, and so the most missing packets, of one quACK.
pub const MAX_THRESHOLD: usize = 255;

/// A threshold outside 1 to [`MAX_THRESHOLD`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThresholdError {
    /// The requested threshold.
    pub threshold: usize,
}

impl ThresholdError {
    pub(crate) fn check(threshold: usize) -> Result<(), Self> {
        if (1..=MAX_THRESHOLD).contains(&threshold) { Ok(()) } else { Err(Self { threshold }) }
    }
}

impl fmt::Display for ThresholdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a quACK has 1 to {MAX_THRESHOLD} power sums, not {}", self.threshold)
    }
}

impl Error for ThresholdError {}
