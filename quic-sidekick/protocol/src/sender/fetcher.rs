//! Requests for copies of datagrams that a receiver lacks (SPEC.md, section 7.10).
//!
//! A range names the datagrams between two others, and the fetcher narrows it as copies arrive.
//! Copies that are missing in between become another range, which it requests at once.

use crate::wire::{MAX_KEPT_LEN, MAX_RANGES, Part, Range, Repeat};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The most ranges that the sender wants at a time.
pub(super) const MAX_WANTED: usize = 512;
/// The most requests for a range without a copy. The receiver gives up earlier, unless its path
/// loses most messages.
const MAX_TRIES: u32 = 24;
/// The most requests for a range whose copies are not needed.
const TRIES_TO_LEARN: u32 = 2;
/// After so many requests in vain, copies of a range are to come in parts: whole ones may be longer
/// than the path's MTU.
const TRIES_WHOLE: u32 = 3;
/// One request in so many asks for whole copies, although they seem not to fit.
const WHOLE_AGAIN: u16 = 4;
/// Parts that wait for the other ones.
const MAX_PARTS: usize = 32;
/// A range is requested twice at once if fewer requests than this are in time, since the request or
/// its copies may be lost.
const IN_TIME: u32 = 2;
/// The fetcher rejects copies for requests that are this much older than the latest.
const RECENT: u16 = 1024;
/// The most copies that a proxy sends for a range. It may keep more.
const MOST: u8 = 64;

/// What became of the datagrams of a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// So many of them passed the proxy, and the near segment lost these.
    Lost(u32),
    /// They never passed the proxy.
    Elsewhere,
    /// One of both, or they are late. Nobody asked for them, or no answer arrived.
    Unknown,
}

/// The datagrams between two others, and the latest copy of them that arrived.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    /// The receiver's number of the gap; `None` for a range that a TAIL showed.
    gap: Option<u64>,
    range: Range,
    /// When the receiver gives up the gap, if it waits for it.
    until: Option<Instant>,
    /// The request that asks for it: its number, and the range's place in it.
    asked: Option<(u16, u8)>,
    /// When to request it, first or again.
    due: Instant,
    tries: u32,
    most_tries: u32,
    /// The index of the next copy, and the identifier of the one before.
    next: u8,
    fetched: Option<u32>,
    /// How many copies the proxy sent after it.
    rest: u8,
}

impl Wanted {
    /// Another range of the same gap, to be requested now.
    fn another(&self, range: Range, now: Instant) -> Self {
        Self { range, asked: None, due: now, tries: 0, next: 0, fetched: None, rest: 0, ..*self }
    }
}

/// A part that does not belong to a copy that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotAsked;

/// A part of a copy that waits for the other one.
#[derive(Debug)]
struct Waiting {
    /// The request, the place of the range in it, the copy's place in the range, and how many
    /// copies the range has.
    copy: (u16, u8, u8, u8),
    part: Part,
    bytes: Vec<u8>,
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
    /// The oldest one is first.
    parts: VecDeque<Waiting>,
    /// The longest copy that arrived whole, and the longest that arrived in parts.
    longest_whole: usize,
    longest_split: usize,
    /// Consecutive copies that were lost, as others of the same range show, and how many of these
    /// arrived after them.
    pub(super) copies: Vec<(u32, u32)>,
    /// Gaps of which the proxy has a copy, or none.
    pub(super) fates: Vec<(u64, Fate)>,
    /// The datagram behind the latest copy, if that filled a hole in a range without a gap.
    pub(super) fills_before: Option<u32>,
}

impl Fetcher {
    /// Requests the datagrams in a gap from `due` on. The receiver gives it up at `until`.
    pub(super) fn want(&mut self, gap: u64, range: Range, due: Instant, until: Instant) {
        self.request(Some(gap), range, due, Some(until), MAX_TRIES);
    }

    /// Requests the datagrams in a gap, to learn whether the proxy has them. The caller does not
    /// wait for them, so few requests suffice.
    pub(super) fn ask_about(&mut self, gap: u64, range: Range, now: Instant) {
        self.request(Some(gap), range, now, None, TRIES_TO_LEARN);
    }

