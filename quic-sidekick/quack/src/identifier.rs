//! How wide the identifiers are.

use crate::batch::Batch;
use crate::field::Field;
use core::{fmt, hash::Hash};

/// An opaque packet's identifier: so many bits of its ciphertext. It is `u16`, `u32` or `u64`, and
/// cannot be implemented elsewhere.
pub trait Identifier:
    Batch + fmt::Debug + fmt::Display + Hash + Into<u64> + Send + Sync + 'static
{
    /// The largest prime of so many bits. All sums are taken modulo it; identifiers that are not
    /// below are the same to this crate as 0 and the few after it.
    const MODULUS: Self;
    /// Bits of an identifier and of a sum: 16, 32 or 64.
    const BITS: u32;
}

/// 2¹⁶ − 15
impl Identifier for u16 {
    const MODULUS: Self = Self::PRIME;
    const BITS: u32 = Self::BITS;
}

/// 2³² − 5
impl Identifier for u32 {
    const MODULUS: Self = Self::PRIME;
    const BITS: u32 = Self::BITS;
}

/// 2⁶⁴ − 59
impl Identifier for u64 {
    const MODULUS: Self = Self::PRIME;
    const BITS: u32 = Self::BITS;
}
