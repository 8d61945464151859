//! NEON with double precision, which every 64-bit ARM has. The one module of this target with
//! `unsafe` code.
//!
//! A value of [`Neon`] comes only from `detect`, so its holder may call functions that need the
//! instructions. Memory accesses go only through references to arrays of exactly the size that an
//! instruction reads or writes.

#![allow(unsafe_code, reason = "intrinsics; see above, and each block")]

use super::kernel::{self, Simd, on_registers};
use super::narrow::{Narrow, WIDEST};
use crate::fate::{Fate, Found};
use alloc::vec::Vec;
#[allow(clippy::wildcard_imports, reason = "a dozen long names")]
use core::arch::aarch64::*;

/// The processor has NEON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Neon(());

impl Neon {
    pub(super) fn detect() -> Option<Self> {
        #[cfg(feature = "std")]
        let has = std::arch::is_aarch64_feature_detected!("neon");
        #[cfg(not(feature = "std"))]
        let has = cfg!(target_feature = "neon");
        has.then_some(Self(()))
    }

    pub(super) fn insert_one<F: Narrow, const TAKE: bool>(self, sums: &mut [i64], identifier: F) {
        kernel::insert_one::<_, F, TAKE>(self, sums, identifier);
    }

    pub(super) fn insert_many<F: Narrow, const TAKE: bool>(
        self,
        sums: &mut [i64],
        threshold: usize,
        identifiers: &[F],
    ) {
        if threshold <= kernel::USUAL {
            kernel::insert_many::<_, F, TAKE>(self, sums, threshold, identifiers);
        } else {
            kernel::wide::insert_many::<_, F, 4, TAKE>(self, sums, identifiers);
        }
    }

    pub(super) fn newton<F: Narrow>(
        self,
        sums: &[F],
        missing: usize,
        polynomial: &mut Vec<F>,
    ) -> bool {
        if sums.len() <= kernel::USUAL {
            kernel::newton::<_, F, { kernel::USUAL }, { kernel::USUAL + WIDEST }>(
                self, sums, missing, polynomial,
            )
        } else {
            kernel::newton::<_, F, { kernel::MOST }, { kernel::MOST + WIDEST }>(
                self, sums, missing, polynomial,
            )
        }
    }

    pub(super) fn mark_roots<F: Narrow>(
        self,
        polynomial: &[F],
        identifiers: &[F],
        fates: &mut [Fate],
        found: &mut Found<F>,
    ) {
        if polynomial.len() <= kernel::USUAL {
            kernel::mark_roots::<_, F, { kernel::USUAL }>(
                self,
                polynomial,
                identifiers,
                fates,
                found,
            );
        } else {
            kernel::mark_roots::<_, F, { kernel::MOST }>(
                self,
                polynomial,
                identifiers,
                fates,
                found,
            );
        }
    }
}

impl Simd for Neon {
    type V = float64x2_t;
    const LANES: usize = 2;

    #[inline(always)]
    fn splat(self, x: f64) -> float64x2_t {
        // SAFETY: `self` proves that the processor has the instruction, which touches registers
        // only.
        unsafe { vdupq_n_f64(x) }
    }

    #[inline(always)]
    fn load(self, words: &[u32]) -> float64x2_t {
        let pair = [words.first(), words.get(1)].map(|word| word.copied().unwrap_or(0));
        // SAFETY: `self` proves that the processor has the instructions; the load reads the eight
        // bytes of the array.
        unsafe { vcvtq_f64_u64(vmovl_u32(vld1_u32(pair.as_ptr()))) }
    }

    #[inline(always)]
    fn read(self, doubles: &[f64]) -> float64x2_t {
        let Some(doubles) = doubles.first_chunk::<2>() else { return self.splat(0.0) };
        // SAFETY: `self` proves that the processor has the instruction; it reads the 16 bytes of
        // the array.
        unsafe { vld1q_f64(doubles.as_ptr()) }
    }

    #[inline(always)]
    fn write(self, doubles: &mut [f64], v: float64x2_t) {
        let Some(doubles) = doubles.first_chunk_mut::<2>() else { return };
        // SAFETY: `self` proves that the processor has the instruction; it writes the 16 bytes of
        // the array.
        unsafe { vst1q_f64(doubles.as_mut_ptr(), v) }
    }

    on_registers! {
        add(a, b) = vaddq_f64;
        sub(a, b) = vsubq_f64;
        mul(a, b) = vmulq_f64;
    }

    #[inline(always)]
    fn fma(self, a: float64x2_t, b: float64x2_t, c: float64x2_t) -> float64x2_t {
        // SAFETY: `self` proves that the processor has the instruction, which touches registers
        // only.
        unsafe { vfmaq_f64(c, a, b) }
    }

    #[inline(always)]
    fn fms(self, a: float64x2_t, b: float64x2_t, c: float64x2_t) -> float64x2_t {
        // The processor's own subtracts the product. SAFETY: `self` proves that the processor has
        // the instructions, which touch registers only.
        unsafe { vfmaq_f64(vnegq_f64(c), a, b) }
    }

    #[inline(always)]
    fn sub_above(self, x: float64x2_t, bound: float64x2_t, amount: float64x2_t) -> float64x2_t {
        // SAFETY: `self` proves that the processor has the instructions, which touch registers
        // only.
        unsafe { vbslq_f64(vcgtq_f64(x, bound), vsubq_f64(x, amount), x) }
    }

    #[inline(always)]
    fn blend(self, _bit: usize, clear: float64x2_t, set: float64x2_t) -> float64x2_t {
        // Bit 0 alone distinguishes two lanes. SAFETY: `self` proves that the processor has the
        // instruction, which touches registers only.
        unsafe { vcopyq_laneq_f64::<1, 1>(clear, set) }
    }

    #[inline(always)]
    fn sum_rows(self, rows: &[float64x2_t]) -> float64x2_t {
        let Some(&[a, b]) = rows.first_chunk() else { return self.splat(0.0) };
        // SAFETY: `self` proves that the processor has the instruction, which touches registers
        // only.
        unsafe { vpaddq_f64(a, b) }
    }

    #[inline(always)]
    fn first(self, v: float64x2_t) -> f64 {
        // SAFETY: `self` proves that the processor has the instruction, which touches registers
        // only.
        unsafe { vgetq_lane_f64::<0>(v) }
    }

    #[inline(always)]
    fn accumulate<const TAKE: bool>(self, sums: &mut [i64], v: float64x2_t) {
        let Some(sums) = sums.first_chunk_mut::<2>() else { return };
        // SAFETY: `self` proves that the processor has the instructions; those on memory read and
        // write the 16 bytes of the array.
        unsafe {
            let (integers, sum) = (vcvtq_s64_f64(v), vld1q_s64(sums.as_ptr()));
            let total = if TAKE { vsubq_s64(sum, integers) } else { vaddq_s64(sum, integers) };
            vst1q_s64(sums.as_mut_ptr(), total);
        }
    }

    #[inline(always)]
    fn multiples(self, v: float64x2_t, p: float64x2_t) -> u32 {
        // SAFETY: `self` proves that the processor has the instructions, which touch registers
        // only.
        let (first, second) = unsafe {
            let lanes = vorrq_u64(vceqzq_f64(v), vceqq_f64(vabsq_f64(v), p));
            (vgetq_lane_u64::<0>(lanes), vgetq_lane_u64::<1>(lanes))
        };
        u32::from(first != 0) | u32::from(second != 0) << 1
    }
}
