//! Gaps in the packet numbers of one space, and acknowledgements that wait for them.
//!
//! A packet number above the next expected one opens a *gap*. Later arrivals shrink or split the
//! gap's intervals. The acknowledgements of all packets behind the earliest interval wait, so that
//! the peer sees neither loss nor reordering. They are *released* when the gap is filled, when the
//! application gives it up, or at the gap's deadline.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The most open intervals. With more, the oldest gap is given up.
const MAX_INTERVALS: usize = 256;
/// The most packets whose acknowledgements wait. With more, the oldest gap is given up.
const MAX_HELD: usize = 8192;

/// Packet numbers that were skipped: lost, late, or never used by the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Its number on this connection.
    pub id: u64,
    /// The identifier of a datagram that was sent before the gap; `None` if none has arrived.
    pub after: Option<u32>,
    /// The identifier of the datagram that showed the gap.
    pub before: u32,
    /// How many packet numbers are missing.
    pub missing: u64,
    /// When it was found.
    pub found: Instant,
}

/// How a gap was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapEnd {
    /// All packets arrived.
    Filled,
    /// The application gave it up ([`crate::Connection::sidekick_release_gap`]).
    Released,
    /// Its deadline passed, or there was no room to wait longer.
    Expired,
}

/// An event of a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapEvent {
    /// It was found.
    Found(Gap),
    /// It was closed.
    Closed {
        /// The gap's number.
        id: u64,
        /// The reason.
        end: GapEnd,
        /// The time since it was found.
        after: Duration,
    },
    /// A packet that was missing arrived from the path after all, before or after its copy.
    Late {
        /// The gap's number.
        id: u64,
    },
}

impl GapEvent {
    /// The number of the gap, if it was found now.
    pub(super) fn found(self) -> Option<u64> {
        match self {
            Self::Found(gap) => Some(gap.id),
            Self::Closed { .. } | Self::Late { .. } => None,
        }
    }
}

/// Consecutive missing packet numbers of one gap.
#[derive(Clone, Copy, Debug)]
struct Interval {
    gap: u64,
    first: u64,
    last: u64,
    found: Instant,
}

/// A packet whose acknowledgement waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) packet_number: u64,
    pub(super) received: Instant,
    pub(super) ack_eliciting: bool,
}

/// The packet numbers of a space.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// The number after the highest so far.
    next: u64,
    /// The identifier of the datagram with the highest.
    latest: Option<u32>,
    /// In ascending order.
    intervals: VecDeque<Interval>,
    /// In ascending order of the packet numbers.
    held: VecDeque<Held>,
}

/// A packet that arrived, and its datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) packet_number: u64,
    /// The identifier of its datagram.
    pub(super) identifier: u32,
    /// The identifier of the datagram before it, of any space.
    pub(super) previous: Option<u32>,
    pub(super) now: Instant,
}

impl Gaps {
    /// Ignores the numbers before `next`.
    pub(super) fn begin(&mut self, next: u64) {
        self.next = self.next.max(next);
    }

    /// Notes an arrival as [`arrive`](Self::arrive) would, if its packet number is the next one, no
    /// gap is open, and no acknowledgement waits. Otherwise it does nothing, and returns false.
    #[inline]
    pub(super) fn arrive_in_order(&mut self, packet_number: u64, identifier: u32) -> bool {
        let in_order = packet_number == self.next && self.is_empty();
        if in_order {
            (self.next, self.latest) = (packet_number + 1, Some(identifier));
        }
        in_order
    }

    /// Notes an arrival, which must not be a duplicate. `next_id` numbers a gap that it opens.
    pub(super) fn arrive(
        &mut self,
        arrival: Arrival,
        next_id: &mut u64,
        mut report: impl FnMut(GapEvent),
    ) {
        let Arrival { packet_number, identifier, previous, now } = arrival;
        let expected = self.next;
        if packet_number < expected {
            self.fill(packet_number, now, report);
            return;
        }
        if packet_number > expected {
            if self.intervals.len() >= MAX_INTERVALS {
                self.give_up_oldest(now, &mut report);
            }
            let (gap, last) = (*next_id, packet_number - 1);
            *next_id += 1;
            self.intervals.push_back(Interval { gap, first: expected, last, found: now });
            report(GapEvent::Found(Gap {
                id: gap,
                after: self.latest.or(previous),
                before: identifier,
                missing: packet_number - expected,
                found: now,
            }));
        }
        (self.next, self.latest) = (packet_number + 1, Some(identifier));
    }

    /// Whether a packet number that arrived is the highest so far.
    pub(super) fn is_highest(&self, packet_number: u64) -> bool {
        self.next <= packet_number
    }

