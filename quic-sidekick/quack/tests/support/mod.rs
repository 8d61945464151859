//! Compares every instruction set of the machine with the textbook, bit by bit.

#![allow(
    clippy::unwrap_used,
    unreachable_pub,
    reason = "part of a test, and of a program that is one"
)]

use sidekick_quack::{
    DecodeError, DecoderOf, Fate, Identifier, InstructionSet, MAX_THRESHOLD, PowerSumsOf, textbook,
};

/// Identifiers from a seed, by SplitMix64's high bits: a long list needs only a short strategy.
pub fn identifiers<I: Identifier + TryFrom<u64, Error: std::fmt::Debug>>(
    seed: u64,
    length: usize,
) -> Vec<I> {
    let mut state = seed;
    let draw = |_| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let word = (mixed ^ mixed >> 31) >> (64 - I::BITS);
        let most = u64::MAX >> (64 - I::BITS);
        // The edges of the range more often than by chance.
        let word = match state % 16 {
            0 => most - word % 64,
            1 => word % 4,
            2 => I::MODULUS.into() / 2 - 2 + word % 5,
            _ => word,
        };
        I::try_from(word).unwrap()
    };
    (0..length).map(draw).collect()
}

pub fn textbook_sums<I: Identifier + Default>(threshold: usize, identifiers: &[I]) -> Vec<I> {
    let mut sums = vec![I::default(); threshold];
    identifiers.iter().for_each(|&identifier| textbook::insert(&mut sums, identifier));
    sums
}

pub fn inserting_and_removing<I: Identifier + Default + TryFrom<u64, Error: std::fmt::Debug>>(
    threshold: usize,
    seed: u64,
    lengths: (usize, usize),
) {
    let (batch, singles) = (identifiers::<I>(seed, lengths.0), identifiers::<I>(!seed, lengths.1));
    let all: Vec<I> = batch.iter().chain(&singles).copied().collect();
    let expected = textbook_sums(threshold, &all);
    let kept = textbook_sums(threshold, &singles);
    for set in InstructionSet::available() {
        let mut sums = PowerSumsOf::<I>::new(threshold).unwrap().with_instruction_set(set);
        sums.insert_many(&batch);
        singles.iter().for_each(|&identifier| sums.insert(identifier));
        assert_eq!(sums.sums().collect::<Vec<_>>(), expected.clone(), "{}", set);
        sums.remove_many(&batch);
        assert_eq!(sums.sums().collect::<Vec<_>>(), kept.clone(), "{}", set);
        singles.iter().rev().for_each(|&identifier| sums.remove(identifier));
        assert_eq!(&sums, &PowerSumsOf::new(threshold).unwrap(), "{}", set);
    }
}

/// The fate of each packet of a log, by counting.
pub fn exact_fates<I: Identifier>(log: &[I], missing: &[I]) -> Vec<Fate> {
    let count = |identifiers: &[I], element: u64| {
        identifiers
            .iter()
            .filter(|&&identifier| identifier.into() % I::MODULUS.into() == element)
            .count()
    };
    let missing_elements: std::collections::BTreeSet<u64> =
        missing.iter().map(|&identifier| identifier.into() % I::MODULUS.into()).collect();
    let fate = |&identifier: &I| {
        let element = identifier.into() % I::MODULUS.into();
        if !missing_elements.contains(&element) {
            Fate::Received
        } else if count(missing, element) == count(log, element) {
            Fate::Missing
        } else {
            Fate::Ambiguous
        }
    };
    log.iter().map(fate).collect()
}

pub fn decoding<I: Identifier + Default + TryFrom<u64, Error: std::fmt::Debug>>(
    threshold: usize,
    seed: u64,
    length: usize,
    lost: &[usize],
) {
    let log = identifiers::<I>(seed, length);
    let missing: Vec<I> = log
        .iter()
        .enumerate()
        .filter(|(place, _)| lost.contains(place))
        .map(|(_, &identifier)| identifier)
        .collect();
    let count = u32::try_from(missing.len()).unwrap();
    let difference = PowerSumsOf::from_parts(count, &textbook_sums(threshold, &missing)).unwrap();
    let expected = exact_fates(&log, &missing);
    for set in InstructionSet::available() {
        let mut decoder = DecoderOf::<I>::new(MAX_THRESHOLD).with_instruction_set(set);
        let mut fates = vec![Fate::Ambiguous; 3];
        let result = decoder.decode(&difference, &log, &mut fates);
        if missing.len() > threshold {
            assert_eq!(
                result,
                Err(DecodeError::TooManyMissing { missing: count, threshold }),
                "{set}"
            );
        } else {
            assert_eq!(result, Ok(missing.len()), "{set}");
            assert_eq!(fates, expected, "{set}");
        }
    }
}
