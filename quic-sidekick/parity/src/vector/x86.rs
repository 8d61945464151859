//! AVX2, AVX-512 and the Galois field instructions. The one module of this target with `unsafe`
//! code.
//!
//! Two facts make it sound. First, a value of [`Avx2`], [`Avx512`] or [`Gfni`] comes only from its
//! `detect`, after the processor confirmed the instructions, so the holder of a value may call
//! functions that need them. Second, memory accesses go only to bytes of slices, by instructions
//! without alignment requirements.

#![allow(unsafe_code, reason = "intrinsics; see above, and each block")]

use super::Term;
use super::kernel::{self, Simd, padded};
use crate::field::{HALVES, MATRICES};
#[allow(clippy::wildcard_imports, reason = "a dozen long names")]
use core::arch::x86_64::*;
use std::arch::is_x86_feature_detected;

/// The processor has AVX2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Avx2(());

/// The processor has AVX-512 F and BW.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Avx512(());

/// The processor has AVX-512 F and BW, and GFNI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Gfni(Avx512);

impl Avx2 {
    pub(super) fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx2").then_some(Self(()))
    }
}

impl Avx512 {
    pub(super) fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
        has.then_some(Self(()))
    }
}

impl Gfni {
    pub(super) fn detect() -> Option<Self> {
        Avx512::detect().filter(|_| is_x86_feature_detected!("gfni")).map(Self)
    }
}

