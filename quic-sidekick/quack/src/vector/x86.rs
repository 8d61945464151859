//! AVX-512 and AVX2 with FMA. The one module of this target with `unsafe` code.
//!
//! Two facts make it sound. First, a value of [`Avx2`] or [`Avx512`] comes only from its `detect`,
//! after the processor or the compilation target confirmed the instructions, so the holder of a
//! value may call functions that need them. Second, memory accesses go only through references to
//! arrays of exactly the size that an instruction reads or writes, by instructions without
//! alignment requirements.

#![allow(unsafe_code, reason = "intrinsics; see above, and each block")]

use super::kernel::{self, Simd, on_registers};
use super::narrow::{Narrow, WIDEST};
use super::portable;
use crate::fate::{Fate, Found};
use alloc::vec::Vec;
#[allow(clippy::wildcard_imports, reason = "two dozen long names")]
use core::arch::x86_64::*;

/// The processor has AVX-512 F, DQ and VL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Avx512(());

/// The processor has AVX2 and FMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Avx2(());

impl Avx512 {
    pub(super) fn detect() -> Option<Self> {
        #[cfg(feature = "std")]
        let has = std::arch::is_x86_feature_detected!("avx512f")
            && std::arch::is_x86_feature_detected!("avx512dq")
            && std::arch::is_x86_feature_detected!("avx512vl");
        #[cfg(not(feature = "std"))]
        let has = cfg!(all(
            target_feature = "avx512f",
            target_feature = "avx512dq",
            target_feature = "avx512vl"
        ));
        has.then_some(Self(()))
    }
}

impl Avx2 {
    pub(super) fn detect() -> Option<Self> {
        #[cfg(feature = "std")]
        let has = std::arch::is_x86_feature_detected!("avx2")
            && std::arch::is_x86_feature_detected!("fma");
        #[cfg(not(feature = "std"))]
        let has = cfg!(all(target_feature = "avx2", target_feature = "fma"));
        has.then_some(Self(()))
    }
}

/// The kernel, compiled for a set of instructions, with safe entry points for the holder of the
/// proof. `abreast` is the number of sums that fit the registers, twice.
macro_rules! compiled_for {
    ($proof:ident, $features:literal, $abreast:literal) => {
        impl $proof {
            pub(super) fn insert_one<F: Narrow, const TAKE: bool>(
                self,
                sums: &mut [i64],
                identifier: F,
            ) {
                #[target_feature(enable = $features)]
                fn compiled<F: Narrow, const TAKE: bool>(
                    proof: $proof,
                    sums: &mut [i64],
                    identifier: F,
                ) {
                    kernel::insert_one::<_, F, TAKE>(proof, sums, identifier);
                }
                // SAFETY: `self` proves that the processor has the features, which is all that the
                // function requires.
                unsafe { compiled::<F, TAKE>(self, sums, identifier) }
            }

            pub(super) fn insert_many<F: Narrow, const TAKE: bool>(
                self,
                sums: &mut [i64],
                threshold: usize,
                identifiers: &[F],
            ) {
                #[target_feature(enable = $features)]
                fn compiled<F: Narrow, const TAKE: bool>(
                    proof: $proof,
                    sums: &mut [i64],
                    threshold: usize,
                    identifiers: &[F],
                ) {
                    kernel::insert_many::<_, F, TAKE>(proof, sums, threshold, identifiers);
                }
                #[target_feature(enable = $features)]
                fn wide<F: Narrow, const TAKE: bool>(
                    proof: $proof,
                    sums: &mut [i64],
                    identifiers: &[F],
                ) {
                    kernel::wide::insert_many::<_, F, { $abreast }, TAKE>(proof, sums, identifiers);
                }
                // SAFETY: `self` proves that the processor has the features, which is all that the
                // functions require.
                unsafe {
                    if threshold <= kernel::USUAL {
                        compiled::<F, TAKE>(self, sums, threshold, identifiers);
                    } else {
                        wide::<F, TAKE>(self, sums, identifiers);
                    }
                }
            }

            pub(super) fn newton<F: Narrow>(
                self,
                sums: &[F],
                missing: usize,
                polynomial: &mut Vec<F>,
            ) -> bool {
                #[target_feature(enable = $features)]
                fn compiled<F: Narrow, const ROOM: usize, const SHIFTED: usize>(
                    proof: $proof,
                    sums: &[F],
                    missing: usize,
                    polynomial: &mut Vec<F>,
                ) -> bool {
                    kernel::newton::<_, F, ROOM, SHIFTED>(proof, sums, missing, polynomial)
                }
                // SAFETY: `self` proves that the processor has the features, which is all that the
                // functions require.
                unsafe {
                    if sums.len() <= kernel::USUAL {
                        compiled::<F, { kernel::USUAL }, { kernel::USUAL + WIDEST }>(
                            self, sums, missing, polynomial,
                        )
                    } else {
                        compiled::<F, { kernel::MOST }, { kernel::MOST + WIDEST }>(
                            self, sums, missing, polynomial,
                        )
                    }
                }
            }

            pub(super) fn look_up<F: Narrow>(
                self,
                roots: &[F],
                identifiers: &[F],
                fates: &mut [Fate],
                found: &mut Found<F>,
            ) {
                // The compiler vectorises the portable code.
                #[target_feature(enable = $features)]
                fn compiled<F: Narrow>(
                    roots: &[F],
                    identifiers: &[F],
                    fates: &mut [Fate],
                    found: &mut Found<F>,
                ) {
                    portable::look_up(roots, identifiers, fates, found);
                }
                // SAFETY: `self` proves that the processor has the features, which is all that the
                // function requires.
                unsafe { compiled(roots, identifiers, fates, found) }
            }

            pub(super) fn mark_roots<F: Narrow>(
                self,
                polynomial: &[F],
                identifiers: &[F],
                fates: &mut [Fate],
                found: &mut Found<F>,
            ) {
                #[target_feature(enable = $features)]
                fn compiled<F: Narrow, const ROOM: usize>(
                    proof: $proof,
                    polynomial: &[F],
                    identifiers: &[F],
                    fates: &mut [Fate],
                    found: &mut Found<F>,
                ) {
                    kernel::mark_roots::<_, F, ROOM>(proof, polynomial, identifiers, fates, found);
                }
                // SAFETY: `self` proves that the processor has the features, which is all that the
                // functions require.
                unsafe {
                    if polynomial.len() <= kernel::USUAL {
                        compiled::<F, { kernel::USUAL }>(
                            self,
                            polynomial,
                            identifiers,
                            fates,
                            found,
                        );
                    } else {
                        compiled::<F, { kernel::MOST }>(
                            self,
                            polynomial,
                            identifiers,
                            fates,
                            found,
                        );
                    }
                }
            }
        }
    };
}

