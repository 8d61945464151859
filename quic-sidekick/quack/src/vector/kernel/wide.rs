//! Insertion for large thresholds: most powers are never computed, only products of two.
//!
//! Powers 1 to 16 of an identifier are the *low* ones, and its 16th, 32nd, … powers the *high*
//! ones. Every other power is the product of one of each, so the sum of a power over a batch is a
//! scalar product of two lists, and only the total is reduced.
//!
//! A product of two elements has 64 bits and fits no significand. So a high power `y` is split into
//! `y = upper · 2^16 + lower`, both integers of absolute value at most `2^15 + 1`. A low power is
//! at most `(1/2 + 2^-20) p`, so that each product is below `2^46 (1 + 2^-14)`, and the total of
//! [`BATCH`] of them below `2^53`: a sum by fused multiply-add is exact. That takes two
//! instructions for each power of a vector of identifiers, where a multiplication with its addition
//! takes five.

use super::{Modulus, Narrow, Simd};

/// The number of low powers.
const LOW: usize = 16;
/// The most identifiers whose products add up exactly.
const BATCH: usize = 64;
/// The most vectors of a batch.
const VECTORS: usize = 16;
/// The vectors per turn of the inner loops. Those past the batch hold zeros.
const TURN: usize = 4;
/// Where a high power is split.
const SPLIT: f64 = 65_536.0;

/// The powers of a batch of identifiers, in vectors.
type Vectors<S> = [<S as Simd>::V; VECTORS];

/// As [`insert_many`](super::insert_many), for any threshold. `ABREAST` sums are computed at the
/// same time: a divisor of [`LOW`], and a multiple of [`Simd::LANES`].
#[inline(always)]
pub(in super::super) fn insert_many<S: Simd, F: Narrow, const ABREAST: usize, const TAKE: bool>(
    simd: S,
    sums: &mut [i64],
    identifiers: &[F],
) {
    let modulus = Modulus::<S>::of::<F>(simd);
    // Adding it rounds to an integer.
    let magic = simd.splat((3_u64 << 51) as f64);
    let (fraction, negative) = (simd.splat(1.0 / SPLIT), simd.splat(-SPLIT));
    for batch in identifiers.chunks(BATCH.min(VECTORS * S::LANES)) {
        let used = batch.len().div_ceil(S::LANES).next_multiple_of(TURN).min(VECTORS);
        // The vectors past `used` are never read.
        let first = modulus.load(batch);
        let mut flat = [first; LOW * VECTORS];
        let (low, _) = flat.as_chunks_mut::<VECTORS>();
        let (low, _) = low.as_chunks_mut::<LOW>();
        let Some(low) = low.first_mut() else { return };
        let mut scaled = [first; VECTORS];
        for i in 0..used {
            low[0][i] = modulus.load(batch.get(i * S::LANES..).unwrap_or_default());
            scaled[i] = modulus.scaled(low[0][i]);
        }
        for power in 1..LOW {
            for turn in 0..used / TURN {
                for i in turn * TURN..(turn + 1) * TURN {
                    low[power][i] = modulus.mul(low[power - 1][i], low[0][i], scaled[i]);
                }
            }
        }
        let mut groups = sums.chunks_mut(LOW);
        if let Some(sums) = groups.next() {
            add_low::<S, ABREAST, TAKE>(simd, sums, low, used);
        }
        let step = low[LOW - 1];
        for i in 0..used {
            scaled[i] = modulus.scaled(step[i]);
        }
        let mut high = step;
        let (mut upper, mut lower) = (step, step);
        for sums in groups {
            for turn in 0..used / TURN {
                for i in turn * TURN..(turn + 1) * TURN {
                    upper[i] = simd.sub(simd.fma(high[i], fraction, magic), magic);
                    lower[i] = simd.fma(upper[i], negative, high[i]);
                    high[i] = modulus.mul(high[i], step[i], scaled[i]);
                }
            }
            add_products::<S, ABREAST, TAKE>(modulus, sums, low, [&upper, &lower], used);
        }
    }
}

/// Adds the low powers to their sums.
#[inline(always)]
fn add_low<S: Simd, const ABREAST: usize, const TAKE: bool>(
    simd: S,
    sums: &mut [i64],
    low: &[Vectors<S>; LOW],
    used: usize,
) {
    for (sums, low) in sums.chunks_mut(ABREAST).zip(low.as_chunks::<ABREAST>().0) {
        let mut rows = [simd.splat(0.0); ABREAST];
        for (row, powers) in rows.iter_mut().zip(low) {
            for &power in powers.iter().take(used) {
                *row = simd.add(*row, power);
            }
        }
        for (sums, rows) in sums.chunks_mut(S::LANES).zip(rows.chunks(S::LANES)) {
            simd.accumulate::<TAKE>(sums, simd.sum_rows(rows));
        }
    }
}

/// Adds the products of the low powers and a high one, as it is split, to their sums.
#[inline(always)]
fn add_products<S: Simd, const ABREAST: usize, const TAKE: bool>(
    modulus: Modulus<S>,
    sums: &mut [i64],
    low: &[Vectors<S>; LOW],
    [upper, lower]: [&Vectors<S>; 2],
    used: usize,
) {
    let simd = modulus.simd;
    let (split, one) = (simd.splat(SPLIT), simd.splat(1.0));
    for (sums, low) in sums.chunks_mut(ABREAST).zip(low.as_chunks::<ABREAST>().0) {
        let mut rows = [[simd.splat(0.0); ABREAST]; 2];
        for turn in 0..used / TURN {
            for i in turn * TURN..(turn + 1) * TURN {
                for j in 0..ABREAST {
                    rows[0][j] = simd.fma(low[j][i], upper[i], rows[0][j]);
                    rows[1][j] = simd.fma(low[j][i], lower[i], rows[1][j]);
                }
            }
        }
        let [uppers, lowers] = &rows;
        let rows = uppers.chunks(S::LANES).zip(lowers.chunks(S::LANES));
        for (sums, (uppers, lowers)) in sums.chunks_mut(S::LANES).zip(rows) {
            // The totals are below 2^53, and their quotients below 2^37, so the remainders are as
            // exact as those of products.
            let upper = modulus.mul(simd.sum_rows(uppers), split, modulus.scaled(split));
            let lower = modulus.mul(simd.sum_rows(lowers), one, modulus.scale);
            simd.accumulate::<TAKE>(sums, simd.add(upper, lower));
        }
    }
}
