//! The sums themselves: what a proxy keeps for a flow, what a quACK carries, and what a sender keeps over its
//! log.

use crate::error::{MoreReceivedThanSent, PartsError, ThresholdError};
use crate::field;
use alloc::{vec, vec::Vec};

/// The largest threshold: as many sums, and so as many missing packets, as one quACK can describe.
pub const MAX_THRESHOLD: usize = 255;

/// How many multiplications go on side by side: powers of one identifier, or identifiers of one batch.
const LANES: usize = 8;

/// How many packets were seen, and the sums of the 1st to `t`-th powers of their identifiers.
///
/// Two of these over the same packets are equal whatever the order of the packets. All operations are exact
/// modulo [`MODULUS`](crate::MODULUS) and on the wrapping count, so a flow may go on for ever.
///
/// ```
/// # use sidekick_quack::PowerSums;
/// let mut sums = PowerSums::new(3)?;
/// sums.insert(2);
/// sums.insert(5);
/// assert_eq!(sums.count(), 2);
/// assert_eq!(sums.sums(), [2 + 5, 4 + 25, 8 + 125]);
/// # Ok::<(), sidekick_quack::ThresholdError>(())
/// ```
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct PowerSums {
    count: u32,
    /// 1 to [`MAX_THRESHOLD`] field elements; the `k`-th power sum stands at index `k - 1`.
    sums: Vec<u32>,
}

impl PowerSums {
    /// Sums over no packets, with room to tell apart `threshold` missing ones.
    ///
    /// # Errors
    /// [`ThresholdError`] unless `threshold` is 1 to [`MAX_THRESHOLD`].
    pub fn new(threshold: usize) -> Result<Self, ThresholdError> {
        ThresholdError::check(threshold)?;
        Ok(Self { count: 0, sums: vec![0; threshold] })
    }

    /// Sums that came in a message: `count` packets (modulo 2³²) and one sum for each power from 1 upward.
    ///
    /// # Errors
    /// [`PartsError`] if there are not 1 to [`MAX_THRESHOLD`] sums, or one is not below
    /// [`MODULUS`](crate::MODULUS).
    pub fn from_parts(count: u32, sums: &[u32]) -> Result<Self, PartsError> {
        PartsError::check(sums)?;
        Ok(Self { count, sums: sums.to_vec() })
    }

    /// Like [`from_parts`](Self::from_parts), into an existing value whose memory is used again. It allocates
    /// only if it has never held so many sums. On an error `self` is as it was.
    ///
    /// # Errors
    /// As [`from_parts`](Self::from_parts).
    pub fn assign_parts(&mut self, count: u32, sums: &[u32]) -> Result<(), PartsError> {
        PartsError::check(sums)?;
        self.count = count;
        self.sums.clear();
        self.sums.extend_from_slice(sums);
        Ok(())
    }

    /// How many sums there are: 1 to [`MAX_THRESHOLD`].
    pub fn threshold(&self) -> usize {
        self.sums.len()
    }

    /// How many packets were inserted, less those removed, modulo 2³².
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The sums; that of the `k`-th powers stands at index `k - 1`. Each is below
    /// [`MODULUS`](crate::MODULUS).
    pub fn sums(&self) -> &[u32] {
        &self.sums
    }

    /// The first `threshold` sums, or all if there are fewer: what goes into a quACK smaller than what is
    /// kept.
    pub fn prefix(&self, threshold: usize) -> &[u32] {
        self.sums.get(..threshold).unwrap_or(&self.sums)
    }

    /// Adds one packet. Takes time proportional to the threshold and never allocates.
    pub fn insert(&mut self, identifier: u32) {
        self.count = self.count.wrapping_add(1);
        self.combine_powers(identifier, field::add);
    }

    /// Adds packets: the same as inserting each, and faster.
    #[allow(clippy::cast_possible_truncation, reason = "the count is kept modulo 2³²")]
    pub fn insert_many(&mut self, identifiers: &[u32]) {
        self.count = self.count.wrapping_add(identifiers.len() as u32);
        let (groups, rest) = identifiers.as_chunks::<LANES>();
        for group in groups {
            let bases = group.map(field::element);
            let mut powers = bases;
            for sum in &mut self.sums {
                // LANES + 1 elements are far from filling a u64, so one reduction serves them all.
                *sum = field::reduce(
                    powers.iter().map(|&power| u64::from(power)).sum::<u64>() + u64::from(*sum),
                );
                for (power, base) in powers.iter_mut().zip(bases) {
                    *power = field::mul(*power, base);
                }
            }
        }
        for &identifier in rest {
            self.combine_powers(identifier, field::add);
        }
    }

    /// Takes one packet out again, for instance when a sender forgets it. The exact opposite of
    /// [`insert`](Self::insert): removing what was never inserted makes the count and sums those of a packet
    /// that is owed, and inserting it later settles that.
    pub fn remove(&mut self, identifier: u32) {
        self.count = self.count.wrapping_sub(1);
        self.combine_powers(identifier, field::sub);
    }

    /// Forgets all packets; the threshold stays.
    pub fn clear(&mut self) {
        self.count = 0;
        self.sums.fill(0);
    }

