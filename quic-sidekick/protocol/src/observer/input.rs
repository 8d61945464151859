//! What an observer is told: captured datagrams, and sources of messages.

use crate::flow::Flow;
use crate::identify::Payload;
use std::net::{IpAddr, SocketAddr};

/// A captured datagram.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Its flow.
    pub flow: Flow,
    /// The known part of its payload.
    pub payload: Payload<'a>,
}

/// The outcome of observing a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// No session counts its flow.
    NoSession,
    /// It does not count, although its flow may have a session: it is an answer to a marker, has a
    /// long header, or is too short, another interface captured it, or the network duplicated it.
    Ignored,
    /// Its session's sums include it.
    Counted,
    /// It was a marker. The proxy answers it, unless it answered it before, its addresses are
    /// impossible here, there are too many markers, or there is no address to announce.
    Marker,
}

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
