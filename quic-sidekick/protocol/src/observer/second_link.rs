//! The second link of a session's sender: datagrams that it relays by this link to the flow's path,
//! and copies that go to it there (SPEC.md, section 6.11).

use super::Observer;
use super::input::{HandleError, Peer};
use super::ordering::Release;
use super::session::Session;
use super::transmit::Outgoing;
use crate::allowance::Allowance;
use crate::cookie::Proof;
use crate::identify::Payload;
use crate::keys::Link;
use crate::transmit::Transmit;
use crate::wire::{Cookie, MAX_KEPT_LEN, Part, Relay, SessionNumber};
use std::time::{Duration, Instant};

/// The latest LINK with a proof is in force for this time.
const IN_FORCE: Duration = Duration::from_secs(10);

/// The bytes that a session may have relayed at first, and the most that are saved up, which last
/// while the first link carries nothing. Each counted byte adds one.
const FIRST_BYTES: usize = 64 << 10;
const MOST_BYTES: usize = 4 << 20;

/// A part of a datagram whose other part has not arrived.
#[derive(Debug)]
struct Half {
    number: u16,
    part: Part,
    bytes: Vec<u8>,
}

/// The second link of a session.
#[derive(Debug)]
pub(super) struct SecondLink {
    /// Where the sender receives by it.
    peer: Peer,
    until: Instant,
    half: Option<Half>,
    /// What may be relayed. It lasts as long as the session, whatever LINKs come.
    allowance: Allowance,
    /// The counted bytes that the allowance has.
    earned: u64,
}

impl SecondLink {
    fn new(peer: Peer, until: Instant, earned: u64) -> Self {
        let mut allowance = Allowance::new(MOST_BYTES);
        allowance.add(FIRST_BYTES.saturating_sub(allowance.left()));
        Self { peer, until, half: None, allowance, earned }
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
        cookie: Cookie,
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
                self.queue(Outgoing::Linked(number, from, cookie));
            }
            return Err(HandleError::Unproven);
        }
        let (until, counted) = (now + IN_FORCE, session.counter.bytes);
        let second = || Box::new(SecondLink::new(from, until, counted));
        let second = session.second.get_or_insert_with(second);
        (second.peer, second.until) = (from, until);
        self.queue(Outgoing::Linked(number, from, Cookie::NONE));
        Ok(())
    }

    /// Puts a datagram of a session's flow on its way, in the place of the one that was lost.
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
        let identifier = session.counter.identifier(Payload::whole(&datagram));
        let is_new = identifier.filter(|identifier| !session.counter.has_counted(*identifier));
        let fits = datagram.len() <= MAX_KEPT_LEN;
        let Some(identifier) = is_new.filter(|_| fits && second.allowance.spend(datagram.len()))
        else {
            self.stats.relays_refused += 1;
            return Err(HandleError::NotRelayed);
        };
        self.stats.relayed += 1;
        let flow = session.agreed.flow;
        let made = Release::Made { flow, class: relay.class, payload: datagram };
        let made = self.release_copy(index, identifier, made, now);
        self.table.released.extend(made);
        Ok(())
    }
}
