//! Operations on many elements, by the machine's instructions.
//!
//! One generic algorithm ([`kernel`]) serves all vector instruction sets, whose vectors a module
//! for each target supplies. The portable code needs neither vectors nor floating point.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod kernel;
pub(crate) mod narrow;
pub(crate) mod portable;

#[cfg(target_arch = "aarch64")]
mod arm;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::fate::{Fate, Found, Identities};
use core::fmt;
use narrow::Narrow;

/// A set of instructions for sums and decoders that this machine has.
///
/// Every set gives the same results, bit by bit. [`PowerSums::new`](crate::PowerSums::new) and
/// [`Decoder::new`](crate::Decoder::new) choose the [best](Self::best). The others serve
/// measurements, and machines where the widest vectors slow other programs down.
///
/// ```
/// use sidekick_quack::{InstructionSet, PowerSums};
///
/// for set in InstructionSet::available() {
///     let mut sums = PowerSums::new(20)?.with_instruction_set(set);
///     sums.insert_many(&[1, 2, 3]);
///     assert_eq!(sums.sums().next(), Some(6), "{set}");
/// }
/// # Ok::<(), sidekick_quack::ThresholdError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct InstructionSet(Set);

/// The selected set. Each variant but the first holds the proof that the machine has the
/// instructions.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Set {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2(x86::Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(x86::Avx512),
    #[cfg(target_arch = "aarch64")]
    Neon(arm::Neon),
}

impl InstructionSet {
    /// The portable code, for every machine.
    pub const PORTABLE: Self = Self(Set::Portable);

    /// The fastest set of this machine. Without the feature `std`, the fastest that the compilation
    /// target guarantees.
    #[must_use]
    pub fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if let Some(proof) = x86::Avx512::detect() {
                return Self(Set::Avx512(proof));
            }
            if let Some(proof) = x86::Avx2::detect() {
                return Self(Set::Avx2(proof));
            }
        }
        #[cfg(target_arch = "aarch64")]
        if let Some(proof) = arm::Neon::detect() {
            return Self(Set::Neon(proof));
        }
        Self::PORTABLE
    }

    /// All sets of this machine, the slowest first.
    pub fn available() -> impl Iterator<Item = Self> {
        let sets = [
            Some(Set::Portable),
            #[cfg(target_arch = "x86_64")]
            x86::Avx2::detect().map(Set::Avx2),
            #[cfg(target_arch = "x86_64")]
            x86::Avx512::detect().map(Set::Avx512),
            #[cfg(target_arch = "aarch64")]
            arm::Neon::detect().map(Set::Neon),
        ];
        sets.into_iter().flatten().map(Self)
    }

    /// [`Batch::crossover`](crate::batch::Batch::crossover) of the kernel. Measured, except for
    /// NEON, where its lanes suggest the value.
    pub(crate) fn crossover(self) -> usize {
        match self.0 {
            Set::Portable => portable::CROSSOVER,
            #[cfg(target_arch = "x86_64")]
            Set::Avx2(_) => 750,
            #[cfg(target_arch = "x86_64")]
            Set::Avx512(_) => 1500,
            #[cfg(target_arch = "aarch64")]
            Set::Neon(_) => 400,
        }
    }

    /// `portable`, `avx2`, `avx512` or `neon`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            Set::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Set::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Set::Avx512(_) => "avx512",
            #[cfg(target_arch = "aarch64")]
            Set::Neon(_) => "neon",
        }
    }
}

/// The [best](InstructionSet::best).
impl Default for InstructionSet {
    fn default() -> Self {
        Self::best()
    }
}

impl fmt::Debug for InstructionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InstructionSet({})", self.name())
    }
}

impl fmt::Display for InstructionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn insert_one<F: Narrow, const TAKE: bool>(
    set: InstructionSet,
    sums: &mut [i64],
    threshold: usize,
    identifier: F,
) {
    match set.0 {
        Set::Portable => portable::insert_one::<F, TAKE>(sums, threshold, identifier),
        #[cfg(target_arch = "x86_64")]
        Set::Avx2(proof) => proof.insert_one::<F, TAKE>(sums, identifier),
        #[cfg(target_arch = "x86_64")]
        Set::Avx512(proof) => proof.insert_one::<F, TAKE>(sums, identifier),
        #[cfg(target_arch = "aarch64")]
        Set::Neon(proof) => proof.insert_one::<F, TAKE>(sums, identifier),
    }
}

/// Fewer identifiers than this are faster one by one: each fills a vector with its powers, while a
/// batch would leave most lanes empty.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const FEW: usize = 8;

pub(crate) fn insert_many<F: Narrow, const TAKE: bool>(
    set: InstructionSet,
    sums: &mut [i64],
    threshold: usize,
    identifiers: &[F],
) {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if set != InstructionSet::PORTABLE && identifiers.len() < FEW {
        for &identifier in identifiers {
            insert_one::<F, TAKE>(set, sums, threshold, identifier);
        }
        return;
    }
    match set.0 {
        Set::Portable => portable::insert_many::<F, TAKE>(sums, threshold, identifiers),
        #[cfg(target_arch = "x86_64")]
        Set::Avx2(proof) => proof.insert_many::<F, TAKE>(sums, threshold, identifiers),
        #[cfg(target_arch = "x86_64")]
        Set::Avx512(proof) => proof.insert_many::<F, TAKE>(sums, threshold, identifiers),
        #[cfg(target_arch = "aarch64")]
        Set::Neon(proof) => proof.insert_many::<F, TAKE>(sums, threshold, identifiers),
    }
}

pub(crate) fn newton<F: Narrow>(
    set: InstructionSet,
    sums: &[F],
    missing: usize,
    identities: &mut Identities<F>,
) -> bool {
    match set.0 {
        Set::Portable => portable::newton(sums, missing, identities),
        #[cfg(target_arch = "x86_64")]
        Set::Avx2(proof) => proof.newton(sums, missing, &mut identities.polynomial),
        #[cfg(target_arch = "x86_64")]
        Set::Avx512(proof) => proof.newton(sums, missing, &mut identities.polynomial),
        #[cfg(target_arch = "aarch64")]
        Set::Neon(proof) => proof.newton(sums, missing, &mut identities.polynomial),
    }
}

pub(crate) fn mark_roots<F: Narrow>(
    set: InstructionSet,
    polynomial: &[F],
    identifiers: &[F],
    fates: &mut [Fate],
    found: &mut Found<F>,
) {
    match set.0 {
        Set::Portable => portable::mark_roots(polynomial, identifiers, fates, found),
        #[cfg(target_arch = "x86_64")]
        Set::Avx2(proof) => proof.mark_roots(polynomial, identifiers, fates, found),
        #[cfg(target_arch = "x86_64")]
        Set::Avx512(proof) => proof.mark_roots(polynomial, identifiers, fates, found),
        #[cfg(target_arch = "aarch64")]
        Set::Neon(proof) => proof.mark_roots(polynomial, identifiers, fates, found),
    }
}

pub(crate) fn look_up<F: Narrow>(
    set: InstructionSet,
    roots: &[F],
    identifiers: &[F],
    fates: &mut [Fate],
    found: &mut Found<F>,
) {
    match set.0 {
        #[cfg(target_arch = "x86_64")]
        Set::Avx2(proof) => proof.look_up(roots, identifiers, fates, found),
        #[cfg(target_arch = "x86_64")]
        Set::Avx512(proof) => proof.look_up(roots, identifiers, fates, found),
        // The compiler vectorises this for targets with vectors.
        _ => portable::look_up(roots, identifiers, fates, found),
    }
}
