//! The bytes of a file, through a buffer of constant size.

use std::fmt;
use std::io::{self, ErrorKind, Read};

/// Most bytes to read ahead, and so the longest record of a packet with its headers. Libpcap keeps
/// at most 256 KiB of a packet.
pub(super) const CAPACITY: usize = 1 << 20;

/// A source of bytes, read from its beginning to its end.
pub(super) struct Input {
    source: Box<dyn Read + Send>,
    buffer: Box<[u8]>,
    /// The bytes that are read and not yet consumed: `buffer[start..end]`.
    start: usize,
    end: usize,
    /// Consumed bytes.
    offset: u64,
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input").field("offset", &self.offset).finish_non_exhaustive()
    }
}

impl Input {
    pub(super) fn new(source: Box<dyn Read + Send>) -> Self {
        Self { source, buffer: vec![0; CAPACITY].into(), start: 0, end: 0, offset: 0 }
    }

    /// The number of consumed bytes.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next bytes, at least `len`. `None` if there are fewer, or if `len` is more than
    /// [`CAPACITY`]. This may overwrite consumed bytes.
    pub(super) fn peek(&mut self, len: usize) -> io::Result<Option<&[u8]>> {
        while self.end - self.start < len {
            if !self.fill()? {
                return Ok(None);
            }
        }
        Ok(self.buffer.get(self.start..self.end))
    }

    /// Whether all bytes that were read ahead are consumed: at the end of the source, whether all
    /// bytes are.
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Consumes and returns `len` bytes, or all that were read ahead if these are fewer. They
    /// remain valid until the next [`Input::peek`].
    pub(super) fn consume(&mut self, len: usize) -> &[u8] {
        let start = self.start;
        self.start = start.saturating_add(len).min(self.end);
        self.offset += (self.start - start) as u64;
        &self.buffer[start..self.start]
    }

    /// Consumes any number of bytes. Returns whether there were that many.
    pub(super) fn skip(&mut self, mut len: usize) -> io::Result<bool> {
        while len > 0 {
            if self.is_empty() && !self.fill()? {
                return Ok(false);
            }
            len -= self.consume(len).len();
        }
        Ok(true)
    }

    /// Reads more, at least a byte. Returns whether there was a byte, and room for it.
    fn fill(&mut self) -> io::Result<bool> {
        if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        loop {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Ok(false),
                // A reader must not return more bytes than there was room for. The minimum guards
                // against a reader that does.
                Ok(read) => {
                    self.end = self.end.saturating_add(read).min(self.buffer.len());
                    return Ok(true);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
