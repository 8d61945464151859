//! How a proxy is found: it answers markers that pass by (SPEC.md, section 6.1).

use super::{Observer, Outgoing, Transmit};
use crate::cookie::Proof;
use crate::wire::path::{ANSWER_BYTE, Answer, MARKER_BYTE, Marker, NONCE_LEN, Reply};
use crate::{Flow, Payload};
use std::net::SocketAddr;
use std::time::Instant;

/// More addresses than this are not announced.
const MAX_ANNOUNCED: usize = 256;
/// So many of the latest markers are not answered again when they are captured on another interface.
const RECENT: usize = 64;

/// Where senders reach the proxy, by the interface on which their packets come in.
#[derive(Debug, Default)]
pub(super) struct Announced(Vec<(u32, SocketAddr)>);

impl Announced {
    /// An address of the flow's family, of this interface if possible.
    fn find(&self, interface: u32, flow: &Flow) -> Option<SocketAddr> {
        let reachable = || self.0.iter().filter(|(_, address)| address.is_ipv4() == flow.source.is_ipv4());
        let here = reachable().find(|(number, _)| *number == interface);
        here.or_else(|| reachable().next()).map(|(_, address)| *address)
    }
}

/// The nonces of the latest markers.
#[derive(Debug, Default)]
pub(super) struct Recent {
    nonces: Vec<[u8; NONCE_LEN]>,
    next: usize,
}

impl Recent {
    /// Takes note of a nonce; false if it was there.
    fn is_new(&mut self, nonce: [u8; NONCE_LEN]) -> bool {
        if self.nonces.contains(&nonce) {
            return false;
        }
        match self.nonces.get_mut(self.next) {
            Some(oldest) => *oldest = nonce,
            None => self.nonces.push(nonce),
        }
        self.next = (self.next + 1) % RECENT;
        true
    }
}

/// Whether a datagram's first byte is that of a marker or of an answer to one. Every packet is asked: hardly any is.
#[inline]
pub(super) fn may_be_ours(payload: Payload<'_>) -> bool {
    matches!(payload.head().first(), Some(&(MARKER_BYTE | ANSWER_BYTE)))
}

impl Observer {
    /// Senders whose packets come in on `interface` reach the proxy's port at `address`. Without any such address of a
    /// flow's family, its markers are not answered.
    pub fn announce(&mut self, interface: u32, address: SocketAddr) {
        let (Announced(list), entry) = (&mut self.announced, (interface, crate::canonical(address)));
        if list.len() < MAX_ANNOUNCED && !list.contains(&entry) {
            list.push(entry);
        }
    }

    /// Whether the datagram is a marker; it is answered then.
    pub(super) fn is_marker(
        &mut self,
        flow: &Flow,
        interface: u32,
        payload: Payload<'_>,
        now: Instant,
    ) -> bool {
        if payload.head().first() != Some(&MARKER_BYTE) {
            return false;
        }
        let Ok(marker) = Marker::parse(payload.head()) else { return false };
        let flow = flow.canonical();
        let Some(proxy) = self.announced.find(interface, &flow) else { return true };
        if !self.recent.is_new(marker.nonce) {
            return true;
        }
        let Some(cookie) = self.mint.mint(Proof::Path(&flow), now) else { return true };
        let answer = Answer { handle: marker.handle, nonce: marker.nonce, proxy, flow, cookie };
        let adjacent = match marker.reply {
            Reply::Adjacent(port) => Some(port),
            Reply::Path => None,
        };
        self.stats.markers += 1;
        self.queue(Outgoing::Answer(answer, adjacent));
        true
    }
}

/// Writes an answer: from the proxy's own address to the adjacent socket's port, or along the flow's path.
pub(super) fn emit(answer: &Answer, adjacent: Option<u16>, out: &mut [u8]) -> Option<Transmit> {
    let len = answer.emit(out).ok()?;
    let Flow { source, destination } = answer.flow;
    Some(match adjacent {
        Some(port) => Transmit { to: SocketAddr::new(source.ip(), port), own: None, from: None, len },
        None => Transmit { to: source, own: None, from: Some(destination), len },
    })
}
