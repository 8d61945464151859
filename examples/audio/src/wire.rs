//! The datagrams of a stream. Parsing is total: any bytes give a [`Datagram`] or a [`ParseError`].
//!
//! Numbers are in network byte order. Every datagram begins with its kind (1 byte) and the stream's identifier (4):
//!
//! | kind | from | then |
//! |---|---|---|
//! | `0x40` media | talker | sequence number (4), capture time in µs (8), content |
//! | `0x41` feedback | listener | RTT in µs (4), n (1), n missing packets (4 each), m (1), m packets that came again (4 each) |
//! | `0x42` ping | listener | token (4) |
//! | `0x43` pong | talker | token (4) |
//! | `0x44` end | talker | packets in the stream (4) |
//! | `0x45` end received | listener | nothing |
//!
//! The first bit is 0, so none of them looks like a long header of QUIC (RFC 8999, section 5.1) or like RTP, and none
//! begins as a message of the Sidekick protocol does. Media carry their content from byte 17 on: byte 21, where Sidekick
//! takes the identifier, is inside it. The others of the talker end before byte 25 and so do not count at a proxy.

use thiserror::Error;

/// Bytes of a media datagram before its content.
pub const MEDIA_HEADER_LEN: usize = 17;
/// A feedback datagram names no more packets of each sort.
pub const MAX_NAMED: usize = 64;

const MEDIA: u8 = 0x40;
const FEEDBACK: u8 = 0x41;
const PING: u8 = 0x42;
const PONG: u8 = 0x43;
const END: u8 = 0x44;
const END_RECEIVED: u8 = 0x45;

/// One datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The stream that it is of, drawn by the talker.
    pub stream: u32,
    /// What it says.
    pub body: Body<'a>,
}

/// What a datagram says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// A packet of the stream.
    Media {
        /// Its number, from 0.
        sequence: u32,
        /// When it was captured: microseconds since the stream began.
        captured_us: u64,
        /// What is to be played.
        content: &'a [u8],
    },
    /// What the listener lacks, and what it got more than once.
    Feedback {
        /// The end-to-end round-trip time that the listener reckons with, in microseconds.
        rtt_us: u32,
        /// Packets to send again: a NACK for each.
        missing: Sequences<'a>,
        /// Packets that came although they were there.
        duplicates: Sequences<'a>,
    },
    /// Asks for a pong at once.
    Ping {
        /// Comes back with the pong.
        token: u32,
    },
    /// Answers a ping.
    Pong {
        /// The ping's.
        token: u32,
    },
    /// The stream is over.
    End {
        /// How many packets it had.
        packets: u32,
    },
    /// The listener has played, or given up, every packet of the stream.
    EndReceived,
}

/// Sequence numbers as they stand in a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequences<'a>(&'a [[u8; 4]]);

impl<'a> Sequences<'a> {
    /// The numbers, in their order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.0.iter().map(|bytes| u32::from_be_bytes(*bytes))
    }
}

/// Why bytes are no datagram of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseError {
    /// It ends before its last field.
    #[error("too short")]
    Truncated,
    /// It goes on after its last field.
    #[error("too long")]
    TrailingBytes,
    /// Its first byte is not known.
    #[error("unknown kind {0:#04x}")]
    UnknownKind(u8),
}

/// What is left to parse.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], ParseError> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(ParseError::Truncated)?;
        self.0 = rest;
        Ok(*bytes)
    }

    fn number(&mut self) -> Result<u32, ParseError> {
        self.take().map(u32::from_be_bytes)
    }

    fn sequences(&mut self) -> Result<Sequences<'a>, ParseError> {
        let [count] = self.take()?;
        let (bytes, rest) = self.0.split_at_checked(4 * usize::from(count)).ok_or(ParseError::Truncated)?;
        self.0 = rest;
        Ok(Sequences(bytes.as_chunks().0))
    }
}

impl<'a> Datagram<'a> {
    /// Reads a datagram.
    ///
    /// # Errors
    /// [`ParseError`] when it is none.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let mut cursor = Cursor(bytes);
        let [kind] = cursor.take()?;
        if !(MEDIA..=END_RECEIVED).contains(&kind) {
            return Err(ParseError::UnknownKind(kind));
        }
        let stream = cursor.number()?;
        let body = match kind {
            MEDIA => Body::Media {
                sequence: cursor.number()?,
                captured_us: cursor.take().map(u64::from_be_bytes)?,
                content: std::mem::take(&mut cursor.0),
            },
            FEEDBACK => Body::Feedback {
                rtt_us: cursor.number()?,
                missing: cursor.sequences()?,
                duplicates: cursor.sequences()?,
            },
            PING => Body::Ping { token: cursor.number()? },
            PONG => Body::Pong { token: cursor.number()? },
            END => Body::End { packets: cursor.number()? },
            _ => Body::EndReceived,
        };
        if cursor.0.is_empty() { Ok(Self { stream, body }) } else { Err(ParseError::TrailingBytes) }
    }
}

