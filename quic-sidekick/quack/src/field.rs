//! The integers modulo the largest prime of 16, 32 and 64 bits.
//!
//! An element is an unsigned integer below the modulus. `2^b` is congruent to a small number for
//! each of the three primes, so a multiplication with that number folds the high half of a product
//! onto the low half, without a division.

use crate::batch::Batch;
use crate::error::MAX_THRESHOLD;
use core::hash::Hash;
use core::{fmt, ops};

/// The arithmetic of an identifier's field. The trait is not nameable outside the crate, which
/// seals [`Identifier`](crate::Identifier).
#[doc(hidden)]
pub trait Field: Copy + Eq + Ord + 'static {
    /// An integer with room for a product, or for a total of folded products.
    type Wide: Copy
        + PartialOrd
        + Default
        + fmt::Debug
        + Send
        + Sync
        + ops::Add<Output = Self::Wide>
        + ops::Sub<Output = Self::Wide>
        + ops::Mul<Output = Self::Wide>;
    /// A sum that is rarely reduced.
    type Lazy: Copy + Default + fmt::Debug + Send + Sync + 'static;
    const PRIME: Self;
    /// The number of bits of `(p - 1) / 2`.
    const HALF_BITS: u32;
    const ZERO: Self;
    const ONE: Self;
    /// `NEGATED_INVERSES[k - 1]` is `-1/k`, for every degree that Newton's identities divide by.
    const NEGATED_INVERSES: &'static [Self; MAX_THRESHOLD];
    /// The number of elements that can be added to a reduced lazy sum.
    const PATIENCE: u32;

    /// The element of an identifier. Identifiers past the modulus wrap to the smallest elements.
    fn element(self) -> Self;
    /// Whether `(p - 1) / 2` has this bit.
    fn half_has(bit: u32) -> bool;
    /// `a + b`
    fn add(a: Self, b: Self) -> Self;
    /// `a - b`
    fn sub(a: Self, b: Self) -> Self;
    /// `a · b`
    fn mul(a: Self, b: Self) -> Self;
    /// `a · b + c`
    fn mul_add(a: Self, b: Self, c: Self) -> Self;
    /// Converts to an integer with room for a product.
    fn widen(self) -> Self::Wide;
    /// Converts an integer below the modulus back.
    fn narrow(wide: Self::Wide) -> Self;
    /// The remainder modulo the prime.
    fn remainder(wide: Self::Wide) -> Self;
    /// A number congruent to `a · b`, small enough to add up a thousand of them.
    fn product(a: Self, b: Self) -> Self::Wide;
    /// The element congruent to such a total plus `c`.
    fn reduce(total: Self::Wide, c: Self) -> Self;

    /// A lazy sum of one element.
    fn lazy(self) -> Self::Lazy;
    fn accumulate(sum: &mut Self::Lazy, element: Self);
    fn subtract(sum: &mut Self::Lazy, element: Self);
    /// The element congruent to a lazy sum.
    fn settle(sum: Self::Lazy) -> Self;
}

