//! The proxy's half: counts the packets of the flows it was asked to count, and reports them
//! (SPEC.md, section 6).
//!
//! Memory is bounded by [`ObserverConfig`]: a session takes a few kilobytes, room in the tables is
//! made at the start, and nothing is kept for a flow without a session. Counting a packet allocates
//! nothing, and neither does a quACK.

mod addresses;
mod answers;
mod budget;
mod config;
mod deadlines;
mod discovery;
mod duplicates;
mod error;
mod limiter;
mod outgoing;
mod peer;
mod session;
mod setup;
mod shard;
mod table;

use crate::clock::Numbers;
use crate::cookie::CookieIssuer;
use crate::flow::Flow;
use crate::identify::Payload;
use crate::keys::{OpenError, Plain, PublicKey, SecretKey};
use crate::wire::discovery::Answer;
use crate::wire::{Datagram, Message, ParseError, Poll, SessionNumber};
pub use addresses::Addresses;
use answers::Answered;
use config::PROOF_TIMEOUT;
pub use config::{ConfigError, ObserverConfig, ObserverStats};
pub use error::HandleError;
use limiter::Limiter;
use outgoing::{Bare, Outgoing};
pub use peer::{Peer, Transmit};
pub use session::SessionStatus;
use session::{Count, Withheld};
pub use shard::Shard;
use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Instant;
use table::{Key, Table};

/// Datagrams whose sessions are fetched from memory at once.
const TOGETHER: usize = 32;

/// A captured datagram.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The flow that it belongs to.
    pub flow: Flow,
    /// What is known of its payload.
    pub payload: Payload<'a>,
}

/// What is found out about a captured datagram before it is counted.
#[derive(Clone, Copy, Default)]
struct Place {
    key: Key,
    /// Where its flow's session stands.
    index: Option<usize>,
    /// By what that session would count it.
    identifier: Option<u32>,
}

/// What became of a captured datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// Nobody asked for its flow.
    NoSession,
    /// It does not count, although its flow may have a session: an answer to a marker, a long
    /// header, too short, seen on another interface, or doubled by the network.
    Ignored,
    /// It was added to its session's sums.
    Counted,
    /// It was a marker. It is answered, unless it was before, its addresses cannot be a flow's
    /// here, there are too many, or there is nothing to announce.
    Marker,
}

/// More waiting messages than this are dropped: every one of them is repeated by its sender or
/// cumulative.
const MAX_WAITING: usize = 4096;

/// The proxy's state machine.
#[derive(Debug)]
pub struct Observer {
    config: ObserverConfig,
    key: SecretKey,
    public: PublicKey,
    numbers: Numbers,
    cookies: CookieIssuer,
    addresses: Addresses,
    answered: Answered,
    /// Handshakes of senders that have proven an address, and of those that have proven a path.
    handshakes: Limiter<2>,
    table: Table,
    waiting: VecDeque<Outgoing>,
    /// Every session is to be told goodbye.
    closing: bool,
    stats: ObserverStats,
}

impl Observer {
    /// An observer without sessions. `seed` makes keys and cookies: draw it at random from the
    /// system, or they can be guessed.
    ///
    /// # Errors
    /// [`ConfigError`] when a limit cannot be.
    pub fn new(config: ObserverConfig, seed: [u8; 32]) -> Result<Self, ConfigError> {
        config.check()?;
        let mut numbers = Numbers::new(seed);
        let mut hidden = Numbers::new(seed.map(|byte| !byte));
        let (of_handshakes, seed_of_table, of_answers) =
            (hidden.array(), hidden.array(), hidden.array());
        let drawn = SecretKey(numbers.array());
        let key = config.key.clone().unwrap_or(drawn);
        Ok(Self {
            public: key.public(),
            key,
            cookies: CookieIssuer::new(numbers.array()),
            numbers,
            addresses: Addresses::default(),
            answered: Answered::new(of_answers, config.shard.count()),
            handshakes: Limiter::new(of_handshakes, 1),
            table: Table::new(config.max_sessions, u64::from_be_bytes(seed_of_table)),
            waiting: VecDeque::with_capacity(MAX_WAITING),
            closing: false,
            stats: ObserverStats::default(),
            config,
        })
    }

    /// Takes over other limits for what begins from now on. Sessions stay as they were agreed, also
    /// where there are more than may be; the addresses, the key and the shard stay, too.
    ///
    /// # Errors
    /// [`ConfigError`] when a limit cannot be; nothing has changed then.
    pub fn reconfigure(&mut self, config: ObserverConfig) -> Result<(), ConfigError> {
        config.check()?;
        self.config =
            ObserverConfig { key: self.config.key.take(), shard: self.config.shard, ..config };
        self.table.make_room(self.config.max_sessions);
        Ok(())
    }

