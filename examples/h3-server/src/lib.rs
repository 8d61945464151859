//! The code that the servers of the examples share. Their stack is quinn, h3 and rustls, without
//! Sidekick, and not the clients' quiche.
//!
//! | file | what it does |
//! |---|---|
//! | `identity.rs` | certificate and key, from files or generated for a test |
//! | `quota.rs` | places that clients occupy, together and each |
//! | `endpoint.rs` | the QUIC endpoint, the admission of connections, an orderly end |
//! | `connection.rs` | one HTTP/3 connection, from its settings to the end of its last request |
//! | `transport.rs`, `frames.rs` | h3's interface to quinn, which bounds what h3 keeps |
//! | `reply.rs` | short answers |

pub mod connection;
pub mod endpoint;
mod frames;
pub mod identity;
pub mod quota;
pub mod reply;
mod transport;

pub use transport::{BidiStream, RecvStream, SendStream, wire};
