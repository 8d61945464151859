//! The common part of `h3-upload`, `h3-download` and `pubsub`: a client of HTTP/3 with a Sidekick
//! proxy's help.
//!
//! Copy from this example. The application is tokio-quiche's stock HTTP/3 client. `connect.rs` adds
//! the help by `quic_sidekick::tokio_quiche::assist` and `Handle::connect`.
//!
//! | file | what it does |
//! |---|---|
//! | `options.rs`, `target.rs` | the command line that both programs have, and its checks |
//! | `program.rs` | the start, the end, and signals |
//! | `discover.rs` | the addresses in HTTPS records (RFC 9460) |
//! | `resolver.rs` | queries to name servers |
//! | `connect.rs` | sockets, QUIC settings, the handshake, `assist` |
//! | `tls.rs` | the check of the server's certificate |
//! | `watch.rs` | a wrapper that records why a connection ended, and lets it end at once |
//! | `patience.rs` | when to abort because of a stalled server |
//! | `qlog.rs` | the connection's qlog file |
//! | `paths.rs` | which files paths name |
//! | `exchange.rs` | one request on the connection, and the close |
//! | `progress.rs`, `report.rs` | progress, and the common part of summary and JSON object |
//! | `words.rs`, `../text.rs` | a peer's text, made safe to show |

mod clock;
pub mod connect;
mod discover;
pub mod exchange;
pub mod options;
pub mod paths;
pub mod patience;
pub mod program;
pub mod progress;
mod qlog;
pub mod report;
mod resolver;
pub mod target;
#[path = "../text.rs"]
mod text;
mod tls;
mod watch;
pub mod words;

pub use clock::now;
/// The crates that applications of [`connect::connect`] use.
pub use tokio_quiche;
