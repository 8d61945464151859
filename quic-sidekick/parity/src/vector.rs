//! Sums of products over long runs of bytes, by the machine's instructions.
//!
//! One loop ([`kernel`]) serves all vector instruction sets. A module for each target supplies its
//! vectors.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod kernel;
mod portable;

#[cfg(target_arch = "aarch64")]
mod arm;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(test)]
mod tests;

use core::fmt;

/// A coefficient and the bytes that it multiplies.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Term<'a> {
    pub(crate) coefficient: u8,
    pub(crate) bytes: &'a [u8],
}

/// A set of instructions for the encoder and the decoder that this machine has.
///
/// Every set gives the same results, bit by bit. [`Encoder::new`](crate::Encoder::new) and
/// [`Decoder::new`](crate::Decoder::new) choose the [best](Self::best). The others serve
/// measurements, and machines where the widest vectors slow other programs down.
///
/// ```
/// use sidekick_parity::{Encoder, InstructionSet};
///
/// let datagrams: [&[u8]; 2] = [b"a datagram", b"and another"];
/// let mut expected = [0; 13];
/// Encoder::new().encode(0, 0, datagrams, &mut expected)?;
/// for set in InstructionSet::available() {
///     let mut symbol = [0; 13];
///     Encoder::new().with_instruction_set(set).encode(0, 0, datagrams, &mut symbol)?;
///     assert_eq!(symbol, expected, "{set}");
/// }
/// # Ok::<(), sidekick_parity::EncodeError>(())
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
    #[cfg(target_arch = "x86_64")]
    Gfni(x86::Gfni),
    #[cfg(target_arch = "aarch64")]
    Neon(arm::Neon),
}

impl InstructionSet {
    /// The portable code, for every machine.
    pub const PORTABLE: Self = Self(Set::Portable);

    /// The fastest set of this machine.
    #[must_use]
    pub fn best() -> Self {
        Self::available().last().unwrap_or(Self::PORTABLE)
    }

    /// All sets of this machine, the slowest first.
    pub fn available() -> impl Iterator<Item = Self> {
        let sets = [
            Some(Set::Portable),
            #[cfg(target_arch = "x86_64")]
            x86::Avx2::detect().map(Set::Avx2),
            #[cfg(target_arch = "x86_64")]
            x86::Avx512::detect().map(Set::Avx512),
            #[cfg(target_arch = "x86_64")]
            x86::Gfni::detect().map(Set::Gfni),
            #[cfg(target_arch = "aarch64")]
            arm::Neon::detect().map(Set::Neon),
        ];
        sets.into_iter().flatten().map(Self)
    }

    /// `portable`, `avx2`, `avx512`, `gfni` (with AVX-512) or `neon`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            Set::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Set::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Set::Avx512(_) => "avx512",
            #[cfg(target_arch = "x86_64")]
            Set::Gfni(_) => "gfni",
            #[cfg(target_arch = "aarch64")]
            Set::Neon(_) => "neon",
        }
    }

    /// Adds all products to `sum`. It ignores bytes beyond the end of `sum`.
    ///
    /// Four at a time share the accesses to `sum`, over the length of the shortest. The rests of
    /// the others follow one by one.
    pub(crate) fn add<'a>(self, sum: &mut [u8], terms: impl IntoIterator<Item = Term<'a>>) {
        let mut four = [Term::default(); 4];
        let mut number = 0;
        for term in terms {
            if term.coefficient == 0 {
                continue;
            }
            let bytes = term.bytes.get(..sum.len()).unwrap_or(term.bytes);
            if let Some(place) = four.get_mut(number) {
                *place = Term { bytes, ..term };
                number += 1;
            }
            if number == four.len() {
                self.add_ragged(sum, four);
                number = 0;
            }
        }
        for term in four.iter().take(number) {
            self.add_one(sum, *term);
        }
    }

    /// Adds four products of different lengths, none longer than `sum`.
    fn add_ragged(self, sum: &mut [u8], four: [Term<'_>; 4]) {
        let shortest = four.iter().map(|term| term.bytes.len()).min().unwrap_or(0);
        let mut heads = four;
        for head in &mut heads {
            head.bytes = head.bytes.get(..shortest).unwrap_or_default();
        }
        if let Some(sum) = sum.get_mut(..shortest) {
            self.accumulate(sum, heads);
        }
        let Some(sum) = sum.get_mut(shortest..) else { return };
        for term in four {
            let bytes = term.bytes.get(shortest..).unwrap_or_default();
            self.add_one(sum, Term { bytes, ..term });
        }
    }

    fn add_one(self, sum: &mut [u8], term: Term<'_>) {
        let Some(sum) = sum.get_mut(..term.bytes.len()) else { return };
        match term.coefficient {
            _ if sum.is_empty() => {}
            1 => sum.iter_mut().zip(term.bytes).for_each(|(sum, byte)| *sum ^= byte),
            _ => self.accumulate(sum, [term]),
        }
    }

    /// Adds products that are all as long as `sum`.
    fn accumulate<const N: usize>(self, sum: &mut [u8], terms: [Term<'_>; N]) {
        match self.0 {
            Set::Portable => portable::add(sum, terms),
            #[cfg(target_arch = "x86_64")]
            Set::Avx2(proof) => proof.add(sum, terms),
            #[cfg(target_arch = "x86_64")]
            Set::Avx512(proof) => proof.add(sum, terms),
            #[cfg(target_arch = "x86_64")]
            Set::Gfni(proof) => proof.add(sum, terms),
            #[cfg(target_arch = "aarch64")]
            Set::Neon(proof) => proof.add(sum, terms),
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
