//! A second way to the proxy: what the first link loses goes by it, and all that leaves while the
//! first one is silent (SPEC.md, section 7.15).

use super::Established;
use super::probe::SILENCE;
use crate::keys::Link;
use crate::sender::effects::Context;
use crate::wire::{Cookie, Message, Part, Relay};
use std::collections::VecDeque;
use std::mem;
use std::time::{Duration, Instant};

/// The interval of LINKs while the flow sends, and how long one without an answer holds.
const EVERY: Duration = Duration::from_secs(1);
const LINKED: Duration = Duration::from_secs(3);
/// The interval while repairs go by it, which shows soon that it is lost, slow or full.
const IN_USE: Duration = Duration::from_millis(100);
/// A LINK is lost if its answer takes longer than two round trips and this.
const LOST_MORE: Duration = Duration::from_millis(20);
/// The intervals between LINKs until the first answer.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);
/// The second link is of use for repairs if its round trip is at most so many near RTTs and this.
const TIMES_NEAR: u32 = 2;
const MORE: Duration = Duration::from_millis(10);
/// The first link is silent if a POLL has no answer for so many probe timeouts, and at least this.
const UNANSWERED: u32 = 2;
const LEAST_SILENCE: Duration = Duration::from_millis(30);
/// While it is, the copies of what arrives are requested at this interval.
const TAILS: Duration = Duration::from_millis(20);
/// The most datagrams that wait to be relayed.
const MAX_RELAYS: usize = 512;

/// A datagram that waits to be relayed.
#[derive(Debug)]
struct Waiting {
    number: u16,
    class: u8,
    /// Its first part was sent.
    is_begun: bool,
    datagram: Vec<u8>,
}

/// The state of a session's second link.
#[derive(Debug, Default)]
pub(in crate::sender) struct SecondLink {
    /// There is one, and it may carry the flow.
    is_wanted: bool,
    may_carry: bool,
    /// The latest proof.
    cookie: Option<Cookie>,
    /// A LINK waits to be sent by this link.
    asks: Option<Link>,
    /// The next LINK does not wait for the flow.
    presses: bool,
    /// When the first LINK left that has no answer, and the latest one, and when the next is due.
    asked: Option<Instant>,
    left: Option<Instant>,
    again: Option<Instant>,
    interval: Duration,
    /// The proxy takes it for the session's second link until then.
    linked: Option<Instant>,
    /// The time from a LINK to its answer, smoothed.
    rtt: Option<Duration>,
    /// A repair went by it since the latest answer.
    was_used: bool,
    /// The first link is silent.
    pub(in crate::sender) carries: bool,
    tail_at: Option<Instant>,
    /// What passed the proxy lately is to be requested, if the caller wants that.
    tail_due: bool,
    relays: VecDeque<Waiting>,
    next: u16,
}

impl SecondLink {
    /// Sets whether there is a second link.
    pub(in crate::sender) fn set_wanted(&mut self, is_wanted: bool, may_carry: bool, now: Instant) {
        if is_wanted == self.is_wanted {
            return;
        }
        let was_linked = self.linked.is_some();
        *self = Self { is_wanted, may_carry, next: self.next, ..Self::default() };
        if is_wanted {
            (self.interval, self.again, self.presses) = (FIRST, Some(now), true);
        } else if was_linked {
            self.asks = Some(Link::First);
        }
    }

    /// Until when the proxy takes it for the session's second link.
    pub(super) fn linked_until(&self) -> Option<Instant> {
        self.linked
    }

    pub(in crate::sender) fn is_linked(&self, now: Instant) -> bool {
        self.linked.is_some_and(|until| now < until)
    }

    /// Handles the answer to a LINK.
    pub(super) fn on_linked(&mut self, cookie: Cookie, now: Instant) {
        if !self.is_wanted {
            return;
        }
        if let Some(asked) = self.asked.take() {
            let sample = now.saturating_duration_since(asked);
            self.rtt = Some(self.rtt.map_or(sample, |rtt| (rtt + sample) / 2));
        }
        if cookie == Cookie::NONE {
            self.linked = Some(now + LINKED);
            let interval = if mem::take(&mut self.was_used) { IN_USE } else { EVERY };
            (self.interval, self.again) = (interval, Some(now + interval));
        } else {
            // A proof may be for another mapping of a NAT than the next LINK will have.
            let next = self.left.map_or(now, |left| now.max(left + FIRST));
            (self.cookie, self.again, self.presses) = (Some(cookie), Some(next), true);
        }
    }

    /// Takes a datagram to be relayed. Returns false if there is no room.
    fn relay(&mut self, class: u8, datagram: &[u8]) -> bool {
        let has_room = self.relays.len() < MAX_RELAYS && datagram.len() <= 2 * Relay::MAX_LEN;
        if has_room {
            self.note_use(Link::Second);
            let (number, is_begun) = (self.next, false);
            self.next = self.next.wrapping_add(1);
            self.relays.push_back(Waiting { number, class, is_begun, datagram: datagram.to_vec() });
        }
        has_room
    }

    /// Notes that a request leaves by this link.
    pub(super) fn note_use(&mut self, link: Link) {
        if link == Link::Second && !mem::replace(&mut self.was_used, true) {
            self.measure_soon();
        }
    }

