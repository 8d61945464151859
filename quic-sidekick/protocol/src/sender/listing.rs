//! Lists of what left, from which a proxy puts the flow back in order (SPEC.md, section 7.14).

use super::Sender;
use super::session::ProxySession;
use super::symbols::Symbols;
use crate::clock::{earlier, micros};
use crate::gate::Hold;
use crate::identify::{Payload, Position};
use crate::loss_floor::is_later;
use crate::wire::{MAX_DATAGRAM_LEN, Message, Protect, SentList, Words};
use sidekick_parity::MAX_WINDOW;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Each datagram is in so many lists, since any may be lost.
const LISTINGS: usize = 3;
/// After so long without a datagram, the proxy may have ended the order, and the next list begins
/// anew. A list is in force for twice that time.
const PAUSE: Duration = Duration::from_millis(500);

/// When lists of what left leave, and how long a proxy may hold the datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentOrder {
    /// A list leaves after so many datagrams, 1 to 21.
    pub every: u8,
    /// Or this long after the first that none names.
    pub longest: Duration,
    /// How long the proxy holds datagrams, at most 65 ms each.
    pub hold: Hold,
    /// The parity that goes to the proxy, if [`Sender::may_protect`].
    pub parity: Option<Protect>,
}

/// The datagrams that left lately, and the list that is due.
#[derive(Debug, Default)]
pub(super) struct Listing {
    wanted: Option<SentOrder>,
    /// The latest datagram that was not a repetition.
    newest: Option<u64>,
    /// How many of them have left while lists were wanted, modulo 2^32.
    passed: u32,
    /// The identifiers of the latest of them, at most [`MAX_WINDOW`].
    identifiers: VecDeque<u32>,
    /// How many no list names yet, and when the first of them left.
    unlisted: usize,
    /// How many the latest lists were the first to name.
    named: [usize; LISTINGS - 1],
    since: Option<Instant>,
    /// When the latest datagram left.
    latest: Option<Instant>,
    /// A list without datagrams is due, before those that are to be listed.
    begins: bool,
    is_due: bool,
    /// The proxy is to hold nothing now.
    releases: bool,
    symbols: Option<Box<Symbols>>,
}

impl Listing {
    /// Notes a datagram, unless it repeats an earlier one: a repair takes the place of what was
    /// lost.
    pub(super) fn on_sent(
        &mut self,
        tag: u64,
        identifier: u32,
        payload: Payload<'_>,
        now: Instant,
    ) {
        let Some(SentOrder { every, .. }) = self.wanted else { return };
        if self.newest.is_some_and(|newest| !is_later(tag, newest)) {
            return;
        }
        self.newest = Some(tag);
        if self.latest.replace(now).is_some_and(|latest| latest + PAUSE <= now) {
            // This one passes before the list.
            self.clear();
            self.begins = true;
            return;
        }
        self.passed = self.passed.wrapping_add(1);
        if self.identifiers.len() == MAX_WINDOW {
            self.identifiers.pop_front();
        }
        self.identifiers.push_back(identifier);
        self.unlisted += 1;
        self.since.get_or_insert(now);
        self.is_due |= self.unlisted >= every.into();
        if let Some(symbols) = &mut self.symbols {
            // Parity is of no use without its list.
            match payload.bytes() {
                Some(datagram) => self.is_due |= symbols.on_sent(datagram, self.passed, now),
                None => symbols.clear(),
            }
        }
    }

    /// Forgets the datagrams that left.
    fn clear(&mut self) {
        self.identifiers.clear();
        (self.unlisted, self.since, self.is_due) = (0, None, false);
        self.named = Default::default();
        self.symbols.iter_mut().for_each(|symbols| symbols.clear());
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let flush = self.symbols.as_ref().and_then(|symbols| symbols.poll_timeout());
        earlier(self.list_due(), flush)
    }

    fn list_due(&self) -> Option<Instant> {
        Some(self.since? + self.wanted?.longest)
    }

    pub(super) fn on_timeout(&mut self, now: Instant) {
        self.is_due |= self.list_due().is_some_and(|due| due <= now);
        if let Some(symbols) = &mut self.symbols {
            self.is_due |= symbols.on_timeout(self.passed, now) && self.unlisted > 0;
        }
    }

    #[cfg(test)]
    pub(super) fn wanted(&self) -> Option<SentOrder> {
        self.wanted
    }

    #[inline]
    fn is_silent(&self) -> bool {
        !self.is_due
            && !self.releases
            && !self.begins
            && self.symbols.as_ref().is_none_or(|it| !it.waits())
    }

