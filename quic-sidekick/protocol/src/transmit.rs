//! A datagram that a state machine sends.

use std::net::{IpAddr, SocketAddr};

/// The destination, the size and the route of a datagram that
/// [`Sender::poll_transmit`](crate::Sender::poll_transmit) or
/// [`Observer::poll_transmit`](crate::Observer::poll_transmit) wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The destination.
    pub destination: SocketAddr,
    /// The local address to send from, or `None` for any: the address that the destination sent to,
    /// if the caller passed it in [`Peer::local_ip`](crate::Peer::local_ip).
    pub source_ip: Option<IpAddr>,
    /// The size in bytes.
    pub size: usize,
    /// How the datagram leaves.
    pub route: Route,
}

/// How a datagram leaves.
///
/// The number of an interface is the caller's, as for
/// [`Observer::observe`](crate::Observer::observe); `None` is any interface. An attacker can forge
/// a marker's addresses, so the answer leaves only by the interface where the marker arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// From the sender's adjacent socket to a proxy, or from the proxy's port to the sender of a
    /// session.
    Session,
    /// From the sender's second socket to a proxy, by the second link.
    SecondLink,
    /// From the proxy's port to a destination without a session, which may not exist. Datagrams to
    /// it can wait in the system for ARP, and must not delay those of sessions.
    Stranger {
        /// The interface to send on.
        interface: Option<u32>,
    },
    /// Along the flow's path: a sender sends it from the flow's own socket, and a proxy as if the
    /// flow's receiver had sent it.
    Path {
        /// The source: the flow's end that the datagram appears to leave from.
        source: SocketAddr,
        /// The interface to send on.
        interface: Option<u32>,
    },
}