    /// Removes an arrived number from its gap.
    fn fill(&mut self, packet_number: u64, now: Instant, mut report: impl FnMut(GapEvent)) {
        let at = self.intervals.partition_point(|interval| interval.last < packet_number);
        let Some(interval) = self.intervals.get(at).copied() else { return };
        if packet_number < interval.first {
            return;
        }
        let before = Interval { last: packet_number.wrapping_sub(1), ..interval };
        let after = Interval { first: packet_number + 1, ..interval };
        self.intervals.remove(at);
        if packet_number < interval.last {
            self.intervals.insert(at, after);
        }
        if packet_number > interval.first {
            self.intervals.insert(at, before);
        }
        if !self.is_open(interval.gap) {
            let (id, after) = (interval.gap, now.saturating_duration_since(interval.found));
            report(GapEvent::Closed { id, end: GapEnd::Filled, after });
        }
    }

    /// The missing number that is congruent to `low` modulo `span` and nearest to `to`.
    pub(super) fn missing_like(&self, to: u64, low: u64, span: u64) -> Option<u64> {
        let nearest = |interval: &Interval| {
            let near = to.clamp(interval.first, interval.last);
            let below = (near - near % span + low).checked_sub(if near % span < low { span } else { 0 });
            let above = below.map_or(Some(low), |below| below.checked_add(span));
            let inside = |number: &u64| (interval.first..=interval.last).contains(number);
            below.into_iter().chain(above).filter(inside).min_by_key(|number| number.abs_diff(to))
        };
        self.intervals.iter().filter_map(nearest).min_by_key(|number| number.abs_diff(to))
    }

    /// Whether no gap is open, and no acknowledgement waits.
    pub(super) fn is_empty(&self) -> bool {
        self.intervals.is_empty() && self.held.is_empty()
    }

    fn is_open(&self, gap: u64) -> bool {
        self.intervals.iter().any(|interval| interval.gap == gap)
    }

    fn is_behind_gap(&self, packet_number: u64) -> bool {
        self.intervals.front().is_some_and(|earliest| earliest.first < packet_number)
    }

    /// Whether the acknowledgement of this packet must wait: for a gap, or for others before it.
    pub(super) fn must_wait(&self, packet_number: u64) -> bool {
        let before = |held: &Held| held.packet_number < packet_number;
        self.is_behind_gap(packet_number) || self.held.front().is_some_and(before)
    }

    /// The number of packets whose acknowledgements wait.
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// How long the acknowledgement in front has waited.
    pub(super) fn oldest(&self, now: Instant) -> Duration {
        let oldest = self.held.front().map(|held| now.saturating_duration_since(held.received));
        oldest.unwrap_or_default()
    }

    /// Whether no more acknowledgements can wait.
    pub(super) fn is_full(&self) -> bool {
        self.held.len() >= MAX_HELD
    }

    /// Lets the acknowledgement of a packet wait. If that fills the room, it gives up gaps until
    /// the packet in front is releasable. The caller then pops the releasable packets.
    pub(super) fn hold(&mut self, packet: Held, now: Instant, mut report: impl FnMut(GapEvent)) {
        let at = self.held.partition_point(|held| held.packet_number < packet.packet_number);
        self.held.insert(at, packet);
        while self.is_full() && !self.is_releasable() {
            self.give_up_oldest(now, &mut report);
        }
    }

    /// Whether a packet need no longer wait.
    pub(super) fn is_releasable(&self) -> bool {
        self.held.front().is_some_and(|next| !self.is_behind_gap(next.packet_number))
    }

    /// The next packet that need no longer wait.
    pub(super) fn pop_released(&mut self) -> Option<Held> {
        if self.is_releasable() { self.held.pop_front() } else { None }
    }

    /// Gives up a gap.
    pub(super) fn release(
        &mut self,
        gap: u64,
        end: GapEnd,
        now: Instant,
        mut report: impl FnMut(GapEvent),
    ) {
        let of_gap = |interval: &&Interval| interval.gap == gap;
        let Some(found) = self.intervals.iter().find(of_gap).map(|interval| interval.found) else {
            return;
        };
        self.intervals.retain(|interval| interval.gap != gap);
        let after = now.saturating_duration_since(found);
        report(GapEvent::Closed { id: gap, end, after });
    }

    fn give_up_oldest(&mut self, now: Instant, report: impl FnMut(GapEvent)) {
        if let Some(gap) = self.intervals.front().map(|interval| interval.gap) {
            self.release(gap, GapEnd::Expired, now, report);
        }
    }

    /// When the next gap has been open for `limit`. Gaps are found in ascending order, so the
    /// earliest is the oldest.
    pub(super) fn deadline(&self, limit: Duration) -> Option<Instant> {
        self.intervals.front().map(|interval| interval.found + limit)
    }

    /// Gives up the gaps that have been open for `limit`.
    pub(super) fn expire(
        &mut self,
        limit: Duration,
        now: Instant,
        mut report: impl FnMut(GapEvent),
    ) {
        while self.deadline(limit).is_some_and(|deadline| deadline <= now) {
            self.give_up_oldest(now, &mut report);
        }
    }

    /// Gives up all gaps.
    pub(super) fn release_all(&mut self, now: Instant, mut report: impl FnMut(GapEvent)) {
        while let Some(gap) = self.intervals.front().map(|interval| interval.gap) {
            self.release(gap, GapEnd::Released, now, &mut report);
        }
    }
}

#[cfg(test)]
mod tests;
