//! Fields whose products the vector kernel can compute.

use crate::field::Field;

/// The lanes of the widest vector. The length of the sums is a multiple of it.
pub(crate) const WIDEST: usize = 8;

/// A field whose products fit the significands of two doubles, as the kernel requires. The modulus
/// is `2^BITS - EXCESS`.
#[cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    allow(dead_code, reason = "only the kernel needs what it adds")
)]
pub(crate) trait Narrow: Field<Lazy = i64> + Into<u32> {
    const BITS: u32;
    const EXCESS: u32;

    /// The element of an integer between the negated modulus and the modulus, exclusively.
    fn from_centred(integer: i64) -> Self;

    /// The identifiers in memory, if vectors can be loaded from there.
    #[inline(always)]
    fn words(_: &[Self]) -> Option<&[u32]> {
        None
    }
}

impl Narrow for u16 {
    const BITS: u32 = 16;
    const EXCESS: u32 = 15;

    #[inline(always)]
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the caller's promise"
    )]
    fn from_centred(integer: i64) -> Self {
        (if integer < 0 { integer + i64::from(Self::PRIME) } else { integer }) as Self
    }
}

impl Narrow for u32 {
    const BITS: u32 = 32;
    const EXCESS: u32 = 5;

    #[inline(always)]
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the caller's promise"
    )]
    fn from_centred(integer: i64) -> Self {
        (if integer < 0 { integer + i64::from(Self::PRIME) } else { integer }) as Self
    }

    #[inline(always)]
    fn words(identifiers: &[Self]) -> Option<&[u32]> {
        Some(identifiers)
    }
}
