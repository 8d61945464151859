//! Datagrams on the flow's own path, by which a sender finds proxies (SPEC.md, section 4.1).
//!
//! Their first byte lies in 4..15, which RFC 9443 leaves unused beside QUIC, STUN, DTLS, TURN and
//! RTP: the receiver of the flow drops a marker, and a sender's transport an answer that nobody
//! takes out before.

use super::cursor::{Reader, Writer};
use super::error::{BufferTooShort, ParseError};
use super::fields::{read_address, read_flow, write_address, write_flow};
use super::header::{Cookie, VERSION};
use crate::flow::Flow;
use std::net::SocketAddr;

/// The first byte of a marker.
pub const MARKER_BYTE: u8 = 5;
/// The first byte of an answer.
pub const ANSWER_BYTE: u8 = 6;
/// Tells these datagrams from others that begin with the same byte.
const MAGIC: [u8; 8] = *b"Sidekick";

/// Bytes of the handle.
pub const HANDLE_LEN: usize = 20;
/// Bytes of the nonce.
pub const NONCE_LEN: usize = 16;

/// The length of every marker in bytes; no answer is longer.
pub const MARKER_LEN: usize = 128;

/// Masks handle or nonce of an answer, or removes the mask: XOR with the cookie's MAC, repeated.
///
/// Anyone can send a marker from a forged address. Without the mask, the proxy would then send
/// bytes of the forger's choice to that address. The forger cannot predict the MAC.
fn mask(bytes: &mut [u8], cookie: &Cookie) {
    for (byte, mask) in bytes.iter_mut().zip(cookie.mac().iter().cycle()) {
        *byte ^= mask;
    }
}

/// How a sender wants to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// From the proxy's own address, to this port at the flow's source address: the port of the
    /// adjacent socket, not 0.
    Adjacent(u16),
    /// Along the flow's path: from the receiver's address and port to the flow's source, as a NAT
    /// or firewall on the way lets it through.
    Path,
}

/// Sender: is there a proxy on this path?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The sender's choice; it comes back at the same place, behind the first byte. A receiving
    /// socket that several QUIC connections share finds the one that is meant by it, as by a
    /// connection ID.
    pub handle: [u8; HANDLE_LEN],
    /// Random. An answer proves with it that it comes from the path.
    pub nonce: [u8; NONCE_LEN],
    /// How to answer.
    pub reply: Reply,
}

/// Proxy: there is. On the wire, handle and nonce are masked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The marker's.
    pub handle: [u8; HANDLE_LEN],
    /// The marker's.
    pub nonce: [u8; NONCE_LEN],
    /// Where the proxy is reached.
    pub proxy: SocketAddr,
    /// The flow as the proxy sees it, which differs from what the sender knows if a NAT lies
    /// between.
    pub flow: Flow,
    /// Proves that who has it receives at the flow's source.
    pub cookie: Cookie,
}

/// Reads what both kinds begin with.
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
    w.put(&[first])?;
    w.put(handle)?;
    w.put(&MAGIC)?;
    w.put(&[VERSION])?;
    w.put(nonce)
}

impl Marker {
    /// Reads a marker from a whole datagram, which has [`MARKER_LEN`] bytes at least; what follows
    /// the fields is not looked at.
    ///
    /// # Errors
    /// [`ParseError`] says why it is none.
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

    /// Writes the marker to the front of `out` and gives its length, [`MARKER_LEN`].
    ///
    /// # Errors
    /// [`BufferTooShort`]; what was written so far is of no use then.
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
    /// Whether a datagram is an answer and nothing else: it begins with its first byte and has the
    /// name of the protocol in its place. [`Answer::parse`] may still find that it is a bad one.
    #[must_use]
    pub fn is_one(datagram: &[u8]) -> bool {
        // Every packet that a proxy sees is asked: nearly all end at their first byte.
        datagram.first() == Some(&ANSWER_BYTE)
            && datagram.get(1 + HANDLE_LEN..).is_some_and(|rest| rest.starts_with(&MAGIC))
    }

    /// Reads an answer from a whole datagram.
    ///
    /// # Errors
    /// [`ParseError`] says why it is none.
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

    /// Writes the answer to the front of `out` and gives its length in bytes, [`MARKER_LEN`] at
    /// most.
    ///
    /// # Errors
    /// [`BufferTooShort`]; what was written so far is of no use then.
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
