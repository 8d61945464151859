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
//! use quic_sidekick::{Config, Mode, Sidekick, quiche};
//! # use std::{net::UdpSocket, time::Instant};
//! # fn run(mut conn: quiche::Connection, adjacent: UdpSocket) -> std::io::Result<()> {
//! # let mut buf = [0; 1500];
//! // Whatever proxy is found on the path; `Config::new` takes the address of one that is known.
//! let config = Config::discover(Mode::Pacubic); // its controller: Mode::congestion_control
//! let mut sidekick = Sidekick::new(config);
//! sidekick.attach(&mut conn);
//! loop {
//!     // ... send all that `conn.send` gives, then:
//!     sidekick.on_sent(&mut conn, Instant::now());
//!     while let Some((len, proxy)) = sidekick.send(&mut buf) {
//!         // What the network does not take is lost, as it could be anywhere: no error of it ends the connection.
//!         let _ = adjacent.send_to(&buf[..len], proxy);
//!     }
//!     // ... wait for a datagram or for the earlier of `conn.timeout_instant()` and:
//!     let deadline = sidekick.timeout_instant();
//!     # let _ = deadline;
//!     sidekick.on_timeout(&mut conn, Instant::now());
//!     // ... and when a datagram has come to the adjacent socket:
//!     let Ok((len, from)) = adjacent.recv_from(&mut buf) else { continue };
//!     // True if it is worth asking `conn.send` again, as `on_sent` and `on_timeout` say, too:
//!     let _again = sidekick.recv(&buf[..len], from, &mut conn, Instant::now());
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
mod qlog;
mod sidekick;
#[cfg(feature = "tokio-quiche")]
pub mod tokio_quiche;

pub use auto::{Chosen, Why};
pub use config::{Config, Mode, ParseModeError};
pub use quiche;
pub use sidekick::{Sidekick, Status};
pub use sidekick_protocol::{
    Assistance, DEFAULT_PORT, MAX_DATAGRAM_LEN, ParseKeyError, PublicKey, Reason, Selection,
    SenderStats,
};
