//! The ranges of a request for copies (SPEC.md, section 4.3).

use super::cursor::Writer;
use super::error::{BufferTooShort, ParseError};

/// The most ranges of a request.
pub const MAX_RANGES: usize = 16;
/// The length of a range in bytes.
const RANGE_LEN: usize = 9;
const HAS_AFTER: u8 = 1;
const HAS_BEFORE: u8 = 2;

/// A request for copies of the reverse flow's datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Its number, which the answers repeat; not 0.
    pub number: u16,
    /// The datagrams.
    pub ranges: Ranges<'a>,
}

/// The datagrams that passed the proxy between two others, named by their identifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The datagram before the first; `None` for all from the oldest that the proxy keeps.
    pub after: Option<u32>,
    /// The datagram behind the last; `None` for all to the latest that the proxy keeps.
    pub before: Option<u32>,
}

/// Ranges: to write, or as received.
#[derive(Clone, Copy, Debug)]
pub struct Ranges<'a>(Repr<'a>);

#[derive(Clone, Copy, Debug)]
enum Repr<'a> {
    Values(&'a [Range]),
    /// Checked.
    Bytes(&'a [[u8; RANGE_LEN]]),
}

impl Range {
    fn parse(bytes: &[u8; RANGE_LEN]) -> Option<Self> {
        let [flags, after @ .., _, _, _, _] = *bytes;
        let [.., b0, b1, b2, b3] = *bytes;
        let end = |flag, identifier| match (flags & flag != 0, identifier) {
            (true, identifier) => Some(Some(identifier)),
            (false, 0) => Some(None),
            (false, _) => None,
        };
        let (after, before) = (u32::from_be_bytes(after), u32::from_be_bytes([b0, b1, b2, b3]));
        let known = flags & !(HAS_AFTER | HAS_BEFORE) == 0;
        known.then_some(())?;
        Some(Self { after: end(HAS_AFTER, after)?, before: end(HAS_BEFORE, before)? })
    }
}

impl<'a> Ranges<'a> {
    /// Ranges to write. Ranges after the sixteenth do not fit and are ignored.
    #[must_use]
    pub fn new(ranges: &'a [Range]) -> Self {
        Self(Repr::Values(ranges.get(..MAX_RANGES).unwrap_or(ranges)))
    }

    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let ranges = match bytes.as_chunks::<RANGE_LEN>() {
            ([], _) | (_, [_, ..]) => return Err(ParseError::Truncated),
            (ranges, []) if ranges.len() > MAX_RANGES => return Err(ParseError::TrailingBytes),
            (ranges, []) => ranges,
        };
        if ranges.iter().any(|range| Range::parse(range).is_none()) {
            return Err(ParseError::Field("range"));
        }
        Ok(Self(Repr::Bytes(ranges)))
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) -> Result<(), BufferTooShort> {
        for Range { after, before } in self.iter() {
            let flag = |end: Option<u32>, flag| if end.is_some() { flag } else { 0 };
            w.put(&[flag(after, HAS_AFTER) | flag(before, HAS_BEFORE)])?;
            w.words([after, before].map(Option::unwrap_or_default))?;
        }
        Ok(())
    }

    /// The number of ranges, 1 to 16 if they were received.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.0 {
            Repr::Values(values) => values.len(),
            Repr::Bytes(bytes) => bytes.len(),
        }
    }

    /// Whether there is no range.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The ranges.
    pub fn iter(&self) -> impl Iterator<Item = Range> + 'a {
        let repr = self.0;
        (0..self.len()).filter_map(move |i| match repr {
            Repr::Values(values) => values.get(i).copied(),
            Repr::Bytes(bytes) => Range::parse(bytes.get(i)?),
        })
    }
}

impl PartialEq for Ranges<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Ranges<'_> {}
