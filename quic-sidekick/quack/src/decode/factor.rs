//! The roots of a polynomial without testing candidates, by the algorithm of Cantor and Zassenhaus.
//!
//! For a chosen `a`, a root `r` of the polynomial is also a root of `(x + a)^((p-1)/2) - 1` exactly
//! if `r + a` is a square. The greatest common divisor of the two therefore has about half of the
//! roots. (The power is computed modulo the polynomial, by repeated squaring.) The parts are split
//! again with other `a`, until each has one root.
//!
//! The cost does not depend on the log, and looking up roots in a log is cheap. [`pays`] decides
//! when to use it.

use crate::batch::Batch;
use crate::field::Field;
use crate::vector::InstructionSet;
use alloc::vec::Vec;
use core::mem;

/// The number of shifts `a` to try: at least three times the average need. Two random roots
/// withstand all of them about once in 2^14 times, and an attacker can choose such roots. Then the
/// candidates are tested one by one.
const fn shifts(degree: usize) -> usize {
    8 + 3 * degree
}

/// The highest degree of a polynomial to split.
pub(super) const MAX_DEGREE: usize = 8;

/// Whether finding `degree` roots and looking them up is faster than testing `candidates`.
///
/// A single root needs no splitting, which costs in proportion to the square of the degree. A
/// candidate costs in proportion to the degree, and less with wider vectors; looking up costs
/// little. Measured on a Xeon of 2019 at 3.1 GHz (microseconds for testing, then for splitting and
/// looking up):
///
/// | degree, candidates | portable | AVX2 | AVX-512 |
/// |---|---|---|---|
/// | 1 of 1000 | 2.9, 0.7 | 1.3, 0.5 | 0.5, 0.4 |
/// | 2 of 2000 | 9.6, 3.9 | 3.2, 3.6 | 1.4, 3.3 |
/// | 2 of 8000 | 38, 8.4 | 12, 6.3 | 5.3, 5.1 |
/// | 3 of 8000 | 50, 16 | 14, 13 | 6.5, 11 |
/// | 5 of 4000 | 37, 35 | 9.3, 36 | 4.5, 34 |
/// | 8 of 16000 | 224, 104 | 48, 95 | 24, 87 |
pub(super) fn pays<F: Batch>(set: InstructionSet, degree: usize, candidates: usize) -> bool {
    match degree {
        1 => candidates >= 64,
        _ => degree <= MAX_DEGREE && candidates >= F::crossover(set) * degree * degree,
    }
}

/// The workspace for splitting. All polynomials are monic, lowest power first, with the leading 1
/// in place.
#[derive(Debug)]
pub(super) struct Factoring<F> {
    parts: Vec<Vec<F>>,
    spare: Vec<Vec<F>>,
    product: Vec<F>,
    pub(super) roots: Vec<F>,
}

impl<F: Field> Factoring<F> {
    pub(super) fn new() -> Self {
        let room = || Vec::with_capacity(2 * MAX_DEGREE + 2);
        Self {
            parts: Vec::with_capacity(MAX_DEGREE),
            spare: (0..2 * MAX_DEGREE + 4).map(|_| room()).collect(),
            product: room(),
            roots: Vec::with_capacity(MAX_DEGREE),
        }
    }

    /// Finds all roots of a polynomial, given without its leading 1 and highest power first.
    /// Returns false if it does not split into distinct linear factors, or the shifts did not
    /// suffice.
    pub(super) fn find_roots(&mut self, polynomial: &[F]) -> bool {
        self.roots.clear();
        while let Some(part) = self.parts.pop() {
            self.spare.push(part);
        }
        let mut whole = self.spare.pop().unwrap_or_default();
        whole.clear();
        whole.extend(polynomial.iter().rev());
        whole.push(F::ONE);
        self.parts.push(whole);
        let mut whole = true;
        let mut shifts = shifts(polynomial.len());
        while let Some(part) = self.parts.pop() {
            let split = match part.as_slice() {
                [] | [_] => true,
                [constant, _] => {
                    self.roots.push(F::sub(F::ZERO, *constant));
                    true
                }
                _ => self.split(&part, mem::take(&mut whole), &mut shifts),
            };
            self.spare.push(part);
            if !split {
                return false;
            }
        }
        true
    }

