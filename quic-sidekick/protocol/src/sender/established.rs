//! A session that the proxy accepted (SPEC.md, sections 7.2 to 7.5).
//!
//! This file has the session's messages, epochs and polls; `quacks` reads reports, and `timeouts`
//! says when the sender speaks first.

pub(super) mod probe;
mod quacks;
mod timeouts;

use super::effects::{Bye, Context, Transition};
use super::error::HandleError;
use super::history::History;
use super::reconcile::Reconciler;
use super::rtt::NearRtt;
use super::status::{Assistance, Reason};
use crate::keys::{OpenError, Plain, PublicKey, Seal};
use crate::terms::Terms;
use crate::wire::{Accept, Datagram, Message, Poll, SEAL_LEN, SessionNumber};
use probe::{Backoff, Probe, SILENCE};
use std::time::{Duration, Instant};

/// Polls without an authentic answer before the sender believes that the session is unknown.
const DOUBT_POLLS: u32 = 3;
/// From the last poll of one doubt to the first of the next. Anyone can forge the claim, and each
/// doubt costs a poll. A restart right behind a false claim is noticed about as soon as a proxy
/// that falls silent.
const DOUBT_INTERVAL: Duration = SILENCE;
/// For so long a proxy may begin epochs by itself, none of whose quACKs decodes.
const UNASKED_LIMIT: Duration = Duration::from_secs(3);
/// After as many packets in a row that answers to polls lack, the path may have changed.
const SUSPICIOUS_TAIL: usize = 4;
/// The sender asks for no more sums, whatever the proxy keeps: they cost time to decode.
const MAX_SUMS: u8 = 128;

/// How many sums of those that a proxy keeps are of use.
fn usable_sums(accept: &Accept) -> u8 {
    accept.kept_sums.min(MAX_SUMS).max(accept.terms.threshold)
}

/// Whether an epoch comes after another; their numbers wrap.
fn is_ahead(epoch: u16, other: u16) -> bool {
    (1..1 << 15).contains(&epoch.wrapping_sub(other))
}

/// The claim, which anyone can forge, that the proxy does not hold the session.
#[derive(Debug)]
struct Doubt {
    /// When the next poll is due, or the sender believes the claim.
    until: Instant,
    /// Polls that are still to be sent.
    polls: u32,
}

/// What is known of an epoch.
#[derive(Debug)]
pub(super) struct Epoch {
    pub(super) number: u16,
    /// The sequence number of the message that began it.
    began: u32,
    /// The sequence number of its newest quACK.
    pub(super) sequence: Option<u32>,
    /// quACKs in a row that do not decode.
    undecodable: u32,
    /// When a quACK last reported a packet that was not known to have arrived; at first, when the
    /// epoch began.
    last_progress: Instant,
    /// Packets given up since then because an answer to a poll lacked them.
    tail_declared: usize,
    /// An answer to a poll lacked more packets than chance loses.
    doubtful: bool,
    probe: Probe,
    /// Sums that polls ask for because a quACK had too few; 0 if none had.
    wanted_sums: u8,
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
        }
    }
}

/// The sender and the proxy have a session.
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
    pub(super) near_rtt: NearRtt,
    pub(super) history: History,
    pub(super) reconciler: Reconciler,
    pub(super) epoch: Epoch,
    /// The sender asked for a new epoch, and believes no quACK of this one.
    renewing: Option<Backoff>,
    doubt: Option<Doubt>,
    /// Before this another doubt does not begin.
    next_doubt: Instant,
    last_heard: Instant,
    last_spoke: Instant,
    /// Epochs that the sender asked for since a quACK decoded.
    fruitless: u32,
    /// When the proxy began by itself the first of the epochs since a quACK decoded.
    unasked_since: Option<Instant>,
    /// A POLL that waits to be sent.
    pub(super) poll_waits: Option<Poll>,
    /// A NEW EPOCH waits to be sent.
    new_epoch_waits: bool,
}