    /// Keeps the first `threshold` sums only, or all if there are no more. What remains is what would have
    /// been there had the smaller threshold been chosen from the start.
    ///
    /// # Errors
    /// [`ThresholdError`] unless `threshold` is 1 to [`MAX_THRESHOLD`]; nothing changes then.
    pub fn truncate(&mut self, threshold: usize) -> Result<(), ThresholdError> {
        ThresholdError::check(threshold)?;
        self.sums.truncate(threshold);
        Ok(())
    }

    /// The sums over what `self` (sent) holds and `other` (received) does not, with the smaller threshold of
    /// the two.
    ///
    /// It allocates its result; see [`difference_into`](Self::difference_into).
    ///
    /// # Errors
    /// [`MoreReceivedThanSent`] if the counts cannot be such a pair.
    pub fn difference(&self, other: &Self) -> Result<Self, MoreReceivedThanSent> {
        MoreReceivedThanSent::check(self.count.wrapping_sub(other.count))?;
        let mut difference = self.clone();
        difference.subtract(other);
        Ok(difference)
    }

    /// Like [`difference`](Self::difference), into an existing value whose memory is used again. It allocates
    /// only if `result` has never held as many sums as `self` has. On an error `result` is as it was.
    ///
    /// # Errors
    /// As [`difference`](Self::difference).
    pub fn difference_into(&self, other: &Self, result: &mut Self) -> Result<(), MoreReceivedThanSent> {
        MoreReceivedThanSent::check(self.count.wrapping_sub(other.count))?;
        result.clone_from(self);
        result.subtract(other);
        Ok(())
    }

    /// Takes everything in `other` out of `self`, and keeps the smaller threshold of the two. Never
    /// allocates.
    ///
    /// The count wraps: whether more was taken out than there was,
    /// [`Decoder::decode`](crate::Decoder::decode) tells.
    pub fn subtract(&mut self, other: &Self) {
        self.count = self.count.wrapping_sub(other.count);
        self.sums.truncate(other.sums.len());
        for (sum, &other) in self.sums.iter_mut().zip(&other.sums) {
            *sum = field::sub(*sum, other);
        }
    }

    /// Combines the `k`-th power of the identifier into the `k`-th sum.
    #[inline]
    fn combine_powers(&mut self, identifier: u32, combine: impl Fn(u32, u32) -> u32) {
        // Each power has to wait for the one before. Several chains, each in steps of the LANES-th power,
        // keep a processor busy meanwhile: with many sums that more than halves the time.
        let base = field::element(identifier);
        let mut powers = [base; LANES];
        let mut step = base;
        for power in powers.iter_mut().skip(1) {
            step = field::mul(step, base);
            *power = step;
        }
        for chunk in self.sums.chunks_mut(LANES) {
            for (sum, power) in chunk.iter_mut().zip(&mut powers) {
                *sum = combine(*sum, *power);
                *power = field::mul(*power, step);
            }
        }
    }
}

/// No packets, and the smallest threshold, 1: a buffer to be written by
/// [`assign_parts`](PowerSums::assign_parts) or [`difference_into`](PowerSums::difference_into).
impl Default for PowerSums {
    fn default() -> Self {
        Self { count: 0, sums: vec![0] }
    }
}

// By hand, since the derived `clone_from` would throw the old buffer away.
impl Clone for PowerSums {
    fn clone(&self) -> Self {
        Self { count: self.count, sums: self.sums.clone() }
    }

