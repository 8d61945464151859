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

/// Bytes of the longest quACK that a proxy sends: one with [`MAX_THRESHOLD`] sums.
pub(crate) const MAX_QUACK_LEN: usize = 8 + 4 * MAX_THRESHOLD + 5 + 4;

/// A quACK.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quack {
    /// The power sums, in the order of their powers.
    pub(crate) sums: Vec<u32>,
    /// The last counted identifier. `None` before the first.
    pub(crate) last: Option<u32>,
    /// Datagrams counted, modulo 2³².
    pub(crate) count: u32,
}

impl Quack {
    /// The length on the wire in bytes: at most [`MAX_QUACK_LEN`] for up to [`MAX_THRESHOLD`] sums.
    fn wire_len(&self) -> usize {
        8 + 4 * self.sums.len() + if self.last.is_some() { 5 } else { 1 } + 4
    }

    /// Writes the message to the beginning of `out`, and returns its length. Returns `None`, and
    /// writes nothing, if `out` has no room for it.
    pub(crate) fn emit(&self, out: &mut [u8]) -> Option<usize> {
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
}

/// Writes `bytes` to where `rest` begins, and moves it behind them.
fn put<const N: usize>(rest: &mut &mut [u8], bytes: [u8; N]) -> Option<()> {
    let (field, behind) = mem::take(rest).split_first_chunk_mut()?;
    *field = bytes;
    *rest = behind;
    Some(())
}