/// The arithmetic common to the three widths: `$wide` has twice the bits, and `2^bits` is congruent
/// to `$fold`.
macro_rules! arithmetic {
    ($type:ty, $wide:ty, $fold:literal) => {
        type Wide = $wide;
        const PRIME: Self = <$type>::MAX - $fold + 1;
        const HALF_BITS: u32 = Self::BITS - 1;
        const ZERO: Self = 0;
        const ONE: Self = 1;
        #[allow(
            clippy::cast_possible_truncation,
            reason = "indices are at most 255, and remainders below the modulus"
        )]
        const NEGATED_INVERSES: &'static [Self; MAX_THRESHOLD] = &{
            const PRIME: $wide = <$type as Field>::PRIME as $wide;
            // -1/1 is -1. For the others p = q·k + r gives -1/k = q · 1/r = -q · (-1/r), and r < k
            // is in the table already; r > 0 since p is prime.
            let mut table = [<$type as Field>::PRIME - 1; MAX_THRESHOLD];
            let mut k = 2;
            while k <= MAX_THRESHOLD {
                let (q, r) = (PRIME / k as $wide, PRIME % k as $wide);
                table[k - 1] = ((PRIME - q) * table[r as usize - 1] as $wide % PRIME) as $type;
                k += 1;
            }
            table
        };

        #[inline]
        fn element(self) -> Self {
            if self >= Self::PRIME { self - Self::PRIME } else { self }
        }

        #[inline]
        fn half_has(bit: u32) -> bool {
            Self::PRIME >> 1 >> bit & 1 == 1
        }

        #[inline]
        fn add(a: Self, b: Self) -> Self {
            // Neither branch can wrap: a + b is less than the modulus in the first, and not less in
            // the second.
            let room = Self::PRIME - b;
            if a < room { a + b } else { a - room }
        }

        #[inline]
        fn sub(a: Self, b: Self) -> Self {
            if a >= b { a - b } else { a + (Self::PRIME - b) }
        }

        #[inline]
        fn mul(a: Self, b: Self) -> Self {
            Self::reduce(<$wide>::from(a) * <$wide>::from(b), 0)
        }

        #[inline]
        fn mul_add(a: Self, b: Self, c: Self) -> Self {
            Self::reduce(<$wide>::from(a) * <$wide>::from(b), c)
        }

        #[inline]
        fn widen(self) -> Self::Wide {
            self.into()
        }

        #[inline]
        #[allow(clippy::cast_possible_truncation, reason = "the caller's promise")]
        fn narrow(wide: Self::Wide) -> Self {
            wide as Self
        }

        #[inline]
        #[allow(clippy::cast_possible_truncation, reason = "a remainder is below the modulus")]
        fn remainder(wide: Self::Wide) -> Self {
            (wide % <$wide>::from(Self::PRIME)) as Self
        }

        #[inline]
        fn product(a: Self, b: Self) -> Self::Wide {
            fold(<$wide>::from(a) * <$wide>::from(b))
        }

        #[inline]
        #[allow(
            clippy::cast_possible_truncation,
            reason = "two folds and one subtraction leave less than the modulus"
        )]
        fn reduce(total: Self::Wide, c: Self) -> Self {
            // The sum cannot overflow: (p - 1)² + (p - 1) fits, and so do a thousand folded
            // products. The first fold leaves less than ($fold + 1) · 2^bits, the second at most
            // 2^bits - 1 + $fold², which is less than two moduli.
            let folded = fold(fold(total + <$wide>::from(c)));
            let modulus = <$wide>::from(Self::PRIME);
            (if folded >= modulus { folded - modulus } else { folded }) as Self
        }
    };
}

/// Folding of the high half onto the low one.
trait Fold {
    fn fold(self) -> Self;
}

#[inline]
fn fold<W: Fold>(value: W) -> W {
    value.fold()
}

macro_rules! impl_fold {
    ($wide:ty, $bits:literal, $fold:literal) => {
        impl Fold for $wide {
            #[inline]
            fn fold(self) -> Self {
                (self >> $bits) * $fold + (self & ((1 << $bits) - 1))
            }
        }
    };
}
impl_fold!(u32, 16, 15);
impl_fold!(u64, 32, 5);
impl_fold!(u128, 64, 59);

/// Lazy sums that are wider than the elements.
macro_rules! narrow {
    ($type:ty, $lifted:ident => $reduced:expr) => {
        // Elements are below the modulus, centred or not, so that 2³⁰ of them stay below 2⁶².
        type Lazy = i64;
        const PATIENCE: u32 = 1 << 30;

        #[inline]
        fn lazy(self) -> Self::Lazy {
            i64::from(self)
        }

        #[inline]
        fn accumulate(sum: &mut Self::Lazy, element: Self) {
            *sum = sum.wrapping_add(i64::from(element));
        }

        #[inline]
        fn subtract(sum: &mut Self::Lazy, element: Self) {
            *sum = sum.wrapping_sub(i64::from(element));
        }

        #[inline]
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a remainder is below the modulus"
        )]
        fn settle(sum: Self::Lazy) -> Self {
            // A multiple of the modulus near 2⁶³, which makes it positive.
            const LIFT: u64 =
                (1 << 63) / <$type as Field>::PRIME as u64 * <$type as Field>::PRIME as u64;
            let $lifted = sum.cast_unsigned().wrapping_add(LIFT);
            $reduced
        }
    };
}

impl Field for u16 {
    arithmetic!(u16, u32, 15);
    narrow!(u16, lifted => (lifted % u64::from(Self::PRIME)) as Self);
}

impl Field for u32 {
    arithmetic!(u32, u64, 5);
    narrow!(u32, lifted => Self::reduce(lifted, 0));
}

impl Field for u64 {
    arithmetic!(u64, u128, 59);

    type Lazy = u64;
    const PATIENCE: u32 = u32::MAX;

    #[inline]
    fn lazy(self) -> Self::Lazy {
        self
    }

    #[inline]
    fn accumulate(sum: &mut Self::Lazy, element: Self) {
        *sum = Self::add(*sum, element);
    }

    #[inline]
    fn subtract(sum: &mut Self::Lazy, element: Self) {
        *sum = Self::sub(*sum, element);
    }

    #[inline]
    fn settle(sum: Self::Lazy) -> Self {
        sum
    }
}

#[cfg(test)]
mod tests;

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
