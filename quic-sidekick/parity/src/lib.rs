//! A **sliding-window erasure code** that rebuilds lost datagrams of a flow without asking for
//! them. They may be opaque and of unequal length.
//!
//! A proxy on the way to a client adds a *parity* from time to time: a datagram with a linear
//! combination of the latest ones, the *repair symbol*. A client that lost some of them after the
//! proxy rebuilds as many as it has independent repair symbols, so it waits for no retransmission,
//! and the server needs no change.
//!
//! ```
//! use sidekick_parity::{Decoder, Encoder, MAX_SYMBOL_LEN, Origin, identifier};
//!
//! let flow: [&[u8]; 4] = [b"the first", b"the second datagram", b"a third", b"and the fourth"];
//!
//! // The proxy: a parity of number 0 over the positions 700 to 703.
//! let mut symbol = [0; MAX_SYMBOL_LEN];
//! let len = Encoder::new().encode(0, 700, flow, &mut symbol)?;
//! assert_eq!(len, 2 + 19); // as long as the longest datagram, and a length
//!
//! // The client: the second datagram is lost.
//! let mut decoder = Decoder::new();
//! for datagram in [flow[0], flow[2], flow[3]] {
//!     decoder.arrived(datagram, Origin::Original);
//! }
//! decoder.list(700, flow.iter().filter_map(|datagram| identifier(datagram)))?;
//! decoder.repair(0, 700, 4, &symbol[..len])?;
//! assert_eq!(decoder.rebuilt(), Some(&b"the second datagram"[..]));
//! assert_eq!(decoder.rebuilt(), None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The code
//!
//! The terms are those of RFC 8681.
//!
//! - *Arithmetic* is that of GF(256) with the polynomial x⁸ + x⁴ + x³ + x² + 1 (RFC 5510, section
//!   8.1). Addition is XOR.
//! - *Position*: the proxy numbers the datagrams of a flow by 32 bits, which wrap.
//! - *Identifier*: the last four bytes of a datagram, as a big-endian integer. So a datagram has at
//!   least [`MIN_DATAGRAM_LEN`] bytes, and at most [`MAX_DATAGRAM_LEN`]. The proxy numbers no other
//!   datagrams.
//! - *Source symbol* of a datagram: its length as 16 bits, big-endian; then the datagram; then
//!   zeros as needed.
//! - *Encoding window* of a repair symbol: `count` consecutive positions from `first`, 1 to
//!   [`MAX_WINDOW`] of them.
//! - *Repair symbol*: the sum of the source symbols of its encoding window, each multiplied by its
//!   coding coefficient, as long as the longest of them. Its number has 16 bits, which wrap.
//! - *Coding coefficient*: see [`coefficient`].
//!
//! A parity, or a datagram of its own, also *lists* the identifiers of the encoding window, so the
//! client learns which datagrams passed the proxy, and rebuilds only those that it lacks.
//!
//! # How well it rebuilds
//!
//! Repair symbols whose encoding windows all contain the same missing datagrams form a Cauchy
//! matrix. Every square part of it is invertible, so that `n` of these symbols rebuild any `n` such
//! datagrams. Where windows begin or end between missing datagrams, the matrix has zeros, and may
//! by accident be singular. Then another repair symbol is needed. `tests/ratio.rs` compares with an
//! ideal code, in which that never happens, with windows of 30. For losses of 1 to 30 % and a
//! parity for each 3 to 20 datagrams, both rebuild the same number, within 0.5 %.
//!
//! Across the wrap of positions nothing changes, because 2³² is a multiple of 128. Two numbers that
//! are 128 apart give the same coefficients. Their windows have no position in common, unless the
//! proxy sends two parities or more for each datagram.
//!
//! # How fast it is
//!
//! `make bench` measures it beside a Reed-Solomon code over blocks of 30, alternating in one
//! process. On an EPYC with AVX-512 and GFNI (one core of a virtual machine), with windows of 30,
//! datagrams of 1472 bytes and a loss of 10 %, in nanoseconds for each datagram of the flow:
//!
//! | | portable | AVX2 | AVX-512 | GFNI | Reed-Solomon |
//! |---|---|---|---|---|---|
//! | encode, a parity for each 4 | 1560 | 290 | 175 | 153 | 126 |
//! | encode, a parity for each 20 | 319 | 58 | 40 | 36 | 77 |
//! | decode, a parity for each 4 | 798 | 234 | 164 | 174 | 4820 |
//! | decode, a parity for each 20 | 425 | 127 | 94 | 88 | 1280 |
//!
//! The Reed-Solomon code uses AVX2, and has 8 parities for 30 datagrams, or 2. Most of its
//! decoder's time is the same for each block, however long. With a parity for each 20, neither code
//! rebuilds much of a loss of 10 %.
//!
//! # What to know before use
//!
//! - **A datagram proves nothing.** A proxy that lies, or a datagram of a stranger with the
//!   right identifier, makes wrong equations. The decoder checks the length, the padding and the
//!   identifier of what it rebuilds. One of random bytes passes about once in 2³² times. One with
//!   a few wrong bytes elsewhere passes, but QUIC's authentication rejects it, as it rejects any
//!   forged datagram.
//! - **A wrong equation spoils others.** If the check fails, the decoder drops all equations, and
//!   counts [`Counters::false_parity`].
//! - Nothing here panics, blocks, reads a clock or trusts its input. A decoder's memory
//!   grows with its flow, up to [`Decoder::memory_bytes`]. The encoder has none.
//! - **Work is bounded.** The unit is a multiplication and addition of up to [`MAX_SYMBOL_LEN`]
//!   bytes and 128 coefficients, a *row operation*. [`Decoder`] states how many a call takes.

