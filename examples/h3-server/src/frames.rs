//! Splits an HTTP/3 stream into its frames (RFC 9114, section 7.1).
//!
//! h3 keeps a frame other than DATA until it is complete, whatever its length. It also reads more
//! of a stream at a time than it uses, and so keeps most of a body in short DATA frames. A client
//! could fill the memory with either. Besides, h3 treats an empty DATA frame, and the end of a
//! stream within one, as the end of the body.
//!
//! With [`Frames`], `transport.rs` passes h3 one frame header or payload at a time, and no empty
//! DATA frame. It refuses a frame that is too long to keep, and a stream that ends within a frame.

use std::mem;

use bytes::{Buf as _, Bytes};
use octets::Octets;

/// The longest frame other than DATA, and the announced limit of a header section (RFC 9114,
/// section 4.2.2), in bytes.
pub(crate) const LONGEST_KEPT: u32 = 16 * 1024;
/// DATA (RFC 9114, section 7.2.1).
const DATA: u64 = 0;
/// A control stream (RFC 9114, section 6.2.1).
const CONTROL: u64 = 0;

/// A frame that h3 would keep is too long.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// The position in a stream of frames.
#[derive(Debug)]
pub(crate) struct Frames {
    at: At,
    /// The received part of a frame's type and length, or of a stream's type: 16 bytes at most.
    header: Vec<u8>,
}

#[derive(Debug)]
enum At {
    /// The type of a unidirectional stream.
    StreamType,
    /// The type and length of a frame.
    Header,
    Payload {
        left: u64,
    },
    /// A stream without frames. h3 reads only its type, or stops it.
    Unframed {
        left: u64,
    },
}

impl Frames {
    /// The frames of a request stream.
    pub(crate) fn of_request() -> Self {
        Self { at: At::Header, header: Vec::new() }
    }

    /// The frames of a unidirectional stream.
    pub(crate) fn of_unidirectional() -> Self {
        Self { at: At::StreamType, header: Vec::new() }
    }

    /// Removes from `read` the next piece for h3: a header, or the present part of a payload.
    /// `None` if that needs more bytes.
    pub(crate) fn next(&mut self, read: &mut Bytes) -> Result<Option<Bytes>, TooLong> {
        while !read.is_empty() {
            match &mut self.at {
                At::Payload { left } => {
                    let piece = read.split_to(take(left, read.len()));
                    if *left == 0 {
                        self.at = At::Header;
                    }
                    return Ok(Some(piece));
                }
                At::Unframed { left: 0 } => return Err(TooLong),
                At::Unframed { left } => return Ok(Some(read.split_to(take(left, read.len())))),
                At::StreamType | At::Header => {
                    self.header.push(read.get_u8());
                    if let Some(header) = self.header()? {
                        return Ok(Some(header));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Removes the header once it is complete, unless h3 must not see it.
    fn header(&mut self) -> Result<Option<Bytes>, TooLong> {
        let mut header = Octets::with_slice(&self.header);
        let Ok(kind) = header.get_varint() else { return Ok(None) };
        self.at = match self.at {
            At::StreamType if kind == CONTROL => At::Header,
            At::StreamType => At::Unframed { left: LONGEST_KEPT.into() },
            At::Header | At::Payload { .. } | At::Unframed { .. } => match header.get_varint() {
                Err(_) => return Ok(None),
                Ok(left) if kind != DATA && left > LONGEST_KEPT.into() => return Err(TooLong),
                Ok(0) if kind == DATA => {
                    self.header.clear();
                    return Ok(None);
                }
                Ok(0) => At::Header,
                Ok(left) => At::Payload { left },
            },
        };
        Ok(Some(mem::take(&mut self.header).into()))
    }

    /// Whether a stream may end here (RFC 9114, section 7.1).
    pub(crate) fn may_end(&self) -> bool {
        match self.at {
            At::Header => self.header.is_empty(),
            At::Payload { .. } => false,
            At::StreamType | At::Unframed { .. } => true,
        }
    }
}

/// Subtracts up to `most` from `left`, and returns how much.
fn take(left: &mut u64, most: usize) -> usize {
    let len = usize::try_from(*left).unwrap_or(usize::MAX).min(most);
    *left -= len as u64;
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces of `stream`, if it arrives in chunks of `at_once` bytes.
    fn pieces(mut frames: Frames, stream: &[u8], at_once: usize) -> Result<Vec<Bytes>, TooLong> {
        let mut pieces = Vec::new();
        for chunk in stream.chunks(at_once) {
            let mut read = Bytes::copy_from_slice(chunk);
            while let Some(piece) = frames.next(&mut read)? {
                assert!(!piece.is_empty());
                pieces.push(piece);
            }
            assert!(read.is_empty() && frames.header.len() < 16);
        }
        Ok(pieces)
    }

    #[test]
    fn headers_and_payloads_are_separate() {
        // HEADERS of 2 bytes, DATA of 1, an empty DATA, an empty unknown frame, and DATA of 3 with
        // long integers.
        let stream = b"\x01\x02ab\x00\x01c\x00\x00\x21\x00\x40\x00\x40\x03def";
        let expected: [&[u8]; 7] =
            [b"\x01\x02", b"ab", b"\x00\x01", b"c", b"\x21\x00", b"\x40\x00\x40\x03", b"def"];
        assert_eq!(pieces(Frames::of_request(), stream, 100).unwrap(), expected);
        let control = b"\x00\x04\x00\x21\x01x";
        let expected: [&[u8]; 4] = [b"\x00", b"\x04\x00", b"\x21\x01", b"x"];
        assert_eq!(pieces(Frames::of_unidirectional(), control, 100).unwrap(), expected);
    }

    #[test]
    fn no_byte_is_lost_in_any_chunking() {
        let stream: Vec<u8> = (1..100).flat_map(|n| [0x40, n, 2, n, n]).collect();
        for at_once in 1..20 {
            assert_eq!(pieces(Frames::of_request(), &stream, at_once).unwrap().concat(), stream);
        }
    }

    #[test]
    fn a_stream_ends_between_frames() {
        let stream = b"\x01\x01a\x00\x40\x02bc";
        let may: Vec<usize> = (0..=stream.len())
            .filter(|&len| {
                let mut frames = Frames::of_request();
                let mut read = Bytes::copy_from_slice(&stream[..len]);
                while frames.next(&mut read).unwrap().is_some() {}
                frames.may_end()
            })
            .collect();
        assert_eq!(may, [0, 3, stream.len()]);
    }

    #[test]
    fn only_a_body_may_be_long() {
        // Lengths of 16,384, of one more, and the greatest.
        for (length, kept) in
            [(&b"\x80\x00\x40\x00"[..], true), (b"\x80\x00\x40\x01", false), (&[0xff; 8], false)]
        {
            for kind in
                [&b"\x00"[..], b"\x01", b"\x21", b"\x04", b"\xc0\x00\x00\x00\x00\x00\x00\x02"]
            {
                let stream = [kind, length].concat();
                let taken = pieces(Frames::of_request(), &stream, 3);
                assert_eq!(taken.is_ok(), kept || kind == b"\x00", "{kind:?} {length:?}");
            }
        }
        let endless = [&b"\x02"[..], &[0; LONGEST_KEPT as usize]].concat();
        assert!(pieces(Frames::of_unidirectional(), &endless, 1000).is_ok());
        let endless = [&endless[..], b"\x00"].concat();
        assert_eq!(pieces(Frames::of_unidirectional(), &endless, 1000), Err(TooLong));
    }
}
