//! The copies of a session that wait to be sent.

use super::pacer::{Pacer, Passed};
use crate::keys::Link;
use std::collections::VecDeque;
use std::time::Instant;

/// The most ranges of a session that wait. Further ones are dropped; the sender requests them
/// again.
const MAX_RANGES_WAITING: usize = 128;

/// The copies for one range of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Repeats {
    /// The number of the request, and that of the range in it.
    pub(super) number: u16,
    pub(super) range: u8,
    /// The position of the first.
    pub(super) first: u64,
    /// The index of the next copy, and the number of copies.
    pub(super) index: u8,
    pub(super) total: u8,
    /// Whether copies are to come in parts, and whether the next one's first part was sent.
    pub(super) in_parts: bool,
    pub(super) begun: bool,
    /// The link by which the request arrived.
    pub(super) link: Link,
}

impl Repeats {
    /// The position of the next copy.
    pub(super) fn position(&self) -> u64 {
        self.first + u64::from(self.index)
    }
}

/// The ranges that wait, and the pace at which their copies leave.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    ranges: VecDeque<Repeats>,
    pacer: Pacer,
    /// When copies leave again, if the pacer was empty.
    due: Option<Instant>,
    /// The session is in the queue of those whose copies leave now.
    queued: bool,
}

impl Waiting {
    /// Adds a range, if there is room.
    pub(super) fn push(&mut self, range: Repeats) {
        if self.ranges.len() < MAX_RANGES_WAITING {
            self.ranges.push_back(range);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// When to call [`Waiting::resume`].
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Refills the pacer. Returns whether the caller must queue the session.
    pub(super) fn resume(&mut self, passed: Passed, now: Instant) -> bool {
        self.due = None;
        self.pacer.refill(passed, now);
        let queue = !self.queued && !self.ranges.is_empty();
        self.queued |= queue;
        queue
    }

    /// Notes whether the session is in the queue.
    pub(super) fn set_queued(&mut self, queued: bool) {
        self.queued = queued;
    }

    /// The next copy.
    pub(super) fn front(&self) -> Option<Repeats> {
        self.ranges.front().copied()
    }

    /// Spends the cost of a datagram of this many bytes. If too little is left, the session waits.
    pub(super) fn spend(&mut self, len: usize) -> bool {
        let spent = self.pacer.spend(len);
        if !spent {
            self.due = self.pacer.next();
        }
        spent
    }

    /// Notes that the first part of the next copy was sent.
    pub(super) fn begin_copy(&mut self) {
        if let Some(front) = self.ranges.front_mut() {
            front.begun = true;
        }
    }

    /// Advances to the copy after the next.
    pub(super) fn advance(&mut self) {
        self.skip(1);
    }

    /// Skips the next copies of the first range before this position, in one step. Returns how
    /// many.
    pub(super) fn skip_to(&mut self, position: u64) -> u64 {
        let next = self.front().map_or(position, |front| front.position());
        self.skip(u8::try_from(position.saturating_sub(next)).unwrap_or(u8::MAX))
    }

    /// Skips this many copies of the first range. Returns how many it had.
    fn skip(&mut self, copies: u8) -> u64 {
        let Some(front) = self.ranges.front_mut() else { return 0 };
        let skipped = copies.min(front.total.saturating_sub(front.index));
        front.index += skipped;
        front.begun &= skipped == 0;
        if front.index >= front.total {
            self.ranges.pop_front();
        }
        skipped.into()
    }

    /// Drops all ranges.
    pub(super) fn clear(&mut self) {
        self.ranges.clear();
        self.due = None;
    }
}
