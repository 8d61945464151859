//! A UDP socket that gets help from the network, for any QUIC stack.
//!
//! On a path with a proxy of the Sidekick protocol, the socket sends datagrams again that were lost
//! before the proxy, byte for byte, within a round trip to the proxy. What arrives it puts in the
//! order in which it passed the proxy, with copies of what was lost behind it. The stack above sees
//! a path that loses less. It needs no patch, and the socket no privilege. Without a proxy, with
//! one that fails or one that lies, the socket is a plain one.
//!
//! Datagrams must be encrypted, because the receiver has to bear some twice, and markers. Proxies
//! answer at the socket itself, from their port 5252/udp, so it must not be connected. A peer is an
//! address: a socket helps 1024 at most, and forgets one that is silent for a minute. The help for
//! a flow that the peer began starts with the eighth datagram to it.
//!
//! ```
//! # fn main() -> std::io::Result<()> {
//! let socket = sidekick_socket::UdpSocket::bind("127.0.0.1:0")?;
//! // From here on as with any socket that never blocks.
//! # let _ = socket;
//! # Ok(())
//! # }
//! ```
//!
//! - [`UdpSocket`] suits loops that poll, such as those around quiche or str0m. The example
//!   `polling` has one.
//! - `tokio::UdpSocket` does the same for tokio (feature `tokio`).
//! - `quinn::Runtime` gives quinn's endpoints such sockets (feature `quinn`). Batches stay batches
//!   both ways (GSO and GRO), with their ECN fields and addresses.
//! - `datagram_socket::Connected` is that socket towards one peer, for clients of tokio-quiche
//!   (feature `datagram-socket`).
//! - [`Flows`] is all of it without I/O, for other runtimes.
//!
//! [The guide](https://github.com/quic-sidekick/quic-sidekick/blob/main/docs/integrate.md) compares
//! the socket with the plugin's hook in quiche, and with the agent.

#[cfg(feature = "datagram-socket")]
pub mod datagram_socket;
mod flow;
mod flows;
mod outbox;
#[cfg(feature = "quinn")]
pub mod quinn;
mod socket;
#[cfg(feature = "tokio")]
pub mod tokio;

use std::net::SocketAddr;
use std::time::Instant;

use sidekick_protocol::SenderConfig;

pub use flow::FlowStatus;
pub use flows::{Arrival, Flows};
pub use outbox::{Datagram, Marks};
pub use sidekick_protocol::policy::{Traits, Withheld};
pub use sidekick_protocol::{Assistance, InOrderState, PublicKey, Reason};
pub use socket::UdpSocket;

/// Which proxy helps, and what the application sends.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The proxy's address, or `None` to find proxies on each flow's own path.
    pub proxy: Option<SocketAddr>,
    /// The key that the proxy must hold, or `None` to accept any proxy on the path.
    pub key: Option<PublicKey>,
    /// What the protocol above does about losses. The default is that of QUIC. Of a call
    /// ([`Traits::CALL`]) only what leaves is helped: its receiver orders packets by itself.
    pub traits: Traits,
}

impl Default for Config {
    fn default() -> Self {
        Self { proxy: None, key: None, traits: Traits::QUIC }
    }
}

impl Config {
    /// What the sender of each flow is told.
    fn sender(&self) -> SenderConfig {
        SenderConfig { proxy: self.proxy, key: self.key, ..SenderConfig::default() }
    }
}

/// Draws the secrets of a flow.
fn random() -> Option<[u8; 32]> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).is_ok().then_some(seed)
}

#[allow(clippy::disallowed_methods, reason = "the socket is an edge")]
fn clock() -> Instant {
    Instant::now()
}
