//! Session establishment (SPEC.md, section 6.2).

use super::Observer;
use super::config::PROOF_TIMEOUT;
use super::input::{HandleError, Peer, RefusalCause};
use super::session::{Agreement, Session};
use super::table::Key;
use super::transmit::{Bare, Outgoing};
use crate::cookie::Proof;
use crate::identify::Flow;
use crate::keys::{HandshakeError, Responder, Seal};
use crate::terms::Terms;
use crate::wire::{Accept, ECHO_LEN, Hello, SessionNumber};
use std::time::Instant;

/// A sender's request for a flow.
struct SessionRequest {
    peer: Peer,
    peer_number: SessionNumber,
    echo: [u8; ECHO_LEN],
    flow: Flow,
    path_proven: bool,
}

/// The observer's answer to a request that it grants.
struct Granted {
    number: SessionNumber,
    terms: Terms,
    seal: Seal,
    /// The second handshake message; empty if nothing answers.
    answer: Box<[u8]>,
}

impl Observer {
    pub(super) fn on_hello(
        &mut self,
        from: Peer,
        hello: &Hello<'_>,
        now: Instant,
    ) -> Result<(), HandleError> {
        let flow = hello.flow_from(from.address);

        // Before this check the observer keeps no state for the peer.
        let path_proven = self.cookies.verify(&hello.cookie, Proof::Path(&flow), now);
        if !path_proven && !self.cookies.verify(&hello.cookie, Proof::Address(&from.address), now) {
            self.stats.unproven += 1;
            if let Some(cookie) = self.cookies.issue(Proof::Address(&from.address), now) {
                self.queue(Outgoing::Bare(from, Bare::Retry(hello.session, hello.echo(), cookie)));
            }
            return Err(HandleError::Unproven);
        }
        // A proven address covers only flows from that address.
        if !path_proven && flow.source.ip() != from.address.ip().to_canonical() {
            return Err(self.refuse(from, hello, RefusalCause::OtherSource));
        }
        if self.table.is_taken(&Key::of(&flow), path_proven, from.address) {
            return Err(self.refuse(from, hello, RefusalCause::Taken));
        }
        if flow.source.is_ipv4() != flow.destination.is_ipv4() {
            return Err(self.refuse(from, hello, RefusalCause::Terms));
        }
        if let Some(index) = self.table.by_peer(from.address, hello.session)
            && let Some(session) = self.table.get_mut(index)
        {
            if session.confirmed {
                return Err(HandleError::Duplicate);
            }
            let number = session.agreed.number;
            if session.agreed.echo == hello.echo() && session.agreed.flow == flow {
                // The ACCEPT was lost, or the network duplicated this HELLO.
                self.queue(Outgoing::Accept(number));
                return Ok(());
            }
            self.table.remove(index);
        }
        // Senders behind the same address cannot exclude one with a stronger proof. An unconfirmed
        // session gives way to others.
        let (has_room, limit) = if self.is_source_full(&flow) {
            let has_room = path_proven && self.table.has_unproven(flow.source.ip());
            (has_room, RefusalCause::SessionsOfSource)
        } else {
            let has_room = self.table.len() < self.config.max_sessions;
            (has_room || self.table.has_half_open(), RefusalCause::Sessions)
        };
        if !has_room {
            return Err(self.refuse(from, hello, limit));
        }
        if !self.handshakes.admit(flow.source.ip(), usize::from(path_proven), now) {
            // The sender retransmits the HELLO.
            self.stats.handshakes_deferred += 1;
            return Err(HandleError::Busy);
        }
        let (peer_number, echo) = (hello.session, hello.echo());
        let request = SessionRequest { peer: from, peer_number, echo, flow, path_proven };
        self.open(request, hello, now)
    }

    /// Whether the flow's source has reached its limit of sessions.
    fn is_source_full(&self, flow: &Flow) -> bool {
        self.table.of_source(flow.source.ip()) >= self.config.max_sessions_per_source
    }

