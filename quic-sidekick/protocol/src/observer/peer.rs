//! The source of a datagram at the proxy's port.

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
