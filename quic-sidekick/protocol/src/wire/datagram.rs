//! Datagrams between the sender's adjacent socket and the proxy's port (SPEC.md, section 4.2).

use super::cursor::{Reader, Writer};
use super::fields::{nonzero, read_flow, read_terms, write_flow, write_terms};
use super::message::MAX_MESSAGE_LEN;
use super::parity::Parity;
use super::{BufferTooShort, Cookie, KEY_LEN, ParseError, SessionNumber, TAG_LEN, VERSION};
use crate::identify::Flow;
use crate::terms::Terms;
use std::net::SocketAddr;
use std::ops::Range;

const HELLO: u8 = 1;
const RETRY: u8 = 2;
const ACCEPT: u8 = 3;
const REFUSE: u8 = 4;
const UNKNOWN_SESSION: u8 = 5;
const SEALED: u8 = 6;
const REPEAT: u8 = 7;
const PARITY: u8 = 8;

/// The length of the shortest datagram that a proxy keeps, in bytes: an identifier.
pub(crate) const MIN_KEPT_LEN: usize = 4;
/// The length of the longest datagram that a proxy keeps, in bytes: on a path with IPv4 packets of
/// 1500 bytes.
pub const MAX_KEPT_LEN: usize = 1472;
/// The number of bytes before the copy in a REPEAT.
pub const REPEAT_HEADER_LEN: usize = 10;

/// The number of bytes of the HELLO's handshake message that an unauthenticated answer must repeat.
pub const ECHO_LEN: usize = 8;

/// The length of the first handshake message's payload in bytes: the terms, and zero padding that
/// keeps a HELLO longer than any answer to it.
pub(super) const HELLO_PAYLOAD_LEN: usize = 64;

/// The length of the second handshake message's payload in bytes.
pub(super) const ACCEPT_PAYLOAD_LEN: usize = 16;

/// The Noise pattern of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// NX: the sender accepts any proxy on its path, and learns its key.
    Unpinned,
    /// NK: the sender accepts only the proxy with the pinned key.
    Pinned,
}

impl Pattern {
    /// The length of the first handshake message in bytes.
    #[must_use]
    pub fn hello_len(self) -> usize {
        match self {
            Self::Unpinned => KEY_LEN + HELLO_PAYLOAD_LEN,
            Self::Pinned => KEY_LEN + HELLO_PAYLOAD_LEN + TAG_LEN,
        }
    }

    /// The length of the second handshake message in bytes.
    #[must_use]
    pub fn accept_len(self) -> usize {
        match self {
            Self::Unpinned => KEY_LEN + KEY_LEN + TAG_LEN + ACCEPT_PAYLOAD_LEN + TAG_LEN,
            Self::Pinned => KEY_LEN + ACCEPT_PAYLOAD_LEN + TAG_LEN,
        }
    }
}

/// A datagram between the adjacent socket and the proxy's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Datagram<'a> {
    /// The sender requests a session.
    Hello(Hello<'a>),
    /// The proxy requests a HELLO with this cookie, which proves the sender's address.
    Retry {
        /// The number that the sender chose.
        session: SessionNumber,
        /// The first bytes of the HELLO's handshake message.
        echo: [u8; ECHO_LEN],
        /// The cookie.
        cookie: Cookie,
    },
    /// The proxy accepts the session. The handshake message holds an [`Accept`].
    Accept {
        /// The number that the sender chose.
        session: SessionNumber,
        /// The second handshake message.
        handshake: &'a [u8],
    },
    /// The proxy refuses the session.
    Refuse {
        /// The number that the sender chose.
        session: SessionNumber,
        /// The first bytes of the HELLO's handshake message.
        echo: [u8; ECHO_LEN],
        /// The reason.
        why: Refusal,
    },
    /// The proxy does not hold the session.
    UnknownSession {
        /// The number that the sender used, chosen by a proxy at this address.
        session: SessionNumber,
    },
    /// A sealed [`super::Message`], from either side.
    Sealed {
        /// The number that the datagram's receiver chose.
        session: SessionNumber,
        /// The number of sealed datagrams before it in this direction, and the seal's nonce.
        sequence: u32,
        /// The message, encrypted, and its authentication tag.
        ciphertext: &'a [u8],
    },
    /// The proxy repeats a datagram of the reverse flow. It has no seal: the copy authenticates
    /// itself, and with a seal it would be too long for its path.
    Repeat(Repeat<'a>),
    /// Parity of the reverse flow. It has no seal: the rebuilt datagrams authenticate themselves.
    Parity(Parity<'a>),
}

/// A copy of a datagram of the reverse flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeat<'a> {
    /// The number that the sender chose.
    pub session: SessionNumber,
    /// The number of the request, not 0.
    pub number: u16,
    /// The place of its range in the request, 0 to 15.
    pub range: u8,
    /// Its place in the range, below `total`.
    pub index: u8,
    /// The number of copies that the proxy sends for the range, not 0.
    pub total: u8,
    /// Which part of the datagram this is.
    pub part: Part,
    /// The datagram, or the part, 4 to [`MAX_KEPT_LEN`] bytes.
    pub datagram: &'a [u8],
}

/// A part of a copy or of a repair symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Whole,
    /// Its first bytes; the others come by themselves.
    First,
    /// Its last bytes.
    Second,
}

