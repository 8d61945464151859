//! Messages inside a seal (SPEC.md, section 4.3).

use super::cursor::{Reader, Writer};
use super::discovery::{HANDLE_LEN, NONCE_LEN};
use super::fields::nonzero;
use super::parity::{Protect, SentList, SentSymbol};
use super::relay::{Linked, Relay};
use super::request::{Ranges, Request};
use super::{BufferTooShort, Cookie, MAX_WORDS, ParseError, SEAL_LEN, Words};
use crate::clock::micros;
use std::time::Duration;

const QUACK: u8 = 1;
const POLL: u8 = 2;
const NEW_EPOCH: u8 = 3;
const EPOCH: u8 = 4;
const BYE: u8 = 5;
const SHORT_QUACK: u8 = 6;
const KEEP: u8 = 7;
const KEPT: u8 = 8;
const REQUEST: u8 = 9;
const NOTHING: u8 = 10;
const TAIL: u8 = 11;
const PROTECT: u8 = 12;
const SCHEDULE: u8 = 13;
const LIST: u8 = 14;
const SYMBOL: u8 = 15;
const LINK: u8 = 16;
const LINKED: u8 = 17;
const RELAY: u8 = 18;

/// The length of a quACK without its sums, in bytes.
const QUACK_LEN: usize = 22;
/// The length of a short quACK without its sums, in bytes.
const SHORT_QUACK_LEN: usize = 5;
/// The longest message in bytes, before it is sealed.
pub(crate) const MAX_MESSAGE_LEN: usize = QUACK_LEN + 4 * MAX_WORDS;

/// A message. Epochs are numbered from 1; the first begins with the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message<'a> {
    /// The proxy reports the packets that it counted.
    Quack(Quack<'a>),
    /// The proxy reports them in fewer bytes.
    ShortQuack(ShortQuack<'a>),
    /// The sender requests a quACK.
    Poll(Poll),
    /// The sender requests a new epoch.
    NewEpoch {
        /// The epoch to end, not 0.
        epoch: u16,
    },
    /// The proxy announces the current epoch.
    Epoch {
        /// The epoch, not 0.
        epoch: u16,
    },
    /// Either side ends the session.
    Bye,
    /// The sender asks the proxy to keep copies of the reverse flow's datagrams.
    Keep(Keep),
    /// The proxy grants a [`Keep`](Self::Keep), or refuses.
    Kept {
        /// How long it keeps each copy at most, in milliseconds; 0 if it keeps none.
        age_ms: u16,
    },
    /// The sender requests copies.
    Request(Request<'a>),
    /// The proxy has no datagram in some ranges of a request.
    Nothing {
        /// The request's number, not 0.
        number: u16,
        /// The ranges, not 0: bit 0 stands for the first.
        ranges: u16,
    },
    /// The reverse flow is silent.
    Tail {
        /// The identifier of the latest datagram that the proxy kept.
        last: u32,
        /// The number of datagrams that it kept since keeping began, modulo 2^32.
        passed: u32,
    },
    /// The sender asks for parity of the reverse flow.
    Protect(Protect),
    /// The sender asks for quACKs at other times than those of the terms, or at these again.
    Schedule(Schedule),
    /// The sender says in which order datagrams of the flow left.
    List(SentList<'a>),
    /// The sender sends parity of datagrams of the flow.
    Symbol(SentSymbol<'a>),
    /// The sender wants to use the link by which this arrives, too, or from the first link: no
    /// other any longer.
    Link {
        /// The answer repeats it.
        token: u16,
        /// The cookie of a [`Linked::Proof`] that arrived by this link, or
        /// [`Cookie::NONE`].
        cookie: Cookie,
    },
    /// The proxy answers a [`Link`](Self::Link).
    Linked {
        /// That of the [`Link`](Self::Link).
        token: u16,
        /// What it says.
        linked: Linked,
    },
    /// The sender asks the proxy to put a datagram of the flow on its way.
    Relay(Relay<'a>),
}

/// A request to keep copies. The proxy answers one without a valid cookie by an ANSWER along the
/// flow's path, which proves that the sender receives the reverse flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// How long each copy is useful, in milliseconds, not 0.
    pub age_ms: u16,
    /// The handle that the ANSWER repeats.
    pub handle: [u8; HANDLE_LEN],
    /// The nonce that the ANSWER repeats.
    pub nonce: [u8; NONCE_LEN],
    /// The cookie of an ANSWER to an earlier KEEP, or [`Cookie::NONE`].
    pub cookie: Cookie,
}

/// A request for an immediate quACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poll {
    /// The sender's current epoch, not 0.
    pub epoch: u16,
    /// The answer repeats it; not 0.
    pub token: u16,
    /// The number of sums to answer with; 0 for the threshold.
    pub sums: u8,
}

impl Poll {
    /// The length in bytes of a datagram with a poll.
    #[cfg(any(test, feature = "testing"))]
    pub const SEALED_LEN: usize = SEAL_LEN + 6;
}

/// A request for an immediate quACK, and for the later ones of the epoch at these times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The sender's current epoch, not 0. The request holds in this epoch.
    pub epoch: u16,
    /// The answer repeats it; not 0.
    pub token: u16,
    /// When the later quACKs leave.
    pub timing: Timing,
}

/// When quACKs leave that answer no poll. The terms replace lower values, so the default stands for
/// the terms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// After this many packets, if the terms have such a limit, or the proxy watches the flow.
    pub every_packets: u16,
    /// This long after the first packet that no quACK has reported, if the terms have such a limit.
    /// In whole microseconds, up to 2^32 - 1.
    pub every: Duration,
    /// The interval between the flow's packets if it is steady, and otherwise zero. The proxy then
    /// reports overdue packets, and ignores `every`. In whole microseconds, up to 2^32 - 1.
    pub interval: Duration,
}

impl Timing {
    /// A proxy watches no flow with a longer interval: a report of silence would come too late.
    pub const LONGEST_INTERVAL: Duration = Duration::from_secs(1);
}

/// A cumulative report of the epoch's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quack<'a> {
    /// The reported epoch, not 0.
    pub epoch: u16,
    /// The token of the poll that this answers, or 0.
    pub token: u16,
    /// The time from the last packet's arrival to this quACK, in microseconds.
    pub age_us: u32,
    /// The first identifier of the epoch; 0 while `count` is 0.
    pub first: u32,
    /// The identifier of the last packet; 0 while `count` is 0.
    pub last: u32,
    /// Packets counted in the epoch, modulo 2^32.
    pub count: u32,
    /// The power sums, lowest power first.
    pub sums: Words<'a>,
}

