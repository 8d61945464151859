//! A session that the proxy accepted (SPEC.md, sections 7.2 to 7.5).
//!
//! This file handles messages, epochs and polls. `quacks` reads reports, `timeouts` computes
//! deadlines, and `probe` tracks requests without an answer. `lone` polls early for lone packets.
//! `schedule` requests fewer reports, and `steady` reads those of overdue packets. `keeping`
//! fetches copies, and `parity` rebuilds datagrams. `second_link` sends what is lost by another
//! way.

mod keeping;
mod parity;
pub(super) mod probe;
mod quacks;
mod schedule;
mod second_link;
mod steady;
mod timeouts;

use super::effects::{Bye, Context, Transition};
use super::history::History;
use super::reconcile::Reconciler;
use super::rtt::NearRtt;
use super::status::{Assistance, HandleError, Reason};
use crate::keys::{Link, OpenError, Plain, PublicKey, Seal};
use crate::terms::Terms;
use crate::wire::{Accept, Datagram, Message, Poll, SEAL_LEN, Schedule, SessionNumber};
pub(super) use keeping::KEEP_LONG;
use keeping::Keeping;
pub use parity::List;
use probe::{Backoff, Probe, SILENCE};
use schedule::Scheduling;
use second_link::SecondLink;
use std::time::{Duration, Instant};
use steady::Steadiness;
use timeouts::Lone;

/// Polls without an authentic answer before the sender accepts that the session is unknown.
const DOUBT_POLLS: u32 = 3;
/// The pause from the last poll of one doubt to the first of the next. An attacker can forge the
/// claim, and each doubt costs polls. After a false claim, the sender still detects a restart about
/// as soon as it detects a silent proxy.
const DOUBT_INTERVAL: Duration = SILENCE;
/// How long a proxy may begin epochs by itself without a quACK that decodes.
const UNASKED_LIMIT: Duration = Duration::from_secs(3);
/// After answers to polls lack this many consecutive packets, the path may have changed.
const SUSPICIOUS_TAIL: usize = 4;
/// The most sums that the sender requests. More would cost too much time to decode.
const MAX_SUMS: u8 = 128;

/// The number of the proxy's kept sums that the sender uses.
fn usable_sums(accept: &Accept) -> u8 {
    accept.kept_sums.min(MAX_SUMS).max(accept.terms.threshold)
}

/// Whether `epoch` comes after `other`; their numbers wrap.
fn is_ahead(epoch: u16, other: u16) -> bool {
    (1..1 << 15).contains(&epoch.wrapping_sub(other))
}

/// An unauthenticated claim that the proxy does not hold the session.
#[derive(Debug)]
struct Doubt {
    /// When the next poll is due, or the sender accepts the claim.
    until: Instant,
    /// Polls still to send.
    polls: u32,
}

#[derive(Debug)]
pub(super) struct Epoch {
    pub(super) number: u16,
    /// The sequence number of the message that began it.
    began: u32,
    /// The sequence number of its newest quACK.
    pub(super) sequence: Option<u32>,
    /// Consecutive quACKs that did not decode.
    undecodable: u32,
    /// When a quACK last reported a packet for the first time. Initially, when the epoch began.
    last_progress: Instant,
    /// The *tail*: packets that the sender has given up since then because reports lack them
    /// (SPEC.md, section 7.4).
    tail_declared: usize,
    /// An answer to a poll lacked more packets than random loss explains.
    doubtful: bool,
    probe: Probe,
    /// Sums that polls request because a quACK had too few; otherwise 0.
    wanted_sums: u8,
    steady: Steadiness,
}

impl Epoch {
    fn new(number: u16, began: u32, now: Instant) -> Self {
        Self {
            number,
            began,
            sequence: None,
            undecodable: 0,
            last_progress: now,
            tail_declared: 0,
            doubtful: false,
            probe: Probe::default(),
            wanted_sums: 0,
            steady: Steadiness::default(),
        }
    }
}

/// The messages about the flow's own packets that wait to be sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Queue {
    /// The epoch to end.
    new_epoch: Option<u16>,
    pub(super) poll: Option<Poll>,
    schedule: Option<Schedule>,
}

impl Queue {
    #[inline]
    fn is_empty(&self) -> bool {
        self.new_epoch.is_none() && self.poll.is_none() && self.schedule.is_none()
    }

    /// Takes out the message that leaves next.
    fn next(&mut self) -> Option<Message<'static>> {
        if let Some(epoch) = self.new_epoch.take() {
            return Some(Message::NewEpoch { epoch });
        }
        if let Some(poll) = self.poll.take() {
            return Some(Message::Poll(poll));
        }
        self.schedule.take().map(Message::Schedule)
    }
}

