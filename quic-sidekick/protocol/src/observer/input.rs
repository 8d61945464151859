//! What an observer is told: captured datagrams, and sources of messages.

use crate::identify::{Flow, Payload};
use crate::transmit::{Route, Transmit};
use crate::wire::{ParseError, Refusal};
use std::net::{IpAddr, SocketAddr};
use thiserror::Error;

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

impl Peer {
    /// A datagram of `size` bytes that answers this peer.
    pub(super) fn transmit(self, size: usize) -> Transmit {
        let Self { address, local_ip } = self;
        Transmit { destination: address, source_ip: local_ip, size, route: Route::Session }
    }
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Self {
        Self { address, local_ip: None }
    }
}

/// Why a datagram at the proxy's port changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HandleError {
    /// It is not a message.
    #[error("malformed: {0}")]
    Malformed(#[from] ParseError),
    /// It is a message that only a proxy sends.
    #[error("a message that only a proxy sends")]
    NotForProxy,
    /// There is no such session. The observer answers UNKNOWN SESSION, if it has room.
    #[error("no such session")]
    UnknownSession,
    /// Its cookie is not valid. The observer answers RETRY.
    #[error("no valid cookie")]
    Unproven,
    /// Too many handshakes at once.
    #[error("too many handshakes at once")]
    Busy,
    /// The handshake failed: the sender pins another key, or the message was altered.
    #[error("the handshake failed: the sender pins another key, or the message was altered")]
    Handshake,
    /// It repeats a HELLO whose session is confirmed.
    #[error("a HELLO that was answered before")]
    Duplicate,
    /// The session's sender did not seal it.
    #[error("not authentic")]
    Forged,
    /// It was received before.
    #[error("a replay")]
    Replay,
    /// The session keeps no copies.
    #[error("no copies are kept")]
    NotKept,
    /// It is a message for the first link.
    #[error("a message that only the first link carries")]
    NotForLink,
    /// The datagram to relay is not one that may be missing, or exceeds what the flow's own
    /// datagrams allow.
    #[error("it may not be relayed")]
    NotRelayed,
    /// The session runs another epoch.
    #[error("another epoch")]
    WrongEpoch,
    /// The observer refuses the session. It answers a HELLO by REFUSE.
    #[error("refused: {0}")]
    Refused(#[from] RefusalCause),
}

/// Why the observer refuses a session. REFUSE itself does not tell a stranger which limit it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RefusalCause {
    /// There are [`ObserverConfig::max_sessions`](super::ObserverConfig::max_sessions).
    #[error("all sessions are in use")]
    Sessions,
    /// The flow's source has
    /// [`ObserverConfig::max_sessions_per_source`](super::ObserverConfig::max_sessions_per_source).
    #[error("the flow's source has as many sessions as one IPv4 address or IPv6 /64 may have")]
    SessionsOfSource,
    /// The terms ask for no quACKs at all, or the flow's addresses are of two IP versions. For
    /// [`Observer::adopt`](super::Observer::adopt) also: the threshold exceeds the limit.
    #[error("the terms cannot be granted")]
    Terms,
    /// Another sender has the flow, and its proof is stronger, or its session keeps copies. For
    /// [`Observer::adopt`](super::Observer::adopt): the flow has a session.
    #[error("another sender has the flow")]
    Taken,
    /// The HELLO proves an address, but the flow has another one.
    #[error("the flow has another source address than the one that is proven")]
    OtherSource,
}

impl RefusalCause {
    /// What REFUSE says.
    pub(super) fn refusal(self) -> Refusal {
        match self {
            Self::Sessions | Self::SessionsOfSource => Refusal::Full,
            Self::Terms => Refusal::Terms,
            Self::Taken | Self::OtherSource => Refusal::Taken,
        }
    }
}
