//! What goes over the wire, as bytes (SPEC.md, section 4).
//!
//! Three kinds of things do: [`path`] datagrams on the flow's own path, by which a proxy is found;
//! [`Datagram`]s between the sender's adjacent socket and the proxy's port; and the [`Message`]s
//! that are sealed inside of the latter once both sides have keys. Every `parse` is total: any byte
//! string is what it looks for or a [`ParseError`]. `emit` writes what `parse` reads back.

mod cursor;
mod datagram;
mod fields;
mod message;
pub mod path;

pub use datagram::{
    ACCEPT_PAYLOAD_LEN, Accept, Datagram, ECHO_LEN, HELLO_PAYLOAD_LEN, Hello, Pattern, Refusal,
};
pub(crate) use datagram::{hello_payload, parse_hello_payload};
pub(crate) use message::MAX_MESSAGE_LEN;
pub(crate) use message::low;
pub use message::{Message, Poll, Quack, ShortQuack, Sums};

use std::fmt;
use thiserror::Error;

/// The version that this crate speaks; the high nibble of every datagram's first byte.
pub const VERSION: u8 = 1;

/// The longest datagram in bytes: a sealed quACK of 255 sums. It fits into every path that carries
/// QUIC (1200 bytes).
pub const MAX_DATAGRAM_LEN: usize = SEAL_LEN + MAX_MESSAGE_LEN;

/// What a seal adds to a message: the header of the datagram and the authentication tag.
pub const SEAL_LEN: usize = 9 + 16;

/// Names a session to one of its two sides, which has chosen the number; the other side puts it in
/// front of what it sends. It keeps sessions apart and proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionNumber(pub u32);

/// What a proxy gives to a sender and wants back, instead of remembering it (SPEC.md, section 6.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cookie(pub [u8; Cookie::LEN]);

impl Cookie {
    /// Its length in bytes.
    pub const LEN: usize = 20;
    /// Stands for no cookie.
    pub const NONE: Self = Self([0; Self::LEN]);

    /// The MAC, which only its proxy can compute.
    pub(crate) fn mac(&self) -> &[u8; 16] {
        let [_, _, _, _, mac @ ..] = &self.0;
        mac
    }
}

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Whoever has a cookie can use it.
        f.write_str(if *self == Self::NONE { "Cookie(none)" } else { "Cookie(..)" })
    }
}

/// Why bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseError {
    /// It ends before its last field, or is shorter than it has to be.
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

/// The buffer is too short; [`MAX_DATAGRAM_LEN`] bytes are always enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the buffer is too short")]
pub struct BufferTooShort;

#[cfg(test)]
mod tests;
