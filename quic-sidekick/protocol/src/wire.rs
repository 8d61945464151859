//! The wire format (SPEC.md, section 4).
//!
//! It has three layers: [`discovery`] datagrams on the flow's own path, by which a sender finds a
//! proxy; [`Datagram`]s between the sender's adjacent socket and the proxy's port; and [`Message`]s
//! sealed inside the latter. Every `parse` is total: any bytes either parse or return a
//! [`ParseError`]. `emit` writes what `parse` reads.

mod cursor;
mod datagram;
pub mod discovery;
mod fields;
mod message;
mod parity;
mod relay;
mod request;

pub use datagram::{
    Accept, Datagram, ECHO_LEN, Hello, MAX_KEPT_LEN, Part, Pattern, REPEAT_HEADER_LEN, Refusal,
    Repeat,
};
pub(crate) use datagram::{MIN_KEPT_LEN, hello_payload, parse_hello_payload};
pub use message::{Keep, Message, Poll, Quack, Schedule, ShortQuack, Timing};
pub(crate) use message::{MAX_MESSAGE_LEN, low};
pub use parity::{
    ListTime, MAX_PARITY_LEN, PARITY_HEADER_LEN, Parity, Protect, SentList, SentSymbol,
};
pub use relay::{Linked, Relay, Relayed};
pub use request::{MAX_RANGES, Range, Ranges, Request};
use std::fmt;
use thiserror::Error;

/// The length of the longest datagram in bytes: a PARITY with a repair symbol of the longest
/// datagram that a proxy keeps. All datagrams but REPEAT and PARITY fit every path that carries
/// QUIC (1200 bytes).
pub const MAX_DATAGRAM_LEN: usize = MAX_PARITY_LEN;

/// The number of a session's first epoch.
pub(crate) const FIRST_EPOCH: u16 = 1;

const _: () = assert!(REPEAT_HEADER_LEN + MAX_KEPT_LEN <= MAX_DATAGRAM_LEN);
const _: () = assert!(MAX_KEPT_LEN == sidekick_parity::MAX_DATAGRAM_LEN);
const _: () = assert!(SEAL_LEN + MAX_MESSAGE_LEN <= 1200);

#[cfg(test)]
mod tests;

/// The protocol version of this crate: the high nibble of every datagram's first byte.
pub(crate) const VERSION: u8 = 1;

/// The length of an X25519 public key, and of a cipher's key, in bytes.
pub(crate) const KEY_LEN: usize = 32;
/// The length of an authentication tag in bytes.
pub(crate) const TAG_LEN: usize = 16;

/// The bytes that a seal adds to a message: the datagram's header and the authentication tag.
pub const SEAL_LEN: usize = 9 + TAG_LEN;

/// A session's number at one of its two sides. That side chooses it, and the peer puts it in front
/// of each datagram. It distinguishes sessions and proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionNumber(pub u32);

/// A value that a proxy issues, and that the sender repeats, so that the proxy keeps no state
/// (SPEC.md, section 6.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cookie(pub [u8; Cookie::LEN]);

impl Cookie {
    /// Its length in bytes.
    pub const LEN: usize = 20;
    /// The absence of a cookie.
    pub const NONE: Self = Self([0; Self::LEN]);

    /// The MAC, which only the issuing proxy can compute.
    pub(crate) fn mac(&self) -> &[u8; 16] {
        let [_, _, _, _, mac @ ..] = &self.0;
        mac
    }
}

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A cookie is a secret of its holder.
        f.write_str(if *self == Self::NONE { "Cookie(none)" } else { "Cookie(..)" })
    }
}

/// Why bytes do not parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The input ends before its last field, or is shorter than required.
    #[error("the message is truncated")]
    Truncated,
    /// Bytes follow the last field.
    #[error("the message has trailing bytes")]
    TrailingBytes,
    /// Another version, or another protocol.
    #[error("version {0} is not supported")]
    Version(u8),
    /// A type that version 1 does not define.
    #[error("message type {0} is unknown")]
    Type(u8),
    /// A field holds a value that is not allowed.
    #[error("the field `{0}` holds a value that is not allowed")]
    Field(&'static str),
}

/// The output buffer is too short. [`MAX_DATAGRAM_LEN`] bytes are always
/// enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the buffer is too short")]
pub struct BufferTooShort;

/// The most words of a list.
const MAX_WORDS: usize = 255;

/// Words of 32 bits (SPEC.md, sections 4.2 and 4.3): to write, or as received. They are power sums,
/// or identifiers.
#[derive(Clone, Copy, Debug)]
pub struct Words<'a>(Repr<'a>);

#[derive(Clone, Copy, Debug)]
enum Repr<'a> {
    Values(&'a [u32]),
    Bytes(&'a [[u8; 4]]),
}

impl<'a> Words<'a> {
    /// Words as received, at most 255.
    fn received(bytes: &'a [[u8; 4]]) -> Self {
        Self(Repr::Bytes(bytes)).first(MAX_WORDS)
    }

    /// Words to write. Those after the 255th do not fit and are ignored.
    #[must_use]
    pub fn new(words: &'a [u32]) -> Self {
        Self(Repr::Values(words)).first(MAX_WORDS)
    }

    /// The number of words, 0 to 255.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.0 {
            Repr::Values(words) => words.len(),
            Repr::Bytes(bytes) => bytes.len(),
        }
    }

    /// Whether there is no word.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first `most` words, or all if there are no more.
    #[must_use]
    pub fn first(self, most: usize) -> Self {
        Self(match self.0 {
            Repr::Values(words) => Repr::Values(words.get(..most).unwrap_or(words)),
            Repr::Bytes(bytes) => Repr::Bytes(bytes.get(..most).unwrap_or(bytes)),
        })
    }

    /// Appends the words to `out`, in order.
    pub fn append_to(&self, out: &mut Vec<u32>) {
        match self.0 {
            Repr::Values(words) => out.extend_from_slice(words),
            Repr::Bytes(bytes) => out.extend(bytes.iter().map(|bytes| u32::from_be_bytes(*bytes))),
        }
    }

    /// The words, in order. Of power sums, the lowest power is first.
    pub fn iter(&self) -> impl Iterator<Item = u32> + 'a {
        let (words, bytes): (&[u32], &[[u8; 4]]) = match self.0 {
            Repr::Values(words) => (words, &[]),
            Repr::Bytes(bytes) => (&[], bytes),
        };
        words.iter().copied().chain(bytes.iter().map(|bytes| u32::from_be_bytes(*bytes)))
    }
}

impl PartialEq for Words<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Words<'_> {}
