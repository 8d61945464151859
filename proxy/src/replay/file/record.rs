//! A record of a capture file, as the readers of both formats return it.

use std::io;
use std::ops::Range;
use std::time::Duration;

/// The next record of a file.
#[derive(Debug)]
pub(super) enum Record {
    /// A packet.
    Packet(Entry),
    /// Another record, which the reader has processed and consumed.
    Other,
    /// The end of the file.
    End,
    /// The beginning of a record. The file ends within it.
    Truncated,
}

/// A packet, and its place in the file.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) interface: u32,
    /// A `LINKTYPE_`.
    pub(super) link: u32,
    pub(super) time: Option<Duration>,
    /// The length of the packet's record, which begins at the next byte of the input.
    pub(super) record: usize,
    /// The place of the packet's bytes in the record.
    pub(super) bytes: Range<usize>,
    /// The packet's length on the wire.
    pub(super) len: u32,
}

/// Why there is no record.
#[derive(Debug)]
pub(super) enum Problem {
    Read(io::Error),
    TooLong { len: u64, limit: usize },
    Broken(&'static str),
}

impl From<io::Error> for Problem {
    fn from(cause: io::Error) -> Self {
        Self::Read(cause)
    }
}

/// The byte order of a file's or section's fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    #[default]
    Little,
    Big,
}

impl Order {
    pub(super) fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    pub(super) fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    pub(super) fn i64(self, bytes: [u8; 8]) -> i64 {
        match self {
            Self::Little => i64::from_le_bytes(bytes),
            Self::Big => i64::from_be_bytes(bytes),
        }
    }

    /// The first `N` 32-bit fields of `bytes`.
    pub(super) fn fields<const N: usize>(self, bytes: &[u8]) -> Option<[u32; N]> {
        let fields: &[[u8; 4]; N] = bytes.as_chunks().0.first_chunk()?;
        Some(fields.map(|field| self.u32(field)))
    }
}
