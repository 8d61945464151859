//! Parity of what leaves, for a proxy that puts it in order (SPEC.md, section 7.14).

use crate::allowance::Allowance;
use crate::wire::{Part, Protect, SentSymbol};
use sidekick_parity::{Encoder, MAX_DATAGRAM_LEN, MAX_SYMBOL_LEN, MAX_WINDOW};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The most bytes of parity, in percent of those that it protects, as from a proxy. So many of them
/// are saved up at most.
const PERCENT: usize = 35;
const MAX_ALLOWANCE: usize = 256 << 10;
/// So many repair symbols wait to be sent. A sender may report a whole batch of datagrams before it
/// sends anything else.
const MAX_DUE: usize = 32;
/// With at least this share, a flush makes two repair symbols: either may be lost, too.
const TWO_AT_FLUSH: u16 = Protect::WHOLE / 4;

/// A repair symbol that waits to be sent.
#[derive(Debug)]
struct Due {
    number: u16,
    /// The position of the first datagram that it covers, and how many it covers.
    first: u32,
    count: u8,
    /// Its first part was sent.
    is_begun: bool,
    symbol: Vec<u8>,
}

/// The latest datagrams that left, and the repair symbols that are due.
#[derive(Debug)]
pub(super) struct Symbols {
    terms: Protect,
    /// The latest datagrams, at most [`MAX_WINDOW`], at consecutive positions.
    datagrams: VecDeque<Vec<u8>>,
    /// Parts of a repair symbol that are saved up, out of [`Protect::WHOLE`].
    credit: u16,
    allowance: Allowance,
    /// The number of the next repair symbol.
    next: u16,
    /// How many of the latest datagrams no repair symbol covers, and when the last one left.
    uncovered: usize,
    latest: Option<Instant>,
    due: VecDeque<Due>,
    encoder: Encoder,
}

impl Symbols {
    pub(super) fn new(terms: Protect) -> Self {
        Self {
            terms,
            datagrams: VecDeque::new(),
            // The proxy learns with the first datagram that there is parity.
            credit: Protect::WHOLE - 1,
            allowance: Allowance::new(MAX_ALLOWANCE),
            next: 0,
            uncovered: 0,
            latest: None,
            due: VecDeque::new(),
            encoder: Encoder::new(),
        }
    }

    pub(super) fn set_terms(&mut self, terms: Protect) {
        self.terms = terms;
    }

    /// Makes no more parity, until there are other terms.
    pub(super) fn end(&mut self) {
        self.terms = Protect::NOTHING;
        self.clear();
    }

    /// Forgets the datagrams, because the next one has a position that does not follow theirs.
    pub(super) fn clear(&mut self) {
        self.datagrams.clear();
        self.due.clear();
        (self.uncovered, self.latest) = (0, None);
    }

    /// Notes a datagram that left, the one before the position `end`. Returns whether a repair
    /// symbol is due.
    pub(super) fn on_sent(&mut self, datagram: &[u8], end: u32, now: Instant) -> bool {
        if self.terms.share == 0 {
            return false;
        }
        if datagram.len() > MAX_DATAGRAM_LEN {
            // No window may have it.
            self.clear();
            return false;
        }
        let mut room = if self.datagrams.len() == MAX_WINDOW {
            self.datagrams.pop_front().unwrap_or_default()
        } else {
            Vec::new()
        };
        room.clear();
        room.extend_from_slice(datagram);
        self.datagrams.push_back(room);
        self.allowance.add(datagram.len() * PERCENT / 100);
        (self.uncovered, self.latest) = (self.uncovered + 1, Some(now));
        self.credit += self.terms.share;
        let Some(rest) = self.credit.checked_sub(Protect::WHOLE) else { return false };
        self.credit = rest;
        self.add(end)
    }

    /// When a silence is long enough for parity of what no repair symbol covers.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let latest = self.latest.filter(|_| self.uncovered > 0 && self.terms.share > 0)?;
        Some(latest + Duration::from_micros(self.terms.flush_us.into()))
    }

    /// Serves the timer. Returns whether a repair symbol is due.
    pub(super) fn on_timeout(&mut self, end: u32, now: Instant) -> bool {
        if self.poll_timeout().is_none_or(|due| now < due) {
            return false;
        }
        self.credit = 0;
        self.latest = None;
        let is_due = self.add(end);
        if is_due && self.terms.share >= TWO_AT_FLUSH {
            self.add(end);
        }
        is_due
    }

    /// Makes a repair symbol of the latest datagrams.
    fn add(&mut self, end: u32) -> bool {
        self.uncovered = 0;
        let count = self.datagrams.len().min(self.terms.window.into());
        let Ok(count) = u8::try_from(count) else { return false };
        let first = end.wrapping_sub(count.into());
        let window = self.datagrams.iter().rev().take(count.into()).rev().map(Vec::as_slice);
        let mut symbol = vec![0; MAX_SYMBOL_LEN];
        let encoded = self.encoder.encode(self.next, first, window, &mut symbol);
        let Some(len) = encoded.ok().filter(|len| self.allowance.spend(*len)) else { return false };
        symbol.truncate(len);
        if self.due.len() == MAX_DUE {
            self.due.pop_front();
        }
        self.due.push_back(Due { number: self.next, first, count, is_begun: false, symbol });
        self.next = self.next.wrapping_add(1);
        true
    }

    pub(super) fn waits(&self) -> bool {
        !self.due.is_empty()
    }

    /// Passes the next message to `write`. A repair symbol is longer than what it covers, so a long
    /// one goes in two parts: the path may carry nothing longer.
    pub(super) fn take<R>(&mut self, write: impl FnOnce(SentSymbol<'_>) -> R) -> Option<R> {
        let due = self.due.front_mut()?;
        let Due { number, first, count, .. } = *due;
        let (part, range) = Part::next_of(due.symbol.len(), SentSymbol::MAX_LEN, due.is_begun);
        let symbol = due.symbol.get(range).unwrap_or_default();
        let written = write(SentSymbol { number, first, count, part, symbol });
        due.is_begun = true;
        if part != Part::First {
            self.due.pop_front();
        }
        Some(written)
    }
}

const _: () = assert!(MAX_SYMBOL_LEN.div_ceil(2) <= SentSymbol::MAX_LEN);