/// The state of an established session.
#[derive(Debug)]
pub(super) struct Established {
    seal: Seal,
    pub(super) key: PublicKey,
    /// The session's number at the sender.
    local_number: SessionNumber,
    /// The session's number at the proxy.
    pub(super) remote_number: SessionNumber,
    pub(super) granted: Terms,
    kept_sums: u8,
    /// The proxy puts the flow in the order of lists.
    pub(super) orders: bool,
    pub(super) near_rtt: NearRtt,
    pub(super) history: History,
    pub(super) reconciler: Reconciler,
    pub(super) epoch: Epoch,
    /// The request for a new epoch. Until its answer the sender ignores quACKs.
    renewing: Option<Backoff>,
    doubt: Option<Doubt>,
    /// The earliest time of the next doubt's first poll.
    next_doubt: Instant,
    /// When the latest quACK arrived, or when the epoch began if that was later.
    last_quack_at: Instant,
    /// When the sender last queued a message for the proxy. A BYE, a KEEP with its PROTECT, and a
    /// repeated end of parity do not count.
    last_message_at: Instant,
    lone: Lone,
    /// Epochs that the sender requested since a quACK last decoded.
    fruitless: u32,
    /// When the proxy began its first unasked epoch since a quACK last decoded.
    unasked_since: Option<Instant>,
    pub(super) queue: Queue,
    scheduling: Scheduling,
    /// Copies of the reverse flow.
    pub(super) keeping: Keeping,
    /// Another way to the proxy.
    pub(super) second: SecondLink,
    /// The buffer of the latest message, kept to avoid allocation.
    plain: Plain,
}

impl Established {
    /// The session's number at the sender.
    pub(super) fn number(&self) -> SessionNumber {
        self.local_number
    }

    /// A session before its first epoch. The caller must call [`Self::begin_epoch`] next.
    pub(super) fn new(
        seal: Seal,
        key: PublicKey,
        local_number: SessionNumber,
        accept: &Accept,
        near_rtt: NearRtt,
        history: History,
        now: Instant,
    ) -> Self {
        Self {
            seal,
            key,
            local_number,
            remote_number: accept.session,
            granted: accept.terms,
            kept_sums: usable_sums(accept),
            orders: accept.orders,
            near_rtt,
            history,
            reconciler: Reconciler::default(),
            epoch: Epoch::new(0, 0, now),
            renewing: None,
            doubt: None,
            next_doubt: now,
            last_quack_at: now,
            last_message_at: now,
            lone: Lone::default(),
            fruitless: 0,
            unasked_since: None,
            queue: Queue::default(),
            scheduling: Scheduling::default(),
            keeping: Keeping::default(),
            second: SecondLink::default(),
            plain: Plain::default(),
        }
    }

    pub(super) fn on_sent(&mut self, tag: u64, identifier: u32, now: Instant) {
        if self.history.is_empty() {
            // The log was empty until now.
            self.note_lone(identifier, now);
            self.epoch.probe.on_progress();
            if self.epoch.tail_declared == 0 {
                self.epoch.last_progress = now;
            }
        }
        self.note_unexpected(identifier, now);
        if self.history.push(identifier, tag, now) {
            self.reconciler.forget_oldest();
        }
    }

    pub(super) fn on_datagram(
        &mut self,
        datagram: Datagram<'_>,
        len: usize,
        context: &mut Context<'_>,
    ) -> Result<(), HandleError> {
        match datagram {
            Datagram::UnknownSession { session } if session == self.remote_number => {
                self.on_unknown(context)
            }
            Datagram::Sealed { session, sequence, ciphertext } if session == self.local_number => {
                let mut plain = std::mem::take(&mut self.plain);
                let outcome = match self.seal.open(sequence, ciphertext, &mut plain) {
                    Ok(message) => self.on_message(message, sequence, len, context),
                    Err(OpenError::Replay) => Err(HandleError::Outdated),
                    Err(OpenError::Forged) => {
                        context.stats.forged += 1;
                        Err(HandleError::Forged)
                    }
                    Err(OpenError::Malformed(error)) => {
                        context.stats.malformed += 1;
                        Err(error.into())
                    }
                };
                self.plain = plain;
                outcome
            }
            Datagram::Repeat(copy) if copy.session == self.local_number => {
                context.stats.added_bytes += u64::try_from(len).unwrap_or(0);
                self.on_repeat(&copy, context)
            }
            Datagram::Parity(parity) if parity.session == self.local_number => {
                self.on_parity(&parity, len, context)
            }
            _ => Err(HandleError::OtherSession),
        }
    }