    /// Replaces what the observer knows of its machine's addresses. It knows none at first, and
    /// answers no markers.
    pub fn set_addresses(&mut self, addresses: Addresses) {
        self.addresses = addresses.canonical();
    }

    /// The key by which senders know this proxy.
    #[must_use]
    pub fn public_key(&self) -> PublicKey {
        self.public
    }

    /// One captured UDP datagram of any flow.
    ///
    /// `interface` is a number that the caller gave to the capturing interface: an epoch counts
    /// packets of the first interface that shows its flow, so a packet that is captured on its way
    /// in and on its way out counts once.
    pub fn observe(
        &mut self,
        flow: &Flow,
        interface: u32,
        payload: Payload<'_>,
        now: Instant,
    ) -> Observed {
        let mut observed = Observed::NoSession;
        self.observe_all(&[Seen { flow: *flow, payload }], interface, now, |_, what| {
            observed = what;
        });
        observed
    }

    /// Datagrams of any flows that were captured together, in their order: as [`Observer::observe`]
    /// for each, but faster where there are many sessions, since what is kept of them is fetched
    /// from memory at once and not one after the other. `after` is called after each, so that a
    /// quACK that it made due leaves before the next is counted.
    pub fn observe_all(
        &mut self,
        seen: &[Seen<'_>],
        interface: u32,
        now: Instant,
        mut after: impl FnMut(&mut Self, Observed),
    ) {
        for seen in seen.chunks(TOGETHER) {
            // Each step waits for memory, but not for the same step of another packet.
            let mut places = [Place::default(); TOGETHER];
            for (place, seen) in places.iter_mut().zip(seen) {
                place.key = Key::of(&seen.flow);
                place.index = self.table.find(&place.key);
            }
            let sessions = places.iter().filter_map(|place| self.table.get(place.index?));
            black_box(sessions.fold(0, |all, session| all ^ session.touch()));
            for (place, seen) in places.iter_mut().zip(seen) {
                let Some(session) = place.index.and_then(|index| self.table.get(index)) else {
                    continue;
                };
                place.identifier = session.identifier(seen.payload);
            }
            let repeats = places.iter().filter_map(|place| {
                Some(self.table.get(place.index?)?.touch_duplicates(place.identifier?))
            });
            black_box(repeats.fold(0, |all, place| all ^ place));
            for (place, seen) in places.iter().zip(seen) {
                let observed = self.count(place, seen, interface, now);
                after(self, observed);
            }
        }
    }

    #[inline]
    fn count(&mut self, place: &Place, seen: &Seen<'_>, interface: u32, now: Instant) -> Observed {
        let Seen { flow, payload } = seen;
        if answers::may_be_ours(*payload) {
            if let Some(marker) = answers::marker(*payload) {
                self.answer_marker(&marker, flow, interface, now);
                return Observed::Marker;
            }
            // An answer of another proxy, on its way along the path of the flow in the other
            // direction.
            if Answer::is_one(payload.head()) {
                return Observed::Ignored;
            }
        }
        // What was sent in between may have ended the session that was found.
        let found =
            place.index.and_then(|index| Some((index, self.table.at_work(index, &place.key)?)));
        let Some((index, session)) = found else { return Observed::NoSession };
        let begun = session.lacks_packets(interface, now).then(|| session.begin_unasked());
        let counted = place
            .identifier
            .map(|identifier| session.count(identifier, payload.len(), interface, now));
        if let Some(number) = begun {
            self.tell_epoch(number);
        }
        match counted {
            None | Some(Count::Not) => {
                self.stats.ignored += 1;
                return Observed::Ignored;
            }
            Some(Count::Silently) => {}
            Some(Count::WithDeadline) => self.table.reschedule_at(index),
            Some(Count::WithReport) => {
                if let Some(number) = self.table.get(index).map(|session| session.agreed.number) {
                    self.report(number, 0, 0, now);
                }
            }
        }
        self.stats.counted += 1;
        Observed::Counted
    }

    /// A datagram that arrived at the proxy's own port, `from` its sender.
    ///
    /// The answer may tell which packets were counted: what was captured before it has to be
    /// observed before it is handled, or a poll that overtook packets would make losses of them
    /// (SPEC.md, section 6.4).
    ///
    /// # Errors
    /// [`HandleError`] says why it changed nothing.
    pub fn handle_input(
        &mut self,
        from: impl Into<Peer>,
        datagram: &[u8],
        now: Instant,
    ) -> Result<(), HandleError> {
        let from = from.into();
        let parsed = Datagram::parse(datagram).inspect_err(|error| match error {
            ParseError::Version(_) => self.stats.other_version += 1,
            _ => self.stats.malformed += 1,
        })?;
        match parsed {
            Datagram::Hello(hello) => {
                self.stats.hellos += 1;
                self.on_hello(from, &hello, now)
            }
            Datagram::Sealed { session, sequence, ciphertext } => {
                let len = datagram.len();
                self.on_sealed(from, (session, sequence, ciphertext), len, now)
            }
            _ => {
                self.stats.malformed += 1;
                Err(HandleError::NotForProxy)
            }
        }
    }

    /// Opens a sealed datagram. Nothing changes before that has succeeded.
    fn on_sealed(
        &mut self,
        from: Peer,
        (number, sequence, ciphertext): (SessionNumber, u32, &[u8]),
        len: usize,
        now: Instant,
    ) -> Result<(), HandleError> {
        // A sender that speaks from elsewhere is behind a NAT that has forgotten it, and will know
        // its flow by other ports, too: a new session finds that out.
        let known =
            self.table.by_number(number).filter(|(_, session)| session.agreed.peer == from.address);
        let Some((index, session)) = known else {
            self.queue(Outgoing::Bare(from, Bare::UnknownSession(number)));
            return Err(HandleError::UnknownSession);
        };
        let mut plain = Plain::default();
        let opened = session.agreed.seal.open(sequence, ciphertext, &mut plain);
        let message = opened.map_err(|error| match error {
            OpenError::Replay => {
                self.stats.forged += 1;
                HandleError::Replay
            }
            OpenError::Forged => {
                self.stats.forged += 1;
                HandleError::Forged
            }
            OpenError::Malformed(error) => {
                self.stats.malformed += 1;
                error.into()
            }
        })?;
        session.last_heard = now;
        session.local_ip = from.local_ip;
        session.budget.earn(len);
        self.table.confirm(index);
        match message {
            Message::Poll(poll) => self.on_poll(number, poll, now),
            Message::NewEpoch { epoch } => self.on_new_epoch(number, epoch),
            Message::Bye => {
                self.table.remove(index);
                Ok(())
            }
            Message::Quack(_) | Message::ShortQuack(_) | Message::Epoch { .. } => {
                self.stats.malformed += 1;
                Err(HandleError::NotForProxy)
            }
        }
    }

    /// Packets on this interface were lost to the observer before they could be observed: its
    /// system had no room for them. Sums without them would make losses of them, so all sessions
    /// that count there begin a new epoch by themselves, and their senders are told (SPEC.md,
    /// section 6.5). What is observed next came after the lost packets.
    pub fn missed(&mut self, interface: u32) {
        for session in self.table.sessions_mut() {
            session.missed |= session.counts_on(interface);
        }
    }

    /// Says that an epoch has begun that the sender did not ask for.
    #[cold]
    fn tell_epoch(&mut self, number: SessionNumber) {
        self.table.reschedule(number);
        self.stats.epochs_unasked += 1;
        self.queue(Outgoing::Epoch(number));
    }

    fn on_poll(
        &mut self,
        number: SessionNumber,
        poll: Poll,
        now: Instant,
    ) -> Result<(), HandleError> {
        let (_, session) = self.table.by_number(number).ok_or(HandleError::UnknownSession)?;
        if session.missed {
            session.begin_unasked();
            self.tell_epoch(number);
            return Err(HandleError::WrongEpoch);
        }
        if session.epoch != poll.epoch {
            if session.unasked {
                self.queue(Outgoing::Epoch(number));
            }
            return Err(HandleError::WrongEpoch);
        }
        session.unasked = false;
        self.stats.polls += 1;
        self.report(number, poll.token, poll.sums, now);
        Ok(())
    }

    /// A repeated request is answered as the first was: the epoch it wanted to end is over.
    fn on_new_epoch(&mut self, number: SessionNumber, epoch: u16) -> Result<(), HandleError> {
        let (_, session) = self.table.by_number(number).ok_or(HandleError::UnknownSession)?;
        let right = session.epoch == epoch;
        if right {
            session.begin_epoch();
            self.table.reschedule(number);
        }
        self.queue(Outgoing::Epoch(number));
        if right { Ok(()) } else { Err(HandleError::WrongEpoch) }
    }

    /// Queues a quACK of a session; a second one before the first is sent only brings that up to
    /// date.
    fn report(&mut self, number: SessionNumber, token: u16, sums: u8, now: Instant) {
        let Some((_, session)) = self.table.by_number(number) else { return };
        let queued = session.request_quack(token, sums, now);
        self.table.reschedule(number);
        if !queued {
            self.queue(Outgoing::Quack(number));
        }
    }

    fn queue(&mut self, message: Outgoing) {
        if self.waiting.len() < MAX_WAITING {
            self.waiting.push_back(message);
        } else if let Outgoing::Quack(number) = message
            && let Some((_, session)) = self.table.by_number(number)
        {
            session.forget_request();
        }
    }

    /// When [`Observer::on_timeout`] wants to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.table.poll_timeout()
    }

