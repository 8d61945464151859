//! The proxy's half: counts the packets of the flows it was asked to count, and reports them (SPEC.md, section 6).
//!
//! Memory is bounded by [`ObserverConfig`]: a session takes less than a kilobyte and nothing is kept for a flow without one.

mod config;
mod session;
mod table;

use crate::clock::Numbers;
use crate::wire::{Accept, Body, Hello, Message, ParseError, Poll, Refusal, SessionId};
use crate::{Flow, Terms};
pub use config::{ConfigError, ObserverConfig, ObserverStats};
use session::Session;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use table::Table;
use thiserror::Error;

/// What became of a captured datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// Nobody asked for its flow.
    NoSession,
    /// Its flow has a session, but it does not count: a long header, too short, or seen on another interface.
    Ignored,
    /// It was added to its session's sums.
    Counted,
}

/// Why a datagram at the proxy's port changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HandleError {
    /// It is not a message.
    #[error("malformed: {0}")]
    Malformed(#[from] ParseError),
    /// It is a message that only a proxy sends.
    #[error("a message that only a proxy sends")]
    NotForProxy,
    /// No session of this id belongs to the address it came from; the peer is told so.
    #[error("no such session")]
    UnknownSession,
    /// The session is in another epoch.
    #[error("another epoch")]
    WrongEpoch,
    /// A limit of [`ObserverConfig`] stands against it, or its terms cannot be granted; the peer is told so.
    #[error("refused")]
    Refused,
}

/// What waits to be sent.
#[derive(Clone, Copy, Debug)]
enum Outgoing {
    Accept(usize, SessionId),
    Quack(usize, SessionId),
    Bare(SocketAddr, SessionId, Bare),
}

#[derive(Clone, Copy, Debug)]
enum Bare {
    Bye,
    UnknownSession,
    Refuse(Refusal),
}

/// More waiting messages than this are dropped: every one of them is repeated by its sender or cumulative.
const MAX_WAITING: usize = 4096;

/// How long a session may wait for the sender's proof that it receives at its address (SPEC.md, section 6.2).
const PROOF_TIMEOUT: Duration = Duration::from_secs(5);

/// The proxy's state machine.
#[derive(Debug)]
pub struct Observer {
    config: ObserverConfig,
    numbers: Numbers,
    table: Table,
    waiting: VecDeque<Outgoing>,
    stats: ObserverStats,
}

