//! The quACK, the only message of the published proxy.
//!
//! It is the encoding of version 1 of bincode: a list of 32-bit sums, an optional last identifier
//! and a 32-bit count, all little-endian.
//!
//! | bytes | field |
//! |---|---|
//! | 8 | number of sums |
//! | 4 each | the sums, in the order of their powers |
//! | 1 | 0: no identifier yet, 1: the last one follows |
//! | 4 or none | the last identifier, as it is in the datagram |
//! | 4 | datagrams counted, modulo 2³² |

use std::mem;

use sidekick_quack::MAX_THRESHOLD;
use thiserror::Error;

/// Bytes of the longest quACK that a proxy sends: one with [`MAX_THRESHOLD`] sums.
pub(super) const MAX_QUACK_LEN: usize = 8 + 4 * MAX_THRESHOLD + 5 + 4;

/// A quACK as it is on the wire. The parser accepts every value of every field, even a sum that is
/// no element of the field. The reader judges what the numbers mean.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quack {
    /// The power sums, in the order of their powers.
    pub sums: Vec<u32>,
    /// The last counted identifier. `None` before the first.
    pub last: Option<u32>,
    /// Datagrams counted, modulo 2³².
    pub count: u32,
}

/// Why bytes are not a quACK of this wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ParseError {
    /// The message ends before its last field.
    #[error("the message ends before its last field")]
    Truncated,
    /// Bytes follow the last field.
    #[error("bytes follow the last field")]
    Trailing,
    /// The byte before the last identifier is neither 0 nor 1.
    #[error("the byte before the last identifier is {0}, and not 0 or 1")]
    Tag(u8),
}

impl Quack {
    /// The length on the wire in bytes: at most [`MAX_QUACK_LEN`] for up to [`MAX_THRESHOLD`] sums.
    #[must_use]
    pub fn wire_len(&self) -> usize {
        8 + 4 * self.sums.len() + if self.last.is_some() { 5 } else { 1 } + 4
    }

    /// Writes the message to the beginning of `out`, and returns its length. Returns `None`, and
    /// writes nothing, if `out` has no room for it.
    pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
        let len = self.wire_len();
        let mut rest = out.get_mut(..len)?;
        put(&mut rest, (self.sums.len() as u64).to_le_bytes())?;
        for sum in &self.sums {
            put(&mut rest, sum.to_le_bytes())?;
        }
        match self.last {
            None => put(&mut rest, [0])?,
            Some(last) => {
                put(&mut rest, [1])?;
                put(&mut rest, last.to_le_bytes())?;
            }
        }
        put(&mut rest, self.count.to_le_bytes())?;
        Some(len)
    }

    /// Reads a message, all of it.
    ///
    /// # Errors
    /// [`ParseError`] unless the bytes are one quACK and nothing else.
    pub fn parse(mut bytes: &[u8]) -> Result<Self, ParseError> {
        let rest = &mut bytes;
        let number = u64::from_le_bytes(take(rest)?);
        // The parser checks the length before it allocates: the number may be false.
        let len = usize::try_from(number).ok().and_then(|number| number.checked_mul(4));
        let (sums, behind) =
            len.and_then(|len| rest.split_at_checked(len)).ok_or(ParseError::Truncated)?;
        *rest = behind;
        let (sums, _) = sums.as_chunks();
        let sums = sums.iter().map(|&sum| u32::from_le_bytes(sum)).collect();
        let last = match take(rest)? {
            [0] => None,
            [1] => Some(u32::from_le_bytes(take(rest)?)),
            [tag] => return Err(ParseError::Tag(tag)),
        };
        let count = u32::from_le_bytes(take(rest)?);
        if rest.is_empty() { Ok(Self { sums, last, count }) } else { Err(ParseError::Trailing) }
    }
}

/// Writes `bytes` to where `rest` begins, and moves it behind them.
fn put<const N: usize>(rest: &mut &mut [u8], bytes: [u8; N]) -> Option<()> {
    let (field, behind) = mem::take(rest).split_first_chunk_mut()?;
    *field = bytes;
    *rest = behind;
    Some(())
}

