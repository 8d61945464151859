//! The second link of a session's sender: datagrams that it relays by this link to the flow's path,
//! and copies that go to it there (SPEC.md, section 6.11).

use super::Observer;
use super::input::{HandleError, Peer};
use super::ordering::Release;
use super::session::Session;
use super::transmit::Outgoing;
use crate::allowance::Allowance;
use crate::cookie::Proof;
use crate::gate::{Gate, Hold};
use crate::identify::{Flow, Payload};
use crate::keys::Link;
use crate::transmit::Transmit;
use crate::wire::{Cookie, Linked, MAX_KEPT_LEN, Part, Relay, Relayed, SessionNumber};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The latest LINK with a proof is in force for this time.
const IN_FORCE: Duration = Duration::from_secs(10);

/// The bytes that a session may have relayed at first, and the most that are saved up, which last
/// while the first link carries nothing. Each counted byte adds one.
const FIRST_BYTES: usize = 64 << 10;
const MOST_BYTES: usize = 4 << 20;

/// The most datagrams of a session that wait for others, and how far apart their numbers may be.
const MAX_WAITING: usize = 512;
const MOST_AHEAD: i16 = 64;
/// The most sessions whose relayed datagrams wait at a time.
const MAX_SESSIONS_WAITING: usize = 64;

/// A part of a datagram whose other part has not arrived.
#[derive(Debug)]
struct Half {
    number: u16,
    part: Part,
    bytes: Vec<u8>,
}

/// A datagram that may be put on its way.
#[derive(Debug)]
struct Allowed {
    identifier: u32,
    class: u8,
    payload: Vec<u8>,
}

/// The second link of a session.
#[derive(Debug)]
pub(super) struct SecondLink {
    /// Where the sender receives by it.
    peer: Peer,
    until: Instant,
    half: Option<Half>,
    /// Which RELAYs arrived, and the newest number, which goes on where `u16` begins again.
    relayed: Relayed,
    newest: u32,
    /// Orders them by their numbers. One that must not be relayed has its place, too.
    gate: Gate<Option<Allowed>>,
    /// A place among the sessions whose datagrams wait, while some do.
    place: Option<Arc<()>>,
    /// A LINKED that a gap drew has not left yet.
    tells: bool,
    /// What may be relayed. It lasts as long as the session, whatever LINKs come.
    allowance: Allowance,
    /// The counted bytes that the allowance has.
    earned: u64,
}

impl SecondLink {
    fn new(peer: Peer, until: Instant, earned: u64) -> Self {
        let mut allowance = Allowance::new(MOST_BYTES);
        allowance.add(FIRST_BYTES.saturating_sub(allowance.left()));
        Self {
            peer,
            until,
            half: None,
            relayed: Relayed::default(),
            newest: 0,
            gate: Gate::new(Hold::default()),
            place: None,
            tells: false,
            allowance,
            earned,
        }
    }

    /// What a LINKED says that leaves now.
    pub(super) fn linked(&mut self) -> Linked {
        self.tells = false;
        Linked::InForce(self.relayed)
    }

    /// A datagram of `size` bytes to the sender by this link.
    pub(super) fn transmit(&self, size: usize) -> Transmit {
        self.peer.transmit(size)
    }

    /// The whole datagram, once all of it is there.
    fn join(&mut self, relay: &Relay<'_>) -> Option<Vec<u8>> {
        let Relay { number, part, datagram, .. } = *relay;
        if part == Part::Whole {
            return Some(datagram.to_vec());
        }
        let fits = |half: &Half| half.number == number && half.part != part;
        let Some(half) = self.half.take().filter(fits) else {
            self.half = Some(Half { number, part, bytes: datagram.to_vec() });
            return None;
        };
        Some(part.join(datagram, &half.bytes))
    }

    /// Puts a datagram in the order of the numbers, in which it is `ahead` of the newest, or the
    /// first. One that does not wait leaves others to do so.
    fn order(&mut self, ahead: Option<i16>, wait: Duration, item: Option<Allowed>, now: Instant) {
        let gate = &mut self.gate;
        let hold = Hold { gap: wait, list: Duration::ZERO };
        if !wait.is_zero() && gate.hold() != hold {
            gate.set_hold(hold, now);
        }
        let number = self.newest.wrapping_add_signed(ahead.unwrap_or(1).into());
        if ahead.is_some_and(|ahead| ahead < 0) {
            // One for which nothing waits any longer leaves at once, too.
            let item = match wait.is_zero() {
                true => {
                    gate.pass(item);
                    None
                }
                false => item,
            };
            gate.on_copy(number, item, now).into_iter().for_each(|item| gate.pass(item));
        } else {
            let missing = ahead.unwrap_or(1) - 1;
            if missing >= MOST_AHEAD {
                gate.open(now);
            }
            let first = if missing < MOST_AHEAD { self.newest.wrapping_add(1) } else { number };
            let behind = number.wrapping_sub(first);
            let numbers = (0..=behind).map(|at| first.wrapping_add(at));
            if wait.is_zero() {
                gate.note_passed(number);
            }
            // These numbers follow the last ones, so none contradicts another.
            let _ = gate.on_list(first, numbers, now);
            if wait.is_zero() {
                gate.pass(item);
            } else {
                gate.on_arrival(number, item, now);
            }
            self.newest = number;
        }
        if gate.waiting() > MAX_WAITING {
            gate.open(now);
        }
        self.settle();
    }

    /// Completes an input of the gate. The sender learns of gaps by LINKED.
    fn settle(&mut self) {
        while self.gate.poll_gap().is_some() || self.gate.poll_closed().is_some() {}
        if self.gate.waiting() == 0 {
            self.place = None;
        }
    }

