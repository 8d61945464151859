//! The de-jitter buffer: plays packets in order, measures how long each waited, and lists the
//! missing ones.

use hdrhistogram::{CreationError, Histogram};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

/// A packet this far ahead of the next one to play is rejected, unless its successor comes next (as
/// in RFC 3550, appendix A.1). So this bounds the packets that wait or are missing.
pub(super) const WINDOW: u32 = 4096;

/// The result of a packet's arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It was played, or waits for earlier ones.
    Accepted,
    /// It had arrived before.
    Duplicate,
    /// It was skipped.
    TooLate,
    /// Its number is too far from those of the other packets.
    Implausible,
}

/// A packet that did not arrive although a later one did.
#[derive(Clone, Copy, Debug)]
struct Missing {
    noticed: Instant,
    /// When to request it next, and whether it was requested before.
    nack_at: Instant,
    requested: bool,
}

/// The next item to play.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A packet's content.
    Content(Vec<u8>),
    /// This many packets in a row did not arrive in time.
    Lost(u64),
}

#[derive(Debug)]
struct Waiting {
    since: Instant,
    content: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Dejitter {
    playout_limit: Duration,
    /// Whether the caller plays the frames.
    plays: bool,
    pub(super) frames: VecDeque<Frame>,
    /// Packets before this one may not exist. They are requested, but do not count as late.
    pub(super) certain_from: u32,
    /// The packet to play next.
    next: u32,
    /// The first packet after all that arrived or are missing.
    pub(super) end: u32,
    /// Each packet from `next` to before `end` waits or is missing.
    waiting: BTreeMap<u32, Waiting>,
    missing: BTreeMap<u32, Missing>,
    /// The latest skipped packets.
    skipped: BTreeSet<u32>,
    /// The last packet that was too far ahead.
    stray: Option<u32>,
    total: Option<u32>,
    /// How long the first request of a packet waits. It does not wait if this time, multiplied by
    /// the number of missing packets, exceeds `most_patience`.
    pub(super) patience: Duration,
    pub(super) most_patience: Duration,
    /// How long packets waited, in microseconds.
    pub(super) waits_us: Histogram<u64>,
    pub(super) played: u64,
    pub(super) late: u64,
}

impl Dejitter {
    /// A buffer. If `plays` is true, it keeps frames until the caller plays them.
    pub(super) fn new(playout_limit: Duration, plays: bool) -> Result<Self, CreationError> {
        // A packet may wait for one that became missing later, but never longer than this.
        let longest = micros(playout_limit).saturating_mul(2).max(2);
        Ok(Self {
            playout_limit,
            plays,
            frames: VecDeque::new(),
            certain_from: 0,
            next: 0,
            end: 0,
            waiting: BTreeMap::new(),
            missing: BTreeMap::new(),
            skipped: BTreeSet::new(),
            stray: None,
            total: None,
            patience: Duration::ZERO,
            most_patience: Duration::ZERO,
            waits_us: Histogram::new_with_bounds(1, longest, 3)?,
            played: 0,
            late: 0,
        })
    }

    /// Records that the stream begins with this packet: none is missing before it.
    pub(super) fn begins_at(&mut self, sequence: u32, now: Instant) {
        self.certain_from = sequence;
        if self.next < sequence && self.waiting.range(..sequence).next().is_none() {
            self.missing = self.missing.split_off(&sequence);
            (self.next, self.end) = (sequence, self.end.max(sequence));
            self.play(now);
        }
    }

    pub(super) fn arrive(&mut self, sequence: u32, content: &[u8], now: Instant) -> Arrival {
        if sequence < self.next {
            let skipped = self.skipped.remove(&sequence);
            return if skipped { Arrival::TooLate } else { Arrival::Duplicate };
        }
        if self.waiting.contains_key(&sequence) {
            return Arrival::Duplicate;
        }
        if self.total.is_some_and(|total| sequence >= total) {
            return Arrival::Implausible;
        }
        if sequence - self.next >= WINDOW {
            let follows = self
                .stray
                .replace(sequence)
                .is_some_and(|stray| stray.checked_add(1) == Some(sequence));
            if !follows {
                return Arrival::Implausible;
            }
            self.skip_to(sequence, now);
        }
        self.stray = None;
        self.note_missing_until(sequence, now);
        self.end = self.end.max(sequence.saturating_add(1));
        self.missing.remove(&sequence);
        let content = if self.plays { content.to_vec() } else { Vec::new() };
        self.waiting.insert(sequence, Waiting { since: now, content });
        self.play(now);
        Arrival::Accepted
    }

