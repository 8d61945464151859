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

use std::io::IsTerminal as _;

use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

pub use transport::{BidiStream, RecvStream, SendStream, wire};

/// Logs to standard error what `RUST_LOG` asks for: by default all warnings, and what this crate
/// and `program` inform of.
pub fn log(program: &str) {
    let asked = std::env::var("RUST_LOG").ok().and_then(|asked| asked.parse().ok());
    let filter = asked.unwrap_or_else(|| {
        let informing = ["h3_server", program].map(|target| (target, Level::INFO));
        Targets::new().with_default(Level::WARN).with_targets(informing)
    });
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    tracing_subscriber::registry().with(filter).with(lines).init();
}
