//! Pseudo-random numbers.

#![allow(dead_code, unreachable_pub, reason = "tests and benchmarks take it in as a module")]

/// A generator of pseudo-random numbers (Vigna's SplitMix64).
pub fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Fills bytes so that they look encrypted. Each number, below 2^32, gives others.
pub fn fill(bytes: &mut [u8], number: u64) {
    let mut state = number << 32;
    for bytes in bytes.chunks_mut(8) {
        bytes.copy_from_slice(&next(&mut state).to_be_bytes()[..bytes.len()]);
    }
}
