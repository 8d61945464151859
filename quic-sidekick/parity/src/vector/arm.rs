//! NEON, which every 64-bit ARM has. The one module of this target with `unsafe` code.
//!
//! A value of [`Neon`] comes only from `detect`, so its holder may call functions that need the
//! instructions. Memory accesses go only through references to arrays of exactly the size that an
//! instruction reads or writes.

#![allow(unsafe_code, reason = "intrinsics; see above, and each block")]

use super::Term;
use super::kernel::{self, Simd, padded};
use crate::field::HALVES;
#[allow(clippy::wildcard_imports, reason = "a dozen long names")]
use core::arch::aarch64::*;

/// The processor has NEON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Neon(());

impl Neon {
    pub(super) fn detect() -> Option<Self> {
        std::arch::is_aarch64_feature_detected!("neon").then_some(Self(()))
    }

    // The target's own code may use NEON, so the kernel needs no features.
    pub(super) fn add<const N: usize>(self, sum: &mut [u8], terms: [Term<'_>; N]) {
        kernel::add(self, sum, terms);
    }
}

impl Simd for Neon {
    type Vector = uint8x16_t;
    type Factor = [uint8x16_t; 2];
    const WIDTH: usize = 16;

    #[inline(always)]
    fn factor(self, coefficient: u8) -> [uint8x16_t; 2] {
        let [low, high] = &HALVES[usize::from(coefficient)];
        // SAFETY: `self` proves that the processor has the instruction; each load reads the 16
        // bytes of an array.
        unsafe { [vld1q_u8(low.as_ptr()), vld1q_u8(high.as_ptr())] }
    }

    #[inline(always)]
    fn load(self, bytes: &[u8]) -> uint8x16_t {
        let mut room = [0; 16];
        let whole = padded(bytes, &mut room);
        // SAFETY: `self` proves that the processor has the instruction; it reads the 16 bytes of
        // the array.
        unsafe { vld1q_u8(whole.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, bytes: &mut [u8], vector: uint8x16_t) {
        if let Some(whole) = bytes.first_chunk_mut::<16>() {
            // SAFETY: `self` proves that the processor has the instruction; it writes the 16 bytes
            // of the array.
            unsafe { vst1q_u8(whole.as_mut_ptr(), vector) };
            return;
        }
        let mut padded = [0_u8; 16];
        // SAFETY: as above.
        unsafe { vst1q_u8(padded.as_mut_ptr(), vector) };
        bytes.copy_from_slice(&padded[..bytes.len()]);
    }

    #[inline(always)]
    fn add_product(
        self,
        sum: uint8x16_t,
        bytes: uint8x16_t,
        [low, high]: [uint8x16_t; 2],
    ) -> uint8x16_t {
        // SAFETY: `self` proves that the processor has the instructions, which touch registers
        // only.
        unsafe {
            let lows = vandq_u8(bytes, vdupq_n_u8(15));
            let highs = vshrq_n_u8::<4>(bytes);
            veorq_u8(veorq_u8(sum, vqtbl1q_u8(low, lows)), vqtbl1q_u8(high, highs))
        }
    }
}
