//! Requests for copies of datagrams that a receiver lacks (SPEC.md, section 7.10).
//!
//! A range names the datagrams between two others. As copies of it arrive, the fetcher narrows it.
//! Copies that are missing in between become another range, which the fetcher requests at once.

use crate::wire::{MAX_RANGES, Range, Repeat};
use std::time::{Duration, Instant};

/// The most ranges that the sender wants at a time.
pub(super) const MAX_WANTED: usize = 512;
/// The most requests for a range without a copy. The receiver gives up earlier, unless its path
/// loses most messages.
const MAX_TRIES: u32 = 24;
/// Once a gap has been open for this many copy timeouts, the fetcher requests its ranges twice.
/// Even on a lossy path, few gaps stay open that long. Copies must fill these before the receiver
/// gives up.
const TWICE_AFTER: u32 = 2;
/// The fetcher rejects copies for requests that are this much older than the latest.
const RECENT: u16 = 1024;
/// The most copies that a proxy sends for a range. It may keep more.
const MOST: u8 = 64;

/// The datagrams between two others, and the latest copy of them that arrived.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    /// The receiver's number of the gap; `None` for a range that a TAIL showed.
    gap: Option<u64>,
    range: Range,
    /// When the receiver began to want datagrams of the gap.
    since: Instant,
    /// The request that asks for it: its number, and the range's place in it.
    asked: Option<(u16, u8)>,
    /// When to request it, first or again.
    due: Instant,
    tries: u32,
    /// The index of the next copy, and the identifier of the one before.
    next: u8,
    fetched: Option<u32>,
}

/// A request to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) number: u16,
    ranges: [Range; MAX_RANGES],
    len: usize,
    /// How many of the first ranges to request twice. Each copy names its range by the place in the
    /// request, so the second message begins like the first.
    twice: usize,
}

impl Asked {
    pub(super) fn ranges(&self) -> &[Range] {
        self.ranges.get(..self.len).unwrap_or_default()
    }

    /// The request of the ranges to request twice, if there are any.
    pub(super) fn again(&self) -> Option<Self> {
        (self.twice > 0).then_some(Self { len: self.twice, ..*self })
    }
}

/// The ranges that the sender wants from a proxy.
#[derive(Debug, Default)]
pub(super) struct Fetcher {
    wanted: Vec<Wanted>,
    /// The number of the latest request.
    number: u16,
    /// The number of requests so far, at most [`RECENT`].
    recent: u16,
    /// Gaps for which the proxy has no more copies.
    pub(super) unfilled: Vec<u64>,
}

impl Fetcher {
    /// Requests the datagrams in a gap.
    pub(super) fn want(&mut self, gap: Option<u64>, range: Range, now: Instant) {
        self.want_since(now, gap, range, now);
    }

    /// Requests the datagrams in a gap, or in a part of it. The receiver wants them since `since`.
    fn want_since(&mut self, since: Instant, gap: Option<u64>, range: Range, now: Instant) {
        if self.wanted.len() < MAX_WANTED {
            let (asked, fetched) = (None, None);
            let wanted = Wanted { gap, range, since, asked, due: now, tries: 0, next: 0, fetched };
            self.wanted.push(wanted);
        } else {
            self.unfilled.extend(gap);
        }
    }

    /// Requests the datagrams after `latest`, the newest that arrived, because the proxy's newest
    /// is another. One such range is enough.
    pub(super) fn want_tail(&mut self, latest: Option<u32>, now: Instant) {
        if self.wanted.iter().all(|wanted| wanted.gap.is_some()) {
            self.want(None, Range { after: latest, before: None }, now);
        }
    }

    /// Stops fetching for a gap that is closed.
    pub(super) fn close(&mut self, gap: u64) {
        self.wanted.retain(|wanted| wanted.gap != Some(gap));
        self.unfilled.retain(|unfilled| *unfilled != gap);
    }

    /// Stops fetching for all gaps.
    pub(super) fn clear(&mut self) {
        self.wanted.clear();
        self.unfilled.clear();
    }

    /// Gives up all gaps, because the proxy no longer keeps copies.
    pub(super) fn give_up(&mut self) {
        while let Some(wanted) = self.wanted.pop() {
            self.note_if_done(wanted.gap);
        }
    }