compiled_for!(Avx512, "avx512f,avx512dq,avx512vl", 8);
compiled_for!(Avx2, "avx2,fma", 4);

/// The first words, padded with 0.
#[inline(always)]
fn first<const N: usize>(words: &[u32]) -> [u32; N] {
    if let Some(first) = words.first_chunk() {
        return *first;
    }
    let mut first = [0; N];
    for (first, word) in first.iter_mut().zip(words) {
        *first = *word;
    }
    first
}

impl Simd for Avx512 {
    type V = __m512d;
    const LANES: usize = 8;

    #[inline(always)]
    fn splat(self, x: f64) -> __m512d {
        // SAFETY: `self` proves that the processor has the instruction, which touches registers
        // only.
        unsafe { _mm512_set1_pd(x) }
    }

    #[inline(always)]
    fn load(self, words: &[u32]) -> __m512d {
        let words = &first::<8>(words);
        // SAFETY: `self` proves that the processor has the instructions; the load reads the 32
        // bytes of the array.
        unsafe { _mm512_cvtepu32_pd(_mm256_loadu_si256(words.as_ptr().cast())) }
    }

    #[inline(always)]
    fn read(self, doubles: &[f64]) -> __m512d {
        let Some(doubles) = doubles.first_chunk::<8>() else { return self.splat(0.0) };
        // SAFETY: `self` proves that the processor has the instruction; it reads the 64 bytes of
        // the array.
        unsafe { _mm512_loadu_pd(doubles.as_ptr()) }
    }

    #[inline(always)]
    fn write(self, doubles: &mut [f64], v: __m512d) {
        let Some(doubles) = doubles.first_chunk_mut::<8>() else { return };
        // SAFETY: `self` proves that the processor has the instruction; it writes the 64 bytes of
        // the array.
        unsafe { _mm512_storeu_pd(doubles.as_mut_ptr(), v) }
    }

    on_registers! {
        add(a, b) = _mm512_add_pd;
        sub(a, b) = _mm512_sub_pd;
        mul(a, b) = _mm512_mul_pd;
        fma(a, b, c) = _mm512_fmadd_pd;
        fms(a, b, c) = _mm512_fmsub_pd;
    }

    #[inline(always)]
    fn sub_above(self, x: __m512d, bound: __m512d, amount: __m512d) -> __m512d {
        // SAFETY: `self` proves that the processor has the instructions, which touch registers
        // only.
        unsafe { _mm512_mask_sub_pd(x, _mm512_cmp_pd_mask::<_CMP_GT_OQ>(x, bound), x, amount) }
    }

