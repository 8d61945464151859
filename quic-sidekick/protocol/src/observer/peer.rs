//! The source of a datagram at the proxy's port, and the destination of the proxy's own.

use std::net::{IpAddr, SocketAddr};

/// The source of a datagram at the proxy's own port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address and port.
    pub address: SocketAddr,
    /// The local address that it sent to, where the machine may have several. The answer must leave
    /// from there: the peer's connected socket, or a NAT before it, drops an answer from another
    /// address.
    pub local_ip: Option<IpAddr>,
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Self {
        Self { address, local_ip: None }
    }
}

/// The destination and length of a datagram that
/// [`Observer::poll_transmit`](super::Observer::poll_transmit) wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The destination.
    pub to: SocketAddr,
    /// The local address that the receiver sent to, if the caller passed it in [`Peer::local_ip`].
    pub local_ip: Option<IpAddr>,
    /// The source, if it is not the proxy's own port: the flow's receiver, so that the datagram
    /// passes along the flow's path.
    pub from: Option<SocketAddr>,
    /// The interface to send on, as numbered for [`Observer::observe`](super::Observer::observe),
    /// or `None` for any. Anyone can forge a marker's addresses, so its answer leaves only by the
    /// interface where the marker arrived.
    pub interface: Option<u32>,
    /// Whether the destination is the sender of a session. Other destinations may not exist:
    /// datagrams to them can wait in the system for ARP, and must not delay those of sessions.
    pub in_session: bool,
    /// The length in bytes.
    pub len: usize,
}
