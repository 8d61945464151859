//! A session's copies of the reverse flow: the copies, their share, and when a TAIL is due
//! (SPEC.md, section 6.8).

use super::copies::Copies;
use super::limiter::Occupancy;
use super::parity::{self, SentParity};
use super::pool::Pool;
use super::waiting::{Repeats, Waiting};
use crate::allowance::{Allowance, INITIAL_ALLOWANCE};
use crate::clock::Spacing;
use crate::wire::{MIN_KEPT_LEN, Part, REPEAT_HEADER_LEN};
use std::time::{Duration, Instant};

/// The longest time for which a copy is kept.
pub(super) const MAX_AGE: Duration = Duration::from_secs(1);
/// After these times without a datagram of the reverse flow, the proxy sends a TAIL. There are
/// several, since each may be lost. A time that is shorter than each of the latest gaps reveals no
/// silence.
const SILENCES: [Duration; 3] =
    [Duration::from_millis(4), Duration::from_millis(16), Duration::from_millis(64)];
/// Where datagrams are far apart and the near segment loses some, the proxy sends a TAIL this soon
/// after each.
const SOON: Duration = Duration::from_millis(1);
/// Shorter datagrams draw no such TAIL. Most are acknowledgements alone, and the next one makes up
/// for them.
const LEAST_SOON: usize = 80;
/// The near segment is lossy for this time after a request with an end named a copy.
const LOSSY: Duration = Duration::from_secs(10);
/// The bytes of copies that a session may send at first, so that the proxy can repair a short flow.
const GRANT: usize = 64 << 10;
/// The most bytes of copies that a session saves up.
const MAX_ALLOWANCE: usize = 1 << 20;
/// The proxy answers a session's requests at this rate, with a burst of 64.
pub(super) const REQUEST_INTERVAL: Duration = Duration::from_micros(250);
pub(super) const REQUEST_BURST: Duration = Duration::from_millis(16);
/// The sessions of one source prefix share the rate of this many sessions.
pub(super) const REQUESTS_OF_SOURCE: u32 = 4;
/// A request also uses this time of its session for each identifier that a range may be compared
/// with, so a request that is expensive to answer counts as up to 5.2.
const SEARCH_INTERVAL: Duration = Duration::from_nanos(8);

/// A session's copies.
#[derive(Debug)]
pub(super) struct Keeping {
    pub(super) copies: Copies,
    /// The bytes that the session may still repeat: as many as it kept, and a grant. On a path that
    /// loses half of all datagrams, the proxy must send each twice.
    pub(super) allowance: Allowance,
    /// The copies that wait to be sent.
    pub(super) waiting: Waiting,
    /// When the next TAIL is due.
    tail_due: Option<Instant>,
    /// The number of [`SILENCES`] that have passed since the latest datagram, or that reveal no
    /// silence.
    tails: usize,
    /// A TAIL is also due [`SOON`] after the latest datagram.
    tails_soon: bool,
    spacing: Spacing,
    /// When a request with an end last named a copy.
    requested_at: Option<Instant>,
    /// The age that KEPT reports, in milliseconds.
    pub(super) age_ms: u16,
    /// A KEPT was sent, or waits.
    pub(super) granted: bool,
    /// The requests answered so far.
    pub(super) requests: Occupancy,
    pub(super) protection: SentParity,
}

impl Keeping {
    pub(super) fn new(max_bytes: usize) -> Self {
        let mut allowance = Allowance::new(MAX_ALLOWANCE);
        allowance.refund(GRANT.saturating_sub(INITIAL_ALLOWANCE));
        Self {
            copies: Copies::new(max_bytes, MAX_AGE),
            allowance,
            waiting: Waiting::default(),
            tail_due: None,
            tails: 0,
            tails_soon: false,
            spacing: Spacing::default(),
            requested_at: None,
            age_ms: 0,
            granted: false,
            requests: Occupancy::default(),
            protection: SentParity::default(),
        }
    }

    /// Keeps a datagram. Returns what follows, or `None` if it was not kept.
    pub(super) fn keep(
        &mut self,
        datagram: &[u8],
        interface: u32,
        now: Instant,
        pool: &mut Pool,
    ) -> Option<parity::Passed> {
        if !self.copies.keep(datagram, interface, now, pool) {
            return None;
        }
        self.allowance.refund(datagram.len());
        let mut passed = self.protection.on_kept(datagram.len(), &self.copies, now);
        // Where datagrams are far apart, a short silence is normal.
        self.spacing.note(now);
        let least = self.spacing.least_above(SILENCES[0]);
        let usual = SILENCES.iter().take_while(|silence| **silence < least).count();
        self.tails = if self.protection.is_sparse(now) { SILENCES.len() - 1 } else { usual };
        let is_lossy = self.requested_at.is_some_and(|at| now < at + LOSSY);
        self.tails_soon = self.tails > 0 && is_lossy && datagram.len() >= LEAST_SOON;
        let due = now + self.silence().unwrap_or(MAX_AGE);
        if self.tail_due.is_none_or(|earlier| earlier > due) {
            self.tail_due = Some(due);
            passed.deadline = true;
        }
        Some(passed)
    }

