//! RELAY (SPEC.md, section 4.3).

use super::cursor::{Reader, Writer};
use super::{BufferTooShort, ParseError, Part};

/// A datagram of the flow that the proxy is to put on its way, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relay<'a> {
    /// Numbers the session's relayed datagrams.
    pub number: u16,
    /// Which part of the datagram this is.
    pub part: Part,
    /// The traffic class with which the datagram leaves: DSCP and ECN.
    pub class: u8,
    /// The datagram, or a part of it, 1 to 1024 bytes.
    pub datagram: &'a [u8],
}

impl<'a> Relay<'a> {
    /// The longest datagram in bytes that is relayed whole, and the longest part of one.
    pub const MAX_LEN: usize = 1024;

    pub(super) fn parse(r: &mut Reader<'a>) -> Result<Self, ParseError> {
        let number = r.u16()?;
        let [part, class] = r.array()?;
        let part = Part::of(part)?;
        let datagram = r.rest();
        match datagram.len() {
            0 => Err(ParseError::Truncated),
            len if len > Self::MAX_LEN => Err(ParseError::TrailingBytes),
            _ => Ok(Self { number, part, class, datagram }),
        }
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) -> Result<(), BufferTooShort> {
        let Self { number, part, class, datagram } = self;
        w.put_all(&[&number.to_be_bytes(), &[part.number(), *class], datagram])
    }
}