/// Reads the bytes at which `rest` begins, and moves it behind them.
fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], ParseError> {
    let (field, behind) = rest.split_first_chunk().ok_or(ParseError::Truncated)?;
    *rest = behind;
    Ok(*field)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn emitted(quack: &Quack) -> Vec<u8> {
        let mut out = vec![0xee; quack.wire_len()];
        assert_eq!(quack.emit(&mut out), Some(out.len()));
        out
    }

    #[test]
    fn every_field_has_its_place() {
        let quack = Quack {
            sums: vec![0x0403_0201, 0xfcfd_feff],
            last: Some(0x1413_1211),
            count: 0x2423_2221,
        };
        let bytes = [
            &[2, 0, 0, 0, 0, 0, 0, 0][..],
            &[1, 2, 3, 4, 0xff, 0xfe, 0xfd, 0xfc],
            &[1, 0x11, 0x12, 0x13, 0x14],
            &[0x21, 0x22, 0x23, 0x24],
        ]
        .concat();
        assert_eq!(emitted(&quack), bytes);
        assert_eq!(Quack::parse(&bytes), Ok(quack));
        let nothing = [0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0];
        assert_eq!(Quack::parse(&nothing), Ok(Quack { count: 7, ..Quack::default() }));
    }

    #[test]
    fn the_longest_has_room_and_no_more() {
        let quack =
            Quack { sums: vec![u32::MAX; MAX_THRESHOLD], last: Some(u32::MAX), count: u32::MAX };
        assert_eq!((emitted(&quack).len(), quack.wire_len()), (MAX_QUACK_LEN, MAX_QUACK_LEN));
        let mut short = [0xee; MAX_QUACK_LEN - 1];
        assert_eq!(quack.emit(&mut short), None);
        assert_eq!(short, [0xee; MAX_QUACK_LEN - 1], "nothing is written in part");
    }

    #[test]
    fn a_false_number_of_sums_allocates_nothing() {
        for number in [1, 2, 1 << 30, u64::from(u32::MAX), 1 << 62, u64::MAX / 4 + 1, u64::MAX] {
            let bytes = [&number.to_le_bytes()[..], &[0; 5]].concat();
            assert_eq!(Quack::parse(&bytes), Err(ParseError::Truncated), "{number}");
        }
    }

    #[test]
    fn other_tags_are_refused() {
        for tag in 2..=u8::MAX {
            let bytes = [&[0; 8][..], &[tag], &[0; 8]].concat();
            assert_eq!(Quack::parse(&bytes), Err(ParseError::Tag(tag)));
        }
    }

    fn any_quack() -> impl Strategy<Value = Quack> {
        let sums = prop::collection::vec(any::<u32>(), 0..300);
        (sums, any::<Option<u32>>(), any::<u32>()).prop_map(|(sums, last, count)| Quack {
            sums,
            last,
            count,
        })
    }

    /// Bytes that resemble a quACK, so that the parser accepts the first field.
    fn almost() -> impl Strategy<Value = Vec<u8>> {
        (0_u8..20, prop::collection::vec(prop_oneof![0_u8..3, any::<u8>()], 0..100))
            .prop_map(|(number, rest)| [&[number, 0, 0, 0, 0, 0, 0, 0][..], &rest].concat())
    }

    proptest! {
        #[test]
        fn a_written_quack_is_read(quack in any_quack()) {
            prop_assert_eq!(Quack::parse(&emitted(&quack)), Ok(quack));
        }

        #[test]
        fn neither_more_nor_less_is_a_quack(quack in any_quack(), more in any::<u8>()) {
            let mut bytes = emitted(&quack);
            for len in 0..bytes.len() {
                prop_assert_eq!(Quack::parse(&bytes[..len]), Err(ParseError::Truncated));
            }
            bytes.push(more);
            prop_assert_eq!(Quack::parse(&bytes), Err(ParseError::Trailing));
        }

        #[test]
        fn any_bytes_are_a_quack_or_an_error(
            bytes in prop_oneof![prop::collection::vec(any::<u8>(), 0..64), almost()],
        ) {
            if let Ok(quack) = Quack::parse(&bytes) {
                prop_assert_eq!(emitted(&quack), bytes);
            }
        }
    }
}
