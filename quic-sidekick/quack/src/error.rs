//! Why sums cannot be made, taken over from a message, or subtracted.
//! ([`DecodeError`](crate::DecodeError) stands beside the decoder.)

use crate::{Identifier, MAX_THRESHOLD};
use core::{error::Error, fmt};

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

/// Numbers that cannot be the power sums of anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartsError {
    /// There are no sums, or too many.
    Threshold(ThresholdError),
    /// A sum is the [`MODULUS`](Identifier::MODULUS) or more.
    NotReduced {
        /// Where in the list it stands, from 0.
        index: usize,
        /// What stands there.
        sum: u64,
        /// What it is not below.
        modulus: u64,
    },
}

impl PartsError {
    pub(crate) fn check<I: Identifier>(sums: &[I]) -> Result<(), Self> {
        ThresholdError::check(sums.len())?;
        match sums.iter().enumerate().find(|&(_, &sum)| sum >= I::MODULUS) {
            Some((index, &sum)) => {
                Err(Self::NotReduced { index, sum: sum.into(), modulus: I::MODULUS.into() })
            }
            None => Ok(()),
        }
    }
}

impl From<ThresholdError> for PartsError {
    fn from(error: ThresholdError) -> Self {
        Self::Threshold(error)
    }
}

impl fmt::Display for PartsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Threshold(error) => error.fmt(f),
            Self::NotReduced { index, sum, modulus } => {
                write!(
                    f,
                    "power sum {} is {sum}, which is not below the modulus {modulus}",
                    index + 1
                )
            }
        }
    }
}

impl Error for PartsError {}

/// The receiving side counted more packets than were sent, or the counts are 2³¹ or more apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoreReceivedThanSent;

impl MoreReceivedThanSent {
    /// Counts wrap, so half of the range of differences has to stand for negative ones.
    pub(crate) fn check(missing: u32) -> Result<(), Self> {
        if missing < 1 << 31 { Ok(()) } else { Err(Self) }
    }
}

impl fmt::Display for MoreReceivedThanSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("more packets were counted as received than as sent")
    }
}

impl Error for MoreReceivedThanSent {}
