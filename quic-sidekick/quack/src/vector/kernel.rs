//! The algorithm for every vector instruction set: modular multiplication by fused multiply-add.
//!
//! An element is a centred double: an integer of absolute value at most `(1/2 + 2^-20) p`. With `p
//! = S - e`, where `S` is `2^32` and `e` is 5 (or `2^16` and 15), four instructions reduce the
//! product of `y` and `x`:
//!
//! ```text
//! a = fma(y, x · S/p, M)      M = 1.5 · S · 2^52 rounds the sum to a multiple of S;
//! q = a - M                   q = S · n with n the integer nearest to yx/p;
//! u = fma(y, x, -q)           yx - Sn, exactly: at most 36 bits, though yx may have 64;
//! r = fma(q, e/S, u)          yx - Sn + en = yx - pn, the remainder.
//! ```
//!
//! `x · S/p` is rounded twice, so that it and the quotient have a relative error of at most 2^-52.
//! With `y` up to `(1 + 2^-20) p`, as in Horner's rule, `|yx/p|` is at most `2^32`. Then `n` is the
//! nearest integer or, within 2^-20 of the middle between two, the other one: `|r| <= (1/2 + 2^-20)
//! p`. In Newton's identities `y` is a total of up to 255 elements, below 2^39, and `|r| <= (1/2 +
//! 2^-13) p`. That `r` is then the `x` of products with elements, which stay within the bound.
//! Nothing else is rounded: `q`, `u` and `r` are integers that fit a significand. The factor `x` is
//! the same for all powers of an identifier, so `x · S/p` is computed once.
//!
//! Integer code needs seven instructions: they multiply 32 bits by 32 into 64, and cannot keep the
//! 33rd bit of a lazy remainder. AVX-512 IFMA (52 by 52 bits, low and high half apart) would need
//! four as well.

pub(super) mod wide;

use super::narrow::{Narrow, WIDEST};
use crate::error::MAX_THRESHOLD;
use crate::fate::{Fate, Found};
use alloc::vec::Vec;

/// The room for usual thresholds: smaller buffers are faster to clear.
pub(super) const USUAL: usize = 32;
/// The room for every threshold.
pub(super) const MOST: usize = MAX_THRESHOLD.next_multiple_of(WIDEST);

/// Vectors of doubles. A value of the type is the proof that the machine has the instructions.
pub(super) trait Simd: Copy {
    /// [`LANES`](Self::LANES) doubles.
    type V: Copy;
    /// A power of two, at most [`WIDEST`].
    const LANES: usize;

