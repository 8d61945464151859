//! How senders find a proxy: it answers the markers that it captures (SPEC.md, section 6.1).

use super::Observer;
use super::limiter::Limiter;
use super::transmit::{Outgoing, OutgoingAnswer};
use crate::cookie::Proof;
use crate::identify::{Flow, Payload};
use crate::wire::discovery::{ANSWER_BYTE, Answer, MARKER_BYTE, Marker, NONCE_LEN};
use std::net::SocketAddr;
use std::time::Instant;

/// The number of recent nonces that are remembered, so that a marker captured on two interfaces
/// gets one answer.
const RECENT: usize = 64;

/// The markers answered recently.
#[derive(Debug)]
pub(super) struct Answered {
    nonces: Vec<[u8; NONCE_LEN]>,
    next: usize,
    limiter: Limiter<1>,
}

impl Answered {
    /// No marker yet. The arguments are those of [`Limiter::new`].
    pub(super) fn new(key: [u8; 16], shards: u16) -> Self {
        Self { nonces: Vec::new(), next: 0, limiter: Limiter::new(key, shards) }
    }

    pub(super) fn contains(&self, nonce: &[u8; NONCE_LEN]) -> bool {
        self.nonces.contains(nonce)
    }

    /// Records an answer to this source, or returns false if its rate is exhausted.
    pub(super) fn record(
        &mut self,
        nonce: [u8; NONCE_LEN],
        source: SocketAddr,
        now: Instant,
    ) -> bool {
        let admitted = self.limiter.admit(source.ip(), 0, now);
        if admitted {
            match self.nonces.get_mut(self.next) {
                Some(oldest) => *oldest = nonce,
                None => self.nonces.push(nonce),
            }
            self.next = (self.next + 1) % RECENT;
        }
        admitted
    }
}

impl Observer {
    /// Answers a marker that was captured on `interface`, at most once and within the rate limits.
    /// Anyone can forge its addresses, so the answer goes only where a sender on that interface can
    /// be.
    pub(super) fn answer_marker(
        &mut self,
        marker: &Marker,
        flow: &Flow,
        interface: u32,
        now: Instant,
    ) {
        let flow = flow.canonical();
        let Some(proxy) = self.addresses.announced_for(interface, &flow) else { return };
        if !self.addresses.can_cross(interface, &flow) {
            self.stats.markers_refused += 1;
            return;
        }
        if self.answered.contains(&marker.nonce) {
            return;
        }
        if !self.answered.record(marker.nonce, flow.source, now) {
            self.stats.markers_deferred += 1;
            return;
        }
        let Some(cookie) = self.cookies.issue(Proof::Path(&flow), now) else { return };
        let answer = Answer { handle: marker.handle, nonce: marker.nonce, proxy, flow, cookie };
        self.stats.markers += 1;
        let interface = Some(interface);
        self.queue(Outgoing::Answer(OutgoingAnswer { answer, reply: marker.reply, interface }));
    }
}

pub(super) fn are_ours(datagram: &[u8]) -> bool {
    may_be_ours(Payload::whole(datagram)) && (Marker::is_one(datagram) || Answer::is_one(datagram))
}

/// Whether a datagram's first byte is that of a marker or an answer, as hardly any packet's is.
#[inline]
pub(super) fn may_be_ours(payload: Payload<'_>) -> bool {
    matches!(payload.head().first(), Some(&(MARKER_BYTE | ANSWER_BYTE)))
}