    /// Sends the next LINK soon, because it is used.
    fn measure_soon(&mut self) {
        let soon = self.left.map(|left| left + IN_USE);
        self.again = self.again.zip(soon).map(|(again, soon)| again.min(soon)).or(self.again);
        self.interval = self.interval.min(IN_USE);
    }

    pub(super) fn is_silent(&self) -> bool {
        self.asks.is_none() && self.relays.is_empty()
    }

    /// Passes the next message to `write`.
    pub(super) fn take<R>(&mut self, write: impl FnOnce(Link, &Message<'_>) -> R) -> Option<R> {
        if let Some(link) = self.asks.take() {
            let cookie = self.cookie.unwrap_or(Cookie::NONE);
            return Some(write(link, &Message::Link { cookie }));
        }
        let relay = self.relays.front_mut()?;
        let Waiting { number, class, .. } = *relay;
        let (part, range) = Part::next_of(relay.datagram.len(), Relay::MAX_LEN, relay.is_begun);
        let datagram = relay.datagram.get(range).unwrap_or_default();
        let written = write(Link::Second, &Message::Relay(Relay { number, part, class, datagram }));
        relay.is_begun = true;
        if part != Part::First {
            self.relays.pop_front();
        }
        Some(written)
    }
}

impl Established {
    /// The link for repairs: the second one, unless it is much slower, or while the first is
    /// silent.
    pub(in crate::sender) fn link_of_repairs(&self, now: Instant) -> Link {
        let second = &self.second;
        let near = self.near_rtt.smoothed().unwrap_or_default();
        let is_near = second.rtt.is_some_and(|rtt| {
            let is_answered = second.asked.is_none_or(|asked| now < asked + 2 * rtt + LOST_MORE);
            is_answered && rtt <= TIMES_NEAR * near + MORE
        });
        if second.is_linked(now) && (is_near || second.carries) {
            Link::Second
        } else {
            Link::First
        }
    }

    /// When a copy that was requested by this link is overdue.
    pub(super) fn copy_timeout(&self, link: Link) -> Duration {
        let near = self.near_rtt.copy_timeout();
        let second = self.second.rtt.map(|rtt| rtt + rtt / 4);
        second.filter(|_| link == Link::Second).map_or(near, |second| second.max(near))
    }

    /// Takes a datagram that was lost, or may be. Returns false if it cannot be relayed.
    pub(in crate::sender) fn relay(&mut self, class: u8, datagram: &[u8], now: Instant) -> bool {
        self.link_of_repairs(now) == Link::Second && self.second.relay(class, datagram)
    }

    /// When the first link will have been silent for long.
    fn carries_at(&self) -> Option<Instant> {
        let second = &self.second;
        let may_begin = second.may_carry && !second.carries;
        let since = self.epoch.probe.silent_since.filter(|_| may_begin)?;
        let patience = (UNANSWERED * self.near_rtt.probe_timeout()).max(LEAST_SILENCE);
        second.linked.filter(|until| since + patience < *until).map(|_| since + patience)
    }

    /// When [`Self::on_second_link_timeout`] is due.
    pub(super) fn second_link_at(&self) -> Option<Instant> {
        let second = &self.second;
        let due = [second.again, second.linked, self.carries_at(), second.tail_at];
        due.into_iter().flatten().min()
    }

    /// Sends the LINK that is due, and notes whether the first link is silent.
    pub(super) fn on_second_link_timeout(&mut self, context: &mut Context<'_>) {
        let now = context.now;
        self.second.linked.take_if(|until| *until <= now);
        if self.second.again.is_some_and(|at| at <= now) {
            let second = &mut self.second;
            let since = now.checked_sub(second.interval);
            let is_active = self.history.last_sent().zip(since).is_some_and(|(at, from)| at > from);
            if mem::take(&mut second.presses) || is_active {
                second.asks = Some(Link::Second);
                second.left = Some(now);
                second.asked.get_or_insert(now);
            }
            second.again = Some(now + second.interval);
            if second.linked.is_none() {
                second.interval = (2 * second.interval).min(LONGEST);
            }
        }
        if self.carries_at().is_some_and(|at| at <= now) {
            self.second.carries = true;
            self.second.tail_at = Some(now);
        }
        let ends = !self.second.is_linked(now) || self.epoch.probe.silent_since.is_none();
        if self.second.carries && ends {
            self.second.carries = false;
            (self.second.tail_at, self.second.tail_due) = (None, false);
        }
        if self.second.tail_at.is_some_and(|at| at <= now) {
            (self.second.tail_at, self.second.tail_due) = (Some(now + TAILS), true);
        }
    }

    /// Whether what passed the proxy lately is due to be requested. It is, once.
    pub(in crate::sender) fn takes_tail(&mut self) -> bool {
        mem::take(&mut self.second.tail_due) && self.carries()
    }

    /// Whether the first link is silent, so that what leaves by it is lost.
    pub(in crate::sender) fn carries(&self) -> bool {
        self.second.carries && self.epoch.probe.silent_since.is_some()
    }
}

const _: () = assert!(LINKED.as_millis() > SILENCE.as_millis());