fn start(kind: u8, stream: u32, out: &mut Vec<u8>) {
    out.clear();
    out.push(kind);
    out.extend(stream.to_be_bytes());
}

/// Writes the header of a media datagram over what is in `out`; its content comes behind it.
pub(crate) fn emit_media(stream: u32, sequence: u32, captured_us: u64, out: &mut Vec<u8>) {
    start(MEDIA, stream, out);
    out.extend(sequence.to_be_bytes());
    out.extend(captured_us.to_be_bytes());
}

/// Writes a feedback datagram over what is in `out`. No more than [`MAX_NAMED`] of each list are written.
pub(crate) fn emit_feedback(
    stream: u32,
    rtt_us: u32,
    missing: &[u32],
    duplicates: &[u32],
    out: &mut Vec<u8>,
) {
    start(FEEDBACK, stream, out);
    out.extend(rtt_us.to_be_bytes());
    for list in [missing, duplicates] {
        let named = list.get(..MAX_NAMED).unwrap_or(list);
        out.push(u8::try_from(named.len()).unwrap_or(u8::MAX));
        out.extend(named.iter().flat_map(|sequence| sequence.to_be_bytes()));
    }
}

/// Writes a ping over what is in `out`.
pub(crate) fn emit_ping(stream: u32, token: u32, out: &mut Vec<u8>) {
    start(PING, stream, out);
    out.extend(token.to_be_bytes());
}

/// Writes the answer to a ping over what is in `out`.
pub(crate) fn emit_pong(stream: u32, token: u32, out: &mut Vec<u8>) {
    start(PONG, stream, out);
    out.extend(token.to_be_bytes());
}

/// Writes the end of a stream of so many packets over what is in `out`.
pub(crate) fn emit_end(stream: u32, packets: u32, out: &mut Vec<u8>) {
    start(END, stream, out);
    out.extend(packets.to_be_bytes());
}

/// Writes the answer to the end over what is in `out`.
pub(crate) fn emit_end_received(stream: u32, out: &mut Vec<u8>) {
    start(END_RECEIVED, stream, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_reads_back() {
        let mut out = Vec::new();
        emit_media(7, 8, 9, &mut out);
        assert_eq!(out.len(), MEDIA_HEADER_LEN);
        out.extend([1, 2, 3]);
        let body = Body::Media { sequence: 8, captured_us: 9, content: &[1, 2, 3] };
        assert_eq!(Datagram::parse(&out), Ok(Datagram { stream: 7, body }));
        emit_ping(7, 5, &mut out);
        assert_eq!(Datagram::parse(&out).unwrap().body, Body::Ping { token: 5 });
        emit_pong(7, 5, &mut out);
        assert_eq!(Datagram::parse(&out).unwrap().body, Body::Pong { token: 5 });
        emit_end(7, 3000, &mut out);
        assert_eq!(Datagram::parse(&out).unwrap().body, Body::End { packets: 3000 });
        emit_end_received(7, &mut out);
        assert_eq!(Datagram::parse(&out).unwrap().body, Body::EndReceived);
        emit_feedback(7, 52_000, &[1, 2], &[3], &mut out);
        let Body::Feedback { rtt_us: 52_000, missing, duplicates } = Datagram::parse(&out).unwrap().body
        else {
            panic!("{out:?}")
        };
        assert_eq!((missing.iter().collect(), duplicates.iter().collect()), (vec![1, 2], vec![3]));
    }

    #[test]
    fn what_is_cut_or_continued_is_refused() {
        let mut out = Vec::new();
        emit_feedback(7, 52_000, &[1, 2], &[3], &mut out);
        for len in 0..out.len() {
            assert_eq!(Datagram::parse(&out[..len]), Err(ParseError::Truncated), "{len}");
        }
        out.push(0);
        assert_eq!(Datagram::parse(&out), Err(ParseError::TrailingBytes));
        assert_eq!(Datagram::parse(&[0xc0; 30]), Err(ParseError::UnknownKind(0xc0)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(mut bytes in proptest::collection::vec(any::<u8>(), 0..80), kind in 0x3f_u8..0x47) {
            let _ = Datagram::parse(&bytes);
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            let _ = Datagram::parse(&bytes);
        }
    }
}