    #[inline(always)]
    fn blend(self, bit: usize, clear: __m512d, set: __m512d) -> __m512d {
        let lanes = match bit {
            0 => 0b1010_1010,
            1 => 0b1100_1100,
            _ => 0b1111_0000,
        };
        // SAFETY: `self` proves that the processor has the instruction, which touches registers
        // only.
        unsafe { _mm512_mask_blend_pd(lanes, clear, set) }
    }

    #[inline(always)]
    fn sum_rows(self, rows: &[__m512d]) -> __m512d {
        let Some(&[a, b, c, d, e, f, g, h]) = rows.first_chunk() else { return self.splat(0.0) };
        // SAFETY: `self` proves that the processor has the instructions, which touch registers
        // only.
        unsafe {
            // Add neighbouring lanes, so that each 128-bit half holds a part of both rows.
            let ab = _mm512_add_pd(_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b));
            let cd = _mm512_add_pd(_mm512_unpacklo_pd(c, d), _mm512_unpackhi_pd(c, d));
            let ef = _mm512_add_pd(_mm512_unpacklo_pd(e, f), _mm512_unpackhi_pd(e, f));
            let gh = _mm512_add_pd(_mm512_unpacklo_pd(g, h), _mm512_unpackhi_pd(g, h));
            // Then add neighbouring halves, twice.
            const EVEN: i32 = 0b10_00_10_00;
            const ODD: i32 = 0b11_01_11_01;
            let abcd = _mm512_add_pd(
                _mm512_shuffle_f64x2::<EVEN>(ab, cd),
                _mm512_shuffle_f64x2::<ODD>(ab, cd),
            );
            let efgh = _mm512_add_pd(
                _mm512_shuffle_f64x2::<EVEN>(ef, gh),
                _mm512_shuffle_f64x2::<ODD>(ef, gh),
            );
            _mm512_add_pd(
                _mm512_shuffle_f64x2::<EVEN>(abcd, efgh),
                _mm512_shuffle_f64x2::<ODD>(abcd, efgh),
            )
        }
    }

    #[inline(always)]
    fn first(self, v: __m512d) -> f64 {
        // SAFETY: `self` proves that the processor has the instruction, which touches registers
        // only.
        unsafe { _mm512_cvtsd_f64(v) }
    }

    #[inline(always)]
    fn accumulate<const TAKE: bool>(self, sums: &mut [i64], v: __m512d) {
        let Some(sums) = sums.first_chunk_mut::<8>() else { return };
        // SAFETY: `self` proves that the processor has the instructions; those on memory read and
        // write the 64 bytes of the array.
        unsafe {
            let (integers, sum) = (_mm512_cvtpd_epi64(v), _mm512_loadu_si512(sums.as_ptr().cast()));
            let total = if TAKE {
                _mm512_sub_epi64(sum, integers)
            } else {
                _mm512_add_epi64(sum, integers)
            };
            _mm512_storeu_si512(sums.as_mut_ptr().cast(), total);
        }
    }

    #[inline(always)]
    fn multiples(self, v: __m512d, p: __m512d) -> u32 {
        // SAFETY: `self` proves that the processor has the instructions, which touch registers
        // only.
        unsafe {
            let zero = _mm512_cmp_pd_mask::<_CMP_EQ_OQ>(v, _mm512_setzero_pd());
            let once = _mm512_cmp_pd_mask::<_CMP_EQ_OQ>(_mm512_abs_pd(v), p);
            u32::from(zero | once)
        }
    }
}

impl Simd for Avx2 {
    type V = __m256d;
    const LANES: usize = 4;

    #[inline(always)]
    fn splat(self, x: f64) -> __m256d {
        // SAFETY: `self` proves that the processor has the instruction, which touches registers
        // only.
        unsafe { _mm256_set1_pd(x) }
    }

    #[inline(always)]
    fn load(self, words: &[u32]) -> __m256d {
        let words = &first::<4>(words);
        // AVX2 converts no unsigned integers. The bits of 2^52, with the integer in the low
        // bits, are the double 2^52 plus the integer.
        const FLOOR: f64 = (1_u64 << 52) as f64;
        // SAFETY: `self` proves that the processor has the instructions; the load reads the 16
        // bytes of the array.
        unsafe {
            let floor = _mm256_set1_pd(FLOOR);
            let integers = _mm256_cvtepu32_epi64(_mm_loadu_si128(words.as_ptr().cast()));
            _mm256_sub_pd(_mm256_or_pd(_mm256_castsi256_pd(integers), floor), floor)
        }
    }