impl Observer {
    /// An observer without sessions. `seed` makes epochs: draw it at random from the system, or epochs can be guessed.
    ///
    /// # Errors
    /// [`ConfigError`] when a limit cannot be.
    pub fn new(config: ObserverConfig, seed: [u8; 32]) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            table: Table::default(),
            numbers: Numbers::new(seed),
            waiting: VecDeque::with_capacity(64),
            stats: ObserverStats::default(),
            config,
        })
    }

    /// One captured UDP datagram of any flow.
    ///
    /// `interface` is a number that the caller gave to the capturing interface: an epoch counts packets of the first
    /// interface that shows its flow, so a packet that is captured on its way in and on its way out counts once.
    /// `head` is the front of the UDP payload, [`crate::HEAD_LEN`] bytes unless the payload is shorter; `payload_len`
    /// is the payload's whole length.
    pub fn observe(
        &mut self,
        flow: &Flow,
        interface: u32,
        head: &[u8],
        payload_len: usize,
        now: Instant,
    ) -> Observed {
        let Some((index, session)) = self.table.by_flow(flow) else { return Observed::NoSession };
        let Some(identifier) = session.terms.identification.identifier(head, payload_len) else {
            self.stats.ignored += 1;
            return Observed::Ignored;
        };
        if !session.is_bound_to(interface, now) {
            self.stats.ignored += 1;
            return Observed::Ignored;
        }
        self.stats.counted += 1;
        let before = session.quack_due;
        if session.count(identifier, now) {
            self.report(index, 0, 0, now);
        } else if before.is_none() {
            self.table.reschedule(index);
        }
        Observed::Counted
    }

    /// A datagram that arrived at the proxy's own port, `from` its sender.
    ///
    /// # Errors
    /// [`HandleError`] says why it changed nothing.
    pub fn handle(&mut self, from: SocketAddr, datagram: &[u8], now: Instant) -> Result<(), HandleError> {
        let message = Message::parse(datagram).inspect_err(|_| self.stats.malformed += 1)?;
        let id = message.session;
        match message.body {
            Body::Hello(hello) => {
                self.stats.hellos += 1;
                self.on_hello(from, id, &hello, now)
            }
            Body::Poll(poll) => self.on_poll(from, id, poll, now),
            Body::NewEpoch { epoch } => self.on_new_epoch(from, id, epoch, now),
            Body::Bye => {
                let index = self.table.by_peer(from, id).ok_or(HandleError::UnknownSession)?;
                self.table.remove(index);
                Ok(())
            }
            _ => {
                self.stats.malformed += 1;
                Err(HandleError::NotForProxy)
            }
        }
    }

    fn on_hello(
        &mut self,
        from: SocketAddr,
        id: SessionId,
        hello: &Hello,
        now: Instant,
    ) -> Result<(), HandleError> {
        if let Some(index) = self.table.by_peer(from, id) {
            // The ACCEPT was lost, or this HELLO was repeated by the network.
            self.queue(Outgoing::Accept(index, id));
            return Ok(());
        }
        if hello.terms.every.is_none() && hello.terms.every_packets.is_none() {
            return Err(self.refuse(from, id, Refusal::Terms));
        }
        if self.table.len() >= self.config.max_sessions
            || self.table.of_source(from.ip()) >= self.config.max_sessions_per_source
        {
            return Err(self.refuse(from, id, Refusal::Full));
        }
        let terms = Terms {
            threshold: hello.terms.threshold.min(self.config.max_threshold),
            every: hello.terms.every.map(|every| every.max(self.config.min_every)),
            ..hello.terms
        };
        let source = SocketAddr::new(from.ip(), hello.source_port);
        let flow = Flow { source, destination: hello.destination }.canonical();
        if flow.source.is_ipv4() != flow.destination.is_ipv4() {
            return Err(self.refuse(from, id, Refusal::Terms));
        }
        let session =
            Session::new(from, id, flow, terms, self.config.kept_sums, self.numbers.next_u32(), now);
        let Some(session) = session else { return Err(self.refuse(from, id, Refusal::Terms)) };
        let index = self.table.insert(session, now + PROOF_TIMEOUT.min(self.config.idle_timeout));
        self.stats.sessions_opened += 1;
        self.queue(Outgoing::Accept(index, id));
        Ok(())
    }

    fn on_poll(
        &mut self,
        from: SocketAddr,
        id: SessionId,
        poll: Poll,
        now: Instant,
    ) -> Result<(), HandleError> {
        let index = self.prove(from, id, poll.epoch, now)?;
        self.stats.polls += 1;
        self.report(index, poll.token, poll.sums, now);
        Ok(())
    }

    fn on_new_epoch(
        &mut self,
        from: SocketAddr,
        id: SessionId,
        epoch: u32,
        now: Instant,
    ) -> Result<(), HandleError> {
        match self.prove(from, id, epoch, now) {
            Ok(index) => {
                let next = self.numbers.next_u32();
                if let Some(session) = self.table.get_mut(index) {
                    session.begin_epoch(next, now);
                }
                self.table.reschedule(index);
                self.queue(Outgoing::Accept(index, id));
                Ok(())
            }
            // A repeated request: the epoch it wanted to end is over.
            Err(HandleError::WrongEpoch) => {
                if let Some(index) = self.table.by_peer(from, id) {
                    self.queue(Outgoing::Accept(index, id));
                }
                Err(HandleError::WrongEpoch)
            }
            Err(other) => Err(other),
        }
    }

    /// The session that `id` at `from` names, proven by its epoch to be asked for by who receives there.
    fn prove(
        &mut self,
        from: SocketAddr,
        id: SessionId,
        epoch: u32,
        now: Instant,
    ) -> Result<usize, HandleError> {
        let Some(index) = self.table.by_peer(from, id) else {
            self.queue(Outgoing::Bare(from, id, Bare::UnknownSession));
            return Err(HandleError::UnknownSession);
        };
        let session = self.table.get_mut(index).ok_or(HandleError::UnknownSession)?;
        if session.epoch != epoch {
            return Err(HandleError::WrongEpoch);
        }
        session.last_heard = now;
        self.table.confirm(index);
        Ok(index)
    }

    fn refuse(&mut self, to: SocketAddr, id: SessionId, why: Refusal) -> HandleError {
        self.stats.refused += 1;
        self.queue(Outgoing::Bare(to, id, Bare::Refuse(why)));
        HandleError::Refused
    }

    /// Queues a quACK of a session; a second one before the first is sent only brings that up to date.
    fn report(&mut self, index: usize, token: u32, sums: u8, now: Instant) {
        let Some(session) = self.table.get_mut(index) else { return };
        let id = session.id;
        let queued = session.request_quack(token, sums, now);
        self.table.reschedule(index);
        if !queued {
            self.queue(Outgoing::Quack(index, id));
        }
    }

    fn queue(&mut self, message: Outgoing) {
        if self.waiting.len() < MAX_WAITING {
            self.waiting.push_back(message);
        } else if let Outgoing::Quack(index, _) = message
            && let Some(session) = self.table.get_mut(index)
        {
            session.forget_request();
        }
    }

    /// When [`Observer::on_deadline`] wants to be called.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.table.next_deadline()
    }

    /// Does what is due at `now`: timed quACKs, and the end of sessions that fell silent.
    pub fn on_deadline(&mut self, now: Instant) {
        while let Some(index) = self.table.due(now) {
            let Some(session) = self.table.get_mut(index) else { return };
            if session.quack_due.is_some_and(|due| due <= now) {
                self.report(index, 0, 0, now);
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

    /// Writes the next waiting message to `out`, at least [`crate::MAX_MESSAGE_LEN`] bytes, and gives its receiver and
    /// length. Call it until it gives `None`, after every call of another method that takes a time.
    pub fn transmit(&mut self, out: &mut [u8]) -> Option<(SocketAddr, usize)> {
        while let Some(next) = self.waiting.pop_front() {
            if let Some((to, len)) = self.emit(next, out) {
                self.stats.bytes_sent += u64::try_from(len).unwrap_or(u64::MAX);
                return Some((to, len));
            }
        }
        None
    }

    /// `None` when the message has lost its meaning since it was queued, or `out` is too short.
    fn emit(&mut self, message: Outgoing, out: &mut [u8]) -> Option<(SocketAddr, usize)> {
        match message {
            Outgoing::Accept(index, id) => {
                let session = self.table.get_mut(index).filter(|s| s.id == id)?;
                let accept =
                    Accept { epoch: session.epoch, terms: session.terms, kept_sums: session.kept_sums() };
                let len = Message { session: id, body: Body::Accept(accept) }.emit(out).ok()?;
                Some((session.peer, len))
            }
            Outgoing::Quack(index, id) => {
                let session = self.table.get_mut(index).filter(|s| s.id == id)?;
                let len = session.emit_quack(out)?;
                self.stats.quacks_sent += 1;
                Some((session.peer, len))
            }
            Outgoing::Bare(to, id, bare) => {
                let body = match bare {
                    Bare::Bye => Body::Bye,
                    Bare::UnknownSession => Body::UnknownSession,
                    Bare::Refuse(why) => Body::Refuse(why),
                };
                Some((to, Message { session: id, body }.emit(out).ok()?))
            }
        }
    }

    /// Ends every session and queues a BYE to its sender, before a shutdown.
    pub fn goodbye(&mut self) {
        self.waiting.clear();
        for (peer, id) in self.table.drain_confirmed() {
            self.waiting.push_back(Outgoing::Bare(peer, id, Bare::Bye));
        }
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
}

#[cfg(test)]
mod tests;
