//! Copies of the reverse flow: proof, keeping, repeating, and reports of silence (SPEC.md, section
//! 6.8).

use super::copies::{Found, low};
use super::input::{HandleError, Seen};
use super::keeping::{Keeping, MAX_AGE, Next};
use super::table::Key;
use super::transmit::{Outgoing, OutgoingAnswer};
use super::waiting::Repeats;
use super::{Observer, answers};
use crate::cookie::Proof;
use crate::identify::Flow;
use crate::keys::Link;
use crate::transmit::Transmit;
use crate::wire::discovery::{Answer, Reply};
use crate::wire::{Datagram, Keep, MAX_RANGES, Message, Protect, Repeat, Request, SessionNumber};
use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Datagrams whose sessions are prefetched together.
const BATCH: usize = 32;
/// The most copies for one range.
const MAX_COPIES: usize = 64;
impl Observer {
    /// Whether a session that asks may keep copies.
    #[must_use]
    pub fn may_keep_copies(&self) -> bool {
        self.config.keeps_copies()
    }

    /// Whether a session keeps copies. If none does, the caller need not capture whole datagrams.
    #[must_use]
    pub fn keeps_copies(&self) -> bool {
        self.table.clients.sessions() > 0
    }

    /// The addresses of the sessions' clients that want copies, each once. The caller need not
    /// capture datagrams to other addresses.
    pub fn copy_clients(&self) -> impl ExactSizeIterator<Item = IpAddr> + '_ {
        self.table.clients.addresses()
    }

    /// A version number that changes whenever [`Observer::copy_clients`] changes.
    #[must_use]
    pub fn copy_clients_version(&self) -> u64 {
        self.table.clients.version()
    }

    /// The number of sessions that keep copies.
    #[must_use]
    pub fn keeping_sessions(&self) -> usize {
        self.table.clients.sessions()
    }

    /// Sets whether the caller passes datagrams to [`Observer::keep`] at present; at first it does.
    /// A caller that does so only while [`Observer::keeps_copies`] sets false before the first
    /// session. Until it is true, the observer answers no proof by KEPT. Then it answers all that
    /// wait: call [`Observer::poll_transmit`].
    pub fn set_copying(&mut self, copying: bool) {
        self.copying = copying;
        if copying {
            for number in self.table.grant() {
                self.stats.keeps += 1;
                self.queue(Outgoing::Kept(number));
            }
        }
    }

    /// The bytes of memory that hold copies, in whole blocks.
    #[must_use]
    pub fn copies_bytes(&self) -> usize {
        self.table.pool.used_bytes()
    }

    /// Keeps a copy of a captured datagram if a session asked for copies of its flow. `flow` is the
    /// datagram's own, the reverse of the session's, and `interface` is as for
    /// [`Observer::observe`]. Returns whether it was kept.
    pub fn keep(&mut self, flow: &Flow, interface: u32, datagram: &[u8], now: Instant) -> bool {
        let key = Key::of(&flow.reversed());
        self.table.find(&key).is_some_and(|at| self.keep_at(at, &key, interface, datagram, now))
    }

    /// Keeps copies of captured datagrams of any flows, in order. The result is that of
    /// [`Observer::keep`] for each whole datagram, but it is faster with many sessions, because
    /// their memory is prefetched together.
    pub fn keep_all(&mut self, seen: &[Seen<'_>], interface: u32, now: Instant) {
        for seen in seen.chunks(BATCH) {
            let mut places = [(Key::default(), None); BATCH];
            for ((key, index), seen) in places.iter_mut().zip(seen) {
                *key = Key::of(&seen.flow.reversed());
                *index = self.table.find(key);
            }
            // The memory accesses of different datagrams overlap.
            let indices = places.iter().filter_map(|(_, index)| *index);
            let keeping = indices.filter_map(|index| self.table.get(index)?.keeping.as_ref());
            black_box(keeping.fold(0, |all, keeping| all ^ keeping.copies.touch()));
            for ((key, index), seen) in places.iter().zip(seen) {
                if let (Some(index), Some(datagram)) = (*index, seen.payload.bytes()) {
                    self.keep_at(index, key, interface, datagram, now);
                }
            }
        }
    }

    /// Keeps a copy for the session at this index, if it counts the flow with this key.
    fn keep_at(
        &mut self,
        index: usize,
        key: &Key,
        interface: u32,
        datagram: &[u8],
        now: Instant,
    ) -> bool {
        // A sender of the reverse flow may search for a proxy, too. And a proxy that captures what
        // leaves sees its own answers.
        if answers::are_ours(datagram) {
            return false;
        }
        let Some((keeping, counter, pool)) = self.table.keeping_at(index, key) else {
            return false;
        };
        let Some(passed) = keeping.keep(datagram, interface, now, pool) else { return false };
        counter.budget.earn(datagram.len());
        if passed.deadline {
            self.table.reschedule_at(index);
        }
        if passed.queue {
            self.queue_parity(index);
        }
        self.stats.kept += 1;
        self.stats.kept_bytes += u64::try_from(datagram.len()).unwrap_or(0);
        true
    }

    /// Begins to keep copies for a session, or changes their age. Only a sender that has received
    /// an answer at the flow's own port can prove that it receives the reverse flow.
    pub(super) fn on_keep(
        &mut self,
        number: SessionNumber,
        keep: &Keep,
        now: Instant,
    ) -> Result<(), HandleError> {
        let max_bytes = self.config.copies_of_session();
        let (index, session) = self.table.by_number(number).ok_or(HandleError::UnknownSession)?;
        let (flow, peer) = (session.agreed.flow, session.agreed.peer);
        if max_bytes > 0 && !self.cookies.verify(&keep.cookie, Proof::Flow(&flow), now) {
            self.stats.keeps_unproven += 1;
            return self.challenge(&flow, peer, keep, now);
        }
        let age_ms = keep.age_ms;
        if max_bytes > 0 {
            let age = Duration::from_millis(age_ms.into()).min(MAX_AGE);
            let keeping = self.table.begin_keeping(index, || Keeping::new(max_bytes));
            if let Some(keeping) = keeping {
                keeping.age_ms = u16::try_from(age.as_millis()).unwrap_or(u16::MAX);
                keeping.copies.set_max_age(age);
                keeping.granted |= self.copying;
            }
            self.table.reschedule(number);
            if !self.copying {
                // The sender asks again, and `set_copying` answers.
                return Ok(());
            }
        }
        self.stats.keeps += 1;
        self.queue(Outgoing::Kept(number));
        Ok(())
    }

    /// Sends a cookie along the path to the flow's source, at most at the rate of answers to
    /// markers. The flow's source has the sender's own address, so the answer reaches no other
    /// host, at most another port. That address has received a cookie, so it belongs to a host. The
    /// sender chooses the destination, from which the answer seems to come.
    fn challenge(
        &mut self,
        flow: &Flow,
        peer: SocketAddr,
        keep: &Keep,
        now: Instant,
    ) -> Result<(), HandleError> {
        if flow.source.ip() != peer.ip().to_canonical() || !self.addresses.can_answer(flow) {
            return Err(HandleError::Unproven);
        }
        if !self.answered.record(keep.nonce, flow.source, now) {
            self.stats.markers_deferred += 1;
            return Err(HandleError::Busy);
        }
        if let Some(cookie) = self.cookies.issue(Proof::Flow(flow), now) {
            let (handle, nonce) = (keep.handle, keep.nonce);
            let answer = Answer { handle, nonce, proxy: peer, flow: *flow, cookie };
            let (reply, interface) = (Reply::Path, None);
            self.queue(Outgoing::Answer(OutgoingAnswer { answer, reply, interface }));
        }
        Err(HandleError::Unproven)
    }

    /// Queues the copies in the ranges of a request. A range with an end that is not kept gets no
    /// answer: it may be a datagram of another flow. While the caller captures nothing, the answer
    /// is NOTHING, so that the receiver does not wait for copies.
    pub(super) fn on_request(
        &mut self,
        number: SessionNumber,
        request: Request<'_>,
        link: Link,
        now: Instant,
    ) -> Result<(), HandleError> {
        let (index, session) = self.table.by_number(number).ok_or(HandleError::UnknownSession)?;
        let is_linked = session.second_peer(now).is_some();
        let link = if is_linked { link } else { Link::First };
        let is_proven = session.receives;
        if self.table.keeping_of(index).is_none() {
            self.stats.requests_unanswered += 1;
            // The KEPT that ended the agreement may be lost.
            if is_proven && self.table.admit_request(index, request.ranges.len(), now) {
                self.queue(Outgoing::Kept(number));
            }
            return Err(HandleError::NotKept);
        }
        if !self.table.admit_request(index, request.ranges.len(), now) {
            self.stats.requests_deferred += 1;
            return Err(HandleError::Busy);
        }
        let Some((keeping, pool)) = self.table.keeping_of(index) else {
            return Err(HandleError::NotKept);
        };
        keeping.copies.expire(now, pool);
        let mut nothing = 0_u16;
        let mut answered = false;
        for (range, asked) in (0..).zip(request.ranges.iter()) {
            let Some(Found { first, len }) = keeping.copies.find(&asked) else {
                if !self.copying {
                    nothing |= 1 << range;
                }
                continue;
            };
            answered = true;
            if len == 0 {
                nothing |= 1 << range;
                continue;
            }
            // A request without an end may only answer a TAIL that overtook its datagram.
            if asked.before.is_some() {
                keeping.on_requested(now);
            }
            let total = u8::try_from(len.min(MAX_COPIES)).unwrap_or(u8::MAX);
            let number = request.number;
            let (index, begun) = (0, false);
            let in_parts = asked.in_parts;
            let repeats = Repeats { number, range, first, index, total, in_parts, begun, link };
            keeping.waiting.push(repeats);
        }
        if keeping.resume(now, pool) {
            self.repeating.push_back(number);
        }
        self.table.reschedule_at(index);
        self.stats.requests += u64::from(answered);
        self.stats.requests_unanswered += u64::from(!answered);
        if nothing != 0 {
            self.queue(Outgoing::Nothing {
                session: number,
                number: request.number,
                ranges: nothing,
                link,
            });
        }
        Ok(())
    }

    /// Serves the timers of a session's copies. Returns whether one was due.
    pub(super) fn on_keeping_timeout(&mut self, index: usize, now: Instant) -> bool {
        let Some((keeping, pool)) = self.table.keeping_of(index) else { return false };
        if keeping.due().is_none_or(|due| due > now) {
            return false;
        }
        let resumed = keeping.waiting.due().is_some_and(|due| due <= now);
        let resumed = resumed && keeping.resume(now, pool);
        let flush = keeping.protection.on_timeout(&keeping.copies, now);
        let tail = keeping.on_timeout(now, pool);
        self.table.reschedule_at(index);
        if flush {
            self.queue_parity(index);
        }
        if resumed && let Some(session) = self.table.get(index) {
            self.repeating.push_back(session.agreed.number);
        }
        if tail && let Some(session) = self.table.get(index) {
            let number = session.agreed.number;
            self.queue(Outgoing::Tail(number));
        }
        true
    }

    /// Writes the next copy to repeat. quACKs and other messages go first. The sessions take turns.
    pub(super) fn emit_repeat(&mut self, out: &mut [u8]) -> Option<Transmit> {
        while let Some(number) = self.repeating.pop_front() {
            let Some((place, session)) = self.table.by_number(number) else { continue };
            let peer_number = session.agreed.peer_number;
            let Some((keeping, _)) = self.table.keeping_of(place) else { continue };
            keeping.waiting.set_queued(false);
            let mut link = Link::First;
            let (len, withheld) = match keeping.next_copy(self.config.longest_datagram) {
                Next::Copy(copy, part, datagram) => {
                    let Repeats { number, range, index, total, .. } = copy;
                    link = copy.link;
                    let session = peer_number;
                    let repeat = Repeat { session, number, range, index, total, part, datagram };
                    (Datagram::Repeat(repeat).emit(out).ok(), 1)
                }
                Next::Withheld(copies) => (None, copies),
                Next::Later | Next::Nothing => {
                    self.table.reschedule_at(place);
                    continue;
                }
            };
            if !keeping.waiting.is_empty() {
                keeping.waiting.set_queued(true);
                self.repeating.push_back(number);
            }
            if let Some(len) = len
                && let Some(transmit) =
                    self.table.get(place).and_then(|it| it.transmit_by(link, len))
            {
                self.stats.repeats_sent += 1;
                self.stats.repeat_bytes += u64::try_from(len).unwrap_or(0);
                return Some(transmit);
            }
            self.stats.repeats_withheld += withheld;
        }
        None
    }

    /// Begins to send parity for a session, changes its terms, or ends it.
    pub(super) fn on_protect(
        &mut self,
        number: SessionNumber,
        terms: Protect,
        now: Instant,
    ) -> Result<(), HandleError> {
        let (index, _) = self.table.by_number(number).ok_or(HandleError::UnknownSession)?;
        let (keeping, _) = self.table.keeping_of(index).ok_or(HandleError::NotKept)?;
        let Keeping { protection, copies, .. } = keeping;
        if terms.share > 0 && !copies.end_in_identifiers() {
            return Err(HandleError::NotKept);
        }
        protection.protect(terms, self.config.parity_percent.into(), copies, now);
        self.table.reschedule_at(index);
        self.stats.protects += 1;
        Ok(())
    }

    /// Queues the parity of the session at this index.
    fn queue_parity(&mut self, index: usize) {
        if let Some(session) = self.table.get(index) {
            let number = session.agreed.number;
            self.queue(Outgoing::Parity(number));
        }
    }

    /// Writes the next PARITY of a session. Returns whether another one waits.
    pub(super) fn emit_parity(
        &mut self,
        number: SessionNumber,
        out: &mut [u8],
    ) -> (Option<Transmit>, bool) {
        let Some((index, session)) = self.table.by_number(number) else { return (None, false) };
        let peer_number = session.agreed.peer_number;
        let Some((keeping, _)) = self.table.keeping_of(index) else { return (None, false) };
        let Keeping { protection, copies, .. } = keeping;
        let len = protection.emit(peer_number, copies, out);
        let more = protection.waits();
        let Some(len) = len else {
            self.stats.parity_withheld += 1;
            return (None, more);
        };
        self.stats.parity_sent += 1;
        self.stats.parity_bytes += u64::try_from(len).unwrap_or(0);
        (self.table.get(index).map(|session| session.transmit(len)), more)
    }

    /// The message that answers a KEEP.
    pub(super) fn kept(&mut self, number: SessionNumber) -> Option<Message<'static>> {
        let (index, _) = self.table.by_number(number)?;
        let age_ms = self.table.keeping_of(index).map_or(0, |(keeping, _)| keeping.age_ms);
        Some(Message::Kept { age_ms })
    }

    /// The message that reports the reverse flow's silence, unless it is over.
    pub(super) fn tail(&mut self, number: SessionNumber) -> Option<Message<'static>> {
        let (index, _) = self.table.by_number(number)?;
        let (keeping, _) = self.table.keeping_of(index)?;
        let passed = low(keeping.copies.passed());
        Some(Message::Tail { last: keeping.copies.latest()?, passed })
    }
}

const _: () = assert!(MAX_RANGES <= 16, "one bit of NOTHING for each");
