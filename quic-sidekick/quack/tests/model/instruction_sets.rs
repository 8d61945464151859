//! Every instruction set gives the textbook's results, bit by bit, for each width of identifiers.

use crate::support::{decoding, exact_fates, identifiers, inserting_and_removing, textbook_sums};
use proptest::{collection::vec, prelude::*};
use sidekick_quack::{DecodeError, Decoder, DecoderOf, InstructionSet, MAX_THRESHOLD, PowerSumsOf};

/// Lengths around those at which a batch is split, and beyond.
fn any_length() -> impl Strategy<Value = usize> {
    prop_oneof![0..70_usize, 120..140_usize, 0..400_usize]
}

/// The tests of one width: their names, thresholds, lengths of logs, and numbers of losses.
macro_rules! of_width {
    ($width:ty, $sums:ident: $most:expr, $decodes:ident: $threshold:expr, $length:expr, $lost:expr) => {
        proptest! {
            #[test]
            fn $sums(threshold in $most, seed: u64, lengths in (any_length(), 0..20_usize)) {
                inserting_and_removing::<$width>(threshold, seed, lengths);
            }

            #[test]
            fn $decodes(threshold in $threshold, seed: u64, length in $length, lost in $lost) {
                decoding::<$width>(threshold, seed, length, &lost);
            }
        }
    };
}

of_width!(
    u16,
    sums_of_16_bits: 1..=MAX_THRESHOLD,
    decodes_of_16_bits: 1..40_usize, 0..300_usize, vec(0..300_usize, 0..41)
);
of_width!(
    u32,
    sums_of_32_bits: prop_oneof![1..40_usize, 1..=MAX_THRESHOLD],
    decodes_of_32_bits: 1..70_usize, any_length(), vec(0..400_usize, 0..61)
);
of_width!(
    u64,
    sums_of_64_bits: 1..40_usize,
    decodes_of_64_bits: 1..30_usize, 0..200_usize, vec(0..200_usize, 0..25)
);

/// Long logs with few missing packets, which are found without testing every candidate.
#[test]
fn few_missing_of_many() {
    for lost in [&[700_usize][..], &[3, 19_999], &[5, 6, 7_000], &[1, 2, 3, 9_999, 10_000]] {
        for length in [64, 700, 1500, 20_000] {
            decoding::<u16>(20, 1, length.min(5000), lost);
            decoding::<u32>(20, 2, length, lost);
            decoding::<u64>(20, 3, length, lost);
        }
    }
}

/// Long logs with few missing packets, and with a fault.
#[test]
fn sums_that_do_not_match_a_long_log_are_rejected() {
    let log = identifiers::<u32>(11, 20_000);
    let unlogged = (1000..).find(|identifier| !log.contains(identifier)).unwrap();
    let hardly = log.iter().copied().find(|a| log.iter().filter(|b| a == *b).count() == 1).unwrap();
    let cases: [&[u32]; 4] =
        [&[unlogged], &[unlogged, log[5]], &[log[7], unlogged, log[9]], &[hardly, hardly]];
    for set in InstructionSet::available() {
        for log in [&log[..], &log[..500]] {
            for missing in cases {
                let sums = textbook_sums(missing.len() + 2, missing);
                for sums in [&sums[..missing.len()], &sums] {
                    let count = missing.len().try_into().unwrap();
                    let difference = PowerSumsOf::from_parts(count, sums).unwrap();
                    let (mut decoder, mut fates) =
                        (Decoder::new(20).with_instruction_set(set), Vec::new());
                    let decoded = decoder.decode(&difference, log, &mut fates);
                    assert_eq!(decoded, Err(DecodeError::NotInLog), "{set}: {missing:?}");
                }
            }
            // Sums of no packets, with none remaining: x² - 2 and such have no roots in the log.
            for sums in [&[0, 4][..], &[1, 2, 4], &[9, 9, 9, 9], &[5, 4, 3, 2, 1]] {
                let difference =
                    PowerSumsOf::from_parts(sums.len().try_into().unwrap(), sums).unwrap();
                let (mut decoder, mut fates) =
                    (Decoder::new(20).with_instruction_set(set), Vec::new());
                assert_eq!(
                    decoder.decode(&difference, log, &mut fates),
                    Err(DecodeError::NotInLog),
                    "{set}"
                );
            }
        }
    }
}

/// Each remaining sum is checked, wherever it is.
#[test]
fn one_wrong_sum_of_255_is_detected() {
    let log = identifiers::<u32>(12, 100);
    let good = textbook_sums(MAX_THRESHOLD, &log[..6]);
    for set in InstructionSet::available() {
        let mut decoder = Decoder::new(MAX_THRESHOLD).with_instruction_set(set);
        for place in 6..MAX_THRESHOLD {
            let mut sums = good.clone();
            sums[place] = if sums[place] == 0 { 1 } else { sums[place] - 1 };
            let difference = PowerSumsOf::from_parts(6, &sums).unwrap();
            let decoded = decoder.decode(&difference, &log, &mut Vec::new());
            assert_eq!(
                decoded,
                Err(DecodeError::Inconsistent),
                "{set}: the sum of the powers {}",
                place + 1
            );
        }
    }
}

/// A pair of 16-bit roots that no shift separates: the decoder tests the log instead.
#[test]
fn roots_that_do_not_split_are_found_anyway() {
    let log: Vec<u16> = (0..6000).map(|n| n * 7 + 32_586 % 7).chain([48_370]).collect();
    let mut decoder = DecoderOf::<u16>::new(20).with_instruction_set(InstructionSet::PORTABLE);
    let missing = [32_586, 48_370];
    let difference = PowerSumsOf::from_parts(2, &textbook_sums(4, &missing)).unwrap();
    let mut fates = Vec::new();
    assert_eq!(decoder.decode(&difference, &log, &mut fates), Ok(2));
    assert_eq!(fates, exact_fates(&log, &missing));
}

/// The counts of both sides may wrap, separately or together.
#[test]
fn counts_that_wrap_decode() {
    let log = identifiers::<u32>(13, 50);
    for start in [0, u32::MAX - 3, u32::MAX - 30, 1 << 31] {
        let mut sent = PowerSumsOf::from_parts(start, &[0; 20]).unwrap();
        let mut seen = sent.clone();
        sent.insert_many(&log);
        log.iter().skip(4).for_each(|&identifier| seen.insert(identifier));
        let mut fates = Vec::new();
        assert_eq!(
            Decoder::new(20).decode(&sent.difference(&seen).unwrap(), &log, &mut fates),
            Ok(4)
        );
        assert_eq!(fates, exact_fates(&log, &log[..4]));
    }
}

/// More identifiers than a row of doubles can sum exactly at once.
#[test]
fn long_batches_stay_exact() {
    let most = vec![u32::MAX / 2; 3_000_000];
    let log = identifiers::<u32>(7, 1_200_000);
    for identifiers in [most, log] {
        let expected = textbook_sums(9, &identifiers);
        for set in InstructionSet::available() {
            let mut sums = PowerSumsOf::<u32>::new(9).unwrap().with_instruction_set(set);
            sums.insert_many(&identifiers);
            assert!(sums.sums().eq(expected.iter().copied()), "{set}");
        }
    }
}

#[test]
fn the_best_is_available_and_has_a_name() {
    let names: Vec<_> = InstructionSet::available().map(InstructionSet::name).collect();
    assert_eq!(names.first(), Some(&"portable"));
    assert_eq!(names.last(), Some(&InstructionSet::best().name()));
    println!("this machine has {names:?}");
}
