//! The portable code, in integers.

use crate::fate::{Fate, Found, Identities};
use crate::field::Field;
use core::mem;

/// The number of parallel multiplications: powers of one identifier, or identifiers of one batch.
/// Each waits for the one before, so that a single chain would leave most of a processor idle.
const SIDE_BY_SIDE: usize = 8;

/// The number of candidates, divided by the square of the degree, from which splitting a polynomial
/// is faster.
pub(crate) const CROSSOVER: usize = 150;

#[inline]
fn combine<F: Field, const TAKE: bool>(sum: &mut F::Lazy, element: F) {
    if TAKE {
        F::subtract(sum, element);
    } else {
        F::accumulate(sum, element);
    }
}

/// Adds the powers of one identifier to the sums, or subtracts them.
pub(crate) fn insert_one<F: Field, const TAKE: bool>(
    sums: &mut [F::Lazy],
    threshold: usize,
    identifier: F,
) {
    let base = identifier.element();
    let mut powers = [base; SIDE_BY_SIDE];
    let mut step = base;
    for power in powers.iter_mut().skip(1) {
        step = F::mul(step, base);
        *power = step;
    }
    let sums = sums.get_mut(..threshold).unwrap_or_default();
    for chunk in sums.chunks_mut(SIDE_BY_SIDE) {
        for (sum, power) in chunk.iter_mut().zip(&mut powers) {
            combine::<F, TAKE>(sum, *power);
            *power = F::mul(*power, step);
        }
    }
}

/// [`Batch::insert_many`](crate::batch::Batch::insert_many)
pub(crate) fn insert_many<F: Field, const TAKE: bool>(
    sums: &mut [F::Lazy],
    threshold: usize,
    identifiers: &[F],
) {
    let (groups, rest) = identifiers.as_chunks::<SIDE_BY_SIDE>();
    let kept = sums.get_mut(..threshold).unwrap_or_default();
    for group in groups {
        let bases = group.map(F::element);
        let mut powers = bases;
        for sum in &mut *kept {
            for (power, base) in powers.iter_mut().zip(bases) {
                combine::<F, TAKE>(sum, *power);
                *power = F::mul(*power, base);
            }
        }
    }
    for &identifier in rest {
        insert_one::<F, TAKE>(kept, threshold, identifier);
    }
}

/// [`Batch::newton`](crate::batch::Batch::newton)
///
/// For the polynomial `x^m + c₁x^(m-1) + … + c_m` and the power sums `s₁, s₂, …` of its roots,
///
/// ```text
/// k·c_k + c_(k-1)·s₁ + … + c₁·s_(k-1) + s_k = 0   for k ≤ m, which gives each c_k in turn, and
/// c_m·s_(k-m) + … + c₁·s_(k-1) + s_k = 0          for k > m, as the remaining sums must satisfy.
/// ```
pub(crate) fn newton<F: Field>(sums: &[F], missing: usize, identities: &mut Identities<F>) -> bool {
    let Identities { totals, polynomial } = identities;
    totals.clear();
    totals.extend(sums.iter().map(|&sum| F::widen(sum)));
    polynomial.clear();
    let mut rest = totals.as_mut_slice();
    for &negated_inverse in F::NEGATED_INVERSES.iter().take(missing) {
        let Some((&mut total, later)) = mem::take(&mut rest).split_first_mut() else { break };
        let coefficient = F::mul(F::reduce(total, F::ZERO), negated_inverse);
        polynomial.push(coefficient);
        // Its part in all later identities. Only the next coefficient waits for the first of them.
        for (total, &sum) in later.iter_mut().zip(sums) {
            *total = *total + F::product(coefficient, sum);
        }
        rest = later;
    }
    rest.iter().all(|&total| F::reduce(total, F::ZERO) == F::ZERO)
}

/// [`Batch::mark_roots`](crate::batch::Batch::mark_roots)
pub(crate) fn mark_roots<F: Field>(
    polynomial: &[F],
    identifiers: &[F],
    fates: &mut [Fate],
    found: &mut Found<F>,
) {
    for (identifiers, fates) in identifiers.chunks(SIDE_BY_SIDE).zip(fates.chunks_mut(SIDE_BY_SIDE))
    {
        let mut points = [F::ZERO; SIDE_BY_SIDE];
        for (point, &identifier) in points.iter_mut().zip(identifiers) {
            *point = identifier.element();
        }
        let values = evaluate(polynomial, points);
        for ((fate, &identifier), value) in fates.iter_mut().zip(identifiers).zip(values) {
            if value == F::ZERO {
                found.mark(identifier, fate);
            }
        }
    }
}

/// [`Batch::look_up`](crate::batch::Batch::look_up)
#[inline(always)]
pub(crate) fn look_up<F: Field>(
    roots: &[F],
    identifiers: &[F],
    fates: &mut [Fate],
    found: &mut Found<F>,
) {
    const TOGETHER: usize = 64;
    for (identifiers, fates) in identifiers.chunks(TOGETHER).zip(fates.chunks_mut(TOGETHER)) {
        // Few chunks contain a root, so compare first, without branches.
        let mut any = false;
        for &root in roots {
            for &identifier in identifiers {
                any |= identifier.element() == root;
            }
        }
        if any {
            for (&identifier, fate) in identifiers.iter().zip(fates) {
                if roots.contains(&identifier.element()) {
                    found.mark(identifier, fate);
                }
            }
        }
    }
}

/// The values of a polynomial at several points, by Horner's rule. It is given without its leading
/// 1, highest power first.
pub(crate) fn evaluate<F: Field, const N: usize>(polynomial: &[F], points: [F; N]) -> [F; N] {
    let mut values = [F::ONE; N];
    for &coefficient in polynomial {
        for (value, point) in values.iter_mut().zip(points) {
            *value = F::mul_add(*value, point, coefficient);
        }
    }
    values
}
