//! The common part of `h3-upload`, `h3-download` and `pubsub`: a client of HTTP/3 with a Sidekick
//! proxy's help.
//!
//! Copy from this example. `event_loop.rs` is a loop of quiche on tokio, with the plugin's four
//! calls: `attach`, `receive`, `on_sent` and `stop`.
//!
//! | file | what it does |
//! |---|---|
//! | `options.rs`, `target.rs` | the command line that both programs have, and its checks |
//! | `program.rs` | the start, the end, and signals |
//! | `discover.rs` | the server's addresses, also those in HTTPS records (RFC 9460) |
//! | `connect.rs` | addresses, socket, QUIC settings, the handshake |
//! | `event_loop.rs` | the connection's loop, with the plugin |
//! | `http3.rs` | one request on the connection |
//! | `tls.rs` | the check of the server's certificate |
//! | `patience.rs` | when to abort because of a stalled server |
//! | `qlog.rs` | the connection's qlog file |
//! | `paths.rs` | which files paths name |
//! | `exchange.rs` | the parts of a request that both programs have, and the close |
//! | `progress.rs`, `report.rs` | progress, and the common part of summary and JSON object |
//! | `words.rs`, `../text.rs` | a peer's text, made safe to show |

pub mod connect;
mod discover;
pub mod event_loop;
pub mod exchange;
pub mod http3;
pub mod options;
pub mod paths;
pub mod patience;
pub mod program;
pub mod progress;
mod qlog;
pub mod report;
pub mod target;
#[path = "../text.rs"]
mod text;
mod tls;
pub mod words;

use std::time::Instant;

/// What applications of [`connect::connect`] use.
pub use quic_sidekick::quiche;

/// The present time.
#[allow(clippy::disallowed_methods, reason = "a program's edge: it reads the real clock")]
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}