    /// `x` in every lane.
    fn splat(self, x: f64) -> Self::V;
    /// The first integers of `words`; lanes past its end are 0.
    fn load(self, words: &[u32]) -> Self::V;
    /// Loads doubles. If there are too few, the result is unspecified.
    fn read(self, doubles: &[f64]) -> Self::V;
    /// Stores the lanes. If there is not enough room, stores nothing.
    fn write(self, doubles: &mut [f64], v: Self::V);
    /// `a + b`
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a - b`
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a · b`
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a · b + c`, rounded once.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `a · b - c`, rounded once.
    fn fms(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `x - amount` in the lanes where `x` is above `bound`.
    fn sub_above(self, x: Self::V, bound: Self::V, amount: Self::V) -> Self::V;
    /// The lanes whose index has the bit `2^bit` from `set`, the others from `clear`.
    fn blend(self, bit: usize, clear: Self::V, set: Self::V) -> Self::V;
    /// The sum of the lanes of each of [`LANES`](Self::LANES) vectors. If there are fewer, the
    /// result is unspecified.
    fn sum_rows(self, rows: &[Self::V]) -> Self::V;
    /// The first lane.
    fn first(self, v: Self::V) -> f64;
    /// Adds the lanes' integers to as many sums (modulo 2^64), or subtracts them.
    fn accumulate<const TAKE: bool>(self, sums: &mut [i64], v: Self::V);
    /// A mask of the lanes that are 0, `p` or `-p`; the first lane is the lowest bit.
    fn multiples(self, v: Self::V, p: Self::V) -> u32;
}

/// Operations of a [`Simd`] that are one instruction each.
macro_rules! on_registers {
    ($($name:ident($($operand:ident),*) = $instruction:ident;)*) => {$(
        #[inline(always)]
        fn $name(self, $($operand: Self::V),*) -> Self::V {
            // SAFETY: `self` proves that the processor has the instruction, which touches registers
            // only.
            unsafe { $instruction($($operand),*) }
        }
    )*};
}
pub(super) use on_registers;

/// `2^exponent`
const fn power_of_two(exponent: u32) -> f64 {
    f64::from_bits((1023 + exponent as u64) << 52)
}

#[derive(Clone, Copy)]
struct Modulus<S: Simd> {
    simd: S,
    magic: S::V,
    /// e/S
    excess: S::V,
    /// S/p
    scale: S::V,
    prime: S::V,
    half: S::V,
}

impl<S: Simd> Modulus<S> {
    #[inline(always)]
    fn of<F: Narrow>(simd: S) -> Self {
        let whole = power_of_two(F::BITS);
        let excess = f64::from(F::EXCESS);
        let prime = whole - excess;
        Self {
            simd,
            magic: simd.splat(1.5 * power_of_two(F::BITS + 52)),
            excess: simd.splat(excess / whole),
            scale: simd.splat(whole / prime),
            prime: simd.splat(prime),
            half: simd.splat(prime / 2.0),
        }
    }

    /// Centres a value that is at most one modulus too large.
    #[inline(always)]
    fn centred(self, x: S::V) -> S::V {
        self.simd.sub_above(x, self.half, self.prime)
    }

    /// Loads up to [`Simd::LANES`] identifiers. The other lanes are 0, and so are their powers.
    #[inline(always)]
    fn load<F: Narrow>(self, identifiers: &[F]) -> S::V {
        let words = match F::words(identifiers) {
            Some(words) => self.simd.load(words),
            None => {
                let mut words = [0; WIDEST];
                for (word, &identifier) in words.iter_mut().zip(identifiers) {
                    *word = identifier.into();
                }
                self.simd.load(&words)
            }
        };
        self.centred(words)
    }

    /// The scaled second factor for [`mul`](Self::mul).
    #[inline(always)]
    fn scaled(self, x: S::V) -> S::V {
        self.simd.mul(x, self.scale)
    }

    /// `y · x`, where `scaled` is `scaled(x)`.
    #[inline(always)]
    fn mul(self, y: S::V, x: S::V, scaled: S::V) -> S::V {
        let simd = self.simd;
        let quotient = simd.sub(simd.fma(y, scaled, self.magic), self.magic);
        simd.fma(quotient, self.excess, simd.fms(y, x, quotient))
    }

    /// `y · x + c`, at most `(1 + 2^-20) p`.
    #[inline(always)]
    fn mul_add(self, y: S::V, x: S::V, scaled: S::V, c: S::V) -> S::V {
        let simd = self.simd;
        let quotient = simd.sub(simd.fma(y, scaled, self.magic), self.magic);
        simd.add(simd.fms(y, x, quotient), simd.fma(quotient, self.excess, c))
    }
}

/// Adds the powers of one identifier, several per vector.
#[inline(always)]
pub(super) fn insert_one<S: Simd, F: Narrow, const TAKE: bool>(
    simd: S,
    sums: &mut [i64],
    identifier: F,
) {
    let modulus = Modulus::<S>::of::<F>(simd);
    let x: u32 = identifier.into();
    // After the round for bit b the lanes repeat the powers 1 to 2^(b+1), and `step` is the last of
    // them.
    let mut step = modulus.centred(simd.splat(f64::from(x)));
    let mut powers = step;
    let mut bit = 0;
    while 1 << bit < S::LANES {
        let scaled = modulus.scaled(step);
        powers = simd.blend(bit, powers, modulus.mul(powers, step, scaled));
        step = modulus.mul(step, step, scaled);
        bit += 1;
    }
    let scaled = modulus.scaled(step);
    let mut chunks = sums.chunks_exact_mut(S::LANES);
    if let Some(first) = chunks.next() {
        simd.accumulate::<TAKE>(first, powers);
    }
    for chunk in chunks {
        powers = modulus.mul(powers, step, scaled);
        simd.accumulate::<TAKE>(chunk, powers);
    }
}

/// The parallel vectors of a batch, each with a chain of odd and one of even powers. The four
/// instructions of a multiplication depend on each other, sixteen cycles in all on most machines,
/// and two can begin per cycle.
const ABREAST: usize = 4;

/// Adds the powers of many identifiers, several identifiers per vector. There are at most 2^19, so
/// that a row's elements add up exactly, to less than 2^51. `threshold` is at most [`USUAL`]; for
/// others see [`wide`].
#[inline(always)]
pub(super) fn insert_many<S: Simd, F: Narrow, const TAKE: bool>(
    simd: S,
    sums: &mut [i64],
    threshold: usize,
    identifiers: &[F],
) {
    let modulus = Modulus::<S>::of::<F>(simd);
    let needed = threshold.next_multiple_of(2);
    let zero = simd.splat(0.0);
    let mut rows = [zero; USUAL];
    for group in identifiers.chunks(ABREAST * S::LANES) {
        // No closures: a function that is not inlined cannot use the instructions.
        let mut odd = [zero; ABREAST];
        let (mut square, mut scaled) = (odd, odd);
        for i in 0..ABREAST {
            odd[i] = modulus.load(group.get(i * S::LANES..).unwrap_or_default());
            square[i] = modulus.mul(odd[i], odd[i], modulus.scaled(odd[i]));
            scaled[i] = modulus.scaled(square[i]);
        }
        let mut even = square;
        let (pairs, _) = rows.get_mut(..needed).unwrap_or_default().as_chunks_mut::<2>();
        let mut pairs = pairs.iter_mut();
        if let Some(pair) = pairs.next() {
            *pair = add_to(simd, *pair, odd, even);
        }
        for pair in pairs {
            for i in 0..ABREAST {
                odd[i] = modulus.mul(odd[i], square[i], scaled[i]);
                even[i] = modulus.mul(even[i], square[i], scaled[i]);
            }
            *pair = add_to(simd, *pair, odd, even);
        }
    }
    for (sums, rows) in sums.chunks_exact_mut(S::LANES).zip(rows.chunks_exact(S::LANES)) {
        simd.accumulate::<TAKE>(sums, simd.sum_rows(rows));
    }
}

#[inline(always)]
fn add_to<S: Simd>(
    simd: S,
    [a, b]: [S::V; 2],
    odd: [S::V; ABREAST],
    even: [S::V; ABREAST],
) -> [S::V; 2] {
    let odd = simd.add(simd.add(odd[0], odd[1]), simd.add(odd[2], odd[3]));
    let even = simd.add(simd.add(even[0], even[1]), simd.add(even[2], even[3]));
    [simd.add(a, odd), simd.add(b, even)]
}

/// An element as a double, centred.
#[inline(always)]
fn centred<F: Narrow>(element: F) -> f64 {
    let (word, prime): (u32, u32) = (element.into(), F::PRIME.into());
    f64::from(word) - if word > prime / 2 { f64::from(prime) } else { 0.0 }
}

/// Newton's identities (see [`portable::newton`](super::portable::newton)), with all later
/// identities in vectors. `ROOM` is the room for sums, a multiple of [`WIDEST`], and `SHIFTED` is
/// `ROOM + WIDEST`.
#[inline(always)]
pub(super) fn newton<S: Simd, F: Narrow, const ROOM: usize, const SHIFTED: usize>(
    simd: S,
    sums: &[F],
    missing: usize,
    polynomial: &mut Vec<F>,
) -> bool {
    let modulus = Modulus::<S>::of::<F>(simd);
    // Zeros precede the sums, so that a whole vector can be added where only a part of it belongs.
    let mut shifted = [0.0; SHIFTED];
    let mut totals = [0.0; ROOM];
    for ((shifted, total), &sum) in shifted.iter_mut().skip(WIDEST).zip(&mut totals).zip(sums) {
        *total = centred(sum);
        *shifted = *total;
    }
    polynomial.clear();
    let used = sums.len().next_multiple_of(S::LANES);
    let totals = totals.get_mut(..used).unwrap_or_default();
    let mut coefficients = [0.0; ROOM];
    let steps = F::NEGATED_INVERSES.iter().zip(&mut coefficients).enumerate().take(missing);
    for (j, (&negated_inverse, lane)) in steps {
        let Some(&total) = totals.get(j) else { break };
        // A total of 255 elements is below 2^39 and still has an exact remainder.
        let inverse = simd.splat(centred(negated_inverse));
        let coefficient = modulus.mul(simd.splat(total), inverse, modulus.scaled(inverse));
        let scaled = modulus.scaled(coefficient);
        *lane = simd.first(coefficient);
        // Its part in all later identities.
        let first = (j + 1) / S::LANES * S::LANES;
        let mut place = first;
        while place < used {
            let sums = simd.read(shifted.get(WIDEST + place - (j + 1)..).unwrap_or_default());
            let part = modulus.mul(sums, coefficient, scaled);
            let totals = totals.get_mut(place..).unwrap_or_default();
            simd.write(totals, simd.add(simd.read(totals), part));
            place += S::LANES;
        }
    }
    #[allow(clippy::cast_possible_truncation, reason = "centred elements are integers of 33 bits")]
    polynomial.extend(coefficients.iter().take(missing).map(|&c| F::from_centred(c as i64)));
    // Ignore the lanes past the last sum.
    let one = simd.splat(1.0);
    let mut place = missing / S::LANES * S::LANES;
    let mut agree = true;
    while place < used {
        let remainder =
            modulus.mul(simd.read(totals.get(place..).unwrap_or_default()), one, modulus.scale);
        let kept = u32::MAX << missing.saturating_sub(place).min(S::LANES);
        let valid = (1_u32 << sums.len().saturating_sub(place).min(S::LANES)) - 1;
        agree &= simd.multiples(remainder, modulus.prime) & kept & valid == kept & valid;
        place += S::LANES;
    }
    agree
}

/// The parallel vectors of candidates.
const CANDIDATES_ABREAST: usize = 8;

/// Evaluates the polynomial at every identifier (Horner's rule). `ROOM` is the room for
/// coefficients.
#[inline(always)]
pub(super) fn mark_roots<S: Simd, F: Narrow, const ROOM: usize>(
    simd: S,
    polynomial: &[F],
    identifiers: &[F],
    fates: &mut [Fate],
    found: &mut Found<F>,
) {
    let modulus = Modulus::<S>::of::<F>(simd);
    let mut coefficients = [0.0; ROOM];
    for (lane, &coefficient) in coefficients.iter_mut().zip(polynomial) {
        *lane = centred(coefficient);
    }
    let coefficients = coefficients.get(..polynomial.len()).unwrap_or_default();
    let Some((&first, rest)) = coefficients.split_first() else { return };
    let width = CANDIDATES_ABREAST * S::LANES;
    for (group, fates) in identifiers.chunks(width).zip(fates.chunks_mut(width)) {
        let mut x = [simd.splat(0.0); CANDIDATES_ABREAST];
        let (mut scaled, mut values) = (x, x);
        for i in 0..CANDIDATES_ABREAST {
            x[i] = modulus.load(group.get(i * S::LANES..).unwrap_or_default());
            scaled[i] = modulus.scaled(x[i]);
            values[i] = simd.add(x[i], simd.splat(first));
        }
        for &coefficient in rest {
            let coefficient = simd.splat(coefficient);
            for i in 0..CANDIDATES_ABREAST {
                values[i] = modulus.mul_add(values[i], x[i], scaled[i], coefficient);
            }
        }
        let mut roots = 0_u64;
        for (i, &value) in values.iter().enumerate() {
            roots |= u64::from(simd.multiples(value, modulus.prime)) << (i * S::LANES);
        }
        // Few groups contain a root.
        while roots != 0 {
            // Lanes past the end of the log are no packets.
            let index = roots.trailing_zeros() as usize;
            if let (Some(&identifier), Some(fate)) = (group.get(index), fates.get_mut(index)) {
                found.mark(identifier, fate);
            }
            roots &= roots - 1;
        }
    }
}
