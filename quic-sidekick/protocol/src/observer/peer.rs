//! Where datagrams at the proxy's port come from, and where its own go.

use std::net::{IpAddr, SocketAddr};

/// Somebody who speaks to the proxy's own port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Where its datagrams come from.
    pub address: SocketAddr,
    /// The address of the proxy's machine that it speaks to, where the machine may have many: it is
    /// answered from there, since what came from another one would be thrown away by its socket, or
    /// by a NAT before it.
    pub local_ip: Option<IpAddr>,
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Self {
        Self { address, local_ip: None }
    }
}

/// Where a datagram that [`Observer::poll_transmit`] wrote is to be sent, and how long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Its destination.
    pub to: SocketAddr,
    /// The address of this machine that its receiver spoke to, if the caller has told
    /// ([`Peer::local_ip`]).
    pub local_ip: Option<IpAddr>,
    /// Its source if it is not the proxy's own port: the receiver of a flow, along whose path the
    /// datagram has to come.
    pub from: Option<SocketAddr>,
    /// The interface that it has to leave by, under the number that [`Observer::observe`] takes, or
    /// `None` for any: an answer to a marker, whose addresses anyone can forge, goes to nobody
    /// elsewhere.
    pub interface: Option<u32>,
    /// Whether it goes to the sender of a session. Others may not exist: what is sent to them can
    /// wait in the system for an answer to ARP, and must not hold up what is sent to sessions.
    pub in_session: bool,
    /// Its length in bytes.
    pub len: usize,
}
