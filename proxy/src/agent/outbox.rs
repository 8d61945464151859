//! Datagrams that wait to be sent. It reuses their buffers, so sending allocates nothing after a
//! while.

use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::frame::Template;
use super::holds::Holds;

/// Most datagrams that wait. The caller sends them after each input, so more would be a flood.
const MOST: usize = 4096;
/// Buffers that are kept for later.
const SPARE: usize = 64;
/// Proxies that are remembered.
const PROXIES: usize = 64;

/// Where something goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    /// A frame, by the interface with this number.
    Interface(u32),
    /// A message to a proxy.
    Proxy {
        proxy: SocketAddr,
        /// The number of the interface by which the flow leaves that the message is about.
        interface: u32,
        /// The flow's source.
        source: IpAddr,
    },
    /// A message to a proxy, by the second uplink.
    SecondUplink(SocketAddr),
    /// An IP packet, to this host, as if it had arrived.
    Host,
    /// A packet of the queue with this number, which waits there: it passes.
    Queued(u32),
}

impl fmt::Display for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interface(_) => f.write_str("the destination of a flow"),
            Self::Proxy { proxy, .. } | Self::SecondUplink(proxy) => write!(f, "the proxy {proxy}"),
            Self::Host | Self::Queued(_) => f.write_str("this host"),
        }
    }
}

/// Frames and messages in the order in which they became ready.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: VecDeque<(To, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    /// The latest proxies that got a message, the last one first.
    proxies: VecDeque<SocketAddr>,
    /// The number of datagrams that had no room, or that fit no packet.
    pub(super) refused: u64,
    /// How long packets of flows in order waited in the queue.
    pub(super) holds: Holds,
}

impl Outbox {
    /// Adds a frame with the flow's headers, for their interface. Returns false if it cannot be
    /// sent.
    pub(super) fn push_frame(&mut self, template: &Template, payload: &[u8]) -> bool {
        let to = To::Interface(template.interface());
        self.push(to, |buffer| template.write(payload, buffer))
    }

    /// Adds a packet to this host with the headers of one that arrived. Returns false if it cannot
    /// be sent.
    pub(super) fn push_packet(&mut self, template: &Template, payload: &[u8]) -> bool {
        self.push(To::Host, |buffer| template.write_packet(payload, buffer))
    }

    /// Lets a packet of the queue pass that waited for this time for those before it, as
    /// [`Outbox::push_queued`] does.
    pub(super) fn push_held(&mut self, id: u32, waited: Duration) {
        self.holds.note(waited);
        self.push_queued(id);
    }

    /// Lets a packet of the queue pass, behind what was added before. There is always room: the
    /// queue is bounded.
    pub(super) fn push_queued(&mut self, id: u32) {
        let buffer = self.spare.pop().unwrap_or_default();
        self.waiting.push_back((To::Queued(id), buffer));
    }

    /// Adds a message to a proxy about a flow from `source` that leaves by `interface`.
    pub(super) fn push_message(
        &mut self,
        proxy: SocketAddr,
        (interface, source): (u32, IpAddr),
        message: &[u8],
    ) {
        if self.proxies.front() != Some(&proxy) {
            self.proxies.retain(|known| *known != proxy);
            self.proxies.truncate(PROXIES - 1);
            self.proxies.push_front(proxy);
        }
        self.push(To::Proxy { proxy, interface, source }, |buffer| {
            buffer.extend_from_slice(message);
            true
        });
    }

    /// Adds a message to a proxy, for the second uplink.
    pub(super) fn push_by_second(&mut self, proxy: SocketAddr, message: &[u8]) {
        self.push(To::SecondUplink(proxy), |buffer| {
            buffer.extend_from_slice(message);
            true
        });
    }

    /// Adds what `write` writes, unless that fails or there is no room.
    fn push(&mut self, to: To, write: impl FnOnce(&mut Vec<u8>) -> bool) -> bool {
        let mut buffer = self.spare.pop().unwrap_or_default();
        let fits = self.waiting.len() < MOST && write(&mut buffer);
        if fits {
            self.waiting.push_back((to, buffer));
        } else {
            self.refused += 1;
            self.give_back(buffer);
        }
        fits
    }

    /// Whether a message went to a proxy at this address lately.
    pub(super) fn knows(&self, address: SocketAddr) -> bool {
        self.proxies.contains(&address)
    }

    /// The next one. Give its buffer back.
    pub(super) fn pop(&mut self) -> Option<(To, Vec<u8>)> {
        self.waiting.pop_front()
    }

    pub(super) fn give_back(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < SPARE {
            buffer.clear();
            self.spare.push(buffer);
        }
    }
}
