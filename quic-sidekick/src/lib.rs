//! Repairs QUIC losses on the first bad hop, without reading the traffic.
//!
//! Wi-Fi, trains and satellites lose packets close to you. TCP had proxies that fixed this; QUIC
//! encrypts its headers and locked them out. A *Sidekick* proxy on the path counts opaque packets
//! and tells your end which ones never arrived. This crate is that end for [quiche]: it repairs
//! what the *near segment*, the path to the proxy, lost after one round trip there, and doesn't
//! mistake it for congestion. The other end needs no change. Without a proxy, or with one that errs
//! or lies, the connection goes on as plain QUIC.
//!
//! # In a raw quiche loop
//! A raw loop needs five more lines:
//!
//! ```no_run
//! use quic_sidekick::{Config, Driver, Mode, quiche};
//! # use std::time::Instant;
//! # fn run(mut conn: quiche::Connection) -> std::io::Result<()> {
//! // Discover any proxy on the path. `Config::new` uses the proxy at a known address.
//! // `tune` has set the mode's congestion controller on the `quiche::Config`, and more.
//! let mut sidekick = Driver::new(Config::discover(Mode::Auto));
//! // Opens the adjacent UDP socket. Without it, the connection is plain QUIC.
//! if let Err(error) = sidekick.attach(&mut conn) { eprintln!("no help: {error}") }
//! loop {
//!     // ... pass the connection its received datagrams and its timeouts; then:
//!     sidekick.receive(&mut conn, Instant::now());
//!     loop {
//!         // ... read the streams: a proxy's copies may have filled gaps in them;
//!         // send all that `conn.send` returns; then:
//!         if !sidekick.on_sent(&mut conn, Instant::now()) { break }
//!     }
//!     // ... wait for the connection's socket, for the adjacent one, and until the earlier of both
//!     // deadlines:
//!     let (socket, deadline) = (sidekick.socket(), sidekick.poll_timeout());
//!     // ... and at the end, before `conn.close`: sidekick.stop();
//!     # let _ = (socket, deadline);
//! #   if conn.is_closed() { return Ok(()); }
//! }
//! # }
//! ```
//!
//! # In tokio-quiche
//! Two lines in the application, and two in its `Cargo.toml` (see the
//! module `tokio_quiche`, feature `tokio-quiche`).
//!
//! # In a qlog file
//! With the feature `qlog`, the crate writes the proxy's reports and its own reactions to the
//! connection's qlog file, if there is one (`quiche::Connection::set_qlog`).
//! `docs/protocol/QLOG.md` describes the events.

mod auto;
mod config;
mod driver;
mod measured;
mod qlog;
mod receive;
mod sidekick;
#[cfg(feature = "tokio-quiche")]
pub mod tokio_quiche;
pub mod tune;

pub use auto::{Chosen, Why};
#[cfg_attr(not(feature = "paper"), doc(hidden))]
pub use config::Paper;
pub use config::{Config, Mode, ParseModeError};
pub use driver::{AdjacentSocket, Driver};
pub use quiche;
pub use receive::{ParseRepairError, ReceiveRepair, ReceiveState, Received};
pub use sidekick::{Sidekick, Status};
pub use sidekick_protocol::{
    Assistance, DEFAULT_PORT, Handling, MAX_DATAGRAM_LEN, NearLoss, ParseKeyError, PublicKey,
    Reason, Route, Selection, SenderStats, Transmit,
};
