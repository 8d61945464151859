//! The pace of what arrives, and of what leaves the gate.

use crate::gate::Delivery;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Beside parity lists are rarer, but follow each other in half of the time that a datagram waits
/// for one. After a silence, repair symbols come with lists.
const MOST_EVERY: u8 = 8;
pub(crate) const FAR_LIST: Duration = Duration::from_millis(16);
/// The spacing varies where datagrams come in bursts, so lists get rarer only after this many.
const STAYS: u32 = 64;
/// No more than these wait, as in the gate: else the oldest leaves at once.
const MOST_WAITING: usize = 512;
/// What waited leaves early by so much, so that there are fewer timers.
const STEP: Duration = Duration::from_micros(500);

/// How far apart datagrams arrive, and how many of them a list beside parity should name.
#[derive(Debug)]
pub(crate) struct Pace {
    latest: Option<Instant>,
    spacing: Duration,
    pub(crate) every: u8,
    /// How many have come since that changed.
    since: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { latest: None, spacing: Duration::ZERO, every: MOST_EVERY, since: STAYS }
    }
}

impl Pace {
    pub(crate) fn on_arrival(&mut self, now: Instant) {
        let before = self.latest.replace(now).unwrap_or(now);
        let spacing = now.saturating_duration_since(before).min(FAR_LIST);
        self.spacing = (15 * self.spacing + spacing) / 16;
        self.since = self.since.saturating_add(1);
        let time = self.spacing * self.every.into();
        if time > FAR_LIST / 2 && self.every > 1 {
            (self.every, self.since) = (self.every / 2, 0);
        } else if time < FAR_LIST / 6 && self.every < MOST_EVERY && self.since >= STAYS {
            (self.every, self.since) = (self.every * 2, 0);
        }
    }
}

/// What left the gate. If all of a long hold left at once, a short queue behind the gate would drop
/// most of it; and if it arrived, its receiver would acknowledge it at once, which a server that
/// does not pace answers with a burst. So what waited leaves at the intervals at which it came,
/// less a quarter, and nothing waits longer than what waited longest.
#[derive(Debug)]
pub(crate) struct Steps<T> {
    pub(crate) ready: VecDeque<Delivery<T>>,
    pub(crate) waiting: VecDeque<Waiting<T>>,
    /// When the first of those that wait came, and when it left.
    pub(crate) pace: Option<(Instant, Instant)>,
    /// So many leave at once after a hold.
    burst: u32,
    /// How many more of them do.
    credit: u32,
}

#[derive(Debug)]
pub(crate) struct Waiting<T> {
    delivery: Delivery<T>,
    since: Instant,
    due: Instant,
}

impl<T> Default for Steps<T> {
    fn default() -> Self {
        Self::with_bursts(0)
    }
}

impl<T> Steps<T> {
    /// Lets so many leave at once after a hold.
    pub(crate) fn with_bursts(burst: u32) -> Self {
        let (ready, waiting) = (VecDeque::new(), VecDeque::new());
        Self { ready, waiting, pace: None, burst, credit: burst }
    }

    pub(crate) fn push(&mut self, delivery: Delivery<T>, now: Instant) {
        let came = now.checked_sub(delivery.waited).unwrap_or(now);
        let (first, left) = self.pace.get_or_insert((came, now));
        // A copy that left before it came later.
        *first = came.min(*first);
        let (first, left) = (*first, *left);
        let mut due = left + came.saturating_duration_since(first) * 3 / 4;
        if due + STEP <= now && delivery.waited > STEP {
            // It waited for another gap.
            (self.pace, self.credit) = (Some((came, now)), self.burst);
        }
        if self.credit > 0 && self.waiting.is_empty() {
            (self.pace, self.credit) = (Some((came, now)), self.credit - 1);
            due = now;
        }
        if due <= now + STEP && self.waiting.is_empty() {
            self.ready.push_back(delivery);
            return;
        }
        // A copy came later than those behind it.
        for before in self.waiting.iter_mut().rev().take_while(|before| before.due > due) {
            before.due = due;
        }
        self.waiting.push_back(Waiting { delivery, since: now, due });
        if self.waiting.len() > MOST_WAITING {
            self.release(1, now);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.waiting.front().map(|front| front.due)
    }

    pub(crate) fn on_timeout(&mut self, now: Instant) {
        if self.waiting.front().is_some_and(|front| front.due <= now) {
            let due = self.waiting.iter().take_while(|waiting| waiting.due <= now + STEP).count();
            self.release(due, now);
        }
    }

    pub(crate) fn release(&mut self, datagrams: usize, now: Instant) {
        let datagrams = datagrams.min(self.waiting.len());
        self.ready.extend(self.waiting.drain(..datagrams).map(
            |Waiting { delivery, since, .. }| {
                let waited = delivery.waited + now.saturating_duration_since(since);
                Delivery { waited, ..delivery }
            },
        ));
    }
}