    /// The silence after which the next TAIL is due.
    fn silence(&self) -> Option<Duration> {
        if self.tails_soon { Some(SOON) } else { SILENCES.get(self.tails).copied() }
    }

    /// Notes that a request with an end names a copy: the near segment lost a datagram.
    pub(super) fn on_requested(&mut self, now: Instant) {
        self.requested_at = Some(now);
    }

    /// When a TAIL, the end of the oldest copies, or copies to send are due.
    pub(super) fn due(&self) -> Option<Instant> {
        let (expiry, flush) = (self.copies.expiry(), self.protection.flush_due());
        let deadlines = [self.tail_due, expiry, self.waiting.due(), flush];
        deadlines.into_iter().flatten().min()
    }

    /// Lets waiting copies leave. Returns whether the caller must queue the session for that.
    pub(super) fn resume(&mut self, now: Instant, pool: &mut Pool) -> bool {
        self.copies.expire(now, pool);
        self.waiting.resume(self.copies.passed_lately(now), now)
    }

    /// Forgets all copies, and the ranges that wait to be sent.
    pub(super) fn clear(&mut self, pool: &mut Pool) {
        self.copies.clear(pool);
        self.waiting.clear();
        self.protection.clear();
    }

    /// The next copy to send. The proxy skips old copies in one step, and they cost the pacer
    /// nothing. A copy that was repeated too often is work for each request that names it, so it
    /// costs the pacer as much as a short datagram. A copy comes in two parts if its sender asks
    /// for that, or if the whole one is longer than `longest`.
    pub(super) fn next_copy(&mut self, longest: usize) -> Next<'_> {
        let Some(copy) = self.waiting.front() else { return Next::Nothing };
        let gone = self.waiting.skip_to(self.copies.first());
        if gone > 0 {
            return Next::Withheld(gone);
        }
        let len = self.copies.len_at(copy.position(), copy.begun).unwrap_or(0);
        let is_split = copy.in_parts || len + REPEAT_HEADER_LEN > longest;
        let half = len / 2;
        let (part, bytes) = match (is_split && half >= MIN_KEPT_LEN, copy.begun) {
            (false, _) => (Part::Whole, 0..len),
            (true, false) => (Part::First, 0..half),
            (true, true) => (Part::Second, half..len),
        };
        let size = (len > 0).then_some(bytes.len() + REPEAT_HEADER_LEN);
        if !self.waiting.spend(size.unwrap_or(0)) {
            return Next::Later;
        }
        match part {
            Part::First => self.waiting.begin_copy(),
            Part::Whole | Part::Second => self.waiting.advance(),
        }
        if !size.is_some_and(|size| self.allowance.spend(size)) {
            if part == Part::First {
                // Neither part leaves.
                self.waiting.advance();
            }
            return Next::Withheld(1);
        }
        let datagram = self.copies.repeat(copy.position(), part);
        let bytes = datagram.and_then(|datagram| datagram.get(bytes));
        bytes.map_or(Next::Withheld(1), |bytes| Next::Copy(copy, part, bytes))
    }

    /// Serves the timers that are due. Returns whether a TAIL is due.
    pub(super) fn on_timeout(&mut self, now: Instant, pool: &mut Pool) -> bool {
        self.copies.expire(now, pool);
        let due = self.tail_due.is_some_and(|due| due <= now);
        let Some(latest) = self.copies.latest_at().filter(|_| due) else {
            self.tail_due = self.tail_due.filter(|_| !due);
            return false;
        };
        // Datagrams do not move the deadline, so it may be too early.
        let silent = self.silence().is_some_and(|silence| latest + silence <= now);
        if silent {
            self.tails += usize::from(!self.tails_soon);
            self.tails_soon = false;
        }
        self.tail_due = self.silence().map(|silence| latest + silence);
        silent
    }

    /// The time that a request with this many ranges uses of its session.
    pub(super) fn request_cost(&self, ranges: usize) -> Duration {
        let searched = u32::try_from(ranges * self.copies.count()).unwrap_or(u32::MAX);
        REQUEST_INTERVAL + SEARCH_INTERVAL.saturating_mul(searched)
    }
}

/// The next step of a session that sends copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next<'a> {
    /// A copy or a part of it, and its bytes.
    Copy(Repeats, Part, &'a [u8]),
    /// This many copies are skipped: all are too old, or one was repeated too often or exceeds the
    /// share.
    Withheld(u64),
    /// No copy leaves before the pacer is refilled.
    Later,
    /// No copy waits.
    Nothing,
}
