//! The portable code: 8 bytes at a time, in 64-bit integers.
//!
//! The product of a byte and a coefficient is the sum of the byte's multiples by powers of 2. By
//! Horner's rule, all terms share the doublings.

use super::Term;
use crate::field::REDUCTION;

/// Bytes per step: four of the narrowest vectors, which the compiler makes of the integers.
const WIDTH: usize = 64;
const WORDS: usize = WIDTH / 8;

/// Adds to `sum` the products, which are as long.
pub(super) fn add<const N: usize>(sum: &mut [u8], terms: [Term<'_>; N]) {
    let mut rests = terms.map(|term| term.bytes);
    for sum in sum.chunks_mut(WIDTH) {
        let mut factors = [[0; WORDS]; N];
        for (factor, rest) in factors.iter_mut().zip(&mut rests) {
            let (bytes, after) = rest.split_at_checked(sum.len()).unwrap_or_default();
            (*factor, *rest) = (words(bytes), after);
        }
        let mut product = [0; WORDS];
        for bit in (0..8).rev() {
            product = product.map(double);
            for (term, factor) in terms.iter().zip(&factors) {
                // The same branches for each step, which processors predict.
                if term.coefficient >> bit & 1 == 1 {
                    product.iter_mut().zip(factor).for_each(|(sum, word)| *sum ^= word);
                }
            }
        }
        let mut bytes = [0; WIDTH];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(product) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        sum.iter_mut().zip(bytes).for_each(|(sum, byte)| *sum ^= byte);
    }
}

/// The bytes as integers, padded with 0.
fn words(bytes: &[u8]) -> [u64; WORDS] {
    let mut padded = [0; WIDTH];
    match bytes.first_chunk() {
        Some(whole) => padded = *whole,
        None => padded.iter_mut().zip(bytes).for_each(|(padded, byte)| *padded = *byte),
    }
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(padded.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

/// Twice each of eight elements.
fn double(elements: u64) -> u64 {
    const HIGHEST: u64 = u64::from_le_bytes([0x80; 8]);
    const REDUCTIONS: u64 = u64::from_le_bytes([REDUCTION; 8]);
    let carries = elements & HIGHEST;
    // A carry of 0x80 becomes 0x7f, of which the reduction is a part.
    ((elements ^ carries) << 1) ^ ((carries - (carries >> 7)) & REDUCTIONS)
}