    /// Records the number of packets in the stream. False if it is impossible.
    pub(super) fn ends(&mut self, total: u32, now: Instant) -> bool {
        if self.total.is_some_and(|known| known != total)
            || total < self.end
            || total - self.next > WINDOW
        {
            return false;
        }
        self.total = Some(total);
        self.note_missing_until(total, now);
        true
    }

    /// Whether every packet was played or skipped.
    pub(super) fn is_complete(&self) -> bool {
        self.total.is_some_and(|total| self.next >= total)
    }

    /// Records the unknown packets before `sequence` as missing.
    fn note_missing_until(&mut self, sequence: u32, now: Instant) {
        let new = sequence.saturating_sub(self.end);
        let all = new.saturating_add(u32::try_from(self.missing.len()).unwrap_or(u32::MAX));
        let waits = self.patience.saturating_mul(all) <= self.most_patience;
        let nack_at = if waits { now + self.patience } else { now };
        for missing in self.end..sequence {
            self.missing.insert(missing, Missing { noticed: now, nack_at, requested: false });
        }
        self.end = self.end.max(sequence);
    }

    /// Plays what waits, and gives up the rest before `sequence`.
    fn skip_to(&mut self, sequence: u32, now: Instant) {
        while let Some((&first, _)) = self.waiting.first_key_value() {
            self.give_up(first);
            self.play(now);
        }
        self.give_up(sequence);
        self.missing.clear();
        self.end = sequence;
    }

    fn play(&mut self, now: Instant) {
        while let Some(Waiting { since, content }) = self.waiting.remove(&self.next) {
            self.played += 1;
            self.waits_us.saturating_record(micros(now.saturating_duration_since(since)));
            self.next = self.next.saturating_add(1);
            if self.plays {
                self.frames.push_back(Frame::Content(content));
            }
        }
    }

    /// Continues with `sequence`: the missing ones before it are late.
    fn give_up(&mut self, sequence: u32) {
        let missed = u64::from(sequence.saturating_sub(self.next.max(self.certain_from)));
        self.late += missed;
        self.next = self.next.max(sequence);
        if self.plays && missed > 0 {
            match self.frames.back_mut() {
                Some(Frame::Lost(lost)) => *lost += missed,
                _ => self.frames.push_back(Frame::Lost(missed)),
            }
        }
    }

    /// When the next packet to play is skipped.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.missing.first_key_value().map(|(_, missing)| missing.noticed + self.playout_limit)
    }

    /// Skips packets that are too late. Packets are found missing in order, so the first is always
    /// due first.
    pub(super) fn on_timeout(&mut self, now: Instant) {
        while self.deadline().is_some_and(|deadline| deadline <= now)
            && let Some((sequence, _)) = self.missing.pop_first()
        {
            self.skipped.insert(sequence);
            if self.skipped.len() > usize::try_from(WINDOW).unwrap_or(usize::MAX) {
                self.skipped.pop_first();
            }
            self.give_up(sequence.saturating_add(1));
            self.play(now);
        }
    }

    /// The packets to request at `now`, in order. They are due again at `again`.
    pub(super) fn take_due(&mut self, now: Instant, again: Instant) -> Vec<u32> {
        let due = self.missing.iter_mut().filter(|(_, missing)| missing.nack_at <= now);
        let take = |(sequence, missing): (&u32, &mut Missing)| {
            (missing.nack_at, missing.requested) = (again, true);
            *sequence
        };
        due.map(take).collect()
    }

    /// Requests those of these packets at once whose first request waits.
    pub(super) fn hurry(&mut self, places: Range<u32>, now: Instant) {
        let waiting = self.missing.range_mut(places).filter(|(_, missing)| !missing.requested);
        waiting.for_each(|(_, missing)| missing.nack_at = now);
    }

    /// When the next request is due.
    pub(super) fn nack_at(&self) -> Option<Instant> {
        self.missing.values().map(|missing| missing.nack_at).min()
    }
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
