//! The records of a capture file, one after the other, as both formats read them.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::time::Duration;

use anyhow::{Result, ensure};

/// Longest packet with its headers, or block. Wireshark writes no longer ones.
pub(super) const LONGEST: usize = 16 << 20;
/// Bytes to read from the source at once.
const READ_AHEAD: usize = 1 << 16;

/// A source of bytes, read record by record. It holds the bytes of one record.
pub(super) struct Input {
    source: BufReader<Box<dyn Read + Send>>,
    /// The bytes of the current record that are read.
    pub(super) record: Vec<u8>,
    /// Where the record begins in the source.
    pub(super) offset: u64,
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input").field("offset", &self.offset).finish_non_exhaustive()
    }
}

impl Input {
    pub(super) fn new(source: Box<dyn Read + Send>) -> Self {
        let source = BufReader::with_capacity(READ_AHEAD, source);
        Self { source, record: Vec::with_capacity(READ_AHEAD), offset: 0 }
    }

    /// Begins the record behind the bytes that are read.
    pub(super) fn next_record(&mut self) {
        self.offset += self.record.len() as u64;
        self.record.clear();
    }

    /// Reads the record up to this length. Returns whether the source has as many bytes.
    pub(super) fn fill(&mut self, len: usize) -> Result<bool> {
        ensure!(len <= LONGEST, "a packet or block has {len} bytes, and the limit is {LONGEST}");
        let missing = len.saturating_sub(self.record.len());
        // Much faster than below, where a few records end.
        if let Some(bytes) = self.source.buffer().get(..missing) {
            self.record.extend_from_slice(bytes);
            self.source.consume(missing);
            return Ok(true);
        }
        let read = self.source.by_ref().take(missing as u64).read_to_end(&mut self.record)?;
        Ok(read == missing)
    }

    /// How the source ends if it lacks bytes of the record.
    pub(super) fn end(&self) -> Record {
        if self.record.is_empty() { Record::End } else { Record::Truncated }
    }
}

/// The next record of a file.
#[derive(Debug)]
pub(super) enum Record {
    /// A packet.
    Packet(Entry),
    /// Another record, which the reader has processed.
    Other,
    /// The end of the file.
    End,
    /// The beginning of a record. The file ends within it.
    Truncated,
}

/// A packet in the input's record.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) interface: u32,
    /// A `LINKTYPE_`.
    pub(super) link: u32,
    pub(super) time: Option<Duration>,
    /// The place of the packet's bytes in the record.
    pub(super) bytes: Range<usize>,
    /// The packet's length on the wire.
    pub(super) len: u32,
}

/// The byte order of a file's or section's fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    #[default]
    Little,
    Big,
}

impl Order {
    pub(super) fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    /// The first `N` 32-bit fields of `bytes`.
    pub(super) fn fields<const N: usize>(self, bytes: &[u8]) -> Option<[u32; N]> {
        let fields: &[[u8; 4]; N] = bytes.as_chunks().0.first_chunk()?;
        Some(fields.map(|field| self.u32(field)))
    }
}