/// A cumulative report of the current epoch's packets, sent as soon as the last of them arrived. It
/// omits the fields that the sender knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortQuack<'a> {
    /// Packets counted in the epoch, modulo 2^16.
    pub count: u16,
    /// The identifier of the last packet, modulo 2^16.
    pub last: u16,
    /// The power sums, lowest power first.
    pub sums: Words<'a>,
}

impl Quack<'_> {
    /// The length in bytes of a datagram with a quACK of `sums` sums.
    #[must_use]
    pub fn sealed_len(sums: usize) -> usize {
        SEAL_LEN + QUACK_LEN + 4 * sums
    }
}

/// A number modulo 2^16.
pub(crate) fn low(number: u32) -> u16 {
    let [.., high, low] = number.to_be_bytes();
    u16::from_be_bytes([high, low])
}

impl ShortQuack<'_> {
    /// The length in bytes of a datagram with a short quACK of `sums` sums.
    #[must_use]
    pub fn sealed_len(sums: usize) -> usize {
        SEAL_LEN + SHORT_QUACK_LEN + 4 * sums
    }
}

impl<'a> Message<'a> {
    /// Reads a message from the plaintext of a seal.
    ///
    /// # Errors
    /// [`ParseError`] states what is wrong. The receiver must ignore the whole message then.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let mut r = Reader::new(bytes);
        let message = match r.u8()? {
            QUACK => {
                let (epoch, token) = (nonzero(r.u16()?, "epoch")?, r.u16()?);
                let [age_us, first, last, count] = r.words()?;
                let sums = usize::from(nonzero(r.u8()?, "number of sums")?);
                let sums = Words::received(r.quads(sums)?);
                Self::Quack(Quack { epoch, token, age_us, first, last, count, sums })
            }
            POLL => Self::Poll(Poll {
                epoch: nonzero(r.u16()?, "epoch")?,
                token: nonzero(r.u16()?, "token")?,
                sums: r.u8()?,
            }),
            NEW_EPOCH => Self::NewEpoch { epoch: nonzero(r.u16()?, "epoch")? },
            EPOCH => Self::Epoch { epoch: nonzero(r.u16()?, "epoch")? },
            BYE => Self::Bye,
            SHORT_QUACK => {
                let (count, last) = (r.u16()?, r.u16()?);
                // The seal authenticates the length.
                let sums = match r.rest().as_chunks::<4>() {
                    ([], _) | (_, [_, ..]) => return Err(ParseError::Truncated),
                    (sums, []) if sums.len() > MAX_WORDS => return Err(ParseError::TrailingBytes),
                    (sums, []) => Words::received(sums),
                };
                Self::ShortQuack(ShortQuack { count, last, sums })
            }
            KEEP => Self::Keep(Keep {
                age_ms: nonzero(r.u16()?, "age")?,
                handle: r.array()?,
                nonce: r.array()?,
                cookie: Cookie(r.array()?),
            }),
            KEPT => Self::Kept { age_ms: r.u16()? },
            REQUEST => {
                let number = nonzero(r.u16()?, "request number")?;
                // The seal authenticates the length.
                Self::Request(Request { number, ranges: Ranges::parse(r.rest())? })
            }
            NOTHING => {
                let number = nonzero(r.u16()?, "request number")?;
                Self::Nothing { number, ranges: nonzero(r.u16()?, "ranges")? }
            }
            TAIL => Self::Tail { last: r.u32()?, passed: r.u32()? },
            PROTECT => Self::Protect(Protect::parse(&mut r)?),
            SCHEDULE => Self::Schedule(Schedule {
                epoch: nonzero(r.u16()?, "epoch")?,
                token: nonzero(r.u16()?, "token")?,
                timing: Timing {
                    every_packets: r.u16()?,
                    every: Duration::from_micros(r.u32()?.into()),
                    interval: Duration::from_micros(r.u32()?.into()),
                },
            }),
            LIST => Self::List(SentList::parse(&mut r)?),
            SYMBOL => Self::Symbol(SentSymbol::parse(&mut r)?),
            LINK => Self::Link { token: r.u16()?, cookie: Cookie(r.array()?) },
            LINKED => Self::Linked { token: r.u16()?, linked: Linked::parse(&mut r)? },
            RELAY => Self::Relay(Relay::parse(&mut r)?),
            other => return Err(ParseError::Type(other)),
        };
        r.end()?;
        Ok(message)
    }

    /// Writes the message to the front of `out` and returns its length in bytes.
    ///
    /// # Errors
    /// [`BufferTooShort`]; the contents of `out` are then unspecified.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, BufferTooShort> {
        let mut w = Writer::new(out);
        match self {
            Self::Quack(q) => {
                w.put_all(&[&[QUACK], &q.epoch.to_be_bytes(), &q.token.to_be_bytes()])?;
                w.words([q.age_us, q.first, q.last, q.count])?;
                w.put(&[u8::try_from(q.sums.len()).unwrap_or(u8::MAX)])?;
                w.words(q.sums.iter())?;
            }
            Self::ShortQuack(q) => {
                w.put_all(&[&[SHORT_QUACK], &q.count.to_be_bytes(), &q.last.to_be_bytes()])?;
                w.words(q.sums.iter())?;
            }
            Self::Poll(Poll { epoch, token, sums }) => {
                w.put_all(&[&[POLL], &epoch.to_be_bytes(), &token.to_be_bytes(), &[*sums]])?;
            }
            Self::NewEpoch { epoch } => w.put_all(&[&[NEW_EPOCH], &epoch.to_be_bytes()])?,
            Self::Epoch { epoch } => w.put_all(&[&[EPOCH], &epoch.to_be_bytes()])?,
            Self::Bye => w.put(&[BYE])?,
            Self::Keep(Keep { age_ms, handle, nonce, cookie }) => {
                w.put_all(&[&[KEEP], &age_ms.to_be_bytes(), handle, nonce, &cookie.0])?;
            }
            Self::Kept { age_ms } => w.put_all(&[&[KEPT], &age_ms.to_be_bytes()])?,
            Self::Request(Request { number, ranges }) => {
                w.put_all(&[&[REQUEST], &number.to_be_bytes()])?;
                ranges.emit(&mut w)?;
            }
            Self::Nothing { number, ranges } => {
                w.put_all(&[&[NOTHING], &number.to_be_bytes(), &ranges.to_be_bytes()])?;
            }
            Self::Tail { last, passed } => {
                w.put(&[TAIL])?;
                w.words([*last, *passed])?;
            }
            Self::Protect(protect) => {
                w.put(&[PROTECT])?;
                protect.emit(&mut w)?;
            }
            Self::List(list) => {
                w.put(&[LIST])?;
                list.emit(&mut w)?;
            }
            Self::Symbol(symbol) => {
                w.put(&[SYMBOL])?;
                symbol.emit(&mut w)?;
            }
            Self::Link { token, cookie } => {
                w.put_all(&[&[LINK], &token.to_be_bytes(), &cookie.0])?;
            }
            Self::Linked { token, linked } => {
                w.put_all(&[&[LINKED], &token.to_be_bytes()])?;
                linked.emit(&mut w)?;
            }
            Self::Relay(relay) => {
                w.put(&[RELAY])?;
                relay.emit(&mut w)?;
            }
            Self::Schedule(Schedule { epoch, token, timing }) => {
                w.put_all(&[&[SCHEDULE], &epoch.to_be_bytes(), &token.to_be_bytes()])?;
                w.put(&timing.every_packets.to_be_bytes())?;
                w.words([micros(timing.every), micros(timing.interval)])?;
            }
        }
        Ok(w.len())
    }
}