/// The kernel, compiled for a set of instructions, with a safe entry point for the holder of the
/// proof.
macro_rules! compiled_for {
    ($proof:ident, $features:literal) => {
        impl $proof {
            pub(super) fn add<const N: usize>(self, sum: &mut [u8], terms: [Term<'_>; N]) {
                #[target_feature(enable = $features)]
                fn compiled<const N: usize>(proof: $proof, sum: &mut [u8], terms: [Term<'_>; N]) {
                    kernel::add(proof, sum, terms);
                }
                // SAFETY: `self` proves that the processor has the features, which is all that the
                // function requires.
                unsafe { compiled(self, sum, terms) }
            }
        }
    };
}

compiled_for!(Avx2, "avx2");
compiled_for!(Avx512, "avx512f,avx512bw");
compiled_for!(Gfni, "avx512f,avx512bw,gfni");

impl Simd for Avx2 {
    type Vector = __m256i;
    type Factor = [__m256i; 2];
    const WIDTH: usize = 32;

    #[inline(always)]
    fn factor(self, coefficient: u8) -> [__m256i; 2] {
        let [low, high] = &HALVES[usize::from(coefficient)];
        // SAFETY: `self` proves that the processor has the instructions; each load reads the 16
        // bytes of an array.
        unsafe {
            [
                _mm256_broadcastsi128_si256(_mm_loadu_si128(low.as_ptr().cast())),
                _mm256_broadcastsi128_si256(_mm_loadu_si128(high.as_ptr().cast())),
            ]
        }
    }

    #[inline(always)]
    fn load(self, bytes: &[u8]) -> __m256i {
        let mut room = [0; 32];
        let whole = padded(bytes, &mut room);
        // SAFETY: `self` proves that the processor has the instruction; it reads the 32 bytes of
        // the array.
        unsafe { _mm256_loadu_si256(whole.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, bytes: &mut [u8], vector: __m256i) {
        if let Some(whole) = bytes.first_chunk_mut::<32>() {
            // SAFETY: `self` proves that the processor has the instruction; it writes the 32 bytes
            // of the array.
            unsafe { _mm256_storeu_si256(whole.as_mut_ptr().cast(), vector) };
            return;
        }
        let mut padded = [0_u8; 32];
        // SAFETY: as above.
        unsafe { _mm256_storeu_si256(padded.as_mut_ptr().cast(), vector) };
        bytes.copy_from_slice(&padded[..bytes.len()]);
    }

    #[inline(always)]
    fn add_product(self, sum: __m256i, bytes: __m256i, [low, high]: [__m256i; 2]) -> __m256i {
        // SAFETY: `self` proves that the processor has the instructions, which touch registers
        // only.
        unsafe {
            let mask = _mm256_set1_epi8(15);
            let lows = _mm256_and_si256(bytes, mask);
            let highs = _mm256_and_si256(_mm256_srli_epi64::<4>(bytes), mask);
            let products = [_mm256_shuffle_epi8(low, lows), _mm256_shuffle_epi8(high, highs)];
            _mm256_xor_si256(_mm256_xor_si256(sum, products[0]), products[1])
        }
    }
}

/// The lanes of that many bytes.
#[inline(always)]
fn lanes(bytes: &[u8]) -> u64 {
    match bytes.len() {
        len @ 0..64 => (1 << len) - 1,
        _ => u64::MAX,
    }
}

impl Simd for Avx512 {
    type Vector = __m512i;
    type Factor = [__m512i; 2];
    const WIDTH: usize = 64;

    #[inline(always)]
    fn factor(self, coefficient: u8) -> [__m512i; 2] {
        let [low, high] = &HALVES[usize::from(coefficient)];
        // SAFETY: `self` proves that the processor has the instructions; each load reads the 16
        // bytes of an array.
        unsafe {
            [
                _mm512_broadcast_i32x4(_mm_loadu_si128(low.as_ptr().cast())),
                _mm512_broadcast_i32x4(_mm_loadu_si128(high.as_ptr().cast())),
            ]
        }
    }

    #[inline(always)]
    fn load(self, bytes: &[u8]) -> __m512i {
        // SAFETY: `self` proves that the processor has the instruction. It reads the bytes of the
        // slice only: the mask excludes every other lane, and an excluded lane is not accessed.
        unsafe { _mm512_maskz_loadu_epi8(lanes(bytes), bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, bytes: &mut [u8], vector: __m512i) {
        // SAFETY: `self` proves that the processor has the instruction. It writes the bytes of the
        // slice only: the mask excludes every other lane, and an excluded lane is not accessed.
        unsafe { _mm512_mask_storeu_epi8(bytes.as_mut_ptr().cast(), lanes(bytes), vector) };
    }

    #[inline(always)]
    fn add_product(self, sum: __m512i, bytes: __m512i, [low, high]: [__m512i; 2]) -> __m512i {
        // SAFETY: `self` proves that the processor has the instructions, which touch registers
        // only.
        unsafe {
            let mask = _mm512_set1_epi8(15);
            let lows = _mm512_and_si512(bytes, mask);
            let highs = _mm512_and_si512(_mm512_srli_epi64::<4>(bytes), mask);
            let products = [_mm512_shuffle_epi8(low, lows), _mm512_shuffle_epi8(high, highs)];
            // The truth table of three bits' XOR.
            _mm512_ternarylogic_epi64::<0x96>(sum, products[0], products[1])
        }
    }
}

impl Simd for Gfni {
    type Vector = __m512i;
    type Factor = __m512i;
    const WIDTH: usize = 64;

    #[inline(always)]
    fn factor(self, coefficient: u8) -> __m512i {
        let matrix = MATRICES[usize::from(coefficient)].cast_signed();
        // SAFETY: `self` proves that the processor has the instruction, which touches registers
        // only.
        unsafe { _mm512_set1_epi64(matrix) }
    }

    #[inline(always)]
    fn load(self, bytes: &[u8]) -> __m512i {
        self.0.load(bytes)
    }

    #[inline(always)]
    fn store(self, bytes: &mut [u8], vector: __m512i) {
        self.0.store(bytes, vector);
    }

    #[inline(always)]
    fn add_product(self, sum: __m512i, bytes: __m512i, matrix: __m512i) -> __m512i {
        // SAFETY: `self` proves that the processor has the instructions, which touch registers
        // only.
        unsafe { _mm512_xor_si512(sum, _mm512_gf2p8affine_epi64_epi8::<0>(bytes, matrix)) }
    }
}
