//! The proxy's side.

use crate::vector::{InstructionSet, Term};
use crate::{LENGTH_LEN, MAX_DATAGRAM_LEN, MAX_WINDOW, MIN_DATAGRAM_LEN, coefficient, field};

/// Makes repair symbols. It has no state: the caller numbers and keeps the datagrams.
#[derive(Clone, Copy, Debug, Default)]
pub struct Encoder {
    set: InstructionSet,
}

/// Why there is no repair symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// No datagram, or more than [`MAX_WINDOW`].
    #[error("a repair symbol covers 1 to {MAX_WINDOW} datagrams")]
    Count,
    /// A datagram is shorter than [`MIN_DATAGRAM_LEN`] or longer than [`MAX_DATAGRAM_LEN`].
    #[error("a datagram of {len} bytes; {MIN_DATAGRAM_LEN} to {MAX_DATAGRAM_LEN} can be covered")]
    Length {
        /// Its length in bytes.
        len: usize,
    },
    /// The output is too short. [`MAX_SYMBOL_LEN`](crate::MAX_SYMBOL_LEN) always suffices.
    #[error("the repair symbol has {needed} bytes, which is more than the output")]
    Room {
        /// The length of the repair symbol in bytes.
        needed: usize,
    },
}

impl Encoder {
    /// An encoder with the [best](InstructionSet::best) instructions of this machine.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Uses other instructions.
    #[must_use]
    pub fn with_instruction_set(self, set: InstructionSet) -> Self {
        Self { set }
    }

    /// Writes the repair symbol of a number over `datagrams`, whose positions begin at `first`, to
    /// the start of `out`. Returns its length, which is that of the longest datagram, and 2.
    ///
    /// ```
    /// use sidekick_parity::{Encoder, coefficient};
    ///
    /// let mut symbol = [0; 10];
    /// assert_eq!(Encoder::new().encode(3, 7, [&[1; 8][..]], &mut symbol)?, 10);
    /// // The length and the datagram, each byte multiplied by the coefficient.
    /// let one = coefficient(3, 7);
    /// assert_eq!(symbol[2..], [one; 8]);
    /// # Ok::<(), sidekick_parity::EncodeError>(())
    /// ```
    ///
    /// # Errors
    /// [`EncodeError`]. `out` is unchanged then.
    pub fn encode<'a>(
        &self,
        number: u16,
        first: u32,
        datagrams: impl IntoIterator<Item = &'a [u8]>,
        out: &mut [u8],
    ) -> Result<usize, EncodeError> {
        let mut terms = [Term::default(); MAX_WINDOW];
        let mut places = terms.iter_mut();
        let (mut longest, mut lengths, mut position) = (0, [0; LENGTH_LEN], first);
        for datagram in datagrams {
            let place = places.next().ok_or(EncodeError::Count)?;
            let len = datagram.len();
            let length = u16::try_from(len)
                .ok()
                .filter(|_| (MIN_DATAGRAM_LEN..=MAX_DATAGRAM_LEN).contains(&len))
                .ok_or(EncodeError::Length { len })?;
            *place = Term { coefficient: coefficient(number, position), bytes: datagram };
            for (sum, byte) in lengths.iter_mut().zip(length.to_be_bytes()) {
                *sum ^= field::multiply(place.coefficient, byte);
            }
            longest = longest.max(len);
            position = position.wrapping_add(1);
        }
        if longest == 0 {
            return Err(EncodeError::Count);
        }
        let needed = LENGTH_LEN + longest;
        let Some((front, body)) =
            out.get_mut(..needed).and_then(|symbol| symbol.split_first_chunk_mut())
        else {
            return Err(EncodeError::Room { needed });
        };
        *front = lengths;
        body.fill(0);
        // Places without a datagram have the coefficient 0.
        self.set.add(body, terms);
        Ok(needed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MAX_SYMBOL_LEN;

    #[test]
    fn a_symbol_is_the_sum_of_products() {
        let datagrams: Vec<Vec<u8>> =
            (1..=64_u8).map(|n| vec![n; 4 + usize::from(n) * 397 % 1469]).collect();
        for count in 1..=MAX_WINDOW {
            let covered = &datagrams[..count];
            let longest = covered.iter().map(Vec::len).max().unwrap();
            let mut expected = vec![0; 2 + longest];
            for (datagram, position) in covered.iter().zip(u32::MAX - 20..=u32::MAX) {
                sum_of(&mut expected, 65_535, position, datagram);
            }
            for (datagram, position) in covered.iter().skip(21).zip(0..) {
                sum_of(&mut expected, 65_535, position, datagram);
            }
            for set in InstructionSet::available() {
                let mut symbol = [0xaa; MAX_SYMBOL_LEN];
                let len = Encoder::new()
                    .with_instruction_set(set)
                    .encode(65_535, u32::MAX - 20, covered.iter().map(Vec::as_slice), &mut symbol)
                    .unwrap();
                assert_eq!(symbol[..len], expected, "{set}: {count}");
                assert!(symbol[len..].iter().all(|byte| *byte == 0xaa), "{set}: {count}");
            }
        }
    }

    fn sum_of(symbol: &mut [u8], number: u16, position: u32, datagram: &[u8]) {
        let length = u16::try_from(datagram.len()).unwrap().to_be_bytes();
        let source = length.iter().chain(datagram);
        for (sum, byte) in symbol.iter_mut().zip(source) {
            *sum ^= field::multiply(coefficient(number, position), *byte);
        }
    }

    #[test]
    fn errors_leave_the_output_alone() {
        let mut out = [7; 20];
        let encoder = Encoder::new();
        let mut encode = |datagrams: &[&[u8]]| {
            let result = encoder.encode(0, 0, datagrams.iter().copied(), &mut out);
            assert_eq!(out, [7; 20]);
            result
        };
        assert_eq!(encode(&[]), Err(EncodeError::Count));
        assert_eq!(encode(&[&[1_u8; 5][..]; MAX_WINDOW + 1]), Err(EncodeError::Count));
        assert_eq!(encode(&[&[1; 5], &[1; 3]]), Err(EncodeError::Length { len: 3 }));
        assert_eq!(encode(&[&[1; 1473]]), Err(EncodeError::Length { len: 1473 }));
        assert_eq!(encode(&[&[1; 66_000]]), Err(EncodeError::Length { len: 66_000 }));
        assert_eq!(encode(&[&[1; 19], &[1; 4]]), Err(EncodeError::Room { needed: 21 }));
    }
}
