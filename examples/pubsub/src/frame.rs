//! The frames in the bodies of requests and answers of HTTP/3.
//!
//! A frame is its type, the length of its content, and the content. Types, lengths and sequence
//! numbers are variable-length integers of QUIC (RFC 9000, section 16). A receiver skips frames of
//! unknown types that are no longer than the longest message. These functions do no I/O.
//!
//! | type | name | content |
//! |---|---|---|
//! | 0 | MESSAGE | the number; the time of publication in 8 bytes, big-endian; the message |
//! | 1 | MISSED | how many messages before the next one are gone |
//! | 2 | ACKNOWLEDGED | the broker has all messages of this publisher up to this number |
//! | 3 | REFUSED | a sentence in UTF-8: the broker reads no further. The frame ends the answer |
//!
//! Times are microseconds since 1970. An empty message removes the last value.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use octets::Octets;
use thiserror::Error;

use crate::topic::Message;

const MESSAGE: u64 = 0;
const MISSED: u64 = 1;
const ACKNOWLEDGED: u64 = 2;
const REFUSED: u64 = 3;

/// The most bytes that a frame has beside its message: sequence number and time.
const ADDED: usize = 16;
/// The longest sentence of a refusal, in bytes, and in characters of up to four bytes each.
const LONGEST_REFUSAL: usize = 1024;
const REFUSAL_CHARACTERS: usize = LONGEST_REFUSAL / 4;
/// The greatest variable-length integer.
const GREATEST: u64 = (1 << 62) - 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A message. To the broker it has the publisher's own number, and from the broker that of the
    /// topic.
    Message(Message),
    /// The broker no longer has this many messages before the next one.
    Missed(u64),
    /// The broker has all messages up to this number of the publisher's.
    Acknowledged(u64),
    /// The broker refuses the rest, for this reason.
    Refused(String),
}

/// Why bytes are not frames.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum Fault {
    #[error("a message has {0} bytes, and the limit is {1}")]
    TooLong(u64, usize),
    #[error("a frame's content does not fit its type")]
    Malformed,
}

impl Frame {
    /// Appends the frame to `out`.
    pub(crate) fn write(&self, out: &mut BytesMut) {
        match self {
            Self::Message(Message { sequence, time, payload }) => {
                put_integer(MESSAGE, out);
                put_integer((integer_len(*sequence) + 8 + payload.len()) as u64, out);
                put_integer(*sequence, out);
                out.put_u64(*time);
                out.put_slice(payload);
            }
            Self::Missed(count) => put_number(MISSED, *count, out),
            Self::Acknowledged(sequence) => put_number(ACKNOWLEDGED, *sequence, out),
            Self::Refused(reason) => {
                let reason: String = reason.chars().take(REFUSAL_CHARACTERS).collect();
                put_integer(REFUSED, out);
                put_integer(reason.len() as u64, out);
                out.put_slice(reason.as_bytes());
            }
        }
    }

    /// Reads the content of a frame; `None` if its type is unknown.
    fn read(kind: u64, content: &[u8]) -> Result<Option<Self>, Fault> {
        let malformed = |_| Fault::Malformed;
        let mut rest = Octets::with_slice(content);
        let frame = match kind {
            MESSAGE => {
                let sequence = rest.get_varint().map_err(malformed)?;
                let time = rest.get_u64().map_err(malformed)?;
                // A copy, because a part of a buffer would keep all of it in memory.
                let payload = Bytes::copy_from_slice(rest.buf().get(rest.off()..).unwrap_or(&[]));
                return Ok(Some(Self::Message(Message { sequence, time, payload })));
            }
            MISSED => Self::Missed(rest.get_varint().map_err(malformed)?),
            ACKNOWLEDGED => Self::Acknowledged(rest.get_varint().map_err(malformed)?),
            REFUSED => {
                let reason = std::str::from_utf8(content).map_err(|_| Fault::Malformed)?;
                return Ok(Some(Self::Refused(reason.to_owned())));
            }
            // For extensions.
            _ => return Ok(None),
        };
        if rest.cap() > 0 { Err(Fault::Malformed) } else { Ok(Some(frame)) }
    }
}

