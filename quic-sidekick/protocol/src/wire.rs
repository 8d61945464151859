//! The wire format (SPEC.md, section 4).
//!
//! It has three layers: [`discovery`] datagrams on the flow's own path, by which a sender finds a
//! proxy; [`Datagram`]s between the sender's adjacent socket and the proxy's port; and [`Message`]s
//! sealed inside the latter. Every `parse` is total: any byte string either parses or returns a
//! [`ParseError`]. `emit` writes what `parse` reads.

mod cursor;
mod datagram;
pub mod discovery;
mod error;
mod fields;
mod header;
mod message;
mod request;

pub use datagram::{
    Accept, Datagram, ECHO_LEN, Hello, MAX_KEPT_LEN, Pattern, REPEAT_HEADER_LEN, Refusal, Repeat,
};
pub(crate) use datagram::{hello_payload, parse_hello_payload};
pub use error::{BufferTooShort, ParseError};
#[cfg(test)]
pub(crate) use header::VERSION;
pub use header::{Cookie, SEAL_LEN, SessionNumber};
pub(crate) use header::{KEY_LEN, TAG_LEN};
pub(crate) use message::MAX_MESSAGE_LEN;
pub(crate) use message::low;
pub use message::{Keep, Message, Poll, Quack, ShortQuack, Sums};
pub use request::{MAX_RANGES, Range, Ranges, Request};

/// The length of the longest datagram in bytes: a REPEAT of the longest datagram that a proxy
/// keeps. All other datagrams fit every path that carries QUIC (1200 bytes).
pub const MAX_DATAGRAM_LEN: usize = REPEAT_HEADER_LEN + MAX_KEPT_LEN;

/// The number of a session's first epoch.
pub(crate) const FIRST_EPOCH: u16 = 1;

const _: () = assert!(SEAL_LEN + MAX_MESSAGE_LEN <= 1200);

#[cfg(test)]
mod tests;