impl Part {
    pub(super) fn of(number: u8) -> Result<Self, ParseError> {
        [Self::Whole, Self::First, Self::Second]
            .get(usize::from(number))
            .copied()
            .ok_or(ParseError::Field("part"))
    }

    pub(crate) fn number(self) -> u8 {
        self as u8
    }

    /// The part of `len` bytes that is sent next, and its place in them: all, unless they are more
    /// than `most`. `is_begun` says that the first part was sent.
    pub(crate) fn next_of(len: usize, most: usize, is_begun: bool) -> (Self, Range<usize>) {
        match (len > most, is_begun) {
            (false, _) => (Self::Whole, 0..len),
            (true, false) => (Self::First, 0..len / 2),
            (true, true) => (Self::Second, len / 2..len),
        }
    }

    /// The whole of this part and the other one.
    pub(crate) fn join(self, part: &[u8], other: &[u8]) -> Vec<u8> {
        if self == Self::Second { [other, part].concat() } else { [part, other].concat() }
    }
}

/// A request to count the packets of a flow, with the first handshake message, which holds the
/// requested terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// The number that the sender chose for the session.
    pub session: SessionNumber,
    /// The flow as the proxy sees it. An unspecified source address stands for the HELLO's own.
    pub flow: Flow,
    /// A cookie of this proxy, or [`Cookie::NONE`].
    pub cookie: Cookie,
    /// The Noise pattern of the handshake.
    pub pattern: Pattern,
    /// The first handshake message, [`Pattern::hello_len`] bytes.
    pub handshake: &'a [u8],
}

impl Hello<'_> {
    /// The flow that a HELLO from `from` asks for. An unspecified source address stands for `from`.
    pub(crate) fn flow_from(&self, from: SocketAddr) -> Flow {
        let source = self.flow.source;
        let ip = if source.ip().is_unspecified() { from.ip() } else { source.ip() };
        Flow { source: SocketAddr::new(ip, source.port()), ..self.flow }.canonical()
    }

    /// The bytes that an unauthenticated answer must repeat.
    #[must_use]
    pub fn echo(&self) -> [u8; ECHO_LEN] {
        self.handshake.first_chunk().copied().unwrap_or_default()
    }
}

/// The payload of the second handshake message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accept {
    /// The number that the proxy chose for the session.
    pub session: SessionNumber,
    /// The terms granted, which never exceed the requested terms.
    pub terms: Terms,
    /// The most sums that a poll may request; at least the threshold.
    pub kept_sums: u8,
    /// The proxy puts the flow in the order of LISTs.
    pub orders: bool,
}

/// Why a proxy refuses a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// It has reached its limit of sessions.
    Full,
    /// It cannot grant the terms.
    Terms,
    /// It counts the flow for a sender with a stronger proof, or the HELLO proves too little.
    Taken,
}

