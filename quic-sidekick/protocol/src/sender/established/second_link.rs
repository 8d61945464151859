//! A second way to the proxy: what the first link loses goes by it, and all that leaves while the
//! first one is silent (SPEC.md, section 7.15).

use super::Established;
use super::probe::SILENCE;
use crate::keys::Link;
use crate::sender::effects::Context;
use crate::sender::second_link::{LostRelay, RelayAs};
use crate::wire::{Cookie, Linked, Message, Part, Relay, Relayed};
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
/// The second link is of use for repairs if its round trip is at most 9/8 near RTTs and this. Later
/// ones would do more harm than the first link's losses of repairs.
const MORE: Duration = Duration::from_millis(2);
/// The first link is silent if a POLL has no answer for so many probe timeouts, and at least this.
const UNANSWERED: u32 = 2;
const LEAST_SILENCE: Duration = Duration::from_millis(30);
/// While it is, the copies of what arrives are requested at this interval, and LINKs show which
/// RELAYs arrived.
const TAILS: Duration = Duration::from_millis(20);
/// The most datagrams that wait to be relayed.
const MAX_RELAYS: usize = 512;
/// The most RELAYs that are remembered until they are known to have arrived, and for how long.
const MAX_UNCERTAIN: usize = 512;
/// The most LINKs whose answers are awaited.
const MAX_ASKED: usize = 64;
const UNCERTAIN: Duration = Duration::from_secs(1);

/// A datagram that waits to be relayed.
#[derive(Debug)]
struct Waiting {
    number: u16,
    class: u8,
    wait_ms: u8,
    /// Its first part was sent.
    is_begun: bool,
    datagram: Vec<u8>,
}

/// A RELAY that may be lost.
#[derive(Clone, Copy, Debug)]
struct Uncertain {
    relay: LostRelay,
    /// When it left, perhaps again.
    at: Instant,
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
    /// The tokens of LINKs behind the latest that has an answer, and when they left.
    asked: VecDeque<(u16, Instant)>,
    token: u16,
    /// When the latest one left, and when the next is due.
    left: Option<Instant>,
    again: Option<Instant>,
    interval: Duration,
    /// The proxy takes it for the session's second link until then.
    linked: Option<Instant>,
    /// The time from a LINK to its answer: it rises at once, and falls smoothly.
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
    uncertain: VecDeque<Uncertain>,
    pub(in crate::sender) lost: Vec<LostRelay>,
}