    /// Begins a confirmed session for a flow without a sender, such as one in a capture file. Only
    /// the observer has its keys, which are random, so the caller may discard messages for it. The
    /// session ends after [`ObserverConfig::idle_timeout`](super::ObserverConfig::idle_timeout), as
    /// others do.
    ///
    /// # Errors
    /// [`HandleError::Refused`] if the session exceeds `max_sessions` of
    /// [`ObserverConfig`](super::ObserverConfig), the flow is counted already, or the terms are
    /// invalid. The limit for a source does not hold here. [`HandleError::Handshake`] if the random
    /// keys make no seal.
    pub fn adopt(&mut self, flow: Flow, terms: Terms, now: Instant) -> Result<(), HandleError> {
        let (flow, terms) = (flow.canonical(), terms.normalised());
        let no_quack = terms.every.is_none() && terms.every_packets.is_none();
        if self.table.find(&Key::of(&flow)).is_some() {
            return Err(RefusalCause::Taken.into());
        }
        if self.table.len() >= self.config.max_sessions {
            return Err(RefusalCause::Sessions.into());
        }
        if terms.threshold > self.config.max_threshold || no_quack {
            return Err(RefusalCause::Terms.into());
        }
        let request = SessionRequest {
            peer: flow.source.into(),
            peer_number: SessionNumber(self.numbers.next_u32()),
            echo: [0; ECHO_LEN],
            flow,
            path_proven: false,
        };
        let number = self.new_number();
        let seal = Seal::from_keys(&self.numbers.array(), &self.numbers.array());
        let granted = Granted { number, terms, seal, answer: Box::default() };
        let index = self.begin(request, granted, now)?;
        self.table.expire_at(index, now + self.config.idle_timeout);
        self.table.confirm(index);
        Ok(())
    }

    /// Reads the first handshake message, answers with the second, and begins the session.
    fn open(
        &mut self,
        request: SessionRequest,
        hello: &Hello<'_>,
        now: Instant,
    ) -> Result<(), HandleError> {
        let seed = self.numbers.array();
        let read = Responder::read(
            hello.pattern,
            &self.key,
            hello.session,
            &hello.flow,
            seed,
            hello.handshake,
        );
        let (responder, requested) = read.map_err(|error| self.failed(error))?;
        let from = request.peer;
        if requested.every.is_none() && requested.every_packets.is_none() {
            return Err(self.refuse(from, hello, RefusalCause::Terms));
        }
        let terms = Terms {
            threshold: requested.threshold.min(self.config.max_threshold),
            every: requested.every.map(|every| every.max(self.config.min_every)),
            ..requested
        };
        let number = self.new_number();
        let (kept_sums, orders) = (self.config.kept_sums, self.config.orders);
        let accept = Accept { session: number, terms, kept_sums, orders };
        let (seal, answer) = responder.finish(&accept).map_err(|error| self.failed(error))?;
        let granted = Granted { number, terms, seal, answer: answer.bytes().into() };
        match self.begin(request, granted, now) {
            Ok(_) => {
                self.queue(Outgoing::Accept(number));
                Ok(())
            }
            Err(HandleError::Refused(cause)) => Err(self.refuse(from, hello, cause)),
            Err(error) => Err(error),
        }
    }

    fn new_number(&mut self) -> SessionNumber {
        self.table.new_number(|| self.config.shard.mark(self.numbers.next_u32()))
    }

    /// Begins a session, and returns its index.
    fn begin(
        &mut self,
        request: SessionRequest,
        granted: Granted,
        now: Instant,
    ) -> Result<usize, HandleError> {
        let SessionRequest { peer, peer_number, echo, flow, path_proven } = request;
        let Granted { number, terms, seal, answer } = granted;
        let agreed = Agreement {
            peer: peer.address,
            peer_number,
            number,
            flow,
            path_proven,
            terms,
            kept_sums: self.config.kept_sums,
            seal,
            echo,
            answer,
        };
        let mut session = Session::new(agreed, now).ok_or(RefusalCause::Terms)?;
        session.local_ip = peer.local_ip;
        if path_proven && self.is_source_full(&flow) {
            self.table.evict_unproven(flow.source.ip());
        } else if self.table.len() >= self.config.max_sessions {
            self.table.evict_half_open();
        }
        self.stats.sessions_opened += 1;
        Ok(self.table.insert(session, now + PROOF_TIMEOUT.min(self.config.idle_timeout)))
    }

    fn failed(&mut self, error: HandshakeError) -> HandleError {
        match error {
            HandshakeError::Failed => {
                self.stats.forged += 1;
                HandleError::Handshake
            }
            HandshakeError::Malformed(error) => {
                self.stats.malformed += 1;
                error.into()
            }
        }
    }

    fn refuse(&mut self, to: Peer, hello: &Hello<'_>, cause: RefusalCause) -> HandleError {
        self.stats.refused += 1;
        let refuse = Bare::Refuse(hello.session, hello.echo(), cause.refusal());
        self.queue(Outgoing::Bare(to, refuse));
        cause.into()
    }
}