impl Established {
    /// A session before its first epoch: [`Self::begin_epoch`] comes next.
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
            near_rtt,
            history,
            reconciler: Reconciler::default(),
            epoch: Epoch::new(0, 0, now),
            renewing: None,
            doubt: None,
            next_doubt: now,
            last_heard: now,
            last_spoke: now,
            fruitless: 0,
            unasked_since: None,
            poll_waits: None,
            new_epoch_waits: false,
        }
    }

    pub(super) fn on_sent(&mut self, tag: u64, identifier: u32, now: Instant) {
        if self.history.is_empty() {
            // Until now there was nothing to report.
            self.epoch.probe.progress();
            if self.epoch.tail_declared == 0 {
                self.epoch.last_progress = now;
            }
        }
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
                let mut plain = Plain::default();
                let message = match self.seal.open(sequence, ciphertext, &mut plain) {
                    Ok(message) => message,
                    Err(OpenError::Replay) => return Err(HandleError::Outdated),
                    Err(OpenError::Forged) => {
                        context.stats.forged += 1;
                        return Err(HandleError::Forged);
                    }
                    Err(OpenError::Malformed(error)) => {
                        context.stats.malformed += 1;
                        return Err(error.into());
                    }
                };
                self.on_message(message, sequence, len, context)
            }
            _ => Err(HandleError::OtherSession),
        }
    }

    /// An authentic message came, in a datagram of `len` bytes.
    pub(super) fn on_message(
        &mut self,
        message: Message<'_>,
        sequence: u32,
        len: usize,
        context: &mut Context<'_>,
    ) -> Result<(), HandleError> {
        self.doubt = None;
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
            Message::Poll(_) | Message::NewEpoch { .. } => {
                context.stats.malformed += 1;
                Err(HandleError::NotForSender)
            }
        }
    }

    /// The proxy, or someone else, claims not to hold the session. The proxy may refute the claim,
    /// once the claim before it is long enough ago.
    fn on_unknown(&mut self, context: &mut Context<'_>) -> Result<(), HandleError> {
        if self.doubt.is_some() {
            return Err(HandleError::Outdated);
        }
        self.doubt = Some(Doubt { until: self.next_doubt.max(context.now), polls: DOUBT_POLLS });
        self.on_doubt(context);
        Ok(())
    }

    /// Polls when the doubt's time has come, and believes the claim after the last poll.
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

    /// Begins an epoch, with the message of the sequence number `began`.
    pub(super) fn begin_epoch(&mut self, number: u16, began: u32, context: &mut Context<'_>) {
        self.epoch = Epoch::new(number, began, context.now);
        self.renewing = None;
        self.last_heard = context.now;
        self.new_epoch_waits = false;
        self.reconciler.begin(self.kept_sums);
        self.history.begin_epoch();
        context.stats.epochs += 1;
        // The first poll proves the sender's address to the proxy (SPEC.md, section 6.2).
        self.poll(context);
    }

    /// An epoch begins because the sender asked, or because the proxy lost packets.
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
            // One epoch may end before there is a quACK of it. That they do so for long is the
            // proxy's fault.
            let since = *self.unasked_since.get_or_insert(context.now);
            if context.now.saturating_duration_since(since) >= UNASKED_LIMIT {
                context.leave(Transition::Failed(Reason::Unintelligible));
                return Ok(());
            }
        }
        self.begin_epoch(number, sequence, context);
        Ok(())
    }

    /// Asks for a new epoch. The end-to-end mechanism finds the losses that this one leaves open.
    pub(super) fn renew(&mut self, now: Instant) {
        self.renewing = Some(Backoff::start(now, self.near_rtt.retry_interval()));
        self.last_spoke = now;
        self.fruitless += 1;
        self.new_epoch_waits = true;
    }

    /// Whether the sender waits for the epoch that it asked for.
    #[cfg(test)]
    pub(super) fn is_renewing(&self) -> bool {
        self.renewing.is_some()
    }

    /// Has a POLL wait to be sent.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) {
        let token = context.numbers.token();
        if self.seal.is_exhausted() {
            return context.leave(Transition::Exhausted);
        }
        self.epoch.probe.sent(token, context.now);
        self.last_spoke = context.now;
        let (epoch, sums) = (self.epoch.number, self.epoch.wanted_sums);
        self.poll_waits = Some(Poll { epoch, token, sums });
        context.stats.polls += 1;
    }

    /// Does what is due.
    pub(super) fn on_timeout(&mut self, context: &mut Context<'_>) {
        let now = context.now;
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if let Some(request) = self.renewing.as_mut().filter(|request| request.at <= now) {
            request.again(now);
            self.last_spoke = now;
            self.new_epoch_waits = true;
        }
        self.on_doubt(context);
        if context.has_left() {
            return;
        }
        if due(self.silent_at(context.config)) {
            // Without polls, a proxy that sees nothing says nothing.
            let blind = context.assistance != Assistance::Assisted && !context.config.poll;
            context.leave(if blind {
                Transition::Failed(Reason::NotOnPath)
            } else {
                Transition::Silent
            });
            return;
        }
        if due(self.probe_at(context.config)) || due(self.keep_alive_at()) {
            self.poll(context);
        }
    }

    /// Writes the message that waits to `out` and returns the datagram's length.
    pub(super) fn poll_transmit(&mut self, out: &mut [u8]) -> Option<usize> {
        let message = if std::mem::take(&mut self.new_epoch_waits) {
            Message::NewEpoch { epoch: self.epoch.number }
        } else {
            Message::Poll(self.poll_waits.take()?)
        };
        self.seal.seal(self.remote_number, &message, out)
    }

    /// A BYE for the proxy.
    pub(super) fn seal_bye(&mut self) -> Option<Bye> {
        let mut bye = [0; SEAL_LEN + 1];
        self.seal.seal(self.remote_number, &Message::Bye, &mut bye).map(|_| bye)
    }

    /// Whether answers to polls lack earlier packets, which may not pass the proxy any more.
    pub(super) fn is_losing_track(&self) -> bool {
        self.epoch.doubtful || self.epoch.tail_declared >= SUSPICIOUS_TAIL
    }
}
