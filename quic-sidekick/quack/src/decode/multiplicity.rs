//! The rare case: identifiers that are missing or logged more than once.

use crate::error::DecodeError;
use crate::fate::Fate;
use crate::field::Field;
use crate::vector::portable::evaluate;
use alloc::vec::Vec;

/// How often each missing identifier is missing, and how often the log holds it.
#[derive(Debug)]
pub(super) struct Multiplicities<I> {
    /// The polynomial, divided by every root found so far.
    quotient: Vec<I>,
    roots: Vec<Root<I>>,
}

/// A missing identifier that is in the log.
#[derive(Debug)]
struct Root<I> {
    value: I,
    /// The number of missing packets with it.
    missing: usize,
    /// The number of packets with it in the log.
    logged: usize,
}

impl<I: Field> Multiplicities<I> {
    pub(super) fn with_capacity(degree: usize) -> Self {
        Self { quotient: Vec::with_capacity(degree), roots: Vec::with_capacity(degree) }
    }

    /// Checks that the log accounts for every root, and marks ambiguous packets. `fates` marks the
    /// packets whose identifiers are roots of the polynomial as missing.
    pub(super) fn settle(
        &mut self,
        polynomial: &[I],
        log: &[I],
        fates: &mut [Fate],
    ) -> Result<(), DecodeError> {
        self.roots.clear();
        self.quotient.clear();
        self.quotient.extend_from_slice(polynomial);
        for (_, identifier) in fates.iter().zip(log).filter(|(fate, _)| **fate == Fate::Missing) {
            self.count_root(identifier.element());
        }
        if !self.quotient.is_empty() || self.roots.iter().any(|root| root.logged < root.missing) {
            return Err(DecodeError::NotInLog);
        }
        if self.roots.iter().all(|root| root.logged == root.missing) {
            return Ok(());
        }
        for (fate, identifier) in
            fates.iter_mut().zip(log).filter(|(fate, _)| **fate == Fate::Missing)
        {
            let value = identifier.element();
            if self.roots.iter().any(|root| root.value == value && root.logged > root.missing) {
                *fate = Fate::Ambiguous;
            }
        }
        Ok(())
    }

    fn count_root(&mut self, value: I) {
        if let Some(root) = self.roots.iter_mut().find(|root| root.value == value) {
            root.logged += 1;
            return;
        }
        let mut missing = 0;
        while !self.quotient.is_empty() && evaluate(&self.quotient, [value]) == [I::ZERO] {
            divide(&mut self.quotient, value);
            missing += 1;
        }
        self.roots.push(Root { value, missing, logged: 1 });
    }
}

/// Divides a polynomial, given without its leading 1 and highest power first, by `x - root`
/// (synthetic division). It drops the remainder, which is 0 for a root.
pub(super) fn divide<I: Field>(polynomial: &mut Vec<I>, root: I) {
    let mut carry = I::ONE;
    for coefficient in polynomial.iter_mut() {
        carry = I::mul_add(carry, root, *coefficient);
        *coefficient = carry;
    }
    polynomial.pop();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MODULUS;
    use std::vec;

    #[test]
    fn division_by_hand() {
        // (x-2)(x-3) = x² - 5x + 6
        let mut polynomial = vec![MODULUS - 5, 6];
        assert_eq!(evaluate(&polynomial, [0, 1, 2, 3, 4, 5]), [6, 2, 0, 0, 2, 6]);
        divide(&mut polynomial, 3);
        assert_eq!(polynomial, [MODULUS - 2]);
        divide(&mut polynomial, 2);
        assert_eq!(polynomial, []);
        assert_eq!(evaluate(&polynomial, [7]), [1]);
    }
}
