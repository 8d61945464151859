//! Every instruction set of the machine against the textbook, to the bit.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "part of a test, and of an example that is one")]

use sidekick_quack::{
    DecodeError, DecoderOf, Fate, Identifier, InstructionSet, MAX_THRESHOLD, PowerSumsOf, textbook,
};

/// From a seed, so that long lists need no long strategy: SplitMix64, of which the high bits are taken.
pub fn identifiers<I: Identifier + TryFrom<u64, Error: std::fmt::Debug>>(seed: u64, length: usize) -> Vec<I> {
    let mut state = seed;
    let draw = |_| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let word = (mixed ^ mixed >> 31) >> (64 - I::BITS);
        let most = u64::MAX >> (64 - I::BITS);
        // The edges of the range more often than chance would have them.
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

pub fn decoding<I: Identifier + Default + TryFrom<u64, Error: std::fmt::Debug>>(
    threshold: usize,
    seed: u64,
    length: usize,
    lost: &[usize],
) {
    let log = identifiers::<I>(seed, length);
    let is_lost = |position: usize| lost.contains(&position);
    let missing: Vec<I> =
        (0..length).filter(|&position| is_lost(position)).map(|position| log[position]).collect();
    let difference =
        PowerSumsOf::from_parts(missing.len().try_into().unwrap(), &textbook_sums(threshold, &missing));
    let difference = difference.unwrap();
    let (mut polynomial, mut positions) = (Vec::new(), Vec::new());
    let sums: Vec<I> = difference.sums().collect();
    textbook::decode(&sums, missing.len(), &log, &mut polynomial, &mut positions);
    for set in InstructionSet::available() {
        let mut decoder = DecoderOf::<I>::new(MAX_THRESHOLD).with_instruction_set(set);
        let mut fates = vec![Fate::Ambiguous; 3];
        let result = decoder.decode(&difference, &log, &mut fates);
        if missing.len() > threshold {
            let error = DecodeError::TooManyMissing { missing: difference.count(), threshold };
            assert_eq!(result, Err(error));
            continue;
        }
        assert_eq!(result, Ok(missing.len()), "{}", set);
        let marked = |(position, &fate): (usize, &Fate)| (fate != Fate::Received).then_some(position);
        assert_eq!(
            fates.iter().enumerate().filter_map(marked).collect::<Vec<_>>(),
            positions.clone(),
            "{}",
            set
        );
        for (position, &fate) in fates.iter().enumerate() {
            assert!(fate == Fate::Ambiguous || (fate == Fate::Missing) == is_lost(position), "{}", set);
        }
    }
}