impl SecondLink {
    /// Sets whether there is a second link.
    pub(in crate::sender) fn set_wanted(&mut self, is_wanted: bool, may_carry: bool, now: Instant) {
        if is_wanted == self.is_wanted {
            return;
        }
        let was_linked = self.linked.is_some();
        let Self { token, next, .. } = *self;
        *self = Self { is_wanted, may_carry, token, next, ..Self::default() };
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

    /// Handles the answer to a LINK, or what a gap drew.
    pub(super) fn on_linked(&mut self, token: u16, linked: Linked, now: Instant) {
        let answered = self.asked.iter().position(|(asked, _)| *asked == token);
        let asked = answered.and_then(|at| self.asked.drain(..=at).next_back()).map(|(_, at)| at);
        if let Some(asked) = asked {
            let sample = now.saturating_duration_since(asked);
            // A sample behind a RELAY shows how long that takes.
            self.rtt = Some(self.rtt.map_or(sample, |rtt| sample.max((rtt + sample) / 2)));
        }
        if let Linked::InForce(relayed) = linked {
            self.note_relayed(relayed, asked, now);
        }
        if asked.is_none() {
            return;
        }
        match linked {
            Linked::InForce(_) => {
                self.linked = Some(now + LINKED);
                self.interval = if mem::take(&mut self.was_used) { IN_USE } else { EVERY };
                // What is asked often has more answers on their way.
                let earlier = self.again.filter(|_| self.wants_relays_known());
                let again = now + self.pause();
                self.again = Some(earlier.map_or(again, |earlier| earlier.min(again)));
            }
            Linked::Proof(cookie) => {
                // A proof may be for another mapping of a NAT than the next LINK will have.
                let next = self.left.map_or(now, |left| now.max(left + FIRST));
                (self.cookie, self.again, self.presses) = (Some(cookie), Some(next), true);
            }
        }
    }

    /// Sends a LINK.
    fn ask(&mut self, now: Instant) {
        // 0 is not the token of a LINK.
        self.token = self.token.checked_add(1).unwrap_or(1);
        if self.asked.len() >= MAX_ASKED {
            // The oldest remains: it shows for how long no answer came.
            self.asked.remove(1);
        }
        self.asked.push_back((self.token, now));
        (self.asks, self.left) = (Some(Link::Second), Some(now));
    }

    /// The time to the next LINK.
    fn pause(&self) -> Duration {
        if self.wants_relays_known() { TAILS.min(self.interval) } else { self.interval }
    }

    /// Sends the LINK that is due. `last_sent` says when the flow last sent.
    fn on_timeout(&mut self, last_sent: Option<Instant>, now: Instant) {
        self.linked.take_if(|until| *until <= now);
        if self.again.is_none_or(|at| at > now) {
            return;
        }
        let since = now.checked_sub(self.interval);
        let is_active = last_sent.zip(since).is_some_and(|(at, from)| at > from);
        if mem::take(&mut self.presses) || self.wants_relays_known() || is_active {
            self.ask(now);
        }
        self.again = Some(now + self.pause());
        if self.linked.is_none() {
            self.interval = (2 * self.interval).min(LONGEST);
        }
    }

    /// Whether it is to be known soon which RELAYs arrived.
    fn wants_relays_known(&self) -> bool {
        self.carries && !self.uncertain.is_empty()
    }

    /// Notes which RELAYs arrived. One is lost if a later one arrived, or a LINK that left after
    /// it, at `asked`.
    fn note_relayed(&mut self, relayed: Relayed, asked: Option<Instant>, now: Instant) {
        let Self { uncertain, lost, .. } = self;
        uncertain.retain(|Uncertain { relay, at }| {
            let arrived = relayed.has(relay.number);
            let is_repeat = *at > relay.since;
            let is_older =
                asked.is_some_and(|asked| *at <= asked) || arrived.is_some() && !is_repeat;
            let is_lost = arrived != Some(true) && is_older;
            let is_useful = now.saturating_duration_since(relay.since) < UNCERTAIN;
            if is_lost && is_useful && lost.len() < MAX_UNCERTAIN {
                lost.push(*relay);
            }
            arrived != Some(true) && !is_lost && is_useful
        });
    }

    /// Takes a datagram to be relayed. Returns false if there is no room.
    fn relay(&mut self, relay: RelayAs, datagram: &[u8], now: Instant) -> bool {
        let has_room = self.relays.len() < MAX_RELAYS && datagram.len() <= 2 * Relay::MAX_LEN;
        if has_room {
            let RelayAs { tag, again, class, wait_ms, confirm } = relay;
            // The number of another session's RELAY says nothing to this proxy, nor does one that
            // is too old for LINKED.
            let behind = |lost: &LostRelay| self.next.wrapping_sub(lost.number);
            let again = again.filter(|lost| (1..Relayed::SPAN).contains(&behind(lost)));
            let relay = again.unwrap_or(LostRelay { number: self.next, tag, since: now });
            let number = relay.number;
            if again.is_none() {
                self.next = self.next.wrapping_add(1);
            }
            let (is_begun, datagram) = (false, datagram.to_vec());
            self.relays.push_back(Waiting { number, class, wait_ms, is_begun, datagram });
            if confirm {
                if self.uncertain.len() >= MAX_UNCERTAIN {
                    self.uncertain.pop_front();
                }
                self.uncertain.push_back(Uncertain { relay, at: now });
            }
            self.was_used = true;
            self.measure_soon();
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
        self.interval = self.interval.min(IN_USE);
        let soon = self.left.map(|left| left + self.pause());
        self.again = self.again.zip(soon).map(|(again, soon)| again.min(soon)).or(self.again);
    }

    pub(super) fn is_silent(&self) -> bool {
        self.asks.is_none() && self.relays.is_empty()
    }

    /// Passes the next message to `write`.
    pub(super) fn take<R>(&mut self, write: impl FnOnce(Link, &Message<'_>) -> R) -> Option<R> {
        let Some(relay) = self.relays.front_mut() else {
            // A LINK follows the RELAYs of which its answer speaks.
            let (token, cookie) = (self.token, self.cookie.unwrap_or(Cookie::NONE));
            return self.asks.take().map(|link| write(link, &Message::Link { token, cookie }));
        };
        let Waiting { number, class, wait_ms, .. } = *relay;
        let (part, range) = Part::next_of(relay.datagram.len(), Relay::MAX_LEN, relay.is_begun);
        let datagram = relay.datagram.get(range).unwrap_or_default();
        let message = Message::Relay(Relay { number, part, class, wait_ms, datagram });
        let written = write(Link::Second, &message);
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
            let asked = second.asked.front();
            let is_answered = asked.is_none_or(|(_, at)| now < *at + 2 * rtt + LOST_MORE);
            is_answered && rtt <= near * 9 / 8 + MORE
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
    pub(in crate::sender) fn relay(
        &mut self,
        relay: RelayAs,
        datagram: &[u8],
        now: Instant,
    ) -> bool {
        self.link_of_repairs(now) == Link::Second && self.second.relay(relay, datagram, now)
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
        self.second.on_timeout(self.history.last_sent(), now);
        if self.carries_at().is_some_and(|at| at <= now) {
            self.second.carries = true;
            self.second.tail_at = Some(now);
            self.second.again = self.second.again.map(|again| again.min(now + TAILS));
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);
    /// One way.
    const DELAY: Duration = Duration::from_millis(13);

    proptest! {
        /// Over a link that loses messages, but keeps their order, each lost datagram is found
        /// until it arrives, and no other one is.
        #[test]
        #[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
        fn lost_relays_are_found(
            begin in any::<u16>(),
            losses in prop::collection::vec(0_u8..12, 500),
            twelfths in 0_u8..4,
        ) {
            let mut now = Instant::now();
            let mut second = SecondLink { next: begin, ..Default::default() };
            second.set_wanted(true, true, now);
            second.carries = true;
            let mut losses = losses.into_iter().cycle();
            // At last it loses nothing more.
            let mut is_lost =
                move |step| step < 600 && losses.next().is_some_and(|it| it < twelfths);
            let (mut relayed, mut half) = (Relayed::default(), None);
            let (mut arrived, mut answers) = (Vec::new(), VecDeque::new());
            let mut lost: Vec<LostRelay> = Vec::new();
            for step in 0..900_u64 {
                now += MS;
                second.on_timeout(None, now);
                let as_new =
                    |tag| RelayAs { tag, again: None, class: 0, wait_ms: 0, confirm: true };
                let again = lost.drain(..);
                let again = again.map(|lost| RelayAs { again: Some(lost), ..as_new(lost.tag) });
                for relay in again.chain((step < 300).then(|| as_new(step))) {
                    prop_assert!(!arrived.contains(&relay.tag), "{} arrived", relay.tag);
                    prop_assert!(second.relay(relay, &[9; 1200], now));
                }
                let tags = second.uncertain.iter().map(|it| (it.relay.number, it.relay.tag));
                let tags: Vec<_> = tags.collect();
                let mut left = Vec::new();
                while let Some(sent) = second.take(|_, message| match message {
                    Message::Relay(relay) => Ok((relay.number, relay.part)),
                    Message::Link { token, .. } => Err(*token),
                    other => panic!("{other:?}"),
                }) {
                    left.push(sent);
                }
                for sent in left {
                    if is_lost(step) {
                        continue;
                    }
                    let answered = now + 2 * DELAY;
                    match sent {
                        Err(token) => answers.push_back((answered, token, relayed)),
                        Ok((number, Part::First)) => half = Some(number),
                        Ok((number, _)) if half.take() == Some(number) => {
                            let leaps = !relayed.is_empty() && relayed.ahead(number) > 1;
                            if relayed.note(number) {
                                arrived.push(tags.iter().find(|(of, _)| *of == number).unwrap().1);
                            }
                            if leaps && !is_lost(step) {
                                answers.push_back((answered, 0, relayed));
                            }
                        }
                        Ok(_) => {}
                    }
                }
                while answers.front().is_some_and(|(at, ..)| *at <= now) {
                    let (_, token, relayed) = answers.pop_front().unwrap();
                    second.on_linked(token, Linked::InForce(relayed), now);
                    prop_assert!(second.rtt.is_none_or(|rtt| rtt == 2 * DELAY));
                    lost.append(&mut second.lost);
                }
            }
            arrived.sort_unstable();
            prop_assert!(arrived.into_iter().eq(0..300));
        }
    }

    /// A proxy's answers without a question move nothing.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
    fn without_a_link_answers_say_nothing() {
        let now = Instant::now();
        let mut second = SecondLink::default();
        for linked in [Linked::Proof(Cookie([1; 20])), Linked::InForce(Relayed::default())] {
            second.on_linked(0, linked, now);
            second.on_linked(1, linked, now);
            assert_eq!((second.again, second.linked, second.rtt), (None, None, None));
        }
    }

    /// A session does not know another one's numbers, nor its own old ones.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
    fn strange_numbers_are_not_used() {
        let now = Instant::now();
        for (next, number, used) in
            [(3, 5000, 3), (600, 88, 600), (600, 89, 89), (2, 65_535, 65_535)]
        {
            let mut second = SecondLink { next, ..Default::default() };
            let again = Some(LostRelay { number, tag: 1, since: now });
            let relay = RelayAs { tag: 1, again, class: 0, wait_ms: 0, confirm: true };
            assert!(second.relay(relay, &[1; 100], now));
            assert_eq!(second.relays.back().map(|it| it.number), Some(used), "{next}");
        }
    }
}
