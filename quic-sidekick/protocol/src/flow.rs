//! The UDP flow whose packets a proxy counts.

use std::net::SocketAddr;

/// The two ends of a UDP flow, in the direction of its packets, as the proxy sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Where the packets come from.
    pub source: SocketAddr,
    /// Where they go.
    pub destination: SocketAddr,
}

impl Flow {
    /// The same flow as it is on the wire: IPv4 addresses that a dual-stack socket shows as IPv6
    /// are IPv4, and scope and flow label are left out.
    #[must_use]
    pub fn canonical(self) -> Self {
        Self { source: canonical(self.source), destination: canonical(self.destination) }
    }
}

pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
