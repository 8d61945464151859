//! The wire format (SPEC.md, section 4).
//!
//! It has three layers: [`discovery`] datagrams on the flow's own path, by which a sender finds a
//! proxy; [`Datagram`]s between the sender's adjacent socket and the proxy's port; and [`Message`]s
//! sealed inside the latter. Every `parse` is total: any bytes either parse or return a
//! [`ParseError`]. `emit` writes what `parse` reads.

mod cursor;
mod datagram;
pub mod discovery;
mod error;
mod fields;
mod header;
mod message;
mod parity;
mod request;
mod words;

pub use datagram::{
    Accept, Datagram, ECHO_LEN, Hello, MAX_KEPT_LEN, Part, Pattern, REPEAT_HEADER_LEN, Refusal,
    Repeat,
};
pub(crate) use datagram::{MIN_KEPT_LEN, hello_payload, parse_hello_payload};
pub use error::{BufferTooShort, ParseError};
pub(crate) use header::VERSION;
pub use header::{Cookie, SEAL_LEN, SessionNumber};
pub(crate) use header::{KEY_LEN, TAG_LEN};
pub(crate) use message::MAX_MESSAGE_LEN;
pub(crate) use message::low;
pub use message::{Keep, Message, Poll, Quack, Schedule, ShortQuack, Timing};
pub use parity::{MAX_PARITY_LEN, PARITY_HEADER_LEN, Parity, Protect};
pub use request::{MAX_RANGES, Range, Ranges, Request};
pub use words::Words;

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
