//! Reading of quACKs (SPEC.md, sections 7.2 to 7.4).

use super::probe::{SILENCE, Sent};
use super::{Established, is_ahead};
use crate::sender::effects::{Context, Transition};
use crate::sender::history::LossRule;
use crate::sender::last_quack::Outcome;
use crate::sender::reconcile::Window;
use crate::sender::rtt::Sample;
use crate::sender::status::{Assistance, HandleError, Reason};
use crate::wire::{FIRST_EPOCH, Quack, ShortQuack, low};
use std::time::{Duration, Instant};

/// Consecutive quACKs that do not decode before the sender requests a new epoch.
const UNDECODABLE_LIMIT: u32 = 3;
/// Consecutive new epochs without a quACK that decodes before the sender gives up the proxy.
const FRUITLESS_LIMIT: u32 = 3;
/// The most consecutive packets that answers to polls may lack before the sender doubts that the
/// flow passes the proxy.
const TAIL_LIMIT: usize = 16;
/// The same limit if the latest progress is [`SILENCE`] ago.
const SLOW_TAIL_LIMIT: usize = 8;

impl Established {
    /// Completes a short quACK. The sender polls for a whole quACK if the epoch's first packet is
    /// unknown, or the sums suffice for no match of the last packet. It does so at most once per
    /// retry interval.
    pub(super) fn complete<'a>(
        &mut self,
        short: &ShortQuack<'a>,
        sequence: u32,
        context: &mut Context<'_>,
    ) -> Result<Quack<'a>, HandleError> {
        if sequence < self.epoch.began || self.renewing.is_some() {
            return Err(HandleError::Outdated);
        }
        let whole = self.reconciler.aligned_count().and_then(|settled| {
            // A sender keeps fewer than 2^16 unsettled packets.
            let more = u32::from(short.count.wrapping_sub(low(settled)));
            let lead = self.reconciler.lead();
            let last = self.history.ending(short.last, more, short.sums.len(), lead)?;
            let (epoch, count) = (self.epoch.number, settled.wrapping_add(more));
            Some(Quack { epoch, token: 0, age_us: 0, first: 0, last, count, sums: short.sums })
        });
        if whole.is_none() {
            // Until the near RTT is measured, other polls are due at an interval of their own.
            let interval = self.near_rtt.retry_interval();
            let again = self.epoch.probe.last_polled.map(|sent| sent + interval);
            let measured = self.near_rtt.smoothed().is_some();
            if measured && again.is_none_or(|again| again <= context.now) {
                self.poll(context);
            }
        }
        whole.ok_or(HandleError::Outdated)
    }

    /// Handles a quACK from a datagram of `len` bytes.
    pub(super) fn on_quack(
        &mut self,
        quack: &Quack<'_>,
        sequence: u32,
        len: usize,
        context: &mut Context<'_>,
    ) -> Result<(), HandleError> {
        self.follow_epoch(quack, sequence, context)?;
        let grace = self.grace();
        let answered = self.load(quack, sequence, context)?;
        if quack.count == 0 {
            context.effects.quack = Some(self.reconciler.loaded());
            if let Some(poll) = answered {
                self.on_empty_answer(poll.at, context);
            }
            // A proxy does not report drops before the first packet of a later epoch.
            if quack.epoch == FIRST_EPOCH {
                self.reconciler.on_empty(context.now);
            }
        } else {
            self.reconcile(quack, answered, grace, context);
        }
        context.stats.quacks_received += 1;
        context.stats.quack_bytes += u64::try_from(len).unwrap_or(u64::MAX);
        Ok(())
    }

    /// Begins the epoch of a quACK whose EPOCH message was lost.
    fn follow_epoch(
        &mut self,
        quack: &Quack<'_>,
        sequence: u32,
        context: &mut Context<'_>,
    ) -> Result<(), HandleError> {
        if self.renewing.is_some() || !is_ahead(quack.epoch, self.epoch.number) {
            return Ok(());
        }
        // Validate the quACK before it changes anything.
        if self.reconciler.load(quack, self.granted.threshold.into()).is_err() {
            context.stats.malformed += 1;
            return Err(HandleError::Impossible);
        }
        self.on_epoch(quack.epoch, sequence, context)?;
        if context.has_left() { Err(HandleError::Outdated) } else { Ok(()) }
    }

    /// Loads a quACK of this epoch, and returns the poll that it answers, if any.
    fn load(
        &mut self,
        quack: &Quack<'_>,
        sequence: u32,
        context: &mut Context<'_>,
    ) -> Result<Option<Sent>, HandleError> {
        let newer = self.epoch.sequence.is_none_or(|known| sequence > known);
        if quack.epoch != self.epoch.number || self.renewing.is_some() || !newer {
            return Err(HandleError::Outdated);
        }
        // Ignore sums that the sender did not request: they only cost time.
        let most = self.granted.threshold.max(self.epoch.wanted_sums);
        if self.reconciler.load(quack, most.into()).is_err() {
            context.stats.malformed += 1;
            return Err(HandleError::Impossible);
        }
        context.effects.received.clear();
        self.epoch.sequence = Some(sequence);
        self.last_quack_at = context.now;
        self.epoch.probe.on_quack();
        let answered = self.epoch.probe.answer(quack.token);
        if let Some(poll) = answered {
            context.stats.polls_answered += 1;
            let time = context.now.saturating_duration_since(poll.at);
            self.near_rtt.sample(Sample::Answer(time), context.now);
            self.note_sample(context);
            self.scheduling.answered(quack.token);
        }
        Ok(answered)
    }

    /// Decodes the loaded quACK against the packets sent.
    fn reconcile(
        &mut self,
        quack: &Quack<'_>,
        answered: Option<Sent>,
        grace: Duration,
        context: &mut Context<'_>,
    ) {
        let loaded = self.reconciler.loaded();
        let window = Window {
            first: quack.first,
            last: quack.last,
            grace,
            overtaking: self.near_rtt.overtaking(),
        };
        let received = &mut context.effects.received;
        let outcome = self.reconciler.reconcile(&mut self.history, &window, received, context.now);
        let turned_up = self.reconciler.take_turned_up(&mut context.effects.turned_up);
        context.stats.turned_up += turned_up;
        if turned_up > 0 {
            self.note_false_loss();
        }
        let settled = self.reconciler.settled_count();
        context.effects.quack = Some(loaded.with(outcome, settled, self.history.suspects));
        match outcome {
            Outcome::Decoded { last_sent } => {
                self.reconciler.adopt(quack);
                self.on_decoded(quack, last_sent, context.now);
                context.effects.reported = context.effects.reported.max(last_sent);
                context.effects.assistance = Some(Assistance::Assisted);
                match answered {
                    Some(poll) => self.on_answer(poll, context),
                    None => self.on_silence(quack, context),
                }
                let is_suspicious = self.history.suspects > 0;
                let is_lossy = !context.has_left() && self.declare_lost(grace, context) > 0;
                if is_suspicious || is_lossy {
                    self.scheduling.return_to_terms();
                } else {
                    self.note_quiet(quack.count, context.config, context.now);
                }
                self.forget_unexpected();
                if context.config.poll && !context.has_left() && self.reconciler.take_due() {
                    self.poll(context);
                }
            }
            Outcome::TooMany { missing } => {
                self.scheduling.return_to_terms();
                context.stats.undecodable += 1;
                let all = self.kept_sums;
                let in_vain = self.epoch.wanted_sums > 0 && answered.is_some();
                if missing > u32::from(all) || in_vain || !context.config.poll {
                    self.renew_or_give_up(context);
                } else if self.epoch.wanted_sums == 0 {
                    self.epoch.wanted_sums = all;
                    self.poll(context);
                }
            }
            Outcome::Misaligned => {
                self.scheduling.return_to_terms();
                context.stats.undecodable += 1;
                self.epoch.undecodable += 1;
                if self.epoch.undecodable >= UNDECODABLE_LIMIT {
                    self.renew_or_give_up(context);
                }
            }
        }
    }

    /// Records that a quACK decoded. `last_sent`: when its last packet was sent, if this is its
    /// first report.
    fn on_decoded(&mut self, quack: &Quack<'_>, last_sent: Option<Instant>, now: Instant) {
        self.fruitless = 0;
        self.unasked_since = None;
        self.epoch.undecodable = 0;
        self.epoch.wanted_sums = 0;
        if let Some(sent) = last_sent {
            self.epoch.probe.on_progress();
            self.epoch.steady.on_progress(quack.last, sent);
            self.epoch.last_progress = now;
            self.epoch.tail_declared = 0;
            self.epoch.doubtful = false;
            let age = Duration::from_micros(quack.age_us.into());
            let time = now.saturating_duration_since(sent);
            self.near_rtt.sample(Sample::Report(time, age), now);
        }
    }

    /// Requests a new epoch. After several in a row without success, the sender gives up the proxy.
    fn renew_or_give_up(&mut self, context: &mut Context<'_>) {
        if self.fruitless >= FRUITLESS_LIMIT {
            context.leave(Transition::Failed(Reason::Unintelligible));
        } else {
            self.renew(context.now);
        }
    }

    /// Records that more consecutive packets are missing than random loss explains. Either the
    /// proxy is slow, or the packets do not pass it.
    fn doubt_path(&mut self, context: &mut Context<'_>) {
        self.epoch.doubtful = true;
        if self.is_without_progress(context.now) {
            context.leave(Transition::Failed(Reason::NotOnPath));
        }
    }

    fn is_without_progress(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.epoch.last_progress) >= SILENCE
    }

    /// Handles an answer to a poll that reports no packet. Packets sent at least a probe timeout
    /// before the poll passed before the epoch began, are lost, or do not pass the proxy. The
    /// end-to-end mechanism covers all three cases.
    fn on_empty_answer(&mut self, polled_at: Instant, context: &mut Context<'_>) {
        let Some(until) = polled_at.checked_sub(self.near_rtt.probe_timeout()) else { return };
        self.epoch.tail_declared += self.history.forget_until(until);
        if self.epoch.tail_declared > SLOW_TAIL_LIMIT {
            self.doubt_path(context);
        }
    }

    /// Handles an answer to a poll that decoded. A packet that it lacks is lost if it left at least
    /// a probe timeout before the poll. For lone packets a shorter time is enough (SPEC.md, section
    /// 7.4).
    fn on_answer(&mut self, poll: Sent, context: &mut Context<'_>) {
        let delay = poll.delay.unwrap_or_else(|| self.near_rtt.probe_timeout());
        if let Some(until) = poll.at.checked_sub(delay) {
            self.declare_tail(until, context);
        }
    }

    /// Marks the unreported packets sent by `until` as overdue, because a sufficiently late quACK
    /// lacks them. If too many consecutive packets are missing, the sender doubts the path instead.
    pub(super) fn declare_tail(&mut self, until: Instant, context: &mut Context<'_>) {
        let tail = self.epoch.tail_declared + self.history.unseen_until(until);
        let slow = self.is_without_progress(context.now);
        if tail > TAIL_LIMIT || slow && tail > SLOW_TAIL_LIMIT {
            self.doubt_path(context);
        } else {
            self.epoch.tail_declared = tail;
            self.history.mark_tail(until);
        }
    }

    /// How long the proxy may still report a packet that was declared lost.
    fn grace(&self) -> Duration {
        4 * self.near_rtt.loss_delay()
            + 3 * self.every().unwrap_or_default()
            + self.scheduling.grace()
    }

    /// Declares packets lost by the rules of SPEC.md, section 7.3, and overdue ones. Returns their
    /// number.
    fn declare_lost(&mut self, grace: Duration, context: &mut Context<'_>) -> usize {
        let rule = LossRule {
            packet_threshold: context.config.packet_threshold,
            delay: self.near_rtt.loss_delay(),
            grace,
        };
        let lost = &mut context.effects.lost;
        let before = lost.len();
        self.history.declare_lost(&rule, context.now, lost);
        let more = lost.len() - before;
        if more > 0 {
            self.note_loss(context.now);
        }
        context.stats.early_lost += u64::try_from(more).unwrap_or(0);
        more
    }
}