mod decode;
mod encode;
mod field;
mod vector;

pub use decode::{Between, Counters, Counts, Decoder, ListError, Origin, RepairError};
pub use encode::{EncodeError, Encoder};
pub use vector::InstructionSet;

/// The shortest datagram in bytes: its identifier.
pub const MIN_DATAGRAM_LEN: usize = 4;

/// The longest datagram in bytes: the UDP payload of an Ethernet frame over IPv4.
pub const MAX_DATAGRAM_LEN: usize = 1472;

/// The longest source symbol or repair symbol in bytes: the longest datagram, and its length.
pub const MAX_SYMBOL_LEN: usize = MAX_DATAGRAM_LEN + LENGTH_LEN;

/// The most datagrams in an encoding window, and in a list.
pub const MAX_WINDOW: usize = 64;

/// The bytes of a datagram's length in its source symbol.
const LENGTH_LEN: usize = 2;

/// The columns of the matrix of coefficients. Positions that are a multiple of it apart share one.
const COLUMNS: usize = 128;

/// The column of a position: the position modulo 128.
const fn column(position: u32) -> usize {
    (position & 127) as usize
}

/// The coding coefficient of a position in the repair symbol of a number, which is never 0:
/// 1 / ((128 + `number` mod 128) XOR (`position` mod 128)).
///
/// This is a Cauchy matrix: both operands are elements of GF(256), their XOR is their difference,
/// and no row's element is also a column's. Rows differ for numbers that differ modulo 128, and
/// columns for positions that do.
///
/// ```
/// use sidekick_parity::coefficient;
///
/// assert_eq!(coefficient(1, 129), coefficient(129, 1)); // 1 / (129 XOR 1) = 1 / x⁷
/// assert_eq!(coefficient(1, 129), 0x1b);
/// ```
#[must_use]
pub const fn coefficient(number: u16, position: u32) -> u8 {
    // The highest bit is not among those of the position.
    let [_, row] = number.to_be_bytes();
    let [.., column] = position.to_be_bytes();
    field::invert((128 | row) ^ (column & 127))
}

/// The identifier of a datagram: its last four bytes as a big-endian integer. `None` if it has
/// fewer, or more than [`MAX_DATAGRAM_LEN`].
///
/// ```
/// assert_eq!(sidekick_parity::identifier(&[9, 9, 0, 0, 1, 2]), Some(258));
/// assert_eq!(sidekick_parity::identifier(&[1, 2, 3]), None);
/// ```
#[inline]
#[must_use]
pub fn identifier(datagram: &[u8]) -> Option<u32> {
    let bytes = datagram.last_chunk().filter(|_| datagram.len() <= MAX_DATAGRAM_LEN)?;
    Some(u32::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coefficients_are_those_of_the_definition() {
        for number in [0, 1, 64, 127, 128, 129, 1000, u16::MAX] {
            for position in [0, 1, 63, 127, 128, 255, 256, 1 << 20, u32::MAX - 1, u32::MAX] {
                let difference = (128 + number % 128) ^ u16::try_from(position % 128).unwrap();
                let difference = u8::try_from(difference).unwrap();
                let product = field::multiply(coefficient(number, position), difference);
                assert_eq!(product, 1, "{number}, {position}");
            }
        }
    }

    /// The determinant of a Cauchy matrix has no factor that is 0, if all differences are not.
    #[test]
    fn rows_and_columns_differ() {
        for index in 0..128_u16 {
            for other in 0..index {
                assert_ne!(coefficient(index, 5), coefficient(other, 5));
                assert_ne!(coefficient(5, index.into()), coefficient(5, other.into()));
            }
        }
    }

    #[test]
    fn identifiers_need_a_length_in_range() {
        assert_eq!(identifier(&[0xff; 3]), None);
        assert_eq!(identifier(&[0xff; 4]), Some(u32::MAX));
        assert_eq!(identifier(&[1; MAX_DATAGRAM_LEN]), Some(0x0101_0101));
        assert_eq!(identifier(&[1; MAX_DATAGRAM_LEN + 1]), None);
    }
}