    /// When a datagram has waited long enough.
    pub(super) fn due(&self) -> Option<Instant> {
        self.gate.poll_timeout()
    }

    /// The next datagram that leaves.
    fn next(&mut self) -> Option<Allowed> {
        std::iter::from_fn(|| self.gate.poll_delivery()).find_map(|delivery| delivery.datagram)
    }

    /// Lets all that waits leave to this flow's destination.
    pub(super) fn open(mut self, flow: Flow, now: Instant) -> impl Iterator<Item = Release> {
        self.gate.open(now);
        let left = std::iter::from_fn(move || self.next());
        left.map(move |Allowed { class, payload, .. }| Release::Made { flow, class, payload })
    }
}

impl Session {
    /// Where the sender receives by its second link, if that is in force.
    pub(super) fn second_peer(&self, now: Instant) -> Option<Peer> {
        self.second.as_ref().filter(|it| now < it.until).map(|it| it.peer)
    }
}

impl Observer {
    /// Handles a LINK that arrived by a link from this peer. One by the first link ends the use of
    /// the second.
    pub(super) fn on_link(
        &mut self,
        number: SessionNumber,
        (link, from): (Link, Peer),
        (token, cookie): (u16, Cookie),
        now: Instant,
    ) -> Result<(), HandleError> {
        let (_, session) = self.table.by_number(number).ok_or(HandleError::UnknownSession)?;
        if link == Link::First {
            session.second.iter_mut().for_each(|second| second.until = now);
            return Ok(());
        }
        if !self.config.relays || !session.speaks_for_source() {
            return Err(HandleError::Unproven);
        }
        let proof = Proof::Address(&from.address);
        if !self.cookies.verify(&cookie, proof, now) {
            if let Some(cookie) = self.cookies.issue(proof, now) {
                self.queue(Outgoing::Linked(number, from, token, cookie));
            }
            return Err(HandleError::Unproven);
        }
        let (until, counted) = (now + IN_FORCE, session.counter.bytes);
        let second = || Box::new(SecondLink::new(from, until, counted));
        let second = session.second.get_or_insert_with(second);
        (second.peer, second.until) = (from, until);
        self.queue(Outgoing::Linked(number, from, token, Cookie::NONE));
        Ok(())
    }

    /// Puts a datagram of a session's flow on its way, in the place of the one that was lost, once
    /// those with lower numbers are there for which it waits.
    pub(super) fn on_relay(
        &mut self,
        number: SessionNumber,
        relay: &Relay<'_>,
        now: Instant,
    ) -> Result<(), HandleError> {
        let (index, session) = self.table.by_number(number).ok_or(HandleError::UnknownSession)?;
        let is_linked = session.second_peer(now).is_some();
        let Some(second) = session.second.as_mut().filter(|_| is_linked) else {
            self.stats.relays_refused += 1;
            return Err(HandleError::Unproven);
        };
        let counted = session.counter.bytes;
        let earned = counted - std::mem::replace(&mut second.earned, counted);
        second.allowance.add(usize::try_from(earned).unwrap_or(usize::MAX));
        let Some(datagram) = second.join(relay) else { return Ok(()) };
        let ahead = (!second.relayed.is_empty()).then(|| second.relayed.ahead(relay.number));
        if !second.relayed.note(relay.number) {
            return Ok(());
        }
        let identifier = session.counter.identifier(Payload::whole(&datagram));
        let is_new = identifier.filter(|identifier| !session.counter.has_counted(*identifier));
        let fits = datagram.len() <= MAX_KEPT_LEN;
        let identifier = is_new.filter(|_| fits && second.allowance.spend(datagram.len()));
        let (class, payload) = (relay.class, datagram);
        let allowed = identifier.map(|identifier| Allowed { identifier, class, payload });
        let outcome = if allowed.is_some() { Ok(()) } else { Err(HandleError::NotRelayed) };
        self.stats.relayed += u64::from(outcome.is_ok());
        self.stats.relays_refused += u64::from(outcome.is_err());
        let mut wait = Duration::from_millis(relay.wait_ms.into());
        if !wait.is_zero() && second.place.is_none() {
            let has_room = Arc::strong_count(&self.waiting_relays) <= MAX_SESSIONS_WAITING;
            second.place = has_room.then(|| Arc::clone(&self.waiting_relays));
            wait = if has_room { wait } else { Duration::ZERO };
        }
        second.order(ahead, wait, allowed, now);
        if ahead.is_some_and(|ahead| ahead > 1) && !std::mem::replace(&mut second.tells, true) {
            let linked = Outgoing::Linked(number, second.peer, 0, Cookie::NONE);
            self.queue(linked);
        }
        self.release_relayed(index, now);
        outcome
    }

    /// Serves the timer of a session's relayed datagrams. Returns whether it was due.
    pub(super) fn on_relays_timeout(&mut self, index: usize, now: Instant) -> bool {
        let second = self.table.get_mut(index).and_then(|session| session.second.as_mut());
        let Some(second) = second.filter(|it| it.due().is_some_and(|due| due <= now)) else {
            return false;
        };
        second.gate.on_timeout(now);
        second.settle();
        self.release_relayed(index, now);
        true
    }

    /// Lets leave what does not wait for other relayed datagrams.
    fn release_relayed(&mut self, index: usize, now: Instant) {
        while let Some(session) = self.table.get_mut(index)
            && let Some(next) = session.second.as_mut().and_then(|second| second.next())
        {
            let flow = session.agreed.flow;
            let Allowed { identifier, class, payload } = next;
            if session.counter.has_counted(identifier) {
                // The original passed meanwhile.
                continue;
            }
            let made = Release::Made { flow, class, payload };
            let made = self.release_copy(index, identifier, made, now);
            self.table.released.extend(made);
        }
        self.table.reschedule_at(index);
    }
}
