//! Discovery of proxies on the sender's path (SPEC.md, section 7.1).

use super::handshaking::seeking_interval;
use super::status::Reason;
use crate::clock::scale;
use crate::wire::discovery::{Answer, HANDLE_LEN, Marker, NONCE_LEN, Reply};
use std::time::{Duration, Instant};

/// The interval after the first marker: the help should begin before the first answer arrives.
const FIRST_INTERVAL: Duration = Duration::from_millis(10);
/// The interval after the second one. It doubles with each marker.
const INTERVAL: Duration = Duration::from_millis(50);
/// The longest interval between markers.
const LONGEST: Duration = Duration::from_secs(60);
/// Markers in a row without an answer before the sender reports that there is no proxy.
const ATTEMPTS: u32 = 7;
/// The fewest markers of a search. If the path has several proxies, one may miss the first marker.
const AT_LEAST: u32 = 3;
/// The shortest interval between markers while the proxy may no longer see the flow.
const SUSPICION: Duration = Duration::from_secs(1);
/// The pause after a discovered proxy failed. It doubles each time.
const RETURN: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(super) struct Search {
    /// The adjacent socket's port, or 0 if unknown.
    pub(super) adjacent_port: u16,
    pub(super) handle: [u8; HANDLE_LEN],
    attempts: u32,
    next_at: Option<Instant>,
    last_marker: Option<Instant>,
    /// The nonces of the latest markers, whose answers are accepted.
    nonces: [Option<[u8; NONCE_LEN]>; 5],
    found: bool,
    /// Every other marker requests an answer along the path.
    next_by_path: bool,
    waiting: Option<Marker>,
    failures: u32,
    /// A proxy on the path has disappeared, for the first time since a quACK decoded. It may return
    /// at any moment, so intervals between markers stay short.
    may_return: bool,
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
        self.may_return = false;
        self.next_at = None;
        self.waiting = None;
        self.nonces = [None; 5];
    }

    /// Whether an answer matches one of the latest markers.
    pub(super) fn matches(&self, answer: &Answer) -> bool {
        self.nonces.iter().flatten().any(|nonce| *nonce == answer.nonce)
            && answer.handle == self.handle
    }

    /// Records the answer of a new proxy.
    pub(super) fn record_answer(&mut self) {
        self.found = true;
    }

    /// Records that a discovered proxy failed for this reason.
    pub(super) fn record_failure(&mut self, reason: Reason) {
        self.pause = match reason {
            // If the proxy only restarted, it answers now. If the path changed, another may.
            Reason::ProxyLost | Reason::NotOnPath if self.failures == 0 => Some(Duration::ZERO),
            _ => Some(scale(RETURN, 1 << self.failures.min(8), 1).min(LONGEST)),
        };
        self.may_return = reason == Reason::ProxyLost && self.failures == 0;
        self.failures = self.failures.saturating_add(1);
    }

    /// Whether no proxy answered.
    pub(super) fn has_failed(&self) -> bool {
        !self.found && self.attempts >= ATTEMPTS
    }

    /// Updates the search: `known` says that a session is live, `assisted` that a proxy reports
    /// packets, and `suspicious` that a proxy may no longer see the flow.
    pub(super) fn settle(&mut self, known: bool, assisted: bool, suspicious: bool, now: Instant) {
        if !known && self.found {
            // The last session has ended.
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

    /// Queues the next marker, with this nonce.
    pub(super) fn queue_marker(&mut self, nonce: [u8; NONCE_LEN], now: Instant) {
        let by_path = self.adjacent_port == 0 || self.next_by_path;
        self.next_by_path = !by_path;
        let reply = if by_path { Reply::Path } else { Reply::Adjacent(self.adjacent_port) };
        self.waiting = Some(Marker { handle: self.handle, nonce, reply });
        self.nonces.rotate_right(1);
        self.nonces[0] = Some(nonce);
        self.last_marker = Some(now);
        let interval = match self.attempts.checked_sub(1) {
            None => FIRST_INTERVAL,
            Some(later) => seeking_interval(INTERVAL, later, self.may_return),
        };
        self.attempts = self.attempts.saturating_add(1);
        let enough = self.found && self.attempts >= AT_LEAST;
        self.next_at = (!enough).then(|| now + interval);
    }

    /// Writes the waiting marker to `out` and returns its length.
    pub(super) fn poll_transmit(&mut self, out: &mut [u8]) -> Option<usize> {
        self.waiting.take()?.emit(out).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
    fn a_lost_marker_is_repeated_before_a_flow_gets_its_first_answer() {
        let (begun, mut search) = (Instant::now(), Search::default());
        search.begin(begun);
        let mut waited = Vec::new();
        for nonce in 0..5 {
            let now = search.poll_timeout().unwrap_or(begun);
            waited.push((now - begun).as_millis());
            search.queue_marker([nonce; NONCE_LEN], now);
        }
        assert_eq!(waited, [0, 10, 60, 160, 360]);
    }
}