impl<'a> Datagram<'a> {
    /// Reads a complete datagram.
    ///
    /// # Errors
    /// [`ParseError`] states what is wrong. The receiver must ignore the whole datagram then.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, ParseError> {
        let mut r = Reader::new(datagram);
        let first = r.u8()?;
        if first >> 4 != VERSION {
            return Err(ParseError::Version(first >> 4));
        }
        let session = SessionNumber(r.u32()?);
        let datagram = match first & 0x0f {
            HELLO => {
                let flow = read_flow(&mut r)?;
                let cookie = Cookie(r.array()?);
                let pattern = match r.u8()? {
                    0 => Pattern::Unpinned,
                    1 => Pattern::Pinned,
                    _ => return Err(ParseError::Field("pattern")),
                };
                Self::Hello(Hello {
                    session,
                    flow,
                    cookie,
                    pattern,
                    handshake: r.bytes(pattern.hello_len())?,
                })
            }
            RETRY => {
                let (echo, cookie) = (r.array()?, Cookie(r.array()?));
                if cookie == Cookie::NONE {
                    return Err(ParseError::Field("cookie"));
                }
                Self::Retry { session, echo, cookie }
            }
            ACCEPT => {
                let handshake = r.rest();
                if [Pattern::Unpinned, Pattern::Pinned]
                    .iter()
                    .all(|p| p.accept_len() != handshake.len())
                {
                    return Err(ParseError::Field("handshake"));
                }
                Self::Accept { session, handshake }
            }
            REFUSE => {
                let echo = r.array()?;
                let why = match r.u8()? {
                    1 => Refusal::Full,
                    2 => Refusal::Terms,
                    3 => Refusal::Taken,
                    _ => return Err(ParseError::Field("refusal")),
                };
                Self::Refuse { session, echo, why }
            }
            UNKNOWN_SESSION => Self::UnknownSession { session },
            SEALED => {
                let sequence = r.u32()?;
                let ciphertext = r.rest();
                if ciphertext.len() <= TAG_LEN {
                    return Err(ParseError::Truncated);
                }
                if ciphertext.len() > MAX_MESSAGE_LEN + TAG_LEN {
                    return Err(ParseError::TrailingBytes);
                }
                Self::Sealed { session, sequence, ciphertext }
            }
            REPEAT => {
                let number = nonzero(r.u16()?, "request number")?;
                let [place, index, total] = r.array()?;
                let (range, part) = (place & 0xf, Part::of(place >> 4)?);
                if index >= total {
                    return Err(ParseError::Field("range"));
                }
                let datagram = r.rest();
                match datagram.len() {
                    ..MIN_KEPT_LEN => return Err(ParseError::Truncated),
                    MIN_KEPT_LEN..=MAX_KEPT_LEN => {}
                    _ => return Err(ParseError::TrailingBytes),
                }
                Self::Repeat(Repeat { session, number, range, index, total, part, datagram })
            }
            PARITY => Self::Parity(Parity::parse(session, &mut r)?),
            other => return Err(ParseError::Type(other)),
        };
        r.end()?;
        Ok(datagram)
    }

    /// Writes the datagram to the front of `out` and returns its length in bytes.
    ///
    /// # Errors
    /// [`BufferTooShort`]; the contents of `out` are then unspecified.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, BufferTooShort> {
        let mut w = Writer::new(out);
        let (kind, session) = match *self {
            Self::Hello(hello) => (HELLO, hello.session),
            Self::Retry { session, .. } => (RETRY, session),
            Self::Accept { session, .. } => (ACCEPT, session),
            Self::Refuse { session, .. } => (REFUSE, session),
            Self::UnknownSession { session } => (UNKNOWN_SESSION, session),
            Self::Sealed { session, .. } => (SEALED, session),
            Self::Repeat(repeat) => (REPEAT, repeat.session),
            Self::Parity(parity) => (PARITY, parity.session),
        };
        w.put_all(&[&[VERSION << 4 | kind], &session.0.to_be_bytes()])?;
        match *self {
            Self::Hello(hello) => {
                let pattern = match hello.pattern {
                    Pattern::Unpinned => 0,
                    Pattern::Pinned => 1,
                };
                write_flow(&mut w, &hello.flow)?;
                w.put_all(&[&hello.cookie.0, &[pattern], hello.handshake])?;
            }
            Self::Retry { echo, cookie, .. } => w.put_all(&[&echo, &cookie.0])?,
            Self::Accept { handshake, .. } => w.put(handshake)?,
            Self::Refuse { echo, why, .. } => {
                let reason = match why {
                    Refusal::Full => 1,
                    Refusal::Terms => 2,
                    Refusal::Taken => 3,
                };
                w.put_all(&[&echo, &[reason]])?;
            }
            Self::UnknownSession { .. } => {}
            Self::Sealed { sequence, ciphertext, .. } => {
                w.put_all(&[&sequence.to_be_bytes(), ciphertext])?;
            }
            Self::Repeat(Repeat { number, range, index, total, part, datagram, .. }) => {
                let place = range | part.number() << 4;
                w.put_all(&[&number.to_be_bytes(), &[place, index, total], datagram])?;
            }
            Self::Parity(parity) => parity.emit(&mut w)?,
        }
        Ok(w.len())
    }
}

/// Reads the first handshake message's payload: the terms, and padding that is ignored.
pub(crate) fn parse_hello_payload(payload: &[u8]) -> Result<Terms, ParseError> {
    read_terms(&mut Reader::new(payload))
}

/// The first handshake message's payload with these terms.
pub(crate) fn hello_payload(terms: &Terms) -> Result<[u8; HELLO_PAYLOAD_LEN], BufferTooShort> {
    let mut payload = [0; HELLO_PAYLOAD_LEN];
    write_terms(&mut Writer::new(&mut payload), terms)?;
    Ok(payload)
}

impl Accept {
    /// Reads the second handshake message's payload.
    ///
    /// # Errors
    /// [`ParseError`] states what is wrong.
    pub fn parse(payload: &[u8]) -> Result<Self, ParseError> {
        let mut r = Reader::new(payload);
        let accept = Self {
            session: SessionNumber(r.u32()?),
            terms: read_terms(&mut r)?,
            kept_sums: nonzero(r.u8()?, "kept sums")?,
            orders: match r.u8()? {
                0 => false,
                1 => true,
                _ => return Err(ParseError::Field("orders")),
            },
        };
        r.end()?;
        if accept.kept_sums < accept.terms.threshold {
            return Err(ParseError::Field("kept sums"));
        }
        Ok(accept)
    }

    /// The second handshake message's payload.
    ///
    /// # Errors
    /// None: the payload always fits. The writer's type includes [`BufferTooShort`].
    pub fn emit(&self) -> Result<[u8; ACCEPT_PAYLOAD_LEN], BufferTooShort> {
        let mut payload = [0; ACCEPT_PAYLOAD_LEN];
        let mut w = Writer::new(&mut payload);
        w.put(&self.session.0.to_be_bytes())?;
        write_terms(&mut w, &self.terms)?;
        w.put(&[self.kept_sums, self.orders.into()])?;
        Ok(payload)
    }
}
