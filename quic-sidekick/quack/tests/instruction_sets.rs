//! Every instruction set against the textbook, to the bit, for each width of identifiers.

mod support;

use proptest::{collection::vec, prelude::*};
use sidekick_quack::{InstructionSet, MAX_THRESHOLD, PowerSumsOf};
use support::{decoding, identifiers, inserting_and_removing, textbook_sums};

/// Around the lengths at which a batch is cut up, and beyond.
fn any_length() -> impl Strategy<Value = usize> {
    prop_oneof![0..70_usize, 120..140_usize, 0..400_usize]
}

proptest! {
    #[test]
    fn sums_of_16_bits(threshold in 1..=MAX_THRESHOLD, seed: u64, lengths in (any_length(), 0..20_usize)) {
        inserting_and_removing::<u16>(threshold, seed, lengths);
    }

    #[test]
    fn sums_of_32_bits(threshold in prop_oneof![1..40_usize, 1..=MAX_THRESHOLD], seed: u64, lengths in (any_length(), 0..20_usize)) {
        inserting_and_removing::<u32>(threshold, seed, lengths);
    }

    #[test]
    fn sums_of_64_bits(threshold in 1..40_usize, seed: u64, lengths in (any_length(), 0..20_usize)) {
        inserting_and_removing::<u64>(threshold, seed, lengths);
    }

    #[test]
    fn decodes_of_16_bits(threshold in 1..40_usize, seed: u64, length in 0..300_usize, lost in vec(0..300_usize, 0..41)) {
        decoding::<u16>(threshold, seed, length, &lost);
    }

    #[test]
    fn decodes_of_32_bits(threshold in 1..70_usize, seed: u64, length in any_length(), lost in vec(0..400_usize, 0..61)) {
        decoding::<u32>(threshold, seed, length, &lost);
    }

    #[test]
    fn decodes_of_64_bits(threshold in 1..30_usize, seed: u64, length in 0..200_usize, lost in vec(0..200_usize, 0..25)) {
        decoding::<u64>(threshold, seed, length, &lost);
    }
}

/// Logs that are long enough for their few missing packets to be found without trying every candidate.
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

/// More identifiers than stay exact in a row of doubles without being handed over.
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
