use super::*;
use crate::{MAX_THRESHOLD, MODULUS, textbook};
use proptest::prelude::*;
use std::string::ToString;

fn sums_of(threshold: usize, identifiers: &[u32]) -> PowerSums {
    let mut sums = PowerSums::new(threshold).unwrap();
    for &identifier in identifiers {
        sums.insert(identifier);
    }
    sums
}

fn listed(sums: &PowerSums) -> Vec<u32> {
    sums.sums().collect()
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
        let mut textbook = vec![0; threshold];
        identifiers.iter().for_each(|&identifier| textbook::insert(&mut textbook, identifier));
        prop_assert_eq!(listed(&one_by_one), textbook);
        prop_assert_eq!(one_by_one.count() as usize, identifiers.len());

        let mut at_once = PowerSums::new(threshold).unwrap();
        at_once.insert_many(&identifiers);
        prop_assert_eq!(at_once, one_by_one);
    }

    #[test]
    fn removing_undoes_inserting(
        kept in any_identifiers(),
        passing in any_identifiers(),
        start: u32,
    ) {
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
            let result = received.difference_into(&sent, &mut reused);
            prop_assert_eq!(result, Err(MoreReceivedThanSent));
            prop_assert_eq!(&reused, &difference, "an error must change nothing");
        }
    }

    #[test]
    fn a_smaller_threshold_is_a_prefix(
        large in 1..60usize,
        small in 1..60usize,
        identifiers in any_identifiers(),
    ) {
        let mut sums = sums_of(large, &identifiers);
        let expected = sums_of(small.min(large), &identifiers);
        let mut prefix = vec![0; small];
        prop_assert_eq!(sums.write_sums(&mut prefix), small.min(large));
        prop_assert!(expected.sums().eq(prefix.into_iter().take(large)));
        sums.truncate(small).unwrap();
        prop_assert_eq!(sums, expected);
    }
}

#[test]
fn small_sums_by_hand() {
    let mut sums = sums_of(4, &[1, 2, 3]);
    assert_eq!(listed(&sums), [6, 14, 36, 98]);
    sums.remove(2);
    assert_eq!((sums.count(), listed(&sums)), (2, vec![4, 10, 28, 82]));
    // p - 1 ≡ -1: its powers alternate between -1 and 1.
    sums.insert(MODULUS - 1);
    assert_eq!(listed(&sums), [3, 11, 27, 83]);
    sums.clear();
    assert_eq!(sums, PowerSums::new(4).unwrap());
    // 2¹⁶ squared is 2³² ≡ 5.
    assert_eq!(listed(&sums_of(4, &[1 << 16])), [65_536, 5, 5 * 65_536, 25]);
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

/// No test adds 2^30 elements, so this one sets the count that triggers a reduction.
#[test]
fn sums_that_were_never_reduced_are_reduced_in_time() {
    use crate::field::Field;
    for lazy in [1_i64 << 62, -(1 << 62)] {
        let mut sums = PowerSums::new(8).unwrap();
        sums.sums.fill(lazy);
        sums.unsettled = u32::PATIENCE;
        let before: Vec<u32> = listed(&sums);
        sums.insert_many(&[3; 100]);
        assert!(sums.sums.iter().all(|sum| sum.unsigned_abs() < 1 << 40), "{:?}", sums.sums);
        sums.remove_many(&[3; 100]);
        assert_eq!(listed(&sums), before);
        sums.unsettled = u32::PATIENCE;
        sums.sums.fill(lazy);
        sums.subtract(&PowerSums::from_parts(0, &before).unwrap());
        assert_eq!(listed(&sums), [0; 8]);
    }
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
    assert_eq!(PowerSums::new(1).unwrap().write_sums(&mut []), 0);
    assert_eq!(
        PowerSums::new(0).unwrap_err().to_string(),
        "a quACK has 1 to 255 power sums, not 0"
    );
}

#[test]
fn parts_are_checked_before_anything_changes() {
    let mut sums = sums_of(3, &[5]);
    let untouched = sums.clone();
    let cases: [(&[u32], PartsError); 3] = [
        (&[], ThresholdError { threshold: 0 }.into()),
        (&[0; 256], ThresholdError { threshold: 256 }.into()),
        (
            &[0, MODULUS, 0],
            PartsError::NotReduced { index: 1, sum: MODULUS.into(), modulus: MODULUS.into() },
        ),
    ];
    for (parts, error) in cases {
        assert_eq!(PowerSums::from_parts(1, parts), Err(error));
        assert_eq!(sums.assign_parts(1, parts), Err(error));
        assert_eq!(sums, untouched);
    }
    sums.assign_parts(7, &[MODULUS - 1; 255]).unwrap();
    assert_eq!(sums, PowerSums::from_parts(7, &[MODULUS - 1; 255]).unwrap());
}
