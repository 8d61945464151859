//! Help from inside the network for QUIC.
//!
//! QUIC hides its headers, so the proxies that once repaired TCP on satellites, trains, phones and
//! Wi-Fi are blind. A *Sidekick* proxy on the path counts the opaque packets that pass and tells
//! the sender which ones it saw. This crate is the sender's side for [quiche]: it finds out which
//! packets were lost on the *near segment*, between the sender and the proxy, has their frames
//! resent at once, and tells the congestion controller where the loss happened. The receiver needs
//! nothing. Without a proxy, or with one that errs or lies, the connection goes on as plain QUIC.
//!
//! # In a raw quiche loop
//! Five lines beside those that are there already:
//!
//! ```no_run
//! use quic_sidekick::{Config, Driver, Mode, quiche};
//! # use std::time::Instant;
//! # fn run(mut conn: quiche::Connection) -> std::io::Result<()> {
//! // Any proxy on the path. `Config::new` asks the proxy at a known address.
//! // `Mode::congestion_control` names the controller that belongs to the mode.
//! let mut sidekick = Driver::new(Config::discover(Mode::Auto));
//! sidekick.attach(&mut conn)?; // opens a UDP socket beside the connection's own
//! loop {
//!     // ... pass to the connection what its own socket received, and its timeouts; then:
//!     sidekick.receive(&mut conn, Instant::now());
//!     loop {
//!         // ... send all that `conn.send` returns, then:
//!         if !sidekick.on_sent(&mut conn, Instant::now()) { break }
//!     }
//!     // ... wait for the connection's socket, for the socket beside it, and until the earlier of
//!     // both deadlines:
//!     let (socket, deadline) = (sidekick.socket(), sidekick.poll_timeout());
//!     # let _ = (socket, deadline);
//! #   if conn.is_closed() { return Ok(()); }
//! }
//! # }
//! ```
//!
//! # In tokio-quiche
//! One line in the application, and one in its `Cargo.toml` (see
//! [`tokio_quiche`](mod@tokio_quiche), feature `tokio-quiche`).
//!
//! # In a qlog file
//! With the feature `qlog`, what the proxy told and what was done about it is in the connection's
//! own qlog file, if it has one (`quiche::Connection::set_qlog`). `docs/protocol/QLOG.md`
//! describes the events.

mod auto;
mod config;
mod driver;
mod measured;
mod qlog;
mod sidekick;
#[cfg(feature = "tokio-quiche")]
pub mod tokio_quiche;

pub use auto::{Chosen, Why};
pub use config::{Config, Mode, ParseModeError};
pub use driver::{AdjacentSocket, Driver};
pub use quiche;
pub use sidekick::{Sidekick, Status};
pub use sidekick_protocol::{
    Assistance, DEFAULT_PORT, MAX_DATAGRAM_LEN, ParseKeyError, PublicKey, Reason, Selection,
    SenderStats,
};
