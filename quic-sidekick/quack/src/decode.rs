//! The decoder: from the difference of two sums to the fate of every packet in the log.

mod factor;
mod multiplicity;

use crate::error::{DecodeError, MAX_THRESHOLD, MoreReceivedThanSent};
use crate::fate::{Fate, Found, Identities};
use crate::field::Identifier;
use crate::sums::PowerSumsOf;
use crate::vector::InstructionSet;
use alloc::vec::Vec;
use factor::Factoring;
use multiplicity::Multiplicities;

/// A decoder for quACKs of 32-bit identifiers, as the protocol uses.
pub type Decoder = DecoderOf<u32>;

/// Finds the missing packets of a log. It includes the workspace, so keep one and reuse it.
#[derive(Debug)]
pub struct DecoderOf<I: Identifier> {
    set: InstructionSet,
    max_threshold: usize,
    sums: Vec<I>,
    identities: Identities<I>,
    factoring: Factoring<I>,
    found: Found<I>,
    multiplicities: Multiplicities<I>,
}

impl<I: Identifier> DecoderOf<I> {
    /// A decoder that accepts at most `max_threshold` missing packets. This bounds the work of a
    /// decode, which grows with the product of that number and the length of the log. For a long
    /// log, forged sums can cost a few times as much as honest ones. Identifiers that are missing
    /// or logged more than once cost up to the square of the number missing.
    ///
    /// `max_threshold` is clamped to 1 to [`MAX_THRESHOLD`].
    #[must_use]
    pub fn new(max_threshold: usize) -> Self {
        let max_threshold = max_threshold.clamp(1, MAX_THRESHOLD);
        Self {
            set: InstructionSet::best(),
            max_threshold,
            sums: Vec::with_capacity(MAX_THRESHOLD),
            identities: Identities::with_degree(max_threshold),
            factoring: Factoring::new(),
            found: Found::with_limit(max_threshold),
            multiplicities: Multiplicities::with_capacity(max_threshold),
        }
    }

    /// The same decoder with other instructions.
    #[must_use]
    pub fn with_instruction_set(mut self, set: InstructionSet) -> Self {
        self.set = set;
        self
    }

    /// The largest number of missing packets that this decoder accepts.
    pub fn max_threshold(&self) -> usize {
        self.max_threshold
    }

    /// Determines the fate of each packet of `log`, and returns the number of missing ones.
    ///
    /// `difference` is sent minus received (see [`PowerSumsOf::difference`]). `log` holds the
    /// identifiers of the packets in "sent", in any order and not reduced, without packets that
    /// were removed from "sent". `fates` is overwritten: it has the length and order of `log`, and
    /// its memory is reused. After an error it is empty.
    ///
    /// The returned number includes missing packets whose identifier is [`Fate::Ambiguous`].
    /// Without ambiguity it is the number of [`Fate::Missing`].
    ///
    /// Reading the difference is faster if no inserted packet waits in it (see
    /// [`PowerSumsOf::insert`]), as in a result of [`PowerSumsOf::difference`].
    ///
    /// # Errors
    /// - [`DecodeError::MoreReceivedThanSent`]: the count of the difference is negative.
    /// - [`DecodeError::TooManyMissing`]: a quACK with more sums, or a new start, can help.
    /// - [`DecodeError::Inconsistent`] and [`DecodeError::NotInLog`]: the log does not match the
    ///   sums.
    ///
    /// The first two cost a comparison, and `Inconsistent` only the sums: the decoder reads the log
    /// afterwards.
    pub fn decode(
        &mut self,
        difference: &PowerSumsOf<I>,
        log: &[I],
        fates: &mut Vec<Fate>,
    ) -> Result<usize, DecodeError> {
        fates.clear();
        let missing = self.missing_count(difference)?;
        self.build_polynomial(difference, missing)?;
        fates.resize(log.len(), Fate::Received);
        if missing == 0 {
            return Ok(0);
        }
        self.found.clear();
        let polynomial = &self.identities.polynomial;
        if factor::pays::<I>(self.set, missing, log.len()) && self.factoring.find_roots(polynomial)
        {
            I::look_up(self.set, &self.factoring.roots, log, fates, &mut self.found);
        } else {
            I::mark_roots(self.set, polynomial, log, fates, &mut self.found);
        }
        // As many distinct roots as the degree are all roots, each once.
        if !self.found.are_distinct(missing)
            && let Err(error) = self.multiplicities.settle(&self.identities.polynomial, log, fates)
        {
            fates.clear();
            return Err(error);
        }
        Ok(missing)
    }

