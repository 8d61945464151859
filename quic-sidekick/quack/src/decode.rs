//! From the difference of two sums to the fate of every packet in the log.

use crate::error::MoreReceivedThanSent;
use crate::field;
use crate::sums::{MAX_THRESHOLD, PowerSums};
use alloc::vec::Vec;
use core::{error::Error, fmt};

/// What a quACK says about one packet of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It was seen.
    Received,
    /// It was not seen.
    Missing,
    /// Of several packets with this identifier some were seen and some were not, and the sums cannot tell
    /// which.
    Ambiguous,
}

/// Finds the missing packets of a log. Keep one and use it again: its buffers stay.
#[derive(Clone, Debug)]
pub struct Decoder {
    max_threshold: usize,
    /// The polynomial whose roots are the missing identifiers, less its leading 1, highest power first.
    polynomial: Vec<u32>,
    /// The same, divided by every root found so far.
    quotient: Vec<u32>,
    roots: Vec<Root>,
}

/// A missing identifier that stands in the log.
#[derive(Clone, Debug)]
struct Root {
    value: u32,
    /// How many packets with it are missing.
    missing: usize,
    /// How many packets with it the log holds.
    logged: usize,
}

impl Decoder {
    /// A decoder that accepts at most `max_threshold` missing packets, and so bounds the work of a decode:
    /// it grows with the product of that number and the length of the log.
    ///
    /// `max_threshold` is brought into the range 1 to [`MAX_THRESHOLD`].
    pub fn new(max_threshold: usize) -> Self {
        let max_threshold = max_threshold.clamp(1, MAX_THRESHOLD);
        Self {
            max_threshold,
            polynomial: Vec::with_capacity(max_threshold),
            quotient: Vec::with_capacity(max_threshold),
            roots: Vec::with_capacity(max_threshold),
        }
    }

    /// The largest number of missing packets this decoder accepts.
    pub fn max_threshold(&self) -> usize {
        self.max_threshold
    }

    /// Says for each packet of `log` whether it is among those that `difference` is the sum of, and returns
    /// how many are missing.
    ///
    /// `difference` is sent minus received (see [`PowerSums::difference`]). `log` holds the identifiers of
    /// the packets in "sent", in any order and not reduced; packets that were taken out of "sent" must not be
    /// in it. `fates` is overwritten and has the length and order of `log`; its memory is used again. After
    /// an error it is empty.
    ///
    /// The returned number includes missing packets whose identifier is [`Fate::Ambiguous`]: without
    /// ambiguity it is the number of [`Fate::Missing`].
    ///
    /// # Errors
    /// - [`DecodeError::MoreReceivedThanSent`]: the count of the difference is negative.
    /// - [`DecodeError::TooManyMissing`]: as it says; a quACK with more sums, or a new start, can help.
    /// - [`DecodeError::Inconsistent`] and [`DecodeError::NotInLog`]: the log and the sums do not belong
    ///   together.
    pub fn decode(
        &mut self,
        difference: &PowerSums,
        log: &[u32],
        fates: &mut Vec<Fate>,
    ) -> Result<usize, DecodeError> {
        fates.clear();
        let missing = self.missing_count(difference)?;
        self.build_polynomial(difference.sums(), missing)?;
        fates.resize(log.len(), Fate::Received);
        if missing > 0 {
            self.find_roots(log, fates);
            if let Err(error) = self.settle(missing, log, fates) {
                fates.clear();
                return Err(error);
            }
        }
        Ok(missing)
    }

    fn missing_count(&self, difference: &PowerSums) -> Result<usize, DecodeError> {
        let missing = difference.count();
        MoreReceivedThanSent::check(missing)?;
        let threshold = difference.threshold().min(self.max_threshold);
        match usize::try_from(missing) {
            Ok(missing) if missing <= threshold => Ok(missing),
            _ => Err(DecodeError::TooManyMissing { missing, threshold }),
        }
    }

    /// Newton's identities: with x^m + c₁x^(m-1) + … + c_m the polynomial and s₁, s₂, … the power sums of its
    /// roots,
    ///
    ///   k·c_k + c_(k-1)·s₁ + … + c₁·s_(k-1) + s_k = 0   for k ≤ m, which gives each c_k in turn, and
    ///   c_m·s_(k-m) + … + c₁·s_(k-1) + s_k = 0          for k > m, which the sums left over have to satisfy.
    fn build_polynomial(&mut self, sums: &[u32], missing: usize) -> Result<(), DecodeError> {
        self.polynomial.clear();
        for (k, (&sum, &inverse)) in sums.iter().zip(&field::INVERSES).enumerate() {
            // The sums before this one, newest first, against c₁, c₂, …: as many as there are of both.
            let earlier = sums.iter().take(k).rev();
            let total = field::add(sum, field::dot(earlier, self.polynomial.iter()));
            if k < missing {
                self.polynomial.push(field::mul(field::neg(total), inverse));
            } else if total != 0 {
                return Err(DecodeError::Inconsistent);
            }
        }
        Ok(())
    }

    /// Marks every packet whose identifier is a root as missing, and counts for each root how often it is one
    /// and how often the log holds it.
    fn find_roots(&mut self, log: &[u32], fates: &mut [Fate]) {
        self.roots.clear();
        self.quotient.clone_from(&self.polynomial);
        for (candidates, fates) in log.chunks(LANES).zip(fates.chunks_mut(LANES)) {
            let mut points = [0; LANES];
            for (point, &candidate) in points.iter_mut().zip(candidates) {
                *point = field::element(candidate);
            }
            let values = evaluate(&self.polynomial, points);
            for ((fate, value), point) in fates.iter_mut().zip(values).zip(points) {
                if value == 0 {
                    *fate = Fate::Missing;
                    self.count_root(point);
                }
            }
        }
    }

