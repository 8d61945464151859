use super::*;
use crate::field;

/// Bytes from a seed (SplitMix64).
fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let byte = |n: u64| {
        let mixed = (seed << 32 ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 27).to_be_bytes()[0]
    };
    (1..).map(byte).take(length).collect()
}

fn naive(sum: &[u8], terms: &[Term<'_>]) -> Vec<u8> {
    let mut sum = sum.to_vec();
    for term in terms {
        for (sum, byte) in sum.iter_mut().zip(term.bytes) {
            *sum ^= field::multiply(term.coefficient, *byte);
        }
    }
    sum
}

#[test]
fn every_set_multiplies_all_bytes_by_all_coefficients() {
    let all: Vec<u8> = (0..=255).collect();
    for set in InstructionSet::available() {
        for coefficient in 0..=255 {
            let mut sum = vec![0; 256];
            set.add(&mut sum, [Term { coefficient, bytes: &all }]);
            let expected: Vec<u8> =
                all.iter().map(|byte| field::multiply(coefficient, *byte)).collect();
            assert_eq!(sum, expected, "{set}: {coefficient}");
        }
    }
}

/// Every length around those of the vectors, at every alignment, for one term to nine.
#[test]
fn every_set_sums_as_the_naive_code_does() {
    for length in (0..200).chain([1460, 1472, 1474]) {
        for number in [1, 2, 4, 5, 9] {
            let sources: Vec<Vec<u8>> = (0..number)
                .map(|term: usize| bytes((length * 16 + term) as u64, length + 64 + term % 3))
                .collect();
            let terms: Vec<Term<'_>> = sources
                .iter()
                .enumerate()
                .map(|(index, source)| {
                    let start = (length * 7 + index * 13) % 64;
                    // Some are shorter than the sum, some longer, one is empty.
                    let end = start + (length * (2 + index) / 4).min(length + 1);
                    let coefficient = if index == 3 { 1 } else { source[0] % 250 };
                    Term { coefficient, bytes: source.get(start..end).unwrap_or_default() }
                })
                .collect();
            let begin = bytes(!(length as u64), length + 1);
            for set in InstructionSet::available() {
                let mut sum = begin.clone();
                set.add(&mut sum[1..], terms.iter().copied());
                assert_eq!(sum[0], begin[0], "{set}: {length}");
                assert_eq!(sum[1..], naive(&begin[1..], &terms), "{set}: {length} of {number}");
            }
        }
    }
}

#[test]
fn the_best_is_available_and_has_a_name() {
    let names: Vec<_> = InstructionSet::available().map(InstructionSet::name).collect();
    assert!(names.contains(&InstructionSet::default().name()));
    assert_eq!(names[0], "portable");
    assert_eq!(names.len(), names.iter().collect::<std::collections::BTreeSet<_>>().len());
}
