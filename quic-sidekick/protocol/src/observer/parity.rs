//! Parity of the reverse flow: when a repair symbol is due, which datagrams it covers, and its
//! limits in bytes (SPEC.md, section 6.9).

use super::copies::{Copies, low};
use crate::allowance::Allowance;
use crate::wire::{ListTime, PARITY_HEADER_LEN, Parity, Protect, SessionNumber, Words};
use sidekick_parity::{Encoder, MAX_SYMBOL_LEN, MAX_WINDOW};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A PROTECT holds for this time. The sender repeats it while it wants parity.
const LIFETIME: Duration = Duration::from_secs(1);
/// Identifiers and repair symbol share a datagram up to this length in bytes: on paths with packets
/// of 1500 bytes, IPv6 leaves this many. Otherwise each has a datagram of its own.
const MAX_TOGETHER: usize = 1452;
/// Each position is in so many lists, since any PARITY may be lost.
const LISTINGS: usize = 3;
/// The longest PARITY that is sent, in bytes: a longer one does not fit IPv4 packets of 1500.
const MAX_SIZE: usize = 1472;
/// The most repair symbols and lists that wait to be sent. The caller may pass more than a hundred
/// datagrams before it sends.
const MAX_DUE: usize = 128;
/// With at least this share, a flush sends two repair symbols: either may be lost, too.
const TWO_AT_FLUSH: u16 = Protect::WHOLE / 4;
/// A flush longer than this shows that the datagrams of the flow are far apart.
const SPARSE: Duration = Duration::from_millis(16);
/// Bytes of these that are left to lists.
const RESERVED: usize = 2 << 10;
/// The most bytes of parity that a session saves up.
const MAX_ALLOWANCE: usize = 256 << 10;

/// A repair symbol that is due, or a list.
#[derive(Clone, Copy, Debug)]
struct Due {
    number: u16,
    /// The position behind the last that it covers.
    end: u64,
    /// Its identifiers were sent.
    listed: bool,
    /// It has no repair symbol.
    is_list: bool,
    /// When it was due.
    at: Instant,
}

/// The parity that a session sends to its client.
#[derive(Debug)]
pub(super) struct SentParity {
    terms: Protect,
    /// When the terms end.
    until: Option<Instant>,
    /// When the clock of lists began: at the first.
    clock_begun: Option<Instant>,
    /// The percentage of the flow's bytes that parity may have.
    percent: usize,
    allowance: Allowance,
    /// Parts of a repair symbol that are saved up, out of [`Protect::WHOLE`].
    credit: u16,
    /// The number of the next repair symbol.
    next: u16,
    /// The position of the first datagram that passed under the present terms.
    begun: u64,
    /// The position behind the last that a repair symbol covers.
    covered: u64,
    /// The positions behind the last that was listed, by the latest lists. The latest is first.
    listed: [u64; LISTINGS],
    flush_due: Option<Instant>,
    encoder: Encoder,
    due: VecDeque<Due>,
}

/// The outcome of passing a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Passed {
    /// Repair symbols are due, and none waited before.
    pub(super) queue: bool,
    /// A deadline was set.
    pub(super) deadline: bool,
}

impl Default for SentParity {
    fn default() -> Self {
        Self {
            terms: Protect { share: 0, window: 1, flush_us: 0, list: 0 },
            until: None,
            clock_begun: None,
            percent: 0,
            // It begins with 16 KiB, so that a short flow is covered.
            allowance: Allowance::new(MAX_ALLOWANCE),
            credit: 0,
            next: 0,
            begun: 0,
            covered: 0,
            listed: [0; LISTINGS],
            flush_due: None,
            encoder: Encoder::new(),
            due: VecDeque::new(),
        }
    }
}

impl SentParity {
    /// Applies a PROTECT. `percent` of the flow's bytes may be added.
    pub(super) fn protect(
        &mut self,
        terms: Protect,
        percent: usize,
        copies: &Copies,
        now: Instant,
    ) {
        let was_on = self.is_on(now);
        self.terms = terms;
        self.percent = percent;
        self.until = (terms.is_wanted() && percent > 0).then(|| now + LIFETIME);
        if !was_on {
            // The client has not kept the datagrams that passed before.
            self.begun = copies.passed();
            (self.covered, self.listed, self.credit) = (self.begun, [self.begun; LISTINGS], 0);
        }
        // Under other terms, a silence counts from now.
        self.flush_due = None;
        if self.is_on(now) && copies.passed() > self.flushed() && terms.flush_us > 0 {
            self.flush_due = Some(now + self.flush());
        }
    }

    /// The position behind the last that needs no flush.
    fn flushed(&self) -> u64 {
        if self.terms.share > 0 { self.covered } else { self.listed[0] }
    }

