//! Operations on many elements, with the machine's vector instructions where the width allows.

use crate::fate::{Fate, Found, Identities};
use crate::field::Field;
use crate::vector::{self, InstructionSet};

/// The batch operations of sums and the decoder. The defaults are the portable code.
#[doc(hidden)]
pub trait Batch: Field {
    /// Adds the 1st, 2nd, … powers of identifiers to `sums`, or subtracts them. The values of sums
    /// past `threshold` are unspecified. There are fewer identifiers than
    /// [`PATIENCE`](Field::PATIENCE), and at most 2¹⁹.
    fn insert_many<const TAKE: bool>(
        _set: InstructionSet,
        sums: &mut [Self::Lazy],
        threshold: usize,
        identifiers: &[Self],
    ) {
        vector::portable::insert_many::<Self, TAKE>(sums, threshold, identifiers);
    }

    /// Newton's identities: computes the polynomial of degree `missing` that has these power sums.
    /// Returns whether the remaining sums agree.
    #[inline]
    fn newton(
        _set: InstructionSet,
        sums: &[Self],
        missing: usize,
        identities: &mut Identities<Self>,
    ) -> bool {
        vector::portable::newton(sums, missing, identities)
    }

    /// Marks as missing the identifiers at which a polynomial is zero. The polynomial is given
    /// without its leading 1, highest power first.
    fn mark_roots(
        _set: InstructionSet,
        polynomial: &[Self],
        identifiers: &[Self],
        fates: &mut [Fate],
        found: &mut Found<Self>,
    ) {
        vector::portable::mark_roots(polynomial, identifiers, fates, found);
    }

    /// The number of candidates, divided by the square of the degree, from which splitting the
    /// polynomial is faster than evaluating it at each.
    fn crossover(_set: InstructionSet) -> usize {
        vector::portable::CROSSOVER
    }

    /// Marks as missing the identifiers that are among `roots`.
    fn look_up(
        _set: InstructionSet,
        roots: &[Self],
        identifiers: &[Self],
        fates: &mut [Fate],
        found: &mut Found<Self>,
    ) {
        vector::portable::look_up(roots, identifiers, fates, found);
    }
}

/// Implements the operations by the selected vector instructions.
macro_rules! vectors {
    () => {
        #[inline]
        fn insert_many<const TAKE: bool>(
            set: InstructionSet,
            sums: &mut [i64],
            threshold: usize,
            identifiers: &[Self],
        ) {
            vector::insert_many::<Self, TAKE>(set, sums, threshold, identifiers);
        }

        #[inline]
        fn newton(
            set: InstructionSet,
            sums: &[Self],
            missing: usize,
            identities: &mut Identities<Self>,
        ) -> bool {
            vector::newton(set, sums, missing, identities)
        }

        #[inline]
        fn mark_roots(
            set: InstructionSet,
            polynomial: &[Self],
            identifiers: &[Self],
            fates: &mut [Fate],
            found: &mut Found<Self>,
        ) {
            vector::mark_roots(set, polynomial, identifiers, fates, found);
        }

        fn crossover(set: InstructionSet) -> usize {
            set.crossover()
        }

        #[inline]
        fn look_up(
            set: InstructionSet,
            roots: &[Self],
            identifiers: &[Self],
            fates: &mut [Fate],
            found: &mut Found<Self>,
        ) {
            vector::look_up(set, roots, identifiers, fates, found);
        }
    };
}

impl Batch for u16 {
    vectors!();
}

impl Batch for u32 {
    vectors!();
}

/// No vector instruction multiplies 64 bits, so the portable code does all of it.
impl Batch for u64 {}