    fn count_root(&mut self, value: u32) {
        if let Some(root) = self.roots.iter_mut().find(|root| root.value == value) {
            root.logged += 1;
            return;
        }
        let mut missing = 0;
        while evaluate(&self.quotient, [value]) == [0] {
            divide(&mut self.quotient, value);
            missing += 1;
        }
        self.roots.push(Root { value, missing, logged: 1 });
    }

    /// Checks that the log accounts for all that is missing, then marks what cannot be told apart.
    fn settle(&self, missing: usize, log: &[u32], fates: &mut [Fate]) -> Result<(), DecodeError> {
        let found: usize = self.roots.iter().map(|root| root.missing).sum();
        if found != missing || self.roots.iter().any(|root| root.logged < root.missing) {
            return Err(DecodeError::NotInLog);
        }
        if self.roots.iter().all(|root| root.logged == root.missing) {
            return Ok(());
        }
        for (fate, &identifier) in fates.iter_mut().zip(log) {
            let value = field::element(identifier);
            if *fate == Fate::Missing
                && self.roots.iter().any(|root| root.value == value && root.logged > root.missing)
            {
                *fate = Fate::Ambiguous;
            }
        }
        Ok(())
    }
}

/// How many packets of the log are evaluated side by side. Each step of one has to wait for the step before,
/// so one alone would leave most of a processor idle.
const LANES: usize = 8;

/// The values of a polynomial, given as in [`Decoder::polynomial`], at several points (Horner's rule).
fn evaluate<const N: usize>(polynomial: &[u32], points: [u32; N]) -> [u32; N] {
    let mut values = [1; N];
    for &coefficient in polynomial {
        for (value, point) in values.iter_mut().zip(points) {
            *value = field::mul_add(*value, point, coefficient);
        }
    }
    values
}

/// Divides a polynomial, given as in [`Decoder::polynomial`], by `x - root` (synthetic division). The
/// remainder is dropped: for a root it is 0.
fn divide(polynomial: &mut Vec<u32>, root: u32) {
    let mut carry = 1;
    for coefficient in polynomial.iter_mut() {
        carry = field::mul_add(carry, root, *coefficient);
        *coefficient = carry;
    }
    polynomial.pop();
}

/// Why a quACK could not be decoded. No fate is known then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// More packets are missing than there are sums to tell them apart.
    TooManyMissing {
        /// How many packets are missing.
        missing: u32,
        /// How many may be: the smaller of the difference's threshold and the decoder's.
        threshold: usize,
    },
    /// The receiving side counted more packets than were sent.
    MoreReceivedThanSent,
    /// No packets at all have these sums and this count: one side counted packets that the other did not
    /// send, or the two began at different packets.
    Inconsistent,
    /// Some packets that are missing do not stand in the log, or not as often as they are missing.
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
                write!(f, "{missing} packets are missing, but only {threshold} can be told apart")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MODULUS;
    use Fate::{Ambiguous, Missing, Received};
    use std::{string::ToString, vec};

    /// Decodes with a `fates` that holds something already, and checks what always has to be true of it
    /// after.
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
        decoder.build_polynomial(&[5, 13, 35], 2).unwrap();
        assert_eq!(decoder.polynomial, [MODULUS - 5, 6]);
        assert_eq!(evaluate(&decoder.polynomial, [0, 1, 2, 3, 4, 5]), [6, 2, 0, 0, 2, 6]);
        divide(&mut decoder.polynomial, 3);
        assert_eq!(decoder.polynomial, [MODULUS - 2]);
        divide(&mut decoder.polynomial, 2);
        assert_eq!(decoder.polynomial, []);
        assert_eq!(evaluate(&decoder.polynomial, [7]), [1]);
        assert_eq!(decoder.build_polynomial(&[5, 13, 36], 2), Err(DecodeError::Inconsistent));
    }

    #[test]
    fn vectors_by_hand() {
        let log = [2, 3, 10, 3];
        assert_eq!(decode(0, &[0, 0], &log), Ok(vec![Received; 4]));
        assert_eq!(decode(1, &[2], &log), Ok(vec![Missing, Received, Received, Received]));
        assert_eq!(decode(2, &[12, 104, 1008], &log), Ok(vec![Missing, Received, Missing, Received]));
        assert_eq!(decode(1, &[3, 9], &log), Ok(vec![Received, Ambiguous, Received, Ambiguous]));
        assert_eq!(decode(2, &[6, 18], &log), Ok(vec![Received, Missing, Received, Missing]));
        assert_eq!(decode(2, &[5, 13], &log), Ok(vec![Missing, Ambiguous, Received, Ambiguous]));
        assert_eq!(decode(4, &[18, 122, 1062, 10_178], &log), Ok(vec![Missing; 4]));
        assert_eq!(decode(0, &[0], &[]), Ok(vec![]));
    }

    #[test]
    fn identifiers_that_reduce_to_the_same_element_are_one() {
        // Zero adds to no sum: only the count betrays it.
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
        // One of two is there.
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
        let too_many =
            |missing, threshold| Err::<Vec<Fate>, _>(DecodeError::TooManyMissing { missing, threshold });
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
        let bounds = [0, 1, 20, 255, 256, usize::MAX].map(|bound| Decoder::new(bound).max_threshold());
        assert_eq!(bounds, [1, 1, 20, 255, 255, 255]);
    }

    #[test]
    fn errors_are_sentences() {
        let error = DecodeError::TooManyMissing { missing: 30, threshold: 20 };
        assert_eq!(error.to_string(), "30 packets are missing, but only 20 can be told apart");
        let error = DecodeError::from(MoreReceivedThanSent);
        assert_eq!(error.to_string(), MoreReceivedThanSent.to_string());
    }
}
