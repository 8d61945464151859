//! The decoder compared with two naive interpretations of a quACK.

use proptest::{collection::vec, prelude::*, sample::subsequence};
use sidekick_quack::{DecodeError, Decoder, Fate, MAX_THRESHOLD, MODULUS, PowerSums};
use std::collections::BTreeMap;

fn sums_of(threshold: usize, start: u32, identifiers: &[u32]) -> PowerSums {
    let mut sums = PowerSums::from_parts(start, &vec![0; threshold]).unwrap();
    sums.insert_many(identifiers);
    sums
}

fn tally(identifiers: &[u32]) -> BTreeMap<u32, usize> {
    let mut tally = BTreeMap::new();
    for &identifier in identifiers {
        *tally.entry(identifier % MODULUS).or_default() += 1;
    }
    tally
}

/// The first interpretation: count how often each identifier was sent and received.
fn multiset_fates(sent: &[u32], received: &[u32]) -> Vec<Fate> {
    let (in_log, seen) = (tally(sent), tally(received));
    let fate = |identifier: &u32| {
        let element = identifier % MODULUS;
        match (seen.get(&element).copied().unwrap_or(0), in_log[&element]) {
            (0, _) => Fate::Missing,
            (seen, logged) if seen == logged => Fate::Received,
            _ => Fate::Ambiguous,
        }
    };
    sent.iter().map(fate).collect()
}

/// The second interpretation: all choices of missing packets from the log with the right count and
/// sums. A packet in all of them is missing, one in none was received. Without any there is no
/// answer.
fn exhaustive_fates(difference: &PowerSums, log: &[u32]) -> Option<Vec<Fate>> {
    let mut explanations = 0u32;
    let mut missing_in = vec![0u32; log.len()];
    for choice in 0u32..1 << log.len() {
        let chosen = |index: usize| choice >> index & 1 == 1;
        let missing: Vec<u32> = (0..log.len()).filter(|&i| chosen(i)).map(|i| log[i]).collect();
        if sums_of(difference.threshold(), 0, &missing) == *difference {
            explanations += 1;
            (0..log.len()).filter(|&i| chosen(i)).for_each(|i| missing_in[i] += 1);
        }
    }
    let fate = |&times: &u32| match times {
        0 => Fate::Received,
        all if all == explanations => Fate::Missing,
        _ => Fate::Ambiguous,
    };
    (explanations > 0).then(|| missing_in.iter().map(fate).collect())
}

/// Identifiers from a few values, so that packets collide, or from all values.
fn identifiers(
    length: impl Into<proptest::collection::SizeRange>,
) -> impl Strategy<Value = Vec<u32>> {
    let length = length.into();
    prop_oneof![
        vec(any::<u32>(), length.clone()),
        vec(0..12u32, length.clone()),
        vec(prop_oneof![0..6u32, MODULUS - 3..=u32::MAX], length.clone()),
        vec(prop_oneof![3 => any::<u32>(), 1 => 0..3u32], length),
    ]
}

/// A log, and the part that the proxy saw, in another order.
fn flow(
    sent: std::ops::Range<usize>,
    missing: usize,
) -> impl Strategy<Value = (Vec<u32>, Vec<u32>)> {
    identifiers(sent).prop_flat_map(move |sent| {
        let fewest = sent.len().saturating_sub(missing);
        let received = subsequence(sent.clone(), fewest..=sent.len()).prop_shuffle();
        (Just(sent), received)
    })
}

