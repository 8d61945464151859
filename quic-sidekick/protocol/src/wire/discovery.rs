//! Datagrams on the flow's own path, by which a sender discovers proxies (SPEC.md, section 4.1).
//!
//! Their first byte is in 4..15, which RFC 9443 leaves unused beside QUIC, STUN, DTLS, TURN and
//! RTP. So the flow's receiver drops a marker, and the sender's transport drops an answer that the
//! application does not intercept.

use super::cursor::{Reader, Writer};
use super::fields::{read_address, read_flow, write_address, write_flow};
use super::{BufferTooShort, Cookie, ParseError, VERSION};
use crate::identify::Flow;
use std::net::SocketAddr;

/// The first byte of a marker.
pub const MARKER_BYTE: u8 = 5;
/// The first byte of an answer.
pub const ANSWER_BYTE: u8 = 6;
/// Distinguishes these datagrams from others with the same first byte.
const MAGIC: [u8; 8] = *b"Sidekick";

/// The length of a handle in bytes.
pub const HANDLE_LEN: usize = 20;
/// The length of a nonce in bytes.
pub const NONCE_LEN: usize = 16;

/// The length of every marker in bytes; no answer is longer.
pub const MARKER_LEN: usize = 128;

/// Masks the handle or nonce of an answer, or removes the mask: XOR with the cookie's MAC,
/// repeated.
///
/// Anyone can send a marker from a forged address. Without the mask, the proxy would send bytes of
/// the attacker's choice there; the MAC cannot be predicted.
fn mask(bytes: &mut [u8], cookie: &Cookie) {
    for (byte, mask) in bytes.iter_mut().zip(cookie.mac().iter().cycle()) {
        *byte ^= mask;
    }
}

/// Whether a datagram begins with this byte, and has the protocol's name in its place. Every packet
/// of a connection is checked; the first byte decides nearly all.
fn is_of_kind(datagram: &[u8], first: u8) -> bool {
    datagram.first() == Some(&first)
        && datagram.get(1 + HANDLE_LEN..).is_some_and(|rest| rest.starts_with(&MAGIC))
}

/// Which way a proxy sends its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// From the proxy's own address to the adjacent socket: this port, not 0, at the flow's source
    /// address.
    Adjacent(u16),
    /// Along the flow's path, from the receiver's address and port to the flow's source. A NAT or
    /// firewall on the way lets it through.
    Path,
}

/// A sender's query for a proxy on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Chosen by the sender, and repeated in the answer behind its first byte. Where several QUIC
    /// connections share a socket, it identifies the connection, as a connection ID does.
    pub handle: [u8; HANDLE_LEN],
    /// Random. An answer that repeats it comes from the path.
    pub nonce: [u8; NONCE_LEN],
    /// Which way to answer.
    pub reply: Reply,
}

/// A proxy's answer to a marker. On the wire, handle and nonce are masked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The marker's.
    pub handle: [u8; HANDLE_LEN],
    /// The marker's.
    pub nonce: [u8; NONCE_LEN],
    /// The address of the proxy's port.
    pub proxy: SocketAddr,
    /// The flow as the proxy sees it. A NAT on the way makes it differ from the sender's view.
    pub flow: Flow,
    /// Proves that its holder receives at the flow's source.
    pub cookie: Cookie,
}

/// Reads the fields that both kinds begin with.
fn read_head(
    r: &mut Reader<'_>,
    first: u8,
) -> Result<([u8; HANDLE_LEN], [u8; NONCE_LEN]), ParseError> {
    let byte = r.u8()?;
    if byte != first {
        return Err(ParseError::Type(byte));
    }
    let handle = r.array()?;
    if r.array()? != MAGIC {
        return Err(ParseError::Field("magic"));
    }
    let version = r.u8()?;
    if version != VERSION {
        return Err(ParseError::Version(version));
    }
    Ok((handle, r.array()?))
}

fn write_head(
    w: &mut Writer<'_>,
    first: u8,
    handle: &[u8; HANDLE_LEN],
    nonce: &[u8; NONCE_LEN],
) -> Result<(), BufferTooShort> {
    w.put_all(&[&[first], handle, &MAGIC, &[VERSION], nonce])
}

impl Marker {
    /// Whether a datagram is a marker, by its first byte and the protocol's name in its place.
    /// [`Marker::parse`] may still reject it.
    #[must_use]
    pub fn is_one(datagram: &[u8]) -> bool {
        is_of_kind(datagram, MARKER_BYTE)
    }

    /// Reads a marker from a complete datagram of at least [`MARKER_LEN`] bytes. Bytes after the
    /// fields are ignored.
    ///
    /// # Errors
    /// [`ParseError`] states why the datagram is not valid.
    pub fn parse(datagram: &[u8]) -> Result<Self, ParseError> {
        let mut r = Reader::new(datagram);
        let (handle, nonce) = read_head(&mut r, MARKER_BYTE)?;
        let reply = match r.u16()? {
            0 => Reply::Path,
            port => Reply::Adjacent(port),
        };
        if datagram.len() < MARKER_LEN {
            return Err(ParseError::Truncated);
        }
        Ok(Self { handle, nonce, reply })
    }

    /// Writes the marker to the front of `out` and returns its length, [`MARKER_LEN`].
    ///
    /// # Errors
    /// [`BufferTooShort`]; the contents of `out` are then unspecified.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, BufferTooShort> {
        let mut w = Writer::new(out);
        write_head(&mut w, MARKER_BYTE, &self.handle, &self.nonce)?;
        let port = match self.reply {
            Reply::Path => 0,
            Reply::Adjacent(port) => port,
        };
        w.put(&port.to_be_bytes())?;
        w.pad(MARKER_LEN)?;
        Ok(w.len())
    }
}

impl Answer {
    /// Whether a datagram is an answer, by its first byte and the protocol's name in its place.
    /// [`Answer::parse`] may still reject it.
    #[must_use]
    pub fn is_one(datagram: &[u8]) -> bool {
        is_of_kind(datagram, ANSWER_BYTE)
    }

    /// Reads an answer from a complete datagram.
    ///
    /// # Errors
    /// [`ParseError`] states why the datagram is not valid.
    pub fn parse(datagram: &[u8]) -> Result<Self, ParseError> {
        let mut r = Reader::new(datagram);
        let (mut handle, mut nonce) = read_head(&mut r, ANSWER_BYTE)?;
        let proxy = read_address(&mut r, "proxy port")?;
        let flow = read_flow(&mut r)?;
        let cookie = Cookie(r.array()?);
        r.end()?;
        if cookie == Cookie::NONE {
            return Err(ParseError::Field("cookie"));
        }
        mask(&mut handle, &cookie);
        mask(&mut nonce, &cookie);
        Ok(Self { handle, nonce, proxy, flow, cookie })
    }

    /// Writes the answer to the front of `out` and returns its length in bytes, at most
    /// [`MARKER_LEN`].
    ///
    /// # Errors
    /// [`BufferTooShort`]; the contents of `out` are then unspecified.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, BufferTooShort> {
        let mut w = Writer::new(out);
        let (mut handle, mut nonce) = (self.handle, self.nonce);
        mask(&mut handle, &self.cookie);
        mask(&mut nonce, &self.cookie);
        write_head(&mut w, ANSWER_BYTE, &handle, &nonce)?;
        write_address(&mut w, self.proxy)?;
        write_flow(&mut w, &self.flow)?;
        w.put(&self.cookie.0)?;
        Ok(w.len())
    }
}
