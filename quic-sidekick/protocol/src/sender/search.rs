//! How a sender finds proxies on its path (SPEC.md, section 7.1).

use super::handshaking::seeking_interval;
use super::status::Reason;
use crate::clock::scale;
use crate::wire::discovery::{Answer, HANDLE_LEN, Marker, NONCE_LEN, Reply};
use std::time::{Duration, Instant};

/// The first marker is repeated after this long, the next after twice as long, and so on.
const INTERVAL: Duration = Duration::from_millis(50);
/// The longest interval between markers.
const LONGEST: Duration = Duration::from_secs(60);
/// Markers in a row without an answer before the sender says that there is no proxy.
const ATTEMPTS: u32 = 6;
/// Markers sent in any case: of several proxies, one may have missed the first.
const AT_LEAST: u32 = 3;
/// A flow that a proxy seems not to see any more is marked again, but no more often than this.
const SUSPICION: Duration = Duration::from_secs(1);
/// How long to leave the path alone after a proxy on it was of no use; twice as long each time.
const RETURN: Duration = Duration::from_secs(2);

/// The state of the search.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// The adjacent socket's, 0 if not known.
    pub(super) adjacent_port: u16,
    pub(super) handle: [u8; HANDLE_LEN],
    attempts: u32,
    next_at: Option<Instant>,
    last_marker: Option<Instant>,
    /// Those of the latest markers, of which answers are believed.
    nonces: [Option<[u8; NONCE_LEN]>; 4],
    found: bool,
    /// Every other marker asks for an answer along the path.
    next_by_path: bool,
    waiting: Option<Marker>,
    failures: u32,
    /// A proxy has reported and fell silent: it may come back at any moment.
    missed: bool,
    /// How long to wait before the next search.
    pause: Option<Duration>,
}

impl Search {
    pub(super) fn begin(&mut self, now: Instant) {
        (self.attempts, self.found) = (0, false);
        self.next_at = Some(now);
        self.pause = None;
    }

    pub(super) fn end(&mut self) {
        self.missed = false;
        self.next_at = None;
        self.waiting = None;
        self.nonces = [None; 4];
    }

    /// Whether an answer is one to a marker of ours.
    pub(super) fn asked(&self, answer: &Answer) -> bool {
        self.nonces.iter().flatten().any(|nonce| *nonce == answer.nonce)
            && answer.handle == self.handle
    }

    /// An answer has come, of a proxy that was not known.
    pub(super) fn answered(&mut self) {
        self.found = true;
    }

    /// A proxy that was found is of no help for this reason.
    pub(super) fn failed(&mut self, reason: Reason) {
        self.pause = match reason {
            // If it was only restarted, it is back now; if the path has changed, there may be
            // another.
            Reason::ProxyLost | Reason::NotOnPath if self.failures == 0 => Some(Duration::ZERO),
            _ => Some(scale(RETURN, 1 << self.failures.min(8), 1).min(LONGEST)),
        };
        self.missed = reason == Reason::ProxyLost && self.failures == 0;
        self.failures = self.failures.saturating_add(1);
    }

    /// Whether nobody has answered.
    pub(super) fn has_failed(&self) -> bool {
        !self.found && self.attempts >= ATTEMPTS
    }

    /// `known`: there is a proxy. `assisted`: it reports. `suspicious`: but it may not see the flow
    /// any more.
    pub(super) fn settle(&mut self, known: bool, assisted: bool, suspicious: bool, now: Instant) {
        if !known && self.found {
            // The last one is gone.
            let pause = self.pause.take().unwrap_or(RETURN);
            self.begin(now + pause);
        } else if known && suspicious && self.next_at.is_none() {
            let rested = self.last_marker.map_or(now, |last| last + SUSPICION);
            self.attempts = AT_LEAST - 1;
            self.next_at = Some(rested.max(now));
        } else if assisted && !suspicious {
            self.failures = 0;
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.next_at
    }

    /// Has the next marker go out, with this nonce.
    pub(super) fn mark(&mut self, nonce: [u8; NONCE_LEN], now: Instant) {
        let by_path = self.adjacent_port == 0 || self.next_by_path;
        self.next_by_path = !by_path;
        let reply = if by_path { Reply::Path } else { Reply::Adjacent(self.adjacent_port) };
        self.waiting = Some(Marker { handle: self.handle, nonce, reply });
        self.nonces.rotate_right(1);
        self.nonces[0] = Some(nonce);
        self.last_marker = Some(now);
        let interval = seeking_interval(INTERVAL, self.attempts, self.missed);
        self.attempts = self.attempts.saturating_add(1);
        let enough = self.found && self.attempts >= AT_LEAST;
        self.next_at = (!enough).then(|| now + interval);
    }

    /// Writes the marker that waits.
    pub(super) fn poll_transmit(&mut self, out: &mut [u8]) -> Option<usize> {
        self.waiting.take()?.emit(out).ok()
    }
}
