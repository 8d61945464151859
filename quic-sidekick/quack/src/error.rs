//! Errors of sums and of the decoder.

use crate::field::Identifier;
use core::error::Error;
use core::fmt;

/// Numbers that cannot be power sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartsError {
    /// There are no sums, or too many.
    Threshold(ThresholdError),
    /// A sum is the [`MODULUS`](Identifier::MODULUS) or more.
    NotReduced {
        /// Its index in the list, from 0.
        index: usize,
        /// Its value.
        sum: u64,
        /// The modulus.
        modulus: u64,
    },
}

impl PartsError {
    /// Whether [`PowerSumsOf::from_parts`](crate::PowerSumsOf::from_parts) accepts these sums. So a
    /// caller can reject a message without building the sums.
    ///
    /// # Errors
    /// As [`PowerSumsOf::from_parts`](crate::PowerSumsOf::from_parts).
    pub fn check<I: Identifier>(sums: &[I]) -> Result<(), Self> {
        ThresholdError::check(sums.len())?;
        // Without an early exit, the compiler compares several at once.
        if sums.iter().fold(true, |reduced, &sum| reduced & (sum < I::MODULUS)) {
            return Ok(());
        }
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
    /// Counts wrap, so half the range of differences stands for negative ones.
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

/// Why a quACK did not decode. Every fate is unknown then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// More packets are missing than the sums can identify.
    TooManyMissing {
        /// The number of missing packets.
        missing: u32,
        /// The most that may be missing: the smaller threshold of difference and decoder.
        threshold: usize,
    },
    /// The receiving side counted more packets than were sent.
    MoreReceivedThanSent,
    /// No set of packets has these sums and this count. One side counted packets that the other did
    /// not send, or the two began at different packets.
    Inconsistent,
    /// The log lacks some missing packets, or holds them less often than they are missing.
    NotInLog,
}

impl From<MoreReceivedThanSent> for DecodeError {
    fn from(_: MoreReceivedThanSent) -> Self {
        Self::MoreReceivedThanSent
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyMissing { missing, threshold } => {
                write!(
                    f,
                    "{missing} packets are missing, but the sums identify at most {threshold}"
                )
            }
            Self::MoreReceivedThanSent => MoreReceivedThanSent.fmt(f),
            Self::Inconsistent => {
                f.write_str("the power sums contradict each other: the two sides are not aligned")
            }
            Self::NotInLog => f.write_str("packets are missing that the log does not hold"),
        }
    }
}

impl Error for DecodeError {}

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
