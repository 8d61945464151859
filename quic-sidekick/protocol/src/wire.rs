//! What goes over the wire, as bytes (SPEC.md, section 4).
//!
//! Three kinds of things do: [`path`] datagrams on the flow's own path, by which a proxy is found;
//! [`Datagram`]s between the sender's adjacent socket and the proxy's port; and the [`Message`]s
//! that are sealed inside of the latter once both sides have keys. Every `parse` is total: any byte
//! string is what it looks for or a [`ParseError`]. `emit` writes what `parse` reads back.

mod cursor;
mod datagram;
pub mod discovery;
mod error;
mod fields;
mod header;
mod message;

pub use datagram::{
    ACCEPT_PAYLOAD_LEN, Accept, Datagram, ECHO_LEN, HELLO_PAYLOAD_LEN, Hello, Pattern, Refusal,
};
pub(crate) use datagram::{hello_payload, parse_hello_payload};
pub use error::{BufferTooShort, ParseError};
pub use header::{Cookie, SEAL_LEN, SessionNumber, VERSION};
pub(crate) use message::MAX_MESSAGE_LEN;
pub(crate) use message::low;
pub use message::{Message, Poll, Quack, ShortQuack, Sums};

/// The longest datagram in bytes: a sealed quACK of 255 sums. It fits into every path that carries
/// QUIC (1200 bytes).
pub const MAX_DATAGRAM_LEN: usize = SEAL_LEN + MAX_MESSAGE_LEN;

#[cfg(test)]
mod tests;
