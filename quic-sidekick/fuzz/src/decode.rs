//! Arbitrary sums over short logs. Every decoded result must be what all explanations agree on, and
//! a rejected input must have no explanation.

#![no_main]
#![allow(clippy::expect_used, reason = "a fuzz target reports by panicking")]

use libfuzzer_sys::fuzz_target;
use sidekick_quack::{DecodeError, Decoder, Fate, InstructionSet, PowerSums, textbook};

/// The longest log: the oracle tries every subset.
const LONGEST_LOG: usize = 9;

/// A word from four bytes. If the fifth marks it, it becomes one of few values, so that packets
/// collide and reach the modulus.
fn word(bytes: [u8; 5]) -> u32 {
    let [kind, word @ ..] = bytes;
    match kind % 4 {
        0 => u32::from(word[0] % 4),
        1 => u32::MAX - u32::from(word[0] % 8),
        _ => u32::from_le_bytes(word),
    }
}

struct Case {
    log: Vec<u32>,
    difference: PowerSums,
}

/// The first bytes define the length of the log, the missing packets, the number of sums, and
/// changes to the sums and the count. The identifiers follow.
fn case(data: &[u8]) -> Option<Case> {
    let (&[length, choice, more, threshold, tamper, value, count, turn], rest) =
        data.split_first_chunk()?;
    let words = rest.as_chunks().0.iter().map(|bytes| word(*bytes));
    let log: Vec<u32> = words.take(usize::from(length) % (LONGEST_LOG + 1)).collect();
    let choice = u16::from_le_bytes([choice, more]);
    let missing =
        log.iter().enumerate().filter(|(index, _)| choice >> index & 1 == 1).map(|(_, &word)| word);
    let mut sums = vec![0; 1 + usize::from(threshold) % 12];
    let mut number = 0_u32;
    for identifier in missing {
        textbook::insert(&mut sums, identifier);
        number += 1;
    }
    if tamper % 2 == 1 {
        let place = usize::from(tamper / 2) % sums.len();
        sums[place] = u32::from(value).wrapping_mul(0x0101_0101) % sidekick_quack::MODULUS;
    }
    let shift = if count % 4 == 3 { u32::from(turn).rotate_right(u32::from(count / 4)) } else { 0 };
    let difference =
        PowerSums::from_parts(number.wrapping_add(shift), &sums).expect("sums below the modulus");
    Some(Case { log, difference })
}

/// The fates by all choices of missing packets with the right count and sums. A packet in all
/// choices is missing, one in none was received.
fn oracle(case: &Case) -> Option<Vec<Fate>> {
    let wanted: Vec<u32> = case.difference.sums().collect();
    let mut explanations = 0_u32;
    let mut missing_in = vec![0_u32; case.log.len()];
    for choice in 0_u32..1 << case.log.len() {
        if choice.count_ones() != case.difference.count() {
            continue;
        }
        let chosen = |index: &usize| choice >> index & 1 == 1;
        let mut sums = vec![0; wanted.len()];
        for index in (0..case.log.len()).filter(chosen) {
            textbook::insert(&mut sums, case.log[index]);
        }
        if sums == wanted {
            explanations += 1;
            (0..case.log.len()).filter(chosen).for_each(|index| missing_in[index] += 1);
        }
    }
    let fate = |&times: &u32| match times {
        0 => Fate::Received,
        all if all == explanations => Fate::Missing,
        _ => Fate::Ambiguous,
    };
    (explanations > 0).then(|| missing_in.iter().map(fate).collect())
}

fuzz_target!(|data: &[u8]| {
    let Some(case) = case(data) else { return };
    let expected = oracle(&case);
    for set in InstructionSet::available() {
        let mut fates = Vec::new();
        let mut decoder = Decoder::new(usize::MAX).with_instruction_set(set);
        match decoder.decode(&case.difference, &case.log, &mut fates) {
            Ok(missing) => {
                assert_eq!(missing as u64, u64::from(case.difference.count()), "{set}");
                assert_eq!(Some(&fates), expected.as_ref(), "{set}");
            }
            Err(DecodeError::TooManyMissing { missing, threshold }) => {
                assert_eq!(missing, case.difference.count(), "{set}");
                assert!(missing as usize > threshold, "{set}");
            }
            Err(DecodeError::MoreReceivedThanSent) => {
                assert!(case.difference.count() >= 1 << 31, "{set}");
            }
            Err(DecodeError::Inconsistent | DecodeError::NotInLog) => {
                assert_eq!(expected, None, "{set}");
            }
        }
    }
});