    fn request(
        &mut self,
        gap: Option<u64>,
        range: Range,
        due: Instant,
        until: Option<Instant>,
        most_tries: u32,
    ) {
        self.push(Wanted {
            gap,
            range,
            until,
            asked: None,
            due,
            tries: 0,
            most_tries,
            next: 0,
            fetched: None,
            rest: 0,
        });
    }

    fn push(&mut self, wanted: Wanted) {
        if self.wanted.len() < MAX_WANTED {
            self.wanted.push(wanted);
        } else {
            self.fates.extend(wanted.gap.map(|gap| (gap, Fate::Unknown)));
            self.unfilled.extend(wanted.gap);
        }
    }

    /// Requests the datagrams after `latest`, the newest that arrived, because the proxy's newest
    /// is another. One such range is enough.
    pub(super) fn want_tail(&mut self, latest: Option<u32>, now: Instant) {
        if self.wanted.iter().all(|wanted| wanted.gap.is_some()) {
            self.request(None, Range::new(latest, None), now, None, MAX_TRIES);
        }
    }

    /// The same, if no such range is open to the newest. Copies may be lost among those of others.
    pub(super) fn want_newer(&mut self, latest: Option<u32>, now: Instant) {
        if self.wanted.iter().all(|wanted| wanted.gap.is_some() || wanted.range.before.is_some()) {
            self.request(None, Range::new(latest, None), now, None, MAX_TRIES);
        }
    }

    /// Whether copies are lost between others, of ranges without a gap.
    pub(super) fn has_holes(&self) -> bool {
        self.wanted.iter().any(|wanted| wanted.gap.is_none() && wanted.range.before.is_some())
    }

    /// Stops fetching for a gap that is closed.
    pub(super) fn close(&mut self, gap: u64) {
        self.wanted.retain(|wanted| wanted.gap != Some(gap));
        self.unfilled.retain(|unfilled| *unfilled != gap);
    }

    /// Stops fetching for all gaps.
    pub(super) fn clear(&mut self) {
        self.give_up();
        self.unfilled.clear();
    }

    /// Gives up all gaps, because the proxy no longer keeps copies.
    pub(super) fn give_up(&mut self) {
        while let Some(wanted) = self.wanted.pop() {
            self.fates.extend(wanted.gap.map(|gap| (gap, Fate::Unknown)));
            self.note_if_done(wanted.gap);
        }
    }

    /// Handles a copy with this identifier. Returns whether it belongs to a recent request. `retry`
    /// is how long to wait for the next copy before the fetcher requests it again.
    pub(super) fn on_repeat(
        &mut self,
        copy: &Repeat<'_>,
        identifier: Option<u32>,
        longest_copy: usize,
        retry: Duration,
        now: Instant,
    ) -> bool {
        if !self.is_recent(copy.number) || copy.total > MOST {
            return false;
        }
        // Of others, nobody asks for more.
        if copy.datagram.len() <= longest_copy {
            let longest = match copy.part {
                Part::Whole => &mut self.longest_whole,
                Part::First | Part::Second => &mut self.longest_split,
            };
            *longest = copy.datagram.len().max(*longest);
        }
        self.fills_before = None;
        let asked = Some((copy.number, copy.range));
        let Some(place) = self.wanted.iter().position(|wanted| wanted.asked == asked) else {
            return true;
        };
        let Some(wanted) = self.wanted.get_mut(place) else { return false };
        let Some(skipped) = copy.index.checked_sub(wanted.next) else { return true };
        self.fates.extend(wanted.gap.map(|gap| (gap, Fate::Lost(copy.total.into()))));
        wanted.rest = copy.total.saturating_sub(copy.index).saturating_sub(1);
        // The loss of a single copy cannot show, so neither does its arrival.
        if copy.total > 1 {
            self.copies.push((skipped.into(), 1));
        }
        let after = wanted.fetched.or(wanted.range.after);
        (wanted.next, wanted.fetched) = (copy.index + 1, identifier);
        (wanted.tries, wanted.due) = (0, now + retry);
        let wanted = *wanted;
        self.fills_before = wanted.range.before.filter(|_| wanted.gap.is_none());
        if copy.index + 1 >= copy.total {
            self.wanted.swap_remove(place);
            if copy.total >= MOST {
                let rest = Range { after: identifier, ..wanted.range };
                self.push(wanted.another(rest, now));
            }
        }
        // Without the keys, the receiver cannot report this gap. With them it may report it, and
        // then some copies arrive twice.
        if skipped > 0 {
            self.push(wanted.another(Range::new(after, identifier), now));
        }
        self.note_if_done(wanted.gap);
        true
    }

