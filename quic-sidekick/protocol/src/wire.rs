//! The messages of the protocol, as bytes (SPEC.md, section 4).
//!
//! [`Message::parse`] is total: every byte string is a message or a [`ParseError`]. [`Message::emit`] writes what
//! `parse` reads back.

mod cursor;

use crate::{Filter, Identification, Terms};
use cursor::{Reader, Writer};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::time::Duration;
use thiserror::Error;

/// The version that this crate speaks; the high nibble of every message's first byte.
pub const VERSION: u8 = 1;

/// The longest message in bytes: a quACK of 255 sums. It fits into every path that carries QUIC (1200 bytes).
pub const MAX_MESSAGE_LEN: usize = HEADER_LEN + 29 + 4 * 255;

const HEADER_LEN: usize = 9;

/// Names a session between one sender and one proxy; the sender draws it at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// A message with the session that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The session.
    pub session: SessionId,
    /// What is said.
    pub body: Body<'a>,
}

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Body<'a> {
    /// Sender: count my packets, please (SPEC.md, section 4.1).
    Hello(Hello),
    /// Proxy: I do, on these terms (section 4.2).
    Accept(Accept),
    /// Proxy: this is what I have seen (section 4.3).
    Quack(Quack<'a>),
    /// Sender: a quACK at once, please (section 4.4).
    Poll(Poll),
    /// Sender: this epoch is of no more use, begin the next (section 4.5).
    NewEpoch {
        /// The epoch to end.
        epoch: u32,
    },
    /// Either side: the session is over (section 4.6).
    Bye,
    /// Proxy: I know no such session (section 4.7).
    UnknownSession,
    /// Proxy: I will not count this flow (section 4.8).
    Refuse(Refusal),
}

/// The flow whose packets shall be counted and the terms that the sender would like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The flow's source port. Its source address is the one from which the HELLO comes.
    pub source_port: u16,
    /// The flow's destination.
    pub destination: SocketAddr,
    /// The terms asked for.
    pub terms: Terms,
}

/// The terms granted and the epoch that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accept {
    /// The epoch, not 0. It is unguessable, and repeating it proves that the sender receives at its address.
    pub epoch: u32,
    /// The terms granted: nowhere more than was asked for.
    pub terms: Terms,
    /// How many sums a poll may ask for; at least the threshold.
    pub kept_sums: u8,
}

/// A request for a quACK now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poll {
    /// The epoch that the sender is in.
    pub epoch: u32,
    /// Comes back in the answer; not 0.
    pub token: u32,
    /// How many sums the answer shall carry, 0 for as many as the threshold.
    pub sums: u8,
}

/// A cumulative report of the epoch's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quack<'a> {
    /// The epoch that it reports.
    pub epoch: u32,
    /// Grows by one from quACK to quACK, so that old ones can be told.
    pub sequence: u32,
    /// The token of the poll that it answers, 0 if none.
    pub token: u32,
    /// Time between the last packet's arrival and this quACK, in microseconds.
    pub age_us: u32,
    /// The first identifier of the epoch; 0 while `count` is 0.
    pub first: u32,
    /// The identifier that was seen last; 0 while `count` is 0.
    pub last: u32,
    /// Packets seen in the epoch, modulo 2^32.
    pub count: u32,
    /// The power sums, lowest power first.
    pub sums: Sums<'a>,
}

/// Why a proxy will not count a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// It has as many sessions as it may have.
    Full,
    /// It cannot do what the terms ask for.
    Terms,
}

/// Power sums, either words to be written or bytes as they were read.
#[derive(Clone, Copy, Debug)]
pub struct Sums<'a>(Repr<'a>);

#[derive(Clone, Copy, Debug)]
enum Repr<'a> {
    Words(&'a [u32]),
    Bytes(&'a [[u8; 4]]),
}

impl<'a> Sums<'a> {
    /// Sums to be written; past the 255th they do not fit and are left out.
    #[must_use]
    pub fn new(words: &'a [u32]) -> Self {
        Self(Repr::Words(words.get(..255).unwrap_or(words)))
    }

    /// How many there are: 0 to 255.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.0 {
            Repr::Words(words) => words.len(),
            Repr::Bytes(bytes) => bytes.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sums, lowest power first.
    pub fn iter(&self) -> impl Iterator<Item = u32> + 'a {
        let repr = self.0;
        (0..self.len()).filter_map(move |i| match repr {
            Repr::Words(words) => words.get(i).copied(),
            Repr::Bytes(bytes) => bytes.get(i).map(|b| u32::from_be_bytes(*b)),
        })
    }
}

