//! The proxy's half: counts the packets of the flows that senders request, and reports them
//! (SPEC.md, section 6).
//!
//! [`ObserverConfig`] bounds memory: a session uses a few kilobytes, the tables are allocated at
//! the start, and a flow without a session uses none. Neither counting a packet nor a quACK
//! allocates.

mod addresses;
mod answers;
mod capture;
mod clients;
mod config;
mod copies;
mod deadlines;
mod flow_counter;
mod input;
mod keeping;
mod limiter;
mod ordering;
mod pacer;
mod parity;
mod pool;
mod repeating;
mod second_link;
mod session;
mod setup;
mod shard;
mod steady;
mod table;
mod transmit;
mod waiting;

use crate::clock::Numbers;
use crate::cookie::CookieIssuer;
use crate::keys::{Link, OpenError, Plain, PublicKey, SecretKey};
use crate::wire::{Datagram, Message, ParseError, Poll, Schedule, SessionNumber};
pub use addresses::Addresses;
use answers::Answered;
use config::PROOF_TIMEOUT;
pub use config::{ConfigError, ObserverConfig, ObserverStats};
pub use input::{HandleError, Observed, Peer, RefusalCause, Seen};
use limiter::Limiter;
pub use ordering::Release;
pub use session::SessionStatus;
pub use shard::Shard;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use table::Table;
use transmit::{Bare, Outgoing};

/// A sealed datagram of `len` bytes at the proxy's port.
struct Sealed<'a> {
    session: SessionNumber,
    sequence: u32,
    ciphertext: &'a [u8],
    len: usize,
}

/// The most waiting messages. The observer drops further ones, since each is cumulative, or its
/// receiver requests it again.
const MAX_WAITING: usize = 4096;

/// The state machine of a proxy.
#[derive(Debug)]
pub struct Observer {
    config: ObserverConfig,
    key: SecretKey,
    public: PublicKey,
    numbers: Numbers,
    cookies: CookieIssuer,
    addresses: Addresses,
    answered: Answered,
    /// Limits handshakes: one class for proven addresses, one for proven paths.
    handshakes: Limiter<2>,
    table: Table,
    waiting: VecDeque<Outgoing>,
    /// Sessions whose copies leave when all messages are sent.
    repeating: VecDeque<SessionNumber>,
    /// The caller passes datagrams of the reverse flows to [`Observer::keep`].
    copying: bool,
    /// The latest message, kept to avoid allocation.
    plain: Plain,
    /// One more of it exists than sessions rebuild datagrams.
    rebuilding: Arc<()>,
    /// And of this than sessions have relayed datagrams wait.
    waiting_relays: Arc<()>,
    /// All sessions are ending with a BYE.
    closing: bool,
    stats: ObserverStats,
}