    /// Handles an authentic message from a datagram of `len` bytes.
    pub(super) fn on_message(
        &mut self,
        message: Message<'_>,
        sequence: u32,
        len: usize,
        context: &mut Context<'_>,
    ) -> Result<(), HandleError> {
        // What comes by the second link does not show that the first one leads to this session.
        self.doubt.take_if(|_| Link::of(sequence) == Link::First);
        match message {
            Message::Quack(quack) => self.on_quack(&quack, sequence, len, context),
            Message::ShortQuack(short) => {
                let quack = self.complete(&short, sequence, context)?;
                self.on_quack(&quack, sequence, len, context)
            }
            Message::Epoch { epoch } => self.on_epoch(epoch, sequence, context),
            Message::Bye => {
                context.leave(Transition::Ended);
                Ok(())
            }
            Message::Kept { age_ms } => {
                self.on_kept(age_ms, context.now);
                Ok(())
            }
            Message::Nothing { number, ranges } => {
                self.on_nothing(number, ranges);
                Ok(())
            }
            Message::Tail { last, .. } => {
                self.on_tail(last, context);
                Ok(())
            }
            Message::Linked { token, linked } => {
                self.second.on_linked(token, linked, context.now);
                Ok(())
            }
            Message::Poll(_)
            | Message::NewEpoch { .. }
            | Message::Keep { .. }
            | Message::Protect(_)
            | Message::Schedule(_)
            | Message::List(_)
            | Message::Symbol(_)
            | Message::Link { .. }
            | Message::Relay(_)
            | Message::Request(_) => {
                context.stats.malformed += 1;
                Err(HandleError::NotForSender)
            }
        }
    }

    /// Handles a claim that the proxy does not hold the session. The proxy can refute it by
    /// answering polls, which are limited in rate.
    fn on_unknown(&mut self, context: &mut Context<'_>) -> Result<(), HandleError> {
        if self.doubt.is_some() {
            return Err(HandleError::Outdated);
        }
        self.doubt = Some(Doubt { until: self.next_doubt.max(context.now), polls: DOUBT_POLLS });
        self.on_doubt(context);
        Ok(())
    }

    /// Polls if the doubt is due, and accepts the claim after the last poll.
    fn on_doubt(&mut self, context: &mut Context<'_>) {
        let Some(doubt) = self.doubt.as_mut().filter(|doubt| doubt.until <= context.now) else {
            return;
        };
        if doubt.polls == 0 {
            return context.leave(Transition::Unknown);
        }
        doubt.polls -= 1;
        doubt.until = context.now + self.near_rtt.retry_interval();
        self.next_doubt = context.now + DOUBT_INTERVAL;
        self.poll(context);
    }

    /// Begins an epoch, which the message with the sequence number `began` announced.
    pub(super) fn begin_epoch(&mut self, number: u16, began: u32, context: &mut Context<'_>) {
        self.epoch = Epoch::new(number, began, context.now);
        self.renewing = None;
        self.last_quack_at = context.now;
        self.queue = Queue::default();
        self.scheduling.begin_epoch();
        self.reconciler.begin(self.granted.threshold, self.kept_sums);
        self.history.begin_epoch();
        context.stats.epochs += 1;
        // The first poll proves the sender's address to the proxy (SPEC.md, section 6.2).
        self.poll(context);
    }

    /// Handles an EPOCH, which the sender requested or the proxy sent by itself.
    fn on_epoch(
        &mut self,
        number: u16,
        sequence: u32,
        context: &mut Context<'_>,
    ) -> Result<(), HandleError> {
        if !is_ahead(number, self.epoch.number) {
            return Err(HandleError::Outdated);
        }
        if self.renewing.is_none() {
            // An epoch may end before its first quACK. If that continues for long, the proxy is at
            // fault.
            let since = *self.unasked_since.get_or_insert(context.now);
            if context.now.saturating_duration_since(since) >= UNASKED_LIMIT {
                context.leave(Transition::Failed(Reason::Unintelligible));
                return Ok(());
            }
        }
        self.begin_epoch(number, sequence, context);
        Ok(())
    }

    /// Requests a new epoch. The end-to-end mechanism detects the losses that this epoch leaves
    /// undetected.
    pub(super) fn renew(&mut self, now: Instant) {
        self.renewing = Some(Backoff::start(now, self.near_rtt.retry_interval()));
        self.last_message_at = now;
        self.fruitless += 1;
        self.queue.new_epoch = Some(self.epoch.number);
    }

    /// Whether the sender waits for the epoch that it requested.
    pub(super) fn is_renewing(&self) -> bool {
        self.renewing.is_some()
    }