impl PartialEq for Sums<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Sums<'_> {}

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseError {
    /// It ends before its last field.
    #[error("the message is cut short")]
    Truncated,
    /// Bytes follow its last field.
    #[error("bytes follow the message's end")]
    TrailingBytes,
    /// Another version, or not of this protocol.
    #[error("version {0} is not spoken here")]
    Version(u8),
    /// A type that version 1 does not have.
    #[error("message type {0} is unknown")]
    Type(u8),
    /// A field holds what it may not hold.
    #[error("the field `{0}` holds a value that is not allowed")]
    Field(&'static str),
}

/// The buffer is too short for the message; [`MAX_MESSAGE_LEN`] bytes are always enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the buffer is too short for the message")]
pub struct BufferTooShort;

const HELLO: u8 = 1;
const ACCEPT: u8 = 2;
const QUACK: u8 = 3;
const POLL: u8 = 4;
const NEW_EPOCH: u8 = 5;
const BYE: u8 = 6;
const UNKNOWN_SESSION: u8 = 7;
const REFUSE: u8 = 8;

impl<'a> Message<'a> {
    /// Reads a message from a whole datagram.
    ///
    /// # Errors
    /// [`ParseError`] says what is wrong; nothing of the datagram is to be believed then.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, ParseError> {
        let mut r = Reader::new(datagram);
        let first = r.u8()?;
        if first >> 4 != VERSION {
            return Err(ParseError::Version(first >> 4));
        }
        let session = SessionId(r.u64()?);
        let body = match first & 0x0f {
            HELLO => Body::Hello(Hello {
                source_port: nonzero(r.u16()?, "source port")?,
                destination: read_address(&mut r)?,
                terms: read_terms(&mut r)?,
            }),
            ACCEPT => {
                let accept = Accept {
                    epoch: nonzero(r.u32()?, "epoch")?,
                    terms: read_terms(&mut r)?,
                    kept_sums: r.u8()?,
                };
                if accept.kept_sums < accept.terms.threshold {
                    return Err(ParseError::Field("kept sums"));
                }
                Body::Accept(accept)
            }
            QUACK => {
                let [epoch, sequence, token, age_us, first, last, count] = r.words()?;
                let sums = usize::from(r.u8()?);
                let sums = Sums(Repr::Bytes(r.quads(sums)?));
                Body::Quack(Quack {
                    epoch: nonzero(epoch, "epoch")?,
                    sequence,
                    token,
                    age_us,
                    first,
                    last,
                    count,
                    sums,
                })
            }
            POLL => Body::Poll(Poll {
                epoch: nonzero(r.u32()?, "epoch")?,
                token: nonzero(r.u32()?, "token")?,
                sums: r.u8()?,
            }),
            NEW_EPOCH => Body::NewEpoch { epoch: nonzero(r.u32()?, "epoch")? },
            BYE => Body::Bye,
            UNKNOWN_SESSION => Body::UnknownSession,
            REFUSE => Body::Refuse(match r.u8()? {
                1 => Refusal::Full,
                2 => Refusal::Terms,
                _ => return Err(ParseError::Field("refusal")),
            }),
            other => return Err(ParseError::Type(other)),
        };
        r.end()?;
        Ok(Self { session, body })
    }

    /// Writes the message to the front of `out` and gives its length in bytes.
    ///
    /// # Errors
    /// [`BufferTooShort`]; what was written so far is of no use then.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, BufferTooShort> {
        let mut w = Writer::new(out);
        let kind = match self.body {
            Body::Hello(_) => HELLO,
            Body::Accept(_) => ACCEPT,
            Body::Quack(_) => QUACK,
            Body::Poll(_) => POLL,
            Body::NewEpoch { .. } => NEW_EPOCH,
            Body::Bye => BYE,
            Body::UnknownSession => UNKNOWN_SESSION,
            Body::Refuse(_) => REFUSE,
        };
        w.put(&[VERSION << 4 | kind])?;
        w.put(&self.session.0.to_be_bytes())?;
        match self.body {
            Body::Hello(hello) => {
                w.put(&hello.source_port.to_be_bytes())?;
                write_address(&mut w, hello.destination)?;
                write_terms(&mut w, &hello.terms)?;
            }
            Body::Accept(accept) => {
                w.put(&accept.epoch.to_be_bytes())?;
                write_terms(&mut w, &accept.terms)?;
                w.put(&[accept.kept_sums])?;
            }
            Body::Quack(q) => {
                for word in [q.epoch, q.sequence, q.token, q.age_us, q.first, q.last, q.count] {
                    w.put(&word.to_be_bytes())?;
                }
                w.put(&[u8::try_from(q.sums.len()).unwrap_or(u8::MAX)])?;
                for sum in q.sums.iter() {
                    w.put(&sum.to_be_bytes())?;
                }
            }
            Body::Poll(poll) => {
                w.put(&poll.epoch.to_be_bytes())?;
                w.put(&poll.token.to_be_bytes())?;
                w.put(&[poll.sums])?;
            }
            Body::NewEpoch { epoch } => w.put(&epoch.to_be_bytes())?,
            Body::Bye | Body::UnknownSession => {}
            Body::Refuse(Refusal::Full) => w.put(&[1])?,
            Body::Refuse(Refusal::Terms) => w.put(&[2])?,
        }
        Ok(w.len())
    }
}