    /// Handles a part of a copy. If the other one has arrived, returns the copy.
    ///
    /// # Errors
    /// [`NotAsked`] if it belongs to no recent request, or does not fit the other part.
    pub(super) fn join(&mut self, part: &Repeat<'_>) -> Result<Option<Vec<u8>>, NotAsked> {
        if !self.is_recent(part.number) {
            return Err(NotAsked);
        }
        let Self { parts, number, recent, .. } = self;
        parts.retain(|waiting| number.wrapping_sub(waiting.copy.0) < *recent);
        let copy = (part.number, part.range, part.index, part.total);
        let Some(at) = parts.iter().position(|waiting| waiting.copy == copy) else {
            if parts.len() >= MAX_PARTS {
                parts.pop_front();
            }
            parts.push_back(Waiting { copy, part: part.part, bytes: part.datagram.to_vec() });
            return Ok(None);
        };
        let Some(waiting) = parts.get(at).filter(|waiting| waiting.part != part.part) else {
            // The same part again.
            return Ok(None);
        };
        let (first, second) = match waiting.part {
            Part::First => (&waiting.bytes[..], part.datagram),
            Part::Whole | Part::Second => (part.datagram, &waiting.bytes[..]),
        };
        let are_halves = matches!(second.len().checked_sub(first.len()), Some(0 | 1));
        let copy = [first, second].concat();
        parts.remove(at);
        if are_halves && copy.len() <= MAX_KEPT_LEN { Ok(Some(copy)) } else { Err(NotAsked) }
    }

    /// Whether copies are to come in parts from the first request on: longer ones than the longest
    /// whole one arrived in no other way. Now and then it asks for whole ones, as chance may have
    /// taken the others.
    fn splits(&self) -> bool {
        self.longest_split > self.longest_whole && !self.number.is_multiple_of(WHOLE_AGAIN)
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
            self.fates.extend(gap.map(|gap| (gap, Fate::Elsewhere)));
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
        while let Some(place) = self
            .wanted
            .iter()
            .position(|wanted| wanted.due <= now && wanted.tries >= wanted.most_tries)
        {
            let gap = self.wanted.swap_remove(place).gap;
            self.fates.extend(gap.map(|gap| (gap, Fate::Unknown)));
            self.note_if_done(gap);
        }
        let none = Range::new(None, None);
        let splits = self.splits();
        // 0 numbers no request.
        let number = self.number.checked_add(1).unwrap_or(1);
        let mut asked = Asked { number, ranges: [none; MAX_RANGES], len: 0, twice: 0 };
        // Those requested twice come first.
        let next_in_time = now + IN_TIME * retry;
        for twice in [true, false] {
            let is_next = |wanted: &&mut Wanted| {
                let is_last = wanted.until.is_some_and(|until| until < next_in_time);
                wanted.due <= now && twice == is_last
            };
            let free = asked.ranges.iter_mut().zip(0..).skip(asked.len);
            for (wanted, (slot, place)) in self.wanted.iter_mut().filter(is_next).zip(free) {
                // Request only the part that is still missing.
                wanted.range.after = wanted.fetched.take().or(wanted.range.after);
                if wanted.rest > 0 {
                    self.copies.push((std::mem::take(&mut wanted.rest).into(), 0));
                }
                wanted.range.in_parts = splits || wanted.tries >= TRIES_WHOLE;
                wanted.next = 0;
                wanted.tries += 1;
                wanted.due = now + retry;
                wanted.asked = Some((number, place));
                *slot = wanted.range;
                asked.len += 1;
                asked.twice += usize::from(twice);
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