    /// Handles a copy with this identifier. Returns whether it belongs to a recent request. `retry`
    /// is how long to wait for the next copy before the fetcher requests it again.
    pub(super) fn on_repeat(
        &mut self,
        copy: &Repeat<'_>,
        identifier: Option<u32>,
        retry: Duration,
        now: Instant,
    ) -> bool {
        let asked = Some((copy.number, copy.range));
        let Some(place) = self.wanted.iter().position(|wanted| wanted.asked == asked) else {
            return self.is_recent(copy.number);
        };
        let Some(wanted) = self.wanted.get_mut(place) else { return false };
        let Some(skipped) = copy.index.checked_sub(wanted.next) else { return true };
        let (since, gap, before) = (wanted.since, wanted.gap, wanted.range.before);
        let after = wanted.fetched.or(wanted.range.after);
        (wanted.next, wanted.fetched) = (copy.index + 1, identifier);
        (wanted.tries, wanted.due) = (0, now + retry);
        if copy.index + 1 >= copy.total {
            self.wanted.swap_remove(place);
            if copy.total >= MOST {
                self.want_since(since, gap, Range { after: identifier, before }, now);
            }
        }
        // Without the keys, the receiver cannot report this gap. With them it may report it, and
        // then some copies arrive twice.
        if skipped > 0 {
            self.want_since(since, gap, Range { after, before: identifier }, now);
        }
        self.note_if_done(gap);
        true
    }

    fn is_recent(&self, number: u16) -> bool {
        self.number.wrapping_sub(number) < self.recent
    }

    /// Records that the proxy has no datagram in these ranges of a request. Bit 0 stands for the
    /// first range.
    pub(super) fn on_nothing(&mut self, number: u16, ranges: u16) {
        let named = |wanted: &Wanted| {
            let asked = wanted.asked.filter(|(asked, _)| *asked == number);
            asked.is_some_and(|(_, range)| ranges >> range & 1 == 1)
        };
        while let Some(place) = self.wanted.iter().position(named) {
            let gap = self.wanted.swap_remove(place).gap;
            self.note_if_done(gap);
        }
    }

    /// Marks a gap as unfilled once the fetcher wants nothing more for it.
    fn note_if_done(&mut self, gap: Option<u64>) {
        if let Some(gap) = gap
            && self.wanted.iter().all(|wanted| wanted.gap != Some(gap))
        {
            self.unfilled.push(gap);
        }
    }

    /// When the next request is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.wanted.iter().map(|wanted| wanted.due).min()
    }

    /// The next request to send, with the ranges that are due.
    pub(super) fn poll_request(&mut self, retry: Duration, now: Instant) -> Option<Asked> {
        while let Some(place) =
            self.wanted.iter().position(|wanted| wanted.due <= now && wanted.tries >= MAX_TRIES)
        {
            let gap = self.wanted.swap_remove(place).gap;
            self.note_if_done(gap);
        }
        let none = Range { after: None, before: None };
        // 0 numbers no request.
        let number = self.number.checked_add(1).unwrap_or(1);
        let mut asked = Asked { number, ranges: [none; MAX_RANGES], len: 0, twice: 0 };
        // Late ranges come first.
        for late in [true, false] {
            let is_next = |wanted: &&mut Wanted| {
                wanted.due <= now && late == (now >= wanted.since + TWICE_AFTER * retry)
            };
            let free = asked.ranges.iter_mut().zip(0..).skip(asked.len);
            for (wanted, (slot, place)) in self.wanted.iter_mut().filter(is_next).zip(free) {
                // Request only the part that is still missing.
                wanted.range.after = wanted.fetched.take().or(wanted.range.after);
                wanted.next = 0;
                wanted.tries += 1;
                wanted.due = now + retry;
                wanted.asked = Some((number, place));
                *slot = wanted.range;
                asked.len += 1;
                asked.twice += usize::from(late);
            }
        }
        if asked.len == 0 {
            return None;
        }
        self.number = number;
        self.recent = (self.recent + 1).min(RECENT);
        Some(asked)
    }
}

#[cfg(test)]
mod tests;
