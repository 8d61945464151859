//! Bounds-checked reading and writing of fields in network byte order.

use super::{BufferTooShort, ParseError};

pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], ParseError> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(ParseError::Truncated)?;
        self.0 = rest;
        Ok(*head)
    }

    pub(super) fn u8(&mut self) -> Result<u8, ParseError> {
        self.array().map(u8::from_be_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, ParseError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, ParseError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn words<const N: usize>(&mut self) -> Result<[u32; N], ParseError> {
        let mut words = [0; N];
        for word in &mut words {
            *word = self.u32()?;
        }
        Ok(words)
    }

    /// The next `n` words, as bytes.
    pub(super) fn quads(&mut self, n: usize) -> Result<&'a [[u8; 4]], ParseError> {
        Ok(self.bytes(4 * n)?.as_chunks::<4>().0)
    }

    pub(super) fn bytes(&mut self, n: usize) -> Result<&'a [u8], ParseError> {
        let (bytes, rest) = self.0.split_at_checked(n).ok_or(ParseError::Truncated)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// The remaining bytes.
    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    pub(super) fn end(&self) -> Result<(), ParseError> {
        if self.0.is_empty() { Ok(()) } else { Err(ParseError::TrailingBytes) }
    }
}

pub(super) struct Writer<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn new(out: &'a mut [u8]) -> Self {
        Self { out, len: 0 }
    }

    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<(), BufferTooShort> {
        let end = self.len + bytes.len();
        self.out.get_mut(self.len..end).ok_or(BufferTooShort)?.copy_from_slice(bytes);
        self.len = end;
        Ok(())
    }

    pub(super) fn put_all(&mut self, parts: &[&[u8]]) -> Result<(), BufferTooShort> {
        parts.iter().try_for_each(|part| self.put(part))
    }

    pub(super) fn words(
        &mut self,
        words: impl IntoIterator<Item = u32>,
    ) -> Result<(), BufferTooShort> {
        words.into_iter().try_for_each(|word| self.put(&word.to_be_bytes()))
    }

    /// Pads with zeros to a length of `len` bytes.
    pub(super) fn pad(&mut self, len: usize) -> Result<(), BufferTooShort> {
        if let Some(missing) = len.checked_sub(self.len) {
            let end = self.len + missing;
            self.out.get_mut(self.len..end).ok_or(BufferTooShort)?.fill(0);
            self.len = end;
        }
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}