/// A value that may not be 0.
fn nonzero<T: PartialEq + From<u8>>(value: T, field: &'static str) -> Result<T, ParseError> {
    if value == T::from(0) { Err(ParseError::Field(field)) } else { Ok(value) }
}

fn read_address(r: &mut Reader<'_>) -> Result<SocketAddr, ParseError> {
    let ip: IpAddr = match r.u8()? {
        4 => r.array::<4>()?.into(),
        6 => r.array::<16>()?.into(),
        _ => return Err(ParseError::Field("address family")),
    };
    Ok(SocketAddr::new(ip, nonzero(r.u16()?, "destination port")?))
}

fn write_address(w: &mut Writer<'_>, address: SocketAddr) -> Result<(), BufferTooShort> {
    match address.ip() {
        IpAddr::V4(ip) => {
            w.put(&[4])?;
            w.put(&ip.octets())?;
        }
        IpAddr::V6(ip) => {
            w.put(&[6])?;
            w.put(&ip.octets())?;
        }
    }
    w.put(&address.port().to_be_bytes())
}

fn read_terms(r: &mut Reader<'_>) -> Result<Terms, ParseError> {
    let threshold = nonzero(r.u8()?, "threshold")?;
    let every_packets = NonZeroU16::new(r.u16()?);
    let every = r.u32()?;
    let offset = r.u16()?;
    if offset > Identification::MAX_OFFSET {
        return Err(ParseError::Field("identifier offset"));
    }
    let filter = match r.u8()? {
        0 => Filter::All,
        1 => Filter::QuicShortHeader,
        _ => return Err(ParseError::Field("filter")),
    };
    let every = (every != 0).then(|| Duration::from_micros(every.into()));
    Ok(Terms { threshold, every_packets, every, identification: Identification { offset, filter } })
}

fn write_terms(w: &mut Writer<'_>, terms: &Terms) -> Result<(), BufferTooShort> {
    w.put(&[terms.threshold])?;
    w.put(&terms.every_packets.map_or(0, NonZeroU16::get).to_be_bytes())?;
    w.put(&terms.every.map_or(0, |every| crate::clock::micros(every).max(1)).to_be_bytes())?;
    w.put(&terms.identification.offset.to_be_bytes())?;
    w.put(&[match terms.identification.filter {
        Filter::All => 0,
        Filter::QuicShortHeader => 1,
    }])
}

#[cfg(test)]
mod tests;