    #[inline(always)]
    fn read(self, doubles: &[f64]) -> __m256d {
        let Some(doubles) = doubles.first_chunk::<4>() else { return self.splat(0.0) };
        // SAFETY: `self` proves that the processor has the instruction; it reads the 32 bytes of
        // the array.
        unsafe { _mm256_loadu_pd(doubles.as_ptr()) }
    }

    #[inline(always)]
    fn write(self, doubles: &mut [f64], v: __m256d) {
        let Some(doubles) = doubles.first_chunk_mut::<4>() else { return };
        // SAFETY: `self` proves that the processor has the instruction; it writes the 32 bytes of
        // the array.
        unsafe { _mm256_storeu_pd(doubles.as_mut_ptr(), v) }
    }

    on_registers! {
        add(a, b) = _mm256_add_pd;
        sub(a, b) = _mm256_sub_pd;
        mul(a, b) = _mm256_mul_pd;
        fma(a, b, c) = _mm256_fmadd_pd;
        fms(a, b, c) = _mm256_fmsub_pd;
    }

    #[inline(always)]
    fn sub_above(self, x: __m256d, bound: __m256d, amount: __m256d) -> __m256d {
        // SAFETY: `self` proves that the processor has the instructions, which touch registers
        // only.
        unsafe { _mm256_sub_pd(x, _mm256_and_pd(_mm256_cmp_pd::<_CMP_GT_OQ>(x, bound), amount)) }
    }

    #[inline(always)]
    fn blend(self, bit: usize, clear: __m256d, set: __m256d) -> __m256d {
        // SAFETY: `self` proves that the processor has the instructions, which touch registers
        // only.
        unsafe {
            if bit == 0 {
                _mm256_blend_pd::<0b1010>(clear, set)
            } else {
                _mm256_blend_pd::<0b1100>(clear, set)
            }
        }
    }

    #[inline(always)]
    fn sum_rows(self, rows: &[__m256d]) -> __m256d {
        let Some(&[a, b, c, d]) = rows.first_chunk() else { return self.splat(0.0) };
        // SAFETY: `self` proves that the processor has the instructions, which touch registers
        // only.
        unsafe {
            // Add neighbouring lanes, so that each 128-bit half holds a part of both rows; then the
            // halves.
            let (ab, cd) = (_mm256_hadd_pd(a, b), _mm256_hadd_pd(c, d));
            let (low, high) =
                (_mm256_permute2f128_pd::<0x20>(ab, cd), _mm256_permute2f128_pd::<0x31>(ab, cd));
            _mm256_add_pd(low, high)
        }
    }

    #[inline(always)]
    fn first(self, v: __m256d) -> f64 {
        // SAFETY: `self` proves that the processor has the instruction, which touches registers
        // only.
        unsafe { _mm256_cvtsd_f64(v) }
    }

    #[inline(always)]
    fn accumulate<const TAKE: bool>(self, sums: &mut [i64], v: __m256d) {
        let Some(sums) = sums.first_chunk_mut::<4>() else { return };
        // No instruction converts to 64-bit integers. Add the integer, which is below 2^51 as a
        // row's sum is, to 1.5 · 2^52. The low bits of the result, less the bits of 1.5 · 2^52, are
        // its two's complement.
        const MIDDLE: f64 = (3_u64 << 51) as f64;
        const BITS: i64 = MIDDLE.to_bits().cast_signed();
        // SAFETY: `self` proves that the processor has the instructions; those on memory read and
        // write the 32 bytes of the array.
        unsafe {
            let bits = _mm256_castpd_si256(_mm256_add_pd(v, _mm256_set1_pd(MIDDLE)));
            let integers = _mm256_sub_epi64(bits, _mm256_set1_epi64x(BITS));
            let sum = _mm256_loadu_si256(sums.as_ptr().cast());
            let total = if TAKE {
                _mm256_sub_epi64(sum, integers)
            } else {
                _mm256_add_epi64(sum, integers)
            };
            _mm256_storeu_si256(sums.as_mut_ptr().cast(), total);
        }
    }

    #[inline(always)]
    #[allow(clippy::cast_sign_loss, reason = "a mask of four bits")]
    fn multiples(self, v: __m256d, p: __m256d) -> u32 {
        // SAFETY: `self` proves that the processor has the instructions, which touch registers
        // only.
        unsafe {
            let zero = _mm256_cmp_pd::<_CMP_EQ_OQ>(v, _mm256_setzero_pd());
            let magnitude = _mm256_andnot_pd(_mm256_set1_pd(-0.0), v);
            let once = _mm256_cmp_pd::<_CMP_EQ_OQ>(magnitude, p);
            _mm256_movemask_pd(_mm256_or_pd(zero, once)) as u32
        }
    }
}