    /// The list that is due, with its identifiers in `room`.
    pub(super) fn take<'a>(&mut self, room: &'a mut [u32; MAX_WINDOW]) -> Option<SentList<'a>> {
        if std::mem::take(&mut self.releases) {
            let (gap_us, wait_us, identifiers) = (0, 0, Words::new(&[]));
            return Some(SentList { first: self.passed, gap_us, wait_us, identifiers });
        }
        let begins = std::mem::take(&mut self.begins);
        let is_due = std::mem::take(&mut self.is_due) || begins;
        let SentOrder { hold, .. } = self.wanted.filter(|_| is_due)?;
        let named: usize = self.named.iter().sum();
        let len = self.identifiers.len().min(self.unlisted + named);
        self.named.rotate_right(1);
        self.named[0] = std::mem::take(&mut self.unlisted);
        self.since = None;
        let first = self.passed.wrapping_sub(u32::try_from(len).unwrap_or(0));
        let known = self.identifiers.iter().skip(self.identifiers.len() - len);
        room.iter_mut().zip(known).for_each(|(place, identifier)| *place = *identifier);
        let us = |time| u16::try_from(micros(time)).unwrap_or(u16::MAX);
        let identifiers = Words::new(room.get(..len).unwrap_or_default());
        Some(SentList { first, gap_us: us(hold.gap), wait_us: us(hold.list), identifiers })
    }
}

impl Sender {
    /// Whether the leading proxy, or one that has reported nothing yet, puts the flow in order, if
    /// [`Sender::order`] asks for it.
    #[must_use]
    pub fn may_order(&self) -> bool {
        self.orderer().is_some()
    }

    /// The place of the session whose proxy puts the flow in order.
    fn orderer(&self) -> Option<usize> {
        let orders = |session: &ProxySession| session.established().is_some_and(|it| it.orders);
        let leading = self.leading().map(|leading| leading.proxy);
        let mut sessions = self.sessions.iter();
        sessions.position(|session| leading.is_none_or(|it| it == session.proxy) && orders(session))
    }

    /// Asks the leading proxy to put the flow in the order in which it left, changes the request,
    /// or ends it. Repairs must have the tags of repetitions.
    pub fn order(&mut self, wanted: Option<SentOrder>) {
        let listing = &mut self.listing;
        if wanted.is_none() && listing.wanted.is_some() {
            listing.clear();
            (listing.begins, listing.releases) = (false, true);
        }
        listing.begins |= wanted.is_some() && listing.wanted.is_none();
        listing.wanted = wanted;
        match wanted.and_then(|wanted| wanted.parity) {
            Some(terms) => match &mut listing.symbols {
                Some(symbols) => symbols.set_terms(terms),
                None => listing.symbols = Some(Box::new(Symbols::new(terms))),
            },
            None => listing.symbols.iter_mut().for_each(|symbols| symbols.end()),
        }
    }

    /// Whether a proxy can rebuild datagrams from parity: their ends identify them.
    #[must_use]
    pub fn may_protect(&self) -> bool {
        self.may_order() && self.config.terms.identification.position == Position::End
    }

    /// Whether the proxy gets parity, which may have rebuilt a loss before it is found.
    pub(crate) fn covers_order(&self) -> bool {
        self.listing.wanted.is_some_and(|wanted| wanted.parity.is_some())
    }

    /// Lets the proxy pass what it holds now, because a loss will not be repaired.
    pub fn release_order(&mut self) {
        self.listing.releases |= self.listing.wanted.is_some();
    }

    /// Whether [`Sender::transmit_to_proxies`] certainly writes nothing. This check is faster than
    /// that call. If it returns false, that call may still write nothing.
    #[inline]
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.listing.is_silent() && self.sessions.iter().all(ProxySession::is_silent)
    }

    /// Writes the list that is due to `out`, or the parity, and returns the place of the session
    /// and the length.
    pub(super) fn transmit_list(&mut self, out: &mut [u8]) -> Option<(usize, usize)> {
        if self.listing.is_silent() {
            return None;
        }
        let place = self.orderer()?;
        let established = self.sessions.get_mut(place)?.established_mut()?;
        let mut room = [0; MAX_WINDOW];
        let written = match self.listing.take(&mut room) {
            Some(list) => established.seal_message(&Message::List(list), out),
            None => self.listing.symbols.as_mut()?.take(|symbol| {
                self.stats.parity_sent += 1;
                established.seal_message(&Message::Symbol(symbol), out)
            })?,
        };
        Some((place, written?))
    }
}

const _: () = assert!(LISTINGS * 21 <= MAX_WINDOW && MAX_WINDOW * 4 < MAX_DATAGRAM_LEN);