    /// Replaces a part by two. The `whole` polynomial must have as many distinct roots as its
    /// degree; the first power detects others, which forged sums can cause.
    fn split(&mut self, part: &[F], whole: bool, shifts: &mut usize) -> bool {
        let mut power = self.spare.pop().unwrap_or_default();
        let mut divisor = self.spare.pop().unwrap_or_default();
        let mut shift = F::ZERO;
        let mut split = false;
        while *shifts > 0 {
            *shifts -= 1;
            self.half_power(shift, part, &mut power);
            if whole && shift == F::ZERO && !self.has_all_roots(&power, part) {
                break;
            }
            shift = F::add(shift, F::ONE);
            // The power less 1.
            let Some(constant) = power.first_mut() else { continue };
            *constant = F::sub(*constant, F::ONE);
            divisor.clear();
            divisor.extend_from_slice(part);
            greatest_common_divisor(&mut divisor, &mut power);
            if divisor.len() > 1 && divisor.len() < part.len() {
                split = true;
                break;
            }
        }
        if split {
            // The rest of the part: it divides evenly.
            power.clear();
            power.extend_from_slice(part);
            let mut quotient = self.spare.pop().unwrap_or_default();
            divide(&mut power, &divisor, Some(&mut quotient));
            self.parts.push(quotient);
            self.parts.push(divisor);
        } else {
            self.spare.push(divisor);
        }
        self.spare.push(power);
        split
    }

    /// Whether `x^p` is `x` modulo the part, given `x^((p-1)/2)` modulo the part, of degree 2 or
    /// more. This holds for products of distinct `x - r`, and for no other polynomial.
    fn has_all_roots(&mut self, power: &[F], part: &[F]) -> bool {
        square(power, &mut self.product);
        self.product.insert(0, F::ZERO);
        divide(&mut self.product, part, None);
        self.product == [F::ZERO, F::ONE]
    }

    /// `(x + shift)^((p-1)/2)` modulo the part.
    fn half_power(&mut self, shift: F, part: &[F], power: &mut Vec<F>) {
        power.clear();
        power.extend_from_slice(&[F::ONE]);
        for bit in (0..F::HALF_BITS).rev() {
            square(power, &mut self.product);
            mem::swap(power, &mut self.product);
            if F::half_has(bit) {
                // Times x + shift.
                power.push(F::ZERO);
                for i in (0..power.len()).rev() {
                    let below =
                        i.checked_sub(1).and_then(|i| power.get(i)).copied().unwrap_or(F::ZERO);
                    if let Some(coefficient) = power.get_mut(i) {
                        *coefficient = F::mul_add(*coefficient, shift, below);
                    }
                }
            }
            divide(power, part, None);
        }
    }
}

fn square<F: Field>(factor: &[F], product: &mut Vec<F>) {
    product.clear();
    product.resize((2 * factor.len()).saturating_sub(1), F::ZERO);
    for (i, &a) in factor.iter().enumerate() {
        for (coefficient, &b) in product.iter_mut().skip(i).zip(factor) {
            *coefficient = F::mul_add(a, b, *coefficient);
        }
    }
}

/// Reduces `dividend` to its remainder by a monic `divisor`, without leading zeros.
fn divide<F: Field>(dividend: &mut Vec<F>, divisor: &[F], mut quotient: Option<&mut Vec<F>>) {
    let degree = divisor.len().saturating_sub(1);
    if let Some(quotient) = &mut quotient {
        quotient.clear();
        quotient.resize(dividend.len().saturating_sub(degree), F::ZERO);
    }
    while dividend.len() > degree {
        let Some(leading) = dividend.pop() else { break };
        let place = dividend.len() - degree;
        if let Some(coefficient) =
            quotient.as_deref_mut().and_then(|quotient| quotient.get_mut(place))
        {
            *coefficient = leading;
        }
        let negated = F::sub(F::ZERO, leading);
        for (coefficient, &factor) in dividend.iter_mut().skip(place).zip(divisor) {
            *coefficient = F::mul_add(negated, factor, *coefficient);
        }
    }
    while dividend.last() == Some(&F::ZERO) {
        dividend.pop();
    }
}

/// Replaces `a` by the monic greatest common divisor (Euclid's algorithm). `a` is monic, and `b` of
/// a lower degree.
fn greatest_common_divisor<F: Field>(a: &mut Vec<F>, b: &mut Vec<F>) {
    while b.last() == Some(&F::ZERO) {
        b.pop();
    }
    while let Some(&leading) = b.last() {
        let inverse = inverse(leading);
        for coefficient in b.iter_mut() {
            *coefficient = F::mul(*coefficient, inverse);
        }
        divide(a, b, None);
        mem::swap(a, b);
    }
}