    fn is_on(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// Whether the sender expects silences that would each draw TAILs.
    pub(super) fn is_sparse(&self, now: Instant) -> bool {
        self.is_on(now) && self.flush() > SPARSE
    }

    /// When to call [`SentParity::on_timeout`].
    pub(super) fn flush_due(&self) -> Option<Instant> {
        self.flush_due
    }

    /// Notes a datagram of `len` bytes that was kept.
    pub(super) fn on_kept(&mut self, len: usize, copies: &Copies, now: Instant) -> Passed {
        if !self.is_on(now) {
            return Passed::default();
        }
        self.allowance.refund(len * self.percent / 100);
        let mut passed = Passed::default();
        self.credit += self.terms.share;
        if let Some(rest) = self.credit.checked_sub(Protect::WHOLE) {
            self.credit = rest;
            passed.queue = self.add(copies.passed(), now);
        } else if self.terms.list > 0
            && copies.passed().saturating_sub(self.listed[0]) >= u64::from(self.terms.list)
        {
            passed.queue = self.add_list(copies.passed(), now);
        }
        if self.flush_due.is_none() && self.terms.flush_us > 0 {
            self.flush_due = Some(now + self.flush());
            passed.deadline = true;
        }
        passed
    }

    fn flush(&self) -> Duration {
        Duration::from_micros(self.terms.flush_us.into())
    }

    /// Adds a repair symbol of the datagrams up to `end`. Returns whether none waited before.
    fn add(&mut self, end: u64, at: Instant) -> bool {
        let is_first = self.due.is_empty();
        if self.due.len() < MAX_DUE {
            self.due.push_back(Due { number: self.next, end, listed: false, is_list: false, at });
            self.next = self.next.wrapping_add(1);
            self.covered = end;
        }
        is_first
    }

    /// Adds a list of the datagrams up to `end`, unless anything waits. Returns whether it did.
    fn add_list(&mut self, end: u64, at: Instant) -> bool {
        let is_first = self.due.is_empty();
        if is_first {
            self.due.push_back(Due { number: self.next, end, listed: false, is_list: true, at });
            if self.terms.share == 0 {
                self.flush_due = None;
            }
        }
        is_first
    }

    /// Serves the timer: adds parity of datagrams without any, when the flow is silent, or lists
    /// what no list names. Returns whether repair symbols or lists are due, and none waited before.
    pub(super) fn on_timeout(&mut self, copies: &Copies, now: Instant) -> bool {
        let Some(_) = self.flush_due.filter(|due| *due <= now) else { return false };
        self.flush_due = None;
        if self.terms.share == 0 {
            return self.is_on(now)
                && copies.passed() > self.listed[0]
                && self.add_list(copies.passed(), now);
        }
        let Some(latest) = copies.latest_at().filter(|_| self.is_on(now)) else { return false };
        let silent = latest + self.flush();
        if silent > now {
            // Datagrams do not move the deadline.
            self.flush_due = Some(silent);
            return false;
        }
        if copies.passed() <= self.covered {
            return false;
        }
        self.credit = 0;
        let queue = self.add(copies.passed(), now);
        if self.terms.share >= TWO_AT_FLUSH {
            self.add(copies.passed(), now);
        }
        queue
    }

    /// Drops all waiting repair symbols and lists.
    pub(super) fn clear(&mut self) {
        self.due.clear();
    }

    /// Whether repair symbols or lists wait.
    pub(super) fn waits(&self) -> bool {
        !self.due.is_empty()
    }

    fn note_listed(&mut self, end: u64) {
        if end > self.listed[0] {
            self.listed.rotate_right(1);
            self.listed[0] = end;
        }
    }

    /// Writes the next PARITY to `out`, and returns its length. `None` if none waits that can be
    /// sent; [`SentParity::waits`] decides whether another follows.
    pub(super) fn emit(
        &mut self,
        session: SessionNumber,
        copies: &Copies,
        out: &mut [u8],
    ) -> Option<usize> {
        let due = self.due.pop_front()?;
        let window = due.end.saturating_sub(self.terms.window.into());
        let first = window.max(copies.first()).max(self.begun);
        let count = usize::try_from(due.end.checked_sub(first)?).ok()?;
        if count == 0 || due.end > copies.passed() {
            // Its datagrams are too old.
            return None;
        }
        let longest = (first..due.end).filter_map(|at| copies.at(at)).map(<[u8]>::len).max()?;
        let symbol_len = longest + 2;
        let fits = MAX_TOGETHER.saturating_sub(PARITY_HEADER_LEN + symbol_len) / 4;
        let behind = |listed: u64| usize::try_from(due.end.saturating_sub(listed)).unwrap_or(count);
        let new = behind(self.listed[0]).min(count);
        let wanted = behind(self.listed[LISTINGS - 1]).clamp(1, count);
        // A list counts for more, if bytes are short.
        let is_short = self.allowance.left() < PARITY_HEADER_LEN + symbol_len + RESERVED;
        let apart = due.is_list || is_short || fits < new;
        let (listing, symbol_len) = match (due.listed, apart) {
            (true, _) => (0, symbol_len),
            (false, true) => (wanted, 0),
            (false, false) => (wanted.min(fits), symbol_len),
        };
        let size = PARITY_HEADER_LEN + 4 * listing + symbol_len;
        if listing > 0 {
            self.note_listed(due.end);
        }
        // A window with a datagram that is too long for a repair symbol gets only a list. The
        // client then knows which datagrams to request.
        if size > MAX_SIZE || symbol_len > 0 && is_short || !self.allowance.spend(size) {
            return None;
        }
        let (symbol, identifiers) = (&mut [0; MAX_SYMBOL_LEN], &mut [0; MAX_WINDOW]);
        if symbol_len > 0 {
            let datagrams = (first..due.end).map(|at| copies.at(at).unwrap_or_default());
            self.encoder.encode(due.number, low(first), datagrams, symbol).ok()?;
        }
        let last = due.end - u64::try_from(listing).unwrap_or(0);
        for (place, at) in identifiers.iter_mut().zip(last..due.end) {
            *place = copies.identifier_at(at).unwrap_or_default();
        }
        let begun = *self.clock_begun.get_or_insert(due.at);
        let time = ListTime::since(begun, due.at);
        let parity = Parity {
            session,
            number: if symbol_len == 0 { time.0 } else { due.number },
            first: low(first),
            count: u8::try_from(count).ok()?,
            identifiers: Words::new(identifiers.get(..listing)?),
            symbol: symbol.get(..symbol_len)?,
        };
        let written = crate::wire::Datagram::Parity(parity).emit(out).ok();
        if symbol_len == 0 && !due.is_list {
            // Its repair symbol follows.
            self.due.push_front(Due { listed: true, ..due });
        }
        written
    }
}