    fn clone_from(&mut self, source: &Self) {
        self.count = source.count;
        self.sums.clone_from(&source.sums);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MODULUS;
    use proptest::prelude::*;
    use std::string::ToString;

    fn sums_of(threshold: usize, identifiers: &[u32]) -> PowerSums {
        let mut sums = PowerSums::new(threshold).unwrap();
        for &identifier in identifiers {
            sums.insert(identifier);
        }
        sums
    }

    /// The definition, in integers wide enough to be obvious.
    fn oracle(threshold: usize, identifiers: &[u32]) -> Vec<u32> {
        let p = u128::from(MODULUS);
        let mut powers = vec![1; identifiers.len()];
        let mut sums = Vec::new();
        for _ in 0..threshold {
            for (power, &identifier) in powers.iter_mut().zip(identifiers) {
                *power = *power * u128::from(identifier) % p;
            }
            sums.push(u32::try_from(powers.iter().sum::<u128>() % p).unwrap());
        }
        sums
    }

    fn any_identifier() -> impl Strategy<Value = u32> {
        prop_oneof![any::<u32>(), MODULUS - 2..=u32::MAX, 0..8u32]
    }

    fn any_identifiers() -> impl Strategy<Value = Vec<u32>> {
        prop::collection::vec(any_identifier(), 0..40)
    }

    proptest! {
        #[test]
        fn inserting_sums_powers(threshold in 1..=MAX_THRESHOLD, identifiers in any_identifiers()) {
            let one_by_one = sums_of(threshold, &identifiers);
            prop_assert_eq!(one_by_one.sums(), oracle(threshold, &identifiers));
            prop_assert_eq!(one_by_one.count() as usize, identifiers.len());

            let mut at_once = PowerSums::new(threshold).unwrap();
            at_once.insert_many(&identifiers);
            prop_assert_eq!(at_once, one_by_one);
        }

        #[test]
        fn removing_undoes_inserting(kept in any_identifiers(), passing in any_identifiers(), start: u32) {
            let mut sums = PowerSums::from_parts(start, &[1, 2, 3, 4, 5, 6]).unwrap();
            sums.insert_many(&kept);
            let before = sums.clone();
            passing.iter().for_each(|&identifier| sums.remove(identifier));
            sums.insert_many(&passing);
            prop_assert_eq!(sums, before);
        }

        #[test]
        fn the_difference_is_what_only_one_side_holds(
            both in any_identifiers(),
            missing in any_identifiers(),
            thresholds in (1..40usize, 1..40usize),
            start: u32,
        ) {
            let mut sent = PowerSums::from_parts(start, &vec![0; thresholds.0]).unwrap();
            let mut received = PowerSums::from_parts(start, &vec![0; thresholds.1]).unwrap();
            sent.insert_many(&both);
            received.insert_many(&both);
            sent.insert_many(&missing);

            let smaller = thresholds.0.min(thresholds.1);
            let difference = sent.difference(&received).unwrap();
            prop_assert_eq!(&difference, &sums_of(smaller, &missing));

            let mut reused = sums_of(7, &[1, 2, 3]);
            sent.difference_into(&received, &mut reused).unwrap();
            prop_assert_eq!(&reused, &difference);
            if !missing.is_empty() {
                prop_assert_eq!(received.difference_into(&sent, &mut reused), Err(MoreReceivedThanSent));
                prop_assert_eq!(&reused, &difference, "an error must change nothing");
            }
        }

        #[test]
        fn a_smaller_threshold_is_a_prefix(large in 1..60usize, small in 1..60usize, identifiers in any_identifiers()) {
            let mut sums = sums_of(large, &identifiers);
            let expected = sums_of(small.min(large), &identifiers);
            prop_assert_eq!(sums.prefix(small), expected.sums());
            sums.truncate(small).unwrap();
            prop_assert_eq!(sums, expected);
        }
    }

    #[test]
    fn small_sums_by_hand() {
        let mut sums = sums_of(4, &[1, 2, 3]);
        assert_eq!(sums.sums(), [6, 14, 36, 98]);
        sums.remove(2);
        assert_eq!((sums.count(), sums.sums()), (2, &[4, 10, 28, 82][..]));
        // p - 1 ≡ -1: its powers alternate between -1 and 1.
        sums.insert(MODULUS - 1);
        assert_eq!(sums.sums(), [3, 11, 27, 83]);
        sums.clear();
        assert_eq!(sums, PowerSums::new(4).unwrap());
        // 2¹⁶ squared is 2³² ≡ 5.
        assert_eq!(sums_of(4, &[1 << 16]).sums(), [65_536, 5, 5 * 65_536, 25]);
    }

    #[test]
    fn identifiers_past_the_modulus_equal_small_ones() {
        for (large, small) in (MODULUS..=u32::MAX).zip(0..) {
            assert_eq!(sums_of(9, &[large]), sums_of(9, &[small]));
        }
    }

    #[test]
    fn the_count_wraps() {
        let mut sums = PowerSums::from_parts(u32::MAX, &[0]).unwrap();
        sums.insert_many(&[1; 10]);
        assert_eq!(sums.count(), 9);
        (0..11).for_each(|_| sums.remove(1));
        assert_eq!(sums.count(), u32::MAX - 1);
    }

    #[test]
    fn thresholds_are_bounded() {
        for threshold in [0, 256, usize::MAX] {
            let error = ThresholdError { threshold };
            assert_eq!(PowerSums::new(threshold), Err(error));
            let mut sums = sums_of(3, &[5]);
            assert_eq!(sums.truncate(threshold), Err(error));
            assert_eq!(sums, sums_of(3, &[5]));
        }
        assert_eq!(PowerSums::new(255).unwrap().threshold(), 255);
        assert_eq!(PowerSums::new(1).unwrap().prefix(0), []);
        assert_eq!(PowerSums::new(0).unwrap_err().to_string(), "a quACK has 1 to 255 power sums, not 0");
    }

    #[test]
    fn parts_are_checked_before_anything_changes() {
        let mut sums = sums_of(3, &[5]);
        let untouched = sums.clone();
        let cases: [(&[u32], PartsError); 3] = [
            (&[], ThresholdError { threshold: 0 }.into()),
            (&[0; 256], ThresholdError { threshold: 256 }.into()),
            (&[0, MODULUS, 0], PartsError::NotReduced { index: 1, sum: MODULUS }),
        ];
        for (parts, error) in cases {
            assert_eq!(PowerSums::from_parts(1, parts), Err(error));
            assert_eq!(sums.assign_parts(1, parts), Err(error));
            assert_eq!(sums, untouched);
        }
        sums.assign_parts(7, &[MODULUS - 1; 255]).unwrap();
        assert_eq!(sums, PowerSums::from_parts(7, &[MODULUS - 1; 255]).unwrap());
    }
}
