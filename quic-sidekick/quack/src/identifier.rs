//! The widths of identifiers.

use crate::batch::Batch;
use crate::field::Field;
use core::{fmt, hash::Hash};

/// An opaque packet's identifier: bits of its ciphertext. `u16`, `u32` and `u64` implement this
/// trait, and no other type can.
pub trait Identifier:
    Batch + fmt::Debug + fmt::Display + Hash + Into<u64> + Send + Sync + 'static
{
    /// The largest prime of this width, and the modulus of all sums. Identifiers not below it equal
    /// 0 and the few values after it.
    const MODULUS: Self;
    /// The number of bits of an identifier and of a sum: 16, 32 or 64.
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