proptest! {
    #[test]
    fn decoding_is_the_difference_of_multisets(
        (sent, received) in flow(0..120, 40),
        threshold in 1..=50usize,
        start: u32,
    ) {
        let missing = sent.len() - received.len();
        let sums = |identifiers: &[u32]| sums_of(threshold, start, identifiers);
        let difference = sums(&sent).difference(&sums(&received)).unwrap();
        let mut fates = vec![];
        let result = Decoder::new(threshold).decode(&difference, &sent, &mut fates);
        if missing > threshold {
            let missing = u32::try_from(missing).unwrap();
            prop_assert_eq!(result, Err(DecodeError::TooManyMissing { missing, threshold }));
            prop_assert!(fates.is_empty());
        } else {
            prop_assert_eq!(result, Ok(missing));
            prop_assert_eq!(fates, multiset_fates(&sent, &received));
        }
    }

    #[test]
    fn decoding_gives_the_fates_common_to_all_explanations(
        actual in vec(0..5u32, 0..6),
        others in vec(prop_oneof![4 => 0..5u32, 1 => MODULUS..=u32::MAX], 0..6),
        complete in prop::bool::weighted(0.8),
        threshold in 1..9usize,
        count_off in prop_oneof![6 => Just(0), 1 => -2..=2i32],
        sum_off in prop_oneof![6 => Just(0), 1 => 1..9u32],
        which in any::<prop::sample::Index>(),
    ) {
        let log = if complete { [&others[..], &actual].concat() } else { others };
        let honest = sums_of(threshold, 0, &actual);
        let mut sums = honest.sums().collect::<Vec<_>>();
        sums[which.index(threshold)] += sum_off;
        let count = honest.count().wrapping_add_signed(count_off);
        let difference = PowerSums::from_parts(count, &sums).unwrap();

        let mut fates = vec![];
        let result = Decoder::new(MAX_THRESHOLD).decode(&difference, &log, &mut fates);
        let count = difference.count();
        if count > i32::MAX as u32 {
            prop_assert_eq!(result, Err(DecodeError::MoreReceivedThanSent));
        } else if count as usize > threshold {
            prop_assert_eq!(result, Err(DecodeError::TooManyMissing { missing: count, threshold }));
        } else if let Some(expected) = exhaustive_fates(&difference, &log) {
            prop_assert_eq!(result, Ok(count as usize));
            prop_assert_eq!(fates, expected);
        } else {
            let rejected = matches!(result, Err(DecodeError::NotInLog | DecodeError::Inconsistent));
            prop_assert!(rejected, "{:?}", result);
            prop_assert!(fates.is_empty());
        }
    }

    #[test]
    fn any_input_is_decoded_or_rejected(
        count in prop_oneof![0..=260u32, any::<u32>()],
        sums in vec(prop_oneof![0..4u32, any::<u32>(), MODULUS - 2..=MODULUS], 0..=260),
        log in identifiers(0..40),
        bound: usize,
    ) {
        let mut fates = vec![];
        let mut decoder = Decoder::new(bound);
        prop_assert_eq!(
            PowerSums::from_parts(count, &sums).is_ok(),
            (1..=MAX_THRESHOLD).contains(&sums.len()) && sums.iter().all(|&sum| sum < MODULUS)
        );
        let mut reduced: Vec<u32> = sums.iter().map(|sum| sum % MODULUS).collect();
        reduced.resize(sums.len().clamp(1, MAX_THRESHOLD), 0);
        let difference = PowerSums::from_parts(count, &reduced).unwrap();
        match decoder.decode(&difference, &log, &mut fates) {
            Ok(missing) => {
                prop_assert_eq!(missing as u64, u64::from(count));
                prop_assert_eq!(fates.len(), log.len());
            }
            Err(_) => prop_assert!(fates.is_empty()),
        }
    }

    #[test]
    fn a_decoder_keeps_no_state(flows in vec((flow(0..30, 8), any::<bool>()), 2..6)) {
        let (mut reused, mut reused_fates) = (Decoder::new(6), vec![]);
        for ((sent, received), whole_log) in flows {
            let difference = sums_of(6, 0, &sent).difference(&sums_of(6, 0, &received)).unwrap();
            // Half a log, so that some decodes end before all roots are found.
            let log = if whole_log { &sent[..] } else { &sent[..sent.len() / 2] };
            let mut fates = vec![];
            let result = Decoder::new(6).decode(&difference, log, &mut fates);
            prop_assert_eq!(reused.decode(&difference, log, &mut reused_fates), result);
            prop_assert_eq!(&reused_fates, &fates);
        }
    }

    #[test]
    fn a_proxy_that_began_elsewhere_is_detected(
        (sent, received) in flow(1..60, 12),
        foreign in vec(any::<u32>(), 1..4),
    ) {
        // The proxy counted packets that are not in the sender's sums. With sums remaining, this
        // goes unnoticed with a probability of about 2^-32 for each of them.
        let (in_log, strangers) = (tally(&sent), tally(&foreign));
        prop_assume!(strangers.keys().all(|stranger| !in_log.contains_key(stranger)));
        let threshold = 30;
        let mut seen = sums_of(threshold, 0, &received);
        seen.insert_many(&foreign);
        let mut fates = vec![];
        let result = sums_of(threshold, 0, &sent)
            .difference(&seen)
            .map_err(DecodeError::from)
            .and_then(|difference| Decoder::new(threshold).decode(&difference, &sent, &mut fates));
        let detected =
            matches!(result, Err(DecodeError::MoreReceivedThanSent | DecodeError::Inconsistent));
        prop_assert!(detected, "{:?}", result);
    }
}

/// The largest case: as many missing packets as a quACK can identify, some of them repeated.
#[test]
fn all_of_the_largest_threshold_missing() {
    let mut sent: Vec<u32> =
        (0..1000u32).map(|n| n.wrapping_mul(0x9e37_79b9) ^ 0x5bd1_e995).collect();
    sent.extend_from_within(..100);
    let missing = MAX_THRESHOLD;
    let received = &sent[..sent.len() - missing];
    let difference = sums_of(missing, 0, &sent)
        .difference(&sums_of(missing, 0, received))
        .expect("fewer were received");
    let (mut decoder, mut fates) = (Decoder::new(missing), vec![]);
    assert_eq!(decoder.decode(&difference, &sent, &mut fates), Ok(missing));
    assert_eq!(fates, multiset_fates(&sent, received));
    assert_eq!(fates.iter().filter(|fate| **fate == Fate::Ambiguous).count(), 200);
}
