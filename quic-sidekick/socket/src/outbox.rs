//! Datagrams that wait to leave, or to be delivered.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

/// The latest proxies that were asked, whose messages are taken out of what arrives.
const PROXIES: usize = 16;

/// The fields of an IP header that belong to a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The ECN field, 0 to 3 (RFC 3168, section 5).
    pub ecn: u8,
    /// The address of this host: the source of what leaves, and the destination of what arrives.
    /// `None` if the system chooses it, or does not state it.
    pub local: Option<IpAddr>,
}

impl Marks {
    /// The ECN field of a datagram that met congestion.
    pub(crate) const CE: u8 = 3;
}

/// A datagram from a peer, or to one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The other end.
    pub peer: SocketAddr,
    /// Its header fields.
    pub marks: Marks,
    /// The UDP payload.
    pub payload: Vec<u8>,
}

impl Datagram {
    pub(crate) fn new(peer: SocketAddr, marks: Marks, payload: &[u8]) -> Self {
        Self { peer, marks, payload: payload.to_vec() }
    }
}

/// What the application and the network get next.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) deliveries: VecDeque<Datagram>,
    /// Each with the name under which a repair counts.
    pub(crate) leaving: VecDeque<(Datagram, Option<u64>)>,
    /// The latest proxies.
    pub(crate) proxies: VecDeque<SocketAddr>,
    /// The socket is one of IPv6, which takes addresses of IPv4 in its own form.
    pub(crate) maps: bool,
}

impl Outbox {
    pub(crate) fn push(&mut self, datagram: Datagram, name: Option<u64>) {
        self.leaving.push_back((datagram, name));
    }

    /// Queues a message to a proxy.
    pub(crate) fn push_message(&mut self, proxy: SocketAddr, marks: Marks, message: &[u8]) {
        if !self.proxies.contains(&proxy) {
            self.proxies.truncate(PROXIES - 1);
            self.proxies.push_front(proxy);
        }
        let to = match proxy {
            SocketAddr::V4(v4) if self.maps => (v4.ip().to_ipv6_mapped(), v4.port()).into(),
            _ => proxy,
        };
        let is_same = |ip: &IpAddr| ip.to_canonical().is_ipv4() == proxy.is_ipv4();
        let marks = Marks { local: marks.local.filter(is_same), ..marks };
        self.push(Datagram::new(to, marks, message), None);
    }
}
