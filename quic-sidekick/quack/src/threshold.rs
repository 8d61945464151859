//! The number of sums that a quACK may have.

use core::{error::Error, fmt};

/// The largest threshold: as many sums, and so as many missing packets, as one quACK can describe.
pub const MAX_THRESHOLD: usize = 255;

/// A threshold that is not 1 to [`MAX_THRESHOLD`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThresholdError {
    /// The threshold that was asked for.
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
