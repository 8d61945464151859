//! Repairs QUIC losses on the first bad hop, without reading the traffic.
//!
//! Wi-Fi, trains and satellites lose packets close to you. TCP had proxies that fixed this; QUIC
//! encrypts its headers and locked them out. A *Sidekick* proxy on the path counts opaque packets
//! and tells your end which ones never arrived. This crate is that end for [quiche]: it repairs
//! what the *near segment*, the path to the proxy, lost after one round trip there, and doesn't
//! mistake it for congestion. The other end needs no change. Without a proxy, or with one that errs
//! or lies, the connection goes on as plain QUIC.
//!
//! # In `Cargo.toml`
//! The crate is not on crates.io, because it brings quiche 0.30.0 with the hook, under quiche's
//! name. Put the second line in place of your own for quiche, and all that is `quiche::` stays as
//! it is; or remove yours, and import [`quiche`] from this crate. Two versions of quiche do not fit
//! each other, and Cargo cannot patch one that a crate names itself. `REV` is a commit of the
//! repository, and building BoringSSL takes a C toolchain, CMake and some minutes:
//!
//! ```toml
//! quic-sidekick = { git = "https://github.com/quic-sidekick/quic-sidekick", rev = "REV" }
//! quiche = { git = "https://github.com/quic-sidekick/quic-sidekick", rev = "REV" }
//! ```
//!
//! # In a raw quiche loop
//! A raw loop needs about ten more lines:
//!
//! ```no_run
//! use quic_sidekick::tune::{Tune, paced_until};
//! use quic_sidekick::{Config, Driver, Mode, quiche};
//! # use std::time::Instant;
//! # fn run(
//! #     mut config: quiche::Config,
//! #     connect: fn(&mut quiche::Config) -> quiche::Connection,
//! # ) -> Result<(), Box<dyn std::error::Error>> {
//! // Sets BBR2, pacing, path MTU discovery and more. For the discovery, set `IP_MTU_DISCOVER` on
//! // the socket first, and ignore EMSGSIZE.
//! Tune::client().apply(&mut config)?;
//! # let mut conn = connect(&mut config);
//! // Discover any proxy on the path. `Config::new` uses the proxy at a known address.
//! let mut sidekick = Driver::new(Config::discover(Mode::Auto));
//! // Opens the adjacent UDP socket. Without it, the connection is plain QUIC.
//! if let Err(error) = sidekick.attach(&mut conn) { eprintln!("no help: {error}") }
//! loop {
//!     // ... pass the connection its received datagrams and its timeouts; then:
//!     sidekick.receive(&mut conn, Instant::now());
//!     let wait = loop {
//!         // ... read the streams: a proxy's copies may have filled gaps in them;
//!         let wait = loop {
//!             // Instead of `SendInfo::at`: when the next packet may leave, if not now.
//!             let wait = paced_until(&conn, Instant::now());
//!             if wait.is_some() { break wait }
//!             // ... send what `conn.send` returns; if it is done:
//!             # #[allow(unreachable_code)]
//!             break None;
//!         };
//!         if !sidekick.on_sent(&mut conn, Instant::now()) { break wait }
//!     };
//!     // ... wait for the connection's socket, for the adjacent one, and until the earliest of
//!     // the connection's deadline, `wait`, and this one:
//!     let (socket, deadline) = (sidekick.socket(), sidekick.poll_timeout());
//!     # let _ = (socket, deadline, wait);
//!     // ... once the application is done: `sidekick.stop()`, then `conn.close`; the loop goes on
//! #   if conn.is_closed() { return Ok(()); }
//! }
//! # }
//! ```
//!
//! # In tokio-quiche
//! A wrapper around the application's driver, and two lines in its `Cargo.toml` (see the module
//! `tokio_quiche`, feature `tokio-quiche`).
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
pub use sidekick_protocol::policy::Carry;
pub use sidekick_protocol::{
    Assistance, DEFAULT_PORT, Handling, MAX_DATAGRAM_LEN, NearLoss, ParseKeyError, PublicKey,
    Reason, Route, Selection, SenderStats, Transmit,
};