    /// Builds the polynomial whose roots are the missing identifiers.
    fn build_polynomial(
        &mut self,
        difference: &PowerSumsOf<I>,
        missing: usize,
    ) -> Result<(), DecodeError> {
        difference.copy_sums(&mut self.sums);
        let agree = I::newton(self.set, &self.sums, missing, &mut self.identities);
        if agree { Ok(()) } else { Err(DecodeError::Inconsistent) }
    }

    fn missing_count(&self, difference: &PowerSumsOf<I>) -> Result<usize, DecodeError> {
        let missing = difference.count();
        MoreReceivedThanSent::check(missing)?;
        let threshold = difference.threshold().min(self.max_threshold);
        match usize::try_from(missing) {
            Ok(missing) if missing <= threshold => Ok(missing),
            _ => Err(DecodeError::TooManyMissing { missing, threshold }),
        }
    }
}

/// The clone has a workspace of its own.
impl<I: Identifier> Clone for DecoderOf<I> {
    fn clone(&self) -> Self {
        Self::new(self.max_threshold).with_instruction_set(self.set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MODULUS, PowerSums};
    use Fate::{Ambiguous, Missing, Received};
    use std::{string::ToString, vec};

    /// Decodes into a `fates` that is not empty, and checks invariants of the result.
    fn decode(count: u32, sums: &[u32], log: &[u32]) -> Result<Vec<Fate>, DecodeError> {
        let difference = PowerSums::from_parts(count, sums).unwrap();
        let mut fates = vec![Ambiguous; 3];
        let result = Decoder::new(MAX_THRESHOLD).decode(&difference, log, &mut fates);
        match result {
            Ok(missing) => assert_eq!(missing as u64, u64::from(count)),
            Err(_) => assert_eq!(fates, []),
        }
        result.map(|_| fates)
    }

    #[test]
    fn polynomials_by_hand() {
        // (x-2)(x-3) = x² - 5x + 6; s = 5, 13, 35.
        let mut decoder = Decoder::new(5);
        let mut build = |sums: &[u32]| {
            let result = decoder.build_polynomial(&PowerSums::from_parts(2, sums).unwrap(), 2);
            result.map(|()| decoder.identities.polynomial.clone())
        };
        assert_eq!(build(&[5, 13, 35]), Ok(vec![MODULUS - 5, 6]));
        assert_eq!(build(&[5, 13, 36]), Err(DecodeError::Inconsistent));
    }

    #[test]
    fn vectors_by_hand() {
        let log = [2, 3, 10, 3];
        assert_eq!(decode(0, &[0, 0], &log), Ok(vec![Received; 4]));
        assert_eq!(decode(1, &[2], &log), Ok(vec![Missing, Received, Received, Received]));
        assert_eq!(
            decode(2, &[12, 104, 1008], &log),
            Ok(vec![Missing, Received, Missing, Received])
        );
        assert_eq!(decode(1, &[3, 9], &log), Ok(vec![Received, Ambiguous, Received, Ambiguous]));
        assert_eq!(decode(2, &[6, 18], &log), Ok(vec![Received, Missing, Received, Missing]));
        assert_eq!(decode(2, &[5, 13], &log), Ok(vec![Missing, Ambiguous, Received, Ambiguous]));
        assert_eq!(decode(4, &[18, 122, 1062, 10_178], &log), Ok(vec![Missing; 4]));
        assert_eq!(decode(0, &[0], &[]), Ok(vec![]));
    }

    #[test]
    fn identifiers_that_reduce_to_the_same_element_are_one() {
        // Zero adds to no sum: only the count shows it.
        assert_eq!(decode(1, &[0, 0], &[0, 9]), Ok(vec![Missing, Received]));
        assert_eq!(decode(1, &[0, 0], &[MODULUS, 9, 0]), Ok(vec![Ambiguous, Received, Ambiguous]));
        assert_eq!(decode(2, &[0, 0], &[MODULUS, 9, 0]), Ok(vec![Missing, Received, Missing]));
        assert_eq!(decode(1, &[4, 16], &[u32::MAX, 9]), Ok(vec![Missing, Received]));
    }

    #[test]
    fn logs_that_do_not_hold_the_missing() {
        assert_eq!(decode(1, &[5], &[]), Err(DecodeError::NotInLog));
        assert_eq!(decode(1, &[5, 25], &[4, 6]), Err(DecodeError::NotInLog));
        // Twice missing, once logged.
        assert_eq!(decode(2, &[10, 50], &[5, 6]), Err(DecodeError::NotInLog));
        // The log holds one of two.
        assert_eq!(decode(2, &[11, 61], &[5, 7, 8]), Err(DecodeError::NotInLog));
        // x² - 2 has no root in this field (2 is no square, for p ≡ 3 modulo 8): s = 0, 4.
        assert_eq!(MODULUS % 8, 3);
        assert_eq!(decode(2, &[0, 4], &[1, 2, 3]), Err(DecodeError::NotInLog));
        assert_eq!(decode(2, &[0, 4, 0, 8], &[1, 2, 3]), Err(DecodeError::NotInLog));
    }

    #[test]
    fn sums_that_contradict_each_other() {
        assert_eq!(decode(0, &[1], &[1]), Err(DecodeError::Inconsistent));
        assert_eq!(decode(0, &[0, 0, 1], &[1]), Err(DecodeError::Inconsistent));
        assert_eq!(decode(1, &[5, 24], &[5]), Err(DecodeError::Inconsistent));
    }

    #[test]
    fn counts_out_of_range() {
        let too_many = |missing, threshold| {
            Err::<Vec<Fate>, _>(DecodeError::TooManyMissing { missing, threshold })
        };
        assert_eq!(decode(3, &[1, 1], &[1, 2, 3]), too_many(3, 2));
        assert_eq!(decode((1 << 31) - 1, &[1], &[1]), too_many((1 << 31) - 1, 1));
        assert_eq!(decode(1 << 31, &[1], &[1]), Err(DecodeError::MoreReceivedThanSent));
        assert_eq!(decode(u32::MAX, &[1], &[1]), Err(DecodeError::MoreReceivedThanSent));

        let mut decoder = Decoder::new(1);
        let two = PowerSums::from_parts(2, &[3, 5, 9]).unwrap();
        assert_eq!(decoder.decode(&two, &[1, 2], &mut vec![]), too_many(2, 1).map(|_| 0));
    }

    #[test]
    fn a_decoder_clamps_its_bound() {
        let bounds =
            [0, 1, 20, 255, 256, usize::MAX].map(|bound| Decoder::new(bound).max_threshold());
        assert_eq!(bounds, [1, 1, 20, 255, 255, 255]);
    }

    #[test]
    fn errors_are_sentences() {
        let error = DecodeError::TooManyMissing { missing: 30, threshold: 20 };
        assert_eq!(error.to_string(), "30 packets are missing, but the sums identify at most 20");
        let error = DecodeError::from(MoreReceivedThanSent);
        assert_eq!(error.to_string(), MoreReceivedThanSent.to_string());
    }
}