impl Observer {
    /// An observer without sessions. It derives keys and cookies from `seed`, which must be random,
    /// because an attacker that predicts it can forge them.
    ///
    /// # Errors
    /// [`ConfigError`] if a limit is invalid.
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
            table: Table::new(
                config.max_sessions,
                config.keep_bytes,
                u64::from_be_bytes(seed_of_table),
            ),
            waiting: VecDeque::with_capacity(MAX_WAITING),
            repeating: VecDeque::new(),
            copying: true,
            plain: Plain::default(),
            rebuilding: Arc::default(),
            waiting_relays: Arc::default(),
            closing: false,
            stats: ObserverStats::default(),
            config,
        })
    }

    /// Replaces the limits for future sessions. Existing ones continue with their terms, even if
    /// there are more of them than the new limit, but under the new idle timeout. Addresses, key
    /// and shard stay, and so does what the caller can do: `orders`, `relays` and
    /// `longest_datagram`. The memory for copies changes at once, which drops the oldest copies
    /// beyond it; if none is left, call [`Observer::poll_transmit`], which informs the senders.
    ///
    /// # Errors
    /// [`ConfigError`] if a limit is invalid; nothing changes then.
    pub fn reconfigure(&mut self, config: ObserverConfig) -> Result<(), ConfigError> {
        config.check()?;
        let ObserverConfig { shard, orders, relays, longest_datagram, .. } = self.config;
        let key = self.config.key.take();
        self.config = ObserverConfig { key, shard, orders, relays, longest_datagram, ..config };
        self.table.make_room(self.config.max_sessions);
        let of_session = self.config.copies_of_session();
        for number in self.table.limit_copies(self.config.keep_bytes, of_session) {
            self.table.reschedule(number);
            self.queue(Outgoing::Kept(number));
        }
        Ok(())
    }

    /// Replaces the machine's addresses. At first there are none, and the observer answers no
    /// marker.
    pub fn set_addresses(&mut self, addresses: Addresses) {
        self.addresses = addresses.canonical();
    }

    /// The proxy's static public key.
    #[must_use]
    pub fn public_key(&self) -> PublicKey {
        self.public
    }

    /// Handles a datagram that arrived at the proxy's own port, `from` its sender.
    ///
    /// The answer may report packets, so the caller must first observe everything captured before
    /// the datagram. Otherwise a poll that overtook packets would make the sender declare them lost
    /// (SPEC.md, section 6.4).
    ///
    /// # Errors
    /// [`HandleError`] states why the datagram changed nothing.
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
                let sealed = Sealed { session, sequence, ciphertext, len: datagram.len() };
                self.on_sealed(from, &sealed, now)
            }
            _ => {
                self.stats.malformed += 1;
                Err(HandleError::NotForProxy)
            }
        }
    }

    /// Opens a sealed datagram. A failure changes nothing but counters.
    fn on_sealed(
        &mut self,
        from: Peer,
        sealed: &Sealed<'_>,
        now: Instant,
    ) -> Result<(), HandleError> {
        let mut plain = std::mem::take(&mut self.plain);
        let outcome = self.open_message(from, sealed, &mut plain, now);
        self.plain = plain;
        outcome
    }

    /// Opens a sealed datagram into `plain`, and handles its message.
    fn open_message(
        &mut self,
        from: Peer,
        sealed: &Sealed<'_>,
        plain: &mut Plain,
        now: Instant,
    ) -> Result<(), HandleError> {
        let number = sealed.session;
        // A sender at another address is behind a NAT that dropped its mappings, including that of
        // the flow. Only a new session learns the new ports.
        // The second link is another way, so its datagrams may come from anywhere.
        let link = Link::of(sealed.sequence);
        let known = self
            .table
            .by_number(number)
            .filter(|(_, known)| link == Link::Second || known.agreed.peer == from.address);
        let Some((index, session)) = known else {
            self.stats.unknown_session += 1;
            self.queue(Outgoing::Bare(from, Bare::UnknownSession(number)));
            return Err(HandleError::UnknownSession);
        };
        let opened = session.agreed.seal.open(sealed.sequence, sealed.ciphertext, plain);
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
        if link == Link::First {
            session.local_ip = from.local_ip;
        }
        session.counter.budget.add(sealed.len);
        self.table.confirm(index);
        let is_of_second =
            matches!(message, Message::Link { .. } | Message::Relay(_) | Message::Request(_));
        if link == Link::Second && !is_of_second {
            self.stats.malformed += 1;
            return Err(HandleError::NotForLink);
        }
        match message {
            Message::Poll(poll) => self.on_poll(number, poll, now),
            Message::NewEpoch { epoch } => self.on_new_epoch(number, epoch),
            Message::Bye => {
                self.table.remove(index);
                Ok(())
            }
            Message::Keep(keep) => self.on_keep(number, &keep, now),
            Message::Request(request) => self.on_request(number, request, link, now),
            Message::Protect(terms) => self.on_protect(number, terms, now),
            Message::Schedule(schedule) => self.on_schedule(number, schedule, sealed.sequence, now),
            Message::List(list) => self.on_list(number, list, now),
            Message::Symbol(symbol) => self.on_symbol(number, &symbol, now),
            Message::Link { token, cookie } => {
                self.on_link(number, (link, from), (token, cookie), now)
            }
            Message::Relay(relay) => self.on_relay(number, &relay, now),
            Message::Quack(_)
            | Message::ShortQuack(_)
            | Message::Epoch { .. }
            | Message::Kept { .. }
            | Message::Nothing { .. }
            | Message::Tail { .. }
            | Message::Linked { .. } => {
                self.stats.malformed += 1;
                Err(HandleError::NotForProxy)
            }
        }
    }

    /// Records that the system dropped packets of this interface before the observer could observe
    /// them. Sums without them would make the senders declare them lost, so each session whose sums
    /// lack them begins a new epoch, and announces it to its sender (SPEC.md, section 6.5). The
    /// next observed packet arrived after the dropped ones.
    pub fn missed(&mut self, interface: u32) {
        for session in self.table.sessions_mut() {
            session.counter.missed |= session.counter.lacks_drops_on(interface);
        }
    }

    /// Announces an epoch that the sender did not request.
    #[cold]
    fn announce_epoch(&mut self, number: SessionNumber) {
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
        if session.counter.missed {
            session.begin_unasked();
            self.announce_epoch(number);
            return Err(HandleError::WrongEpoch);
        }
        if session.counter.epoch != poll.epoch {
            if session.counter.unasked {
                self.queue(Outgoing::Epoch(number));
            }
            return Err(HandleError::WrongEpoch);
        }
        session.counter.unasked = false;
        self.stats.polls += 1;
        self.report(number, poll.token, poll.sums, now);
        Ok(())
    }

    /// Answers a SCHEDULE like a POLL. From then on, quACKs leave at its times. If the network
    /// delivers the message after a later one, the later one holds.
    fn on_schedule(
        &mut self,
        number: SessionNumber,
        schedule: Schedule,
        sequence: u32,
        now: Instant,
    ) -> Result<(), HandleError> {
        let Schedule { epoch, token, timing } = schedule;
        self.on_poll(number, Poll { epoch, token, sums: 0 }, now)?;
        let (_, session) = self.table.by_number(number).ok_or(HandleError::UnknownSession)?;
        if sequence >= session.latest_schedule {
            session.latest_schedule = sequence;
            session.counter.schedule(timing);
            self.table.reschedule(number);
        }
        Ok(())
    }

    /// Begins the next epoch if `epoch` is the present one. The answer to a repeated request is the
    /// same: the epoch to end is over.
    fn on_new_epoch(&mut self, number: SessionNumber, epoch: u16) -> Result<(), HandleError> {
        let (_, session) = self.table.by_number(number).ok_or(HandleError::UnknownSession)?;
        let right = session.counter.epoch == epoch;
        if right {
            session.counter.begin_epoch();
            self.table.forget_copies(number);
            self.table.reschedule(number);
        }
        self.queue(Outgoing::Epoch(number));
        if right { Ok(()) } else { Err(HandleError::WrongEpoch) }
    }

    /// Queues a quACK of a session. A quACK that already waits reports the newer state instead.
    fn report(&mut self, number: SessionNumber, token: u16, sums: u8, now: Instant) {
        let Some((_, session)) = self.table.by_number(number) else { return };
        let queued = session.counter.request_quack(token, sums, now);
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
            session.counter.drop_request();
        } else if let Outgoing::Parity(number) = message
            && let Some((index, _)) = self.table.by_number(number)
            && let Some((keeping, _)) = self.table.keeping_of(index)
        {
            keeping.protection.clear();
        }
    }

    /// When [`Observer::on_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.table.poll_timeout()
    }

    /// Queues the timed quACKs and ends the idle sessions that are due at `now`. Before the call,
    /// the caller must observe the packets that the system received before `now`. Otherwise a quACK
    /// of an overdue packet would report them as absent (SPEC.md, section 6.4).
    pub fn on_timeout(&mut self, now: Instant) {
        while let Some(index) = self.table.due(now) {
            let Some(session) = self.table.get_mut(index) else { return };
            if session.counter.quack_due.is_some_and(|due| due <= now) {
                let number = session.agreed.number;
                if session.counter.missed {
                    session.begin_unasked();
                    self.announce_epoch(number);
                    continue;
                }
                session.counter.note_silence();
                self.report(number, 0, 0, now);
                continue;
            }
            if self.on_keeping_timeout(index, now)
                || self.on_order_timeout(index, now)
                || self.on_relays_timeout(index, now)
            {
                continue;
            }
            let Some(session) = self.table.get_mut(index) else { return };
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

    /// Ends every session for a shutdown. [`Observer::poll_transmit`] then writes a BYE for each
    /// sender.
    pub fn close(&mut self) {
        self.waiting.clear();
        self.closing = true;
    }

    /// Counters since the observer was created.
    #[must_use]
    pub fn stats(&self) -> &ObserverStats {
        &self.stats
    }

    /// The number of sessions.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.table.len()
    }

    /// The status of each session, in no particular order.
    pub fn statuses(&self) -> impl Iterator<Item = SessionStatus> + '_ {
        self.table.sessions().map(|session| session.status())
    }
}

#[cfg(test)]
mod tests;