/// `1 / a`: `a` to the power of `p - 2`, which is twice `(p - 1) / 2` less 1.
fn inverse<F: Field>(a: F) -> F {
    let mut power = F::ONE;
    // p - 2 = 2 · (h - 1) + 1 with h = (p - 1) / 2. It is simplest to keep a to the power of h and
    // of h - 1 side by side.
    let mut less = F::ONE;
    let mut started = false;
    for bit in (0..F::HALF_BITS).rev() {
        if started {
            // From h to 2h, and from h - 1 to 2h - 1.
            less = F::mul(power, less);
            power = F::mul(power, power);
        }
        if F::half_has(bit) {
            less = power;
            power = F::mul(power, a);
            started = true;
        }
    }
    F::mul(F::mul(less, less), a)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Identifier;
    use crate::decode::multiplicity::divide as divide_by_root;
    use proptest::prelude::*;
    use std::vec;

    /// The monic polynomial with these roots, without its leading 1, highest power first.
    fn with_roots<F: Field>(roots: &[F]) -> Vec<F> {
        let mut polynomial = vec![F::ONE];
        for &root in roots {
            polynomial.push(F::ZERO);
            for i in (1..polynomial.len()).rev() {
                polynomial[i] = F::mul_add(F::sub(F::ZERO, root), polynomial[i - 1], polynomial[i]);
            }
        }
        polynomial.remove(0);
        polynomial
    }

    fn finds_what_was_put_in<I: Identifier>(roots: Vec<I>) -> Result<(), TestCaseError> {
        let mut roots: Vec<I> = roots.into_iter().map(I::element).collect();
        roots.sort_unstable();
        let polynomial = with_roots(&roots);
        let mut factoring = Factoring::new();
        let split = factoring.find_roots(&polynomial);
        let distinct = roots.windows(2).all(|pair| pair[0] != pair[1]);
        prop_assert!(distinct || !split);
        // Some polynomials withstand all shifts.
        prop_assume!(split || !distinct);
        if !split {
            return Ok(());
        }
        factoring.roots.sort_unstable();
        prop_assert_eq!(factoring.roots, roots);
        Ok(())
    }

    proptest! {
        #[test]
        fn polynomials_of_16_bits_split(
            roots in prop::collection::vec(any::<u16>(), 1..=MAX_DEGREE),
        ) {
            finds_what_was_put_in(roots)?;
        }

        #[test]
        fn polynomials_of_32_bits_split(
            roots in prop::collection::vec(any::<u32>(), 1..=MAX_DEGREE),
            twice: bool,
        ) {
            let roots = if twice { [roots.as_slice(), &roots[..1]].concat() } else { roots };
            finds_what_was_put_in(roots.into_iter().take(MAX_DEGREE).collect())?;
        }

        #[test]
        fn polynomials_of_64_bits_split(
            roots in prop::collection::vec(any::<u64>(), 1..=MAX_DEGREE),
        ) {
            finds_what_was_put_in(roots)?;
        }

        #[test]
        fn inverses_undo(a in 1..u32::PRIME, b in 1..u16::PRIME, c in 1..u64::PRIME) {
            prop_assert_eq!(u32::mul(a, inverse(a)), 1);
            prop_assert_eq!(u16::mul(b, inverse(b)), 1);
            prop_assert_eq!(u64::mul(c, inverse(c)), 1);
        }
    }

    #[test]
    fn roots_are_found_and_some_pairs_withstand() {
        let mut factoring = Factoring::new();
        assert!(factoring.find_roots(&with_roots(&[5_u32, 80_000, 3, 4_000_000_000, 0])));
        factoring.roots.sort_unstable();
        assert_eq!(factoring.roots, [0, 3, 5, 80_000, 4_000_000_000]);
        // For every shift that is tried, up to 23, both or neither of these roots, shifted, are
        // squares.
        assert!(!Factoring::new().find_roots(&with_roots(&[32_586_u16, 48_370])));
        assert!(!factoring.find_roots(&with_roots(&[7_u32, 7])), "twice the same");
    }

    #[test]
    fn a_polynomial_without_roots_is_given_up() {
        // 2 is no square in this field (p ≡ 3 modulo 8), so that x² - 2 and its multiples do not
        // split.
        let mut factoring = Factoring::new();
        assert!(!factoring.find_roots(&[0, u32::PRIME - 2]));
        assert!(!factoring.find_roots(&[u32::PRIME - 7, u32::PRIME - 2, 14]));
        assert!(factoring.find_roots(&with_roots(&[7_u32])), "the workspace is reusable");
        assert_eq!(factoring.roots, [7]);
        let mut product = with_roots(&[7_u32, 9]);
        divide_by_root(&mut product, 7);
        assert_eq!(product, with_roots(&[9]));
    }
}