    /// Begins a POLL, or a message that the proxy answers like one. Returns its token, and whether
    /// several consecutive polls brought no progress. Returns `None` if the session can seal no
    /// more messages.
    fn begin_poll(&mut self, context: &mut Context<'_>) -> Option<(u16, bool)> {
        if self.seal.is_exhausted() {
            context.leave(Transition::Exhausted);
            return None;
        }
        let token = context.numbers.token();
        let delay = self.poll_delay();
        let fruitless = self.epoch.probe.sent(token, delay, context.now);
        self.last_message_at = context.now;
        context.stats.polls += 1;
        Some((token, fruitless))
    }

    /// Queues a POLL.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) {
        let Some((token, fruitless)) = self.begin_poll(context) else { return };
        if fruitless {
            self.scheduling.return_to_terms();
        }
        let (epoch, sums) = (self.epoch.number, self.sums_to_request(context.config.poll));
        self.queue.poll = Some(Poll { epoch, token, sums });
    }

    /// The number of sums that a POLL requests; 0 stands for the threshold. An answer lacks at most
    /// the packets of the log, and a few sent before the proxy answers. More sums would use up the
    /// share of a flow of small packets (SPEC.md, section 6.7).
    fn sums_to_request(&self, polls: bool) -> u8 {
        const MORE: usize = 2;
        if self.reconciler.awaits_all_sums() {
            return self.kept_sums;
        }
        let enough = u8::try_from(self.history.len() + MORE).unwrap_or(u8::MAX);
        match self.epoch.wanted_sums {
            // Without polls for losses, too few sums would cost an epoch.
            0 if polls && enough < self.granted.threshold => enough,
            wanted => wanted,
        }
    }

    /// Handles the timeouts that are due at the context's time.
    pub(super) fn on_timeout(&mut self, context: &mut Context<'_>) {
        let now = context.now;
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if let Some(request) = self.renewing.as_mut().filter(|request| request.at <= now) {
            request.again(now);
            self.last_message_at = now;
            self.queue.new_epoch = Some(self.epoch.number);
        }
        self.on_doubt(context);
        if context.has_left() {
            return;
        }
        if due(self.silent_at(context.config)) {
            // Without polls, a proxy that sees no packet stays silent.
            let blind = context.assistance != Assistance::Assisted && !context.config.poll;
            context.leave(if blind {
                Transition::Failed(Reason::NotOnPath)
            } else {
                Transition::Silent
            });
            return;
        }
        self.on_second_link_timeout(context);
        self.on_keeping_timeout(context);
        self.on_parity_timeout(now);
        if due(self.probe_at(context.config))
            || due(self.keep_alive_at())
            || due(self.measure_at(context.config))
        {
            self.poll(context);
        }
        if due(self.schedule_at(context.config)) && !context.has_left() {
            self.ask_for_schedule(context);
        }
    }

    /// Whether no message waits.
    #[inline]
    pub(super) fn is_silent(&self) -> bool {
        self.queue.is_empty() && self.keeping.is_silent() && self.second.is_silent()
    }

    /// Writes the waiting message to `out`, and returns the datagram's length and its link.
    pub(super) fn poll_transmit(&mut self, out: &mut [u8]) -> Option<(usize, Link)> {
        let number = self.remote_number;
        if let Some(message) = self.queue.next() {
            return Some((self.seal.seal(Link::First, number, &message, out)?, Link::First));
        }
        let Self { seal, second, .. } = self;
        let mut write =
            |link, message: &Message<'_>| Some((seal.seal(link, number, message, out)?, link));
        if let Some(written) = second.take(&mut write) {
            return written;
        }
        let mut asked = None;
        let (link, message) = self.keeping.next_message(&mut asked)?;
        write(link, &message)
    }

    /// Writes a message about what left to `out`, and returns the datagram's length.
    pub(super) fn seal_message(&mut self, message: &Message<'_>, out: &mut [u8]) -> Option<usize> {
        self.seal.seal(Link::First, self.remote_number, message, out)
    }

    /// A BYE for the proxy.
    pub(super) fn seal_bye(&mut self) -> Option<Bye> {
        let mut bye = [0; SEAL_LEN + 1];
        self.seal.seal(Link::First, self.remote_number, &Message::Bye, &mut bye).map(|_| bye)
    }

    /// Whether answers to polls lack earlier packets, which may no longer pass the proxy.
    pub(super) fn may_be_off_path(&self) -> bool {
        self.epoch.doubtful || self.epoch.tail_declared >= SUSPICIOUS_TAIL
    }
}
