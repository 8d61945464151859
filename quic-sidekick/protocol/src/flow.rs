//! The UDP flow whose packets a proxy counts.

use std::net::SocketAddr;

/// The two endpoints of a UDP flow, in the direction of its packets, as the proxy sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// The packets' source.
    pub source: SocketAddr,
    /// Their destination.
    pub destination: SocketAddr,
}

impl Flow {
    /// The flow as it is on the wire: with IPv4 addresses in place of IPv4-mapped IPv6 ones, and
    /// without scope and flow label.
    #[must_use]
    pub fn canonical(self) -> Self {
        Self { source: canonical(self.source), destination: canonical(self.destination) }
    }

    /// The flow of the packets in the other direction.
    #[must_use]
    pub fn reversed(&self) -> Self {
        Self { source: self.destination, destination: self.source }
    }
}

/// The address without scope and flow label, and as IPv4 if it is IPv4-mapped.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
