//! The Sidekick protocol, version 1: its messages and its two state machines.
//!
//! Use it to help a transport other than quiche's QUIC, or to build a proxy. [`Sender`] learns
//! which of its opaque packets a proxy on the path never saw, and [`Observer`] is that proxy: it
//! counts a flow's packets by a few ciphertext bytes of each, and reports their power sums in a
//! *quACK*. `docs/protocol/SPEC.md` is the specification, whose sections the code cites.
//!
//! Time and bytes are arguments, so the same code runs in a daemon, in an application and under
//! virtual time. The crate reads no clock, opens no socket, logs nothing and allocates nothing per
//! packet.
//!
//! # Driving a state machine
//! Inputs are [`Sender::on_sent`], [`Sender::handle_input`] and [`Sender::on_timeout`]; for the
//! proxy [`Observer::observe`], [`Observer::handle_input`] and [`Observer::on_timeout`]. After each
//! input call `poll_transmit` until it returns `None`, drain the lost packets, and arm a timer for
//! `poll_timeout`.
//!
//! ```
//! use sidekick_protocol::{
//!     Flow, MAX_DATAGRAM_LEN, Observed, Observer, ObserverConfig, Payload, Sender, SenderConfig,
//! };
//! use std::net::SocketAddr;
//! use std::time::Instant;
//!
//! let now = Instant::now();
//! let flow = Flow { source: "192.0.2.1:4000".parse()?, destination: "198.51.100.7:443".parse()? };
//! let port = "192.0.2.254:5252".parse()?;
//! let mut sender = Sender::new(SenderConfig::of(port), [1; 32]);
//! let mut proxy = Observer::new(ObserverConfig::default(), [2; 32])?;
//! let (adjacent, mut buffer) = ("192.0.2.1:5000".parse::<SocketAddr>()?, [0; MAX_DATAGRAM_LEN]);
//!
//! sender.start(flow, now);
//! // Set-up: HELLO, RETRY, HELLO with a cookie, ACCEPT, POLL, quACK.
//! while let Some(transmit) = sender.poll_transmit(&mut buffer) {
//!     // A HELLO without a cookie returns an error, but the proxy answers it with a RETRY.
//!     let _ = proxy.handle_input(adjacent, &buffer[..transmit.size], now);
//!     while let Some(transmit) = proxy.poll_transmit(&mut buffer) {
//!         sender.handle_input(port, &buffer[..transmit.size], now)?;
//!     }
//! }
//! // A packet leaves the sender, and the proxy captures it.
//! let datagram = [0x5a; 1200];
//! sender.on_sent(0, Payload::whole(&datagram), now);
//! let seen = proxy.observe(&flow, 0, Payload::whole(&datagram), now);
//! assert_eq!(seen, Observed::Counted);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod allowance;
mod clock;
mod cookie;
mod errors;
mod gate;
mod identify;
mod in_order;
#[cfg(feature = "testing")]
pub mod keys;
#[cfg(not(feature = "testing"))]
#[allow(unreachable_pub, reason = "the feature `testing` makes it public")]
mod keys;
mod loss_floor;
pub mod observer;
pub mod policy;
pub mod repair;
pub mod sender;
mod store;
pub mod terms;
#[cfg(test)]
mod testing;
mod transmit;
#[cfg(test)]
mod vectors;
#[cfg(feature = "testing")]
pub mod wire;
#[cfg(not(feature = "testing"))]
#[allow(unreachable_pub, reason = "the feature `testing` makes it public")]
mod wire;

pub use allowance::Allowance;
pub use errors::is_network_error;
pub use gate::{Delivery, Gate, GateCounters, Hold, ListRejected, ListedGap};
pub use identify::{Filter, Flow, HEAD_LEN, Identification, Payload, Position};
pub use in_order::{InOrder, InOrderState, LeaveInOrder};
pub use keys::{ParseKeyError, PublicKey, SecretKey};
pub use loss_floor::{Handling, Lost, NearLoss};
pub use observer::{
    Addresses, Observed, Observer, ObserverConfig, ObserverStats, Peer, Release, Seen,
    SessionStatus, Shard,
};
pub use sender::{
    Assistance, Copied, Fate, LastQuack, List, QuackOutcome, Reason, Selection, Sender,
    SenderConfig, SenderStats, SentOrder,
};
pub use sidekick_parity::{Between, Counts as ParityCounts};
pub use store::Store;
pub use terms::Terms;
pub use transmit::{Route, Transmit};
pub use wire::discovery::{HANDLE_LEN, MARKER_LEN};
pub use wire::{MAX_DATAGRAM_LEN, ParseError, Protect};

/// The UDP port on which a proxy listens by default.
pub const DEFAULT_PORT: u16 = 5252;
