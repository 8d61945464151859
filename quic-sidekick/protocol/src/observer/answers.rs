//! Markers that the proxy answered, and answers that wait to be sent (SPEC.md, section 6.1).

use super::limiter::Limiter;
use crate::flow::Flow;
use crate::identify::Payload;
use crate::transmit::{Route, Transmit};
use crate::wire::discovery::{ANSWER_BYTE, Answer, MARKER_BYTE, Marker, NONCE_LEN, Reply};
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

/// An answer that waits to be sent, and its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutgoingAnswer {
    pub(super) answer: Answer,
    pub(super) reply: Reply,
    /// The interface on which the marker arrived; `None` for the answer to a KEEP.
    pub(super) interface: Option<u32>,
}

impl OutgoingAnswer {
    /// Writes the answer, to send from the proxy's port to the adjacent socket, or along the flow's
    /// path.
    pub(super) fn emit(&self, out: &mut [u8]) -> Option<Transmit> {
        let size = self.answer.emit(out).ok()?;
        let Flow { source, destination } = self.answer.flow;
        let interface = self.interface;
        let (destination, route) = match self.reply {
            Reply::Adjacent(port) => {
                (SocketAddr::new(source.ip(), port), Route::Stranger { interface })
            }
            Reply::Path => (source, Route::Path { source: destination, interface }),
        };
        Some(Transmit { destination, source_ip: None, size, route })
    }
}

/// Whether a datagram is a marker or an answer.
pub(super) fn are_ours(datagram: &[u8]) -> bool {
    may_be_ours(Payload::whole(datagram)) && (Marker::is_one(datagram) || Answer::is_one(datagram))
}

/// Whether a datagram's first byte is that of a marker or an answer, as hardly any packet's is.
#[inline]
pub(super) fn may_be_ours(payload: Payload<'_>) -> bool {
    matches!(payload.head().first(), Some(&(MARKER_BYTE | ANSWER_BYTE)))
}
