//! The roots of a polynomial without trying candidates: Cantor and Zassenhaus' way of splitting it.
//!
//! For a chosen `a`, every root `r` for which `r + a` is a square is a root of `(x + a)^((p-1)/2) -
//! 1`, and no other is. The greatest common divisor of that (taken modulo the polynomial, by
//! repeated squaring) and the polynomial is a part of it, with about half of its roots. The parts
//! are split again with other `a`, until each has one root.
//!
//! What this costs does not depend on the log, and looking roots up in a log is cheap; [`pays`]
//! says when.

use crate::batch::Batch;
use crate::field::Field;
use crate::vector::InstructionSet;
use alloc::vec::Vec;
use core::mem;

/// So many shifts `a` are tried in all: three times what is needed on average, or more. Two roots
/// by chance withstand all about once in 2^14 times, and who chooses the roots can see to it; then
/// the candidates are tried one by one.
const fn shifts(degree: usize) -> usize {
    8 + 3 * degree
}

/// Polynomials of a higher degree are not split.
pub(super) const MAX_DEGREE: usize = 8;

/// Whether finding this many roots and looking them up is faster than trying so many candidates.
///
/// One root is there to be read. Splitting costs in proportion to the square of the degree, a
/// candidate in proportion to the degree and the less the wider the vectors are, and looking up
/// costs little. Measured on a Xeon of 2019 at 3.1 GHz (microseconds for trying, then for splitting
/// and looking up):
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

/// Where polynomials are split. All of them are monic, with the lowest power first and the leading
/// 1 in place.
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

    /// Finds all roots of a polynomial that is given less its leading 1, highest power first. False
    /// if it does not split into different linear factors, or was not seen to.
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

    /// Replaces the part by two. The `whole` has to have as many different roots as its degree:
    /// anything else that hostile sums can make of it is noticed after the first power, at the cost
    /// of that.
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
            // What is left of the part: it divides evenly.
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

    /// Given `x^((p-1)/2)` modulo the part, of degree 2 or more: whether `x^p` is `x`, as it is for
    /// every element and so modulo every product of different `x - r`, and modulo nothing else.
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

/// The square of a polynomial.
fn square<F: Field>(factor: &[F], product: &mut Vec<F>) {
    product.clear();
    product.resize((2 * factor.len()).saturating_sub(1), F::ZERO);
    for (i, &a) in factor.iter().enumerate() {
        for (coefficient, &b) in product.iter_mut().skip(i).zip(factor) {
            *coefficient = F::mul_add(a, b, *coefficient);
        }
    }
}

/// Leaves of `dividend` the remainder by a monic `divisor`, without leading zeros.
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

/// Leaves in `a` the monic greatest common divisor (Euclid's algorithm); `a` is monic and `b` of a
/// lower degree.
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
    // p - 2 = 2 · ((p - 1) / 2 - 1) + 1, and (p - 1) / 2 - 1 has the bits of (p - 1) / 2 but for a
    // borrow; it is simpler to keep a to the power of h and of h - 1 side by side.
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

    /// The monic polynomial with these roots, less its leading 1, highest power first.
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
        // Some withstand all shifts.
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
        fn polynomials_of_16_bits_split(roots in prop::collection::vec(any::<u16>(), 1..=MAX_DEGREE)) {
            finds_what_was_put_in(roots)?;
        }

        #[test]
        fn polynomials_of_32_bits_split(roots in prop::collection::vec(any::<u32>(), 1..=MAX_DEGREE), twice: bool) {
            let roots = if twice { [roots.as_slice(), &roots[..1]].concat() } else { roots };
            finds_what_was_put_in(roots.into_iter().take(MAX_DEGREE).collect())?;
        }

        #[test]
        fn polynomials_of_64_bits_split(roots in prop::collection::vec(any::<u64>(), 1..=MAX_DEGREE)) {
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
        // For each shift up to 23, and so for all that are tried, both or neither of them, shifted,
        // are squares.
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
        assert!(factoring.find_roots(&with_roots(&[7_u32])), "it can be used again");
        assert_eq!(factoring.roots, [7]);
        let mut product = with_roots(&[7_u32, 9]);
        divide_by_root(&mut product, 7);
        assert_eq!(product, with_roots(&[9]));
    }
}