    /// Does what is due at `now`: timed quACKs, and the end of sessions that fell silent.
    pub fn on_timeout(&mut self, now: Instant) {
        while let Some(index) = self.table.due(now) {
            let Some(session) = self.table.get_mut(index) else { return };
            if session.quack_due.is_some_and(|due| due <= now) {
                let number = session.agreed.number;
                self.report(number, 0, 0, now);
                continue;
            }
            let last_heard = session.last_heard;
            let limit = if session.confirmed { self.config.idle_timeout } else { PROOF_TIMEOUT };
            if now.saturating_duration_since(last_heard) >= limit {
                self.table.remove(index);
                self.stats.sessions_expired += 1;
            } else {
                self.table.expire_at(index, last_heard + limit);
            }
        }
    }

    /// Writes the next waiting datagram to `out`, at least [`crate::MAX_DATAGRAM_LEN`] bytes, and
    /// says where it goes. Call it until it gives `None`, after every call of another method that
    /// takes a time.
    pub fn poll_transmit(&mut self, out: &mut [u8]) -> Option<Transmit> {
        while let Some(next) = self.waiting.pop_front() {
            if let Some(transmit) = self.emit(next, out) {
                return Some(self.sent(transmit));
            }
        }
        while self.closing {
            let Some(index) = self.table.any() else {
                self.closing = false;
                break;
            };
            let Some(mut session) = self.table.remove(index).filter(|session| session.confirmed)
            else {
                continue;
            };
            if let Some(len) = session.emit(&Message::Bye, out) {
                return Some(self.sent(session.poll_transmit(len)));
            }
        }
        None
    }