/// Removes the next frame from the received bytes of a body; `None` if it is incomplete. Skips
/// frames of unknown types. So a receiver buffers at most one frame, whose message has at most
/// `longest_message` bytes. A body may end where `buffer` is empty.
pub(crate) fn next(buffer: &mut BytesMut, longest_message: usize) -> Result<Option<Frame>, Fault> {
    let longest = longest_message.saturating_add(ADDED).max(LONGEST_REFUSAL);
    loop {
        let mut header = Octets::with_slice(buffer);
        let (Ok(kind), Ok(len)) = (header.get_varint(), header.get_varint()) else {
            return Ok(None);
        };
        let begin = header.off();
        let len = usize::try_from(len)
            .ok()
            .filter(|&len| len <= longest)
            .ok_or(Fault::TooLong(len.saturating_sub(ADDED as u64), longest_message))?;
        if buffer.len() < begin + len {
            return Ok(None);
        }
        buffer.advance(begin);
        match Frame::read(kind, &buffer.split_to(len))? {
            Some(Frame::Message(message)) if message.payload.len() > longest_message => {
                return Err(Fault::TooLong(message.payload.len() as u64, longest_message));
            }
            Some(frame) => return Ok(Some(frame)),
            None => {}
        }
    }
}

/// Appends a frame whose content is a number.
fn put_number(kind: u64, number: u64, out: &mut BytesMut) {
    put_integer(kind, out);
    put_integer(integer_len(number) as u64, out);
    put_integer(number, out);
}

/// The bytes of a variable-length integer.
fn integer_len(value: u64) -> usize {
    octets::varint_len(value.min(GREATEST))
}

fn put_integer(value: u64, out: &mut BytesMut) {
    let value = value.min(GREATEST);
    let mut bytes = [0; 8];
    // Eight bytes suffice for any integer.
    let len = integer_len(value);
    if octets::OctetsMut::with_slice(&mut bytes).put_varint(value).is_ok() {
        out.put_slice(bytes.get(..len).unwrap_or(&[]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame() -> impl Strategy<Value = Frame> {
        let message = (0..=GREATEST, any::<u64>(), proptest::collection::vec(any::<u8>(), 0..100));
        prop_oneof![
            message.prop_map(|(sequence, time, payload)| {
                Frame::Message(Message { sequence, time, payload: payload.into() })
            }),
            (0..=GREATEST).prop_map(Frame::Missed),
            (0..=GREATEST).prop_map(Frame::Acknowledged),
            "[a-zä€]{0,40}".prop_map(Frame::Refused),
        ]
    }

    proptest! {
        #[test]
        fn frames_arrive_in_any_pieces(
            sent in proptest::collection::vec(frame(), 0..20),
            at_once in 1..50_usize,
        ) {
            let mut body = BytesMut::new();
            for frame in &sent {
                frame.write(&mut body);
                // An unknown frame in between.
                body.extend_from_slice(b"\x21\x02xx");
            }
            let (mut buffer, mut received) = (BytesMut::new(), Vec::new());
            for piece in body.chunks(at_once) {
                buffer.extend_from_slice(piece);
                while let Some(frame) = next(&mut buffer, 100).unwrap() {
                    received.push(frame);
                }
            }
            prop_assert!(buffer.is_empty());
            prop_assert_eq!(received, sent);
        }

        #[test]
        fn any_bytes_are_frames_or_a_fault(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut buffer = BytesMut::from(&bytes[..]);
            while let Ok(Some(frame)) = next(&mut buffer, 50) {
                let Frame::Message(message) = frame else { continue };
                prop_assert!(message.payload.len() <= 50);
            }
        }
    }

    #[test]
    fn a_frame_that_is_too_long_or_does_not_fit_its_type_is_a_fault() {
        for (body, fault) in [
            // These have only their headers yet.
            (&b"\x00\x80\x00\x07\xe1"[..], Fault::TooLong(2001, 2000)),
            (b"\x00\xff\xff\xff\xff\xff\xff\xff\xff", Fault::TooLong(GREATEST - 16, 2000)),
            (b"\x01\x02\x05\x05", Fault::Malformed),
            (b"\x01\x00", Fault::Malformed),
            (b"\x02\x01\x40", Fault::Malformed),
            (b"\x00\x03\x01\x02\x03", Fault::Malformed),
        ] {
            assert_eq!(next(&mut BytesMut::from(body), 2000), Err(fault), "{body:?}");
        }
    }

    #[test]
    fn the_wire_is_as_documented() {
        let mut out = BytesMut::new();
        let payload = Bytes::from_static(b"21.5");
        let message = Message { sequence: 70, time: 0x0102_0304_0506_0708, payload };
        Frame::Message(message).write(&mut out);
        assert_eq!(&out[..], b"\x00\x0e\x40\x46\x01\x02\x03\x04\x05\x06\x07\x0821.5");
    }
}
