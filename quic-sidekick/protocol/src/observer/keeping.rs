//! What a session keeps of the reverse flow: copies, their share, and when a TAIL is due (SPEC.md,
//! section 6.8).

use super::copies::{Copies, Pool};
use crate::allowance::{Allowance, INITIAL_ALLOWANCE};
use std::time::{Duration, Instant};

/// A copy is kept no longer than this.
pub(super) const MAX_AGE: Duration = Duration::from_secs(1);
/// After these times without a datagram of the reverse flow, the proxy sends a TAIL. Several,
/// since each may be lost.
const SILENCES: [Duration; 3] =
    [Duration::from_millis(4), Duration::from_millis(16), Duration::from_millis(64)];
/// The bytes of copies that a session may send at first, so that a short flow can be repaired, and
/// the most that it saves up.
const GRANT: usize = 64 << 10;
const MAX_ALLOWANCE: usize = 1 << 20;
/// A session's requests are answered at this rate, and with this burst.
const REQUEST_INTERVAL: Duration = Duration::from_micros(250);
const REQUEST_BURST: u32 = 64;
/// A request also uses this time of its session for each identifier that a range may be compared
/// with. So a request that is expensive to answer counts as up to five.
const SEARCH_INTERVAL: Duration = Duration::from_nanos(8);

/// A session's copies.
#[derive(Debug)]
pub(super) struct Keeping {
    pub(super) copies: Copies,
    /// The bytes that may still be repeated: as many as were kept, and a grant. On a path that
    /// loses half of all datagrams, each must be sent twice.
    pub(super) allowance: Allowance,
    /// When the next TAIL is due, and how many were sent since the latest datagram.
    tail_due: Option<Instant>,
    tails: usize,
    /// The age that KEPT reports, in milliseconds.
    pub(super) age_ms: u16,
    /// When the requests answered so far would have arrived at their rate.
    requests_until: Option<Instant>,
}

impl Keeping {
    pub(super) fn new(max_bytes: usize) -> Self {
        let mut allowance = Allowance::new(MAX_ALLOWANCE);
        allowance.refund(GRANT.saturating_sub(INITIAL_ALLOWANCE));
        Self {
            copies: Copies::new(max_bytes, MAX_AGE),
            allowance,
            tail_due: None,
            tails: 0,
            age_ms: 0,
            requests_until: None,
        }
    }

    /// Keeps a datagram. Returns whether the deadline of the next TAIL moved forward.
    pub(super) fn keep(
        &mut self,
        datagram: &[u8],
        interface: u32,
        now: Instant,
        pool: &mut Pool,
    ) -> Kept {
        if !self.copies.keep(datagram, interface, now, pool) {
            return Kept::Not;
        }
        self.allowance.refund(datagram.len());
        self.tails = 0;
        let due = now + SILENCES[0];
        if self.tail_due.is_some_and(|earlier| earlier <= due) {
            return Kept::Silently;
        }
        self.tail_due = Some(due);
        Kept::WithDeadline
    }

    /// When something is due: a TAIL, or the end of the oldest copies.
    pub(super) fn due(&self) -> Option<Instant> {
        let expiry = self.copies.expiry();
        self.tail_due.or(expiry)
    }

    /// Does what is due. Returns whether a TAIL is.
    pub(super) fn on_timeout(&mut self, now: Instant, pool: &mut Pool) -> bool {
        self.copies.expire(now, pool);
        let due = self.tail_due.is_some_and(|due| due <= now);
        let Some(latest) = self.copies.latest_at().filter(|_| due) else {
            self.tail_due = self.tail_due.filter(|_| !due);
            return false;
        };
        // Datagrams do not move the deadline, so it may be too early.
        let silent = SILENCES.get(self.tails).is_some_and(|silence| latest + *silence <= now);
        self.tails += usize::from(silent);
        self.tail_due = SILENCES.get(self.tails).map(|silence| latest + *silence);
        silent
    }

    /// Whether a request of this many ranges that arrives now is within the rate.
    pub(super) fn admit_request(&mut self, ranges: usize, now: Instant) -> bool {
        let from = self.requests_until.map_or(now, |until| until.max(now));
        let admitted = from.saturating_duration_since(now) < REQUEST_INTERVAL * REQUEST_BURST;
        if admitted {
            let searched = u32::try_from(ranges * self.copies.count()).unwrap_or(u32::MAX);
            self.requests_until =
                Some(from + REQUEST_INTERVAL + SEARCH_INTERVAL.saturating_mul(searched));
        }
        admitted
    }
}

/// The outcome of offering a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Not,
    Silently,
    WithDeadline,
}