    fn sent(&mut self, transmit: Transmit) -> Transmit {
        self.stats.bytes_sent += u64::try_from(transmit.len).unwrap_or(u64::MAX);
        transmit
    }

    /// `None` when the message has lost its meaning since it was queued, or `out` is too short.
    fn emit(&mut self, message: Outgoing, out: &mut [u8]) -> Option<Transmit> {
        Some(match message {
            Outgoing::Accept(number) => {
                let (_, session) = self.table.by_number(number)?;
                let agreed = &session.agreed;
                let accept =
                    Datagram::Accept { session: agreed.peer_number, handshake: &agreed.answer };
                // Once the sender has spoken under seal, it has the answer, and none is kept.
                session.poll_transmit(accept.emit(out).ok().filter(|_| !agreed.answer.is_empty())?)
            }
            Outgoing::Epoch(number) => {
                let (_, session) = self.table.by_number(number)?;
                let epoch = session.epoch;
                let len = session.emit(&Message::Epoch { epoch }, out)?;
                session.poll_transmit(len)
            }
            Outgoing::Quack(number) => {
                let (_, session) = self.table.by_number(number)?;
                match session.emit_quack(out) {
                    Ok(len) => {
                        let transmit = session.poll_transmit(len?);
                        session.quacks += 1;
                        self.stats.quacks_sent += 1;
                        transmit
                    }
                    Err(Withheld) => {
                        self.stats.quacks_withheld += 1;
                        return None;
                    }
                }
            }
            Outgoing::Bare(to, bare) => {
                let datagram = match bare {
                    Bare::Retry(session, echo, cookie) => Datagram::Retry { session, echo, cookie },
                    Bare::Refuse(session, echo, why) => Datagram::Refuse { session, echo, why },
                    Bare::UnknownSession(session) => Datagram::UnknownSession { session },
                };
                let len = datagram.emit(out).ok()?;
                Transmit {
                    to: to.address,
                    local_ip: to.local_ip,
                    from: None,
                    interface: None,
                    in_session: false,
                    len,
                }
            }
            Outgoing::Answer(answer) => return answer.emit(out),
        })
    }

    /// Ends every session; [`Observer::poll_transmit`] tells each sender goodbye. For a shutdown.
    pub fn goodbye(&mut self) {
        self.waiting.clear();
        self.closing = true;
    }

    /// Counters since the beginning.
    #[must_use]
    pub fn stats(&self) -> &ObserverStats {
        &self.stats
    }

    /// Sessions open now.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.table.len()
    }

    /// How each session stands, in no particular order.
    pub fn statuses(&self) -> impl Iterator<Item = SessionStatus> + '_ {
        self.table.sessions().map(|session| session.status())
    }
}

#[cfg(test)]
mod tests;
