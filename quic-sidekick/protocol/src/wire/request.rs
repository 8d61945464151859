//! The ranges of a request for copies (SPEC.md, section 4.3).

use super::cursor::Writer;
use super::{BufferTooShort, ParseError};

/// The most ranges of a request.
pub const MAX_RANGES: usize = 16;
/// The length of a range in bytes.
const RANGE_LEN: usize = 9;
const HAS_AFTER: u8 = 1;
const HAS_BEFORE: u8 = 2;
const IN_PARTS: u8 = 4;
const INCLUSIVE: u8 = 8;

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
    /// Whether the range has the datagram `before`, too. Without one it is false.
    pub inclusive: bool,
    /// Whether each copy is to come in two parts, because whole ones may not fit the path.
    pub in_parts: bool,
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
    /// The datagrams between these, in whole copies.
    #[must_use]
    pub const fn new(after: Option<u32>, before: Option<u32>) -> Self {
        Self { after, before, inclusive: false, in_parts: false }
    }

    /// The datagrams behind `after` up to `last`, in whole copies.
    #[must_use]
    pub const fn through(after: Option<u32>, last: u32) -> Self {
        Self { inclusive: true, ..Self::new(after, Some(last)) }
    }

    fn parse(bytes: &[u8; RANGE_LEN]) -> Option<Self> {
        let [flags, after @ .., _, _, _, _] = *bytes;
        let [.., b0, b1, b2, b3] = *bytes;
        let end = |flag, identifier| match (flags & flag != 0, identifier) {
            (true, identifier) => Some(Some(identifier)),
            (false, 0) => Some(None),
            (false, _) => None,
        };
        let (after, before) = (u32::from_be_bytes(after), u32::from_be_bytes([b0, b1, b2, b3]));
        let known = flags & !(HAS_AFTER | HAS_BEFORE | IN_PARTS | INCLUSIVE) == 0;
        let inclusive = flags & INCLUSIVE != 0;
        (known && (!inclusive || flags & HAS_BEFORE != 0)).then_some(())?;
        let (after, before) = (end(HAS_AFTER, after)?, end(HAS_BEFORE, before)?);
        Some(Self { after, before, inclusive, in_parts: flags & IN_PARTS != 0 })
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
        for Range { after, before, inclusive, in_parts } in self.iter() {
            let flag = |is_set, flag| if is_set { flag } else { 0 };
            let ends = flag(after.is_some(), HAS_AFTER) | flag(before.is_some(), HAS_BEFORE);
            w.put(&[ends | flag(in_parts, IN_PARTS) | flag(inclusive, INCLUSIVE)])?;
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
