//! The integers modulo the largest prime below 2³².
//!
//! An element is a `u32` below [`MODULUS`]. Since 2³² ≡ 5, the high half of a product folds onto the low half
//! by a multiplication with 5: no division anywhere.

use crate::sums::MAX_THRESHOLD;

/// The prime 2³² − 5 that all sums are taken modulo.
pub const MODULUS: u32 = 4_294_967_291;

/// What 2³² is congruent to.
const FOLD: u64 = 5;

const LOW_HALF: u64 = 0xffff_ffff;

/// Replaces `value` by a congruent one below 6 · 2³².
///
/// Many of these can be added up in a `u64` before [`reduce`] has to be called.
#[inline]
pub(crate) const fn fold(value: u64) -> u64 {
    (value >> 32) * FOLD + (value & LOW_HALF)
}

/// The element congruent to `value`.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "two folds and one subtraction leave less than MODULUS")]
pub(crate) const fn reduce(value: u64) -> u32 {
    // The first fold leaves less than 6 · 2³², the second at most 2³² - 1 + 5 · 5, which is less than two
    // moduli.
    let folded = fold(fold(value));
    let modulus = MODULUS as u64;
    (if folded >= modulus { folded - modulus } else { folded }) as u32
}

/// The element an identifier stands for: 2³²−5 to 2³²−1 fall together with 0 to 4.
#[inline]
pub(crate) const fn element(identifier: u32) -> u32 {
    if identifier >= MODULUS { identifier - MODULUS } else { identifier }
}

/// `a + b`
#[inline]
pub(crate) const fn add(a: u32, b: u32) -> u32 {
    // Neither branch can wrap: a + b < MODULUS in the first, a + b >= MODULUS in the second.
    let room = MODULUS - b;
    if a < room { a + b } else { a - room }
}

/// `a - b`
#[inline]
pub(crate) const fn sub(a: u32, b: u32) -> u32 {
    if a >= b { a - b } else { a + (MODULUS - b) }
}

/// `-a`
#[inline]
pub(crate) const fn neg(a: u32) -> u32 {
    sub(0, a)
}

/// `a · b`
#[inline]
pub(crate) const fn mul(a: u32, b: u32) -> u32 {
    reduce(a as u64 * b as u64)
}

/// `a · b + c`. The sum cannot overflow: (p − 1)² + (p − 1) is less than 2⁶⁴.
#[inline]
pub(crate) const fn mul_add(a: u32, b: u32, c: u32) -> u32 {
    reduce(a as u64 * b as u64 + c as u64)
}

/// `Σ aᵢ · bᵢ` over the shorter of the two sequences, which must hold fewer than 2²⁹ terms.
#[inline]
pub(crate) fn dot<'a>(a: impl Iterator<Item = &'a u32>, b: impl Iterator<Item = &'a u32>) -> u32 {
    // A folded term is below 2³⁵, so 2²⁹ of them fit; no caller has more than MAX_THRESHOLD.
    reduce(a.zip(b).map(|(&a, &b)| fold(u64::from(a) * u64::from(b))).sum())
}

/// `INVERSES[k - 1]` is the inverse of `k`, for every degree that Newton's identities divide by.
pub(crate) static INVERSES: [u32; MAX_THRESHOLD] = inverses();

#[allow(clippy::cast_possible_truncation, reason = "the indices stay at or below MAX_THRESHOLD, 255")]
const fn inverses() -> [u32; MAX_THRESHOLD] {
    let mut table = [1; MAX_THRESHOLD];
    let mut k = 2;
    while k <= MAX_THRESHOLD as u32 {
        // p = q·k + r gives 1/k ≡ -q · 1/r, and r < k is in the table already; r > 0 because p is prime.
        let (q, r) = (MODULUS / k, MODULUS % k);
        table[k as usize - 1] = mul(neg(q), table[r as usize - 1]);
        k += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const P: u128 = MODULUS as u128;

    /// Elements, with the edges of the range more often than chance would have them.
    fn any_element() -> impl Strategy<Value = u32> {
        prop_oneof![0..6u32, MODULUS - 6..MODULUS, 0..MODULUS]
    }

    fn any_wide() -> impl Strategy<Value = u64> {
        let near_multiples = (0..1u64 << 32, 0..12u64)
            .prop_map(|(n, off)| (n * u64::from(MODULUS)).saturating_add(off).saturating_sub(6));
        prop_oneof![any::<u64>(), u64::MAX - 40..=u64::MAX, near_multiples]
    }

    proptest! {
        #[test]
        fn arithmetic_agrees_with_wide_integers(a in any_element(), b in any_element(), c in any_element()) {
            let (wa, wb, wc) = (u128::from(a), u128::from(b), u128::from(c));
            prop_assert_eq!(u128::from(add(a, b)), (wa + wb) % P);
            prop_assert_eq!(u128::from(sub(a, b)), (wa + P - wb) % P);
            prop_assert_eq!(u128::from(neg(a)), (P - wa) % P);
            prop_assert_eq!(u128::from(mul(a, b)), wa * wb % P);
            prop_assert_eq!(u128::from(mul_add(a, b, c)), (wa * wb + wc) % P);
        }

        #[test]
        fn reduction_agrees_with_remainder(value in any_wide(), identifier in any::<u32>()) {
            prop_assert_eq!(u128::from(reduce(value)), u128::from(value) % P);
            prop_assert!(fold(value) < 6 << 32);
            prop_assert_eq!(u128::from(fold(value)) % P, u128::from(value) % P);
            prop_assert_eq!(element(identifier), identifier % MODULUS);
        }

        #[test]
        fn dot_agrees_with_wide_integers(pairs in prop::collection::vec((any_element(), any_element()), 0..=MAX_THRESHOLD)) {
            let (a, b): (Vec<u32>, Vec<u32>) = pairs.into_iter().unzip();
            let expected = a.iter().zip(&b).fold(0, |sum, (&a, &b)| (sum + u128::from(a) * u128::from(b)) % P);
            prop_assert_eq!(u128::from(dot(a.iter(), b.iter())), expected);
        }
    }

    #[test]
    fn the_identifiers_past_the_modulus_wrap() {
        assert_eq!((MODULUS..=u32::MAX).map(element).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert_eq!(element(MODULUS - 1), MODULUS - 1);
    }

    #[test]
    fn the_extremes_reduce() {
        // 2⁶⁴ - 1 ≡ 5·5 - 1.
        assert_eq!(reduce(u64::MAX), 24);
        assert_eq!(mul(MODULUS - 1, MODULUS - 1), 1);
        assert_eq!(mul_add(MODULUS - 1, MODULUS - 1, MODULUS - 1), 0);
        let most = [MODULUS - 1; MAX_THRESHOLD];
        assert_eq!(dot(most.iter(), most.iter()), 255);
    }

    #[test]
    fn the_modulus_is_the_largest_prime_of_32_bits() {
        let is_prime = |n: u64| n > 1 && (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d));
        let largest = (0..=u64::from(u32::MAX)).rev().find(|&n| is_prime(n));
        assert_eq!(largest, Some(u64::from(MODULUS)));
    }

    #[test]
    fn every_inverse_times_its_number_is_one() {
        for (k, &inverse) in (1..).zip(&INVERSES) {
            assert!(inverse < MODULUS);
            assert_eq!(u64::from(inverse) * k % u64::from(MODULUS), 1, "inverse of {k}");
        }
    }
}
