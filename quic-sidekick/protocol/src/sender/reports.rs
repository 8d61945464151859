//! What the sender makes of a proxy's messages (SPEC.md, sections 7.2 to 7.5).

use super::contact::{Contact, Phase, SILENCE};
use super::reconcile::Outcome;
use super::rtt::Sample;
use super::timers::Probe;
use super::{Assistance, HandleError, Reason};
use crate::wire::{Accept, Quack, ShortQuack, low};
use std::time::{Duration, Instant};

/// quACKs in a row that do not decode before a new epoch is asked for.
const UNDECODABLE_LIMIT: u32 = 3;
/// New epochs in a row, none of whose quACKs can be decoded, before the proxy is given up.
const FRUITLESS_LIMIT: u32 = 3;
/// For so long a proxy may begin epochs by itself, none of whose quACKs can be decoded, before it
/// is given up.
const UNASKED_LIMIT: Duration = Duration::from_secs(3);
/// Packets that an answer to a poll may lack, one after the other, before their loss is doubted.
const TAIL_LIMIT: usize = 16;
/// Of these, as many are doubted when they take longer than [`SILENCE`].
const SLOW_TAIL_LIMIT: usize = 8;
/// After as many in a row it is time to look whether the path has changed.
pub(super) const SUSPICIOUS_TAIL: usize = 4;
/// More sums than this are not asked for, whatever the proxy keeps: they cost time to decode.
const MAX_SUMS: u8 = 128;

/// How many sums of those that a proxy keeps are of use.
pub(super) fn usable_sums(accept: &Accept) -> u8 {
    accept.kept_sums.min(MAX_SUMS).max(accept.terms.threshold)
}

/// Whether an epoch comes after another, in their numbers' turn.
fn is_ahead(epoch: u16, other: u16) -> bool {
    (1..1 << 15).contains(&epoch.wrapping_sub(other))
}

impl Contact {
    /// An epoch begins, since the session has, or because it was asked for.
    pub(super) fn begin_epoch(&mut self, epoch: u16, now: Instant) {
        let Phase::Joined(joined) = &mut self.phase else { return };
        joined.epoch = epoch;
        joined.renewing = None;
        joined.last_heard = now;
        joined.undecodable = 0;
        joined.last_progress = now;
        joined.tail_declared = 0;
        joined.doubtful = false;
        joined.probe = Probe::default();
        joined.sequence = None;
        joined.wanted_sums = 0;
        self.stats.epochs += 1;
        self.say_new_epoch = false;
        self.reconciler.begin(joined.kept_sums);
        self.history.begin_epoch();
        // The first proves to the proxy that it speaks to who asked (SPEC.md, section 6.2).
        self.poll(now);
    }

    /// An epoch that was asked for, or one that the proxy began by itself since packets were lost
    /// to it.
    pub(super) fn on_epoch(
        &mut self,
        epoch: u16,
        sequence: u32,
        now: Instant,
    ) -> Result<(), HandleError> {
        let Phase::Joined(joined) = &mut self.phase else { return Err(HandleError::Outdated) };
        // That of the session is repeated, or a late one.
        if !is_ahead(epoch, joined.epoch) {
            return Err(HandleError::Outdated);
        }
        if joined.renewing.is_none() {
            // An epoch that ends before there can be a quACK of it says nothing against the proxy;
            // epochs for long do.
            let since = *joined.unasked_since.get_or_insert(now);
            if now.saturating_duration_since(since) >= UNASKED_LIMIT {
                self.leave();
                self.lose(Reason::Unintelligible, now);
                return Ok(());
            }
        }
        joined.began = sequence;
        self.begin_epoch(epoch, now);
        Ok(())
    }

    /// The whole quACK that a short one stands for. Where that is not clear, since the epoch's
    /// first packet is not known or the last does not fit, the sender asks for a whole one, but not
    /// more often than an answer takes.
    pub(super) fn complete<'a>(
        &mut self,
        short: &ShortQuack<'a>,
        sequence: u32,
        now: Instant,
    ) -> Result<Quack<'a>, HandleError> {
        let Phase::Joined(joined) = &self.phase else { return Err(HandleError::Outdated) };
        if sequence < joined.began || joined.renewing.is_some() {
            return Err(HandleError::Outdated);
        }
        let whole = self.reconciler.aligned_count().and_then(|settled| {
            // A sender keeps less than 2^16 packets that are not settled.
            let more = u32::from(short.count.wrapping_sub(low(settled)));
            let last = self.history.ending(short.last, more, short.sums.len())?;
            let (epoch, count) = (joined.epoch, settled.wrapping_add(more));
            Some(Quack { epoch, token: 0, age_us: 0, first: 0, last, count, sums: short.sums })
        });
        if whole.is_none() {
            // Until the near RTT was measured, polls are under way that another would only get in
            // the way of.
            let asked =
                joined.probe.last_polled().map(|asked| asked + self.near_rtt.retry_interval());
            if self.near_rtt.smoothed().is_some() && asked.is_none_or(|again| again <= now) {
                self.poll(now);
            }
        }
        whole.ok_or(HandleError::Outdated)
    }

    /// Takes up a quACK that came in a datagram of `len` bytes.
    pub(super) fn on_quack(
        &mut self,
        quack: &Quack<'_>,
        sequence: u32,
        len: usize,
        now: Instant,
    ) -> Result<(), HandleError> {
        self.read_quack(quack, sequence, now)?;
        self.stats.quacks_received += 1;
        self.stats.quack_bytes += u64::try_from(len).unwrap_or(u64::MAX);
        Ok(())
    }

    fn read_quack(
        &mut self,
        quack: &Quack<'_>,
        sequence: u32,
        now: Instant,
    ) -> Result<(), HandleError> {
        if let Phase::Joined(joined) = &self.phase
            && joined.renewing.is_none()
            && is_ahead(quack.epoch, joined.epoch)
        {
            // What said so was lost. It is looked at before it changes anything.
            if self.reconciler.load(quack, joined.granted.threshold.into()).is_err() {
                self.stats.malformed += 1;
                return Err(HandleError::Impossible);
            }
            self.on_epoch(quack.epoch, sequence, now)?;
        }
        let grace = self.grace();
        let Phase::Joined(joined) = &mut self.phase else { return Err(HandleError::Outdated) };
        let newer = joined.sequence.is_none_or(|known| sequence > known);
        if quack.epoch != joined.epoch || joined.renewing.is_some() || !newer {
            return Err(HandleError::Outdated);
        }
        // Sums that were not asked for only cost time.
        let most = joined.granted.threshold.max(joined.wanted_sums);
        if self.reconciler.load(quack, most.into()).is_err() {
            self.stats.malformed += 1;
            return Err(HandleError::Impossible);
        }
        joined.sequence = Some(sequence);
        joined.last_heard = now;
        joined.probe.heard();
        let answered = joined.probe.answer(quack.token);
        if let Some(polled_at) = answered {
            self.near_rtt.sample(Sample::Answer(now.saturating_duration_since(polled_at)), now);
        }
        let loaded = self.reconciler.loaded();
        if quack.count == 0 {
            self.last_quack = Some(loaded);
            if let Some(polled_at) = answered {
                self.before_epoch(polled_at, now);
            }
            return Ok(());
        }
        let times = (grace, self.near_rtt.overtaking());
        let outcome =
            self.reconciler.reconcile(&mut self.history, quack.first, quack.last, times, now);
        self.last_quack =
            Some(loaded.with(outcome, self.reconciler.settled_count(), self.history.horizon));
        match outcome {
            Outcome::Decoded { last_sent } => {
                joined.undecodable = 0;
                joined.fruitless = 0;
                joined.unasked_since = None;
                joined.wanted_sums = 0;
                if let Some(sent) = last_sent {
                    joined.probe.progress();
                    joined.last_progress = now;
                    joined.tail_declared = 0;
                    joined.doubtful = false;
                    let age = Duration::from_micros(quack.age_us.into());
                    self.near_rtt
                        .sample(Sample::Report(now.saturating_duration_since(sent), age), now);
                }
                self.assistance = Assistance::Assisted;
                self.failures = 0;
                self.missed = false;
                if let Some(polled_at) = answered {
                    self.tail(polled_at, now);
                }
                self.declare(grace, now);
            }
            Outcome::TooMany { missing } => {
                self.stats.undecodable += 1;
                let all = joined.kept_sums;
                let in_vain = joined.wanted_sums > 0 && answered.is_some();
                if missing > u32::from(all) || in_vain || !self.config.poll {
                    self.renew_or_give_up(now);
                } else if joined.wanted_sums == 0 {
                    joined.wanted_sums = all;
                    self.poll(now);
                }
            }
            Outcome::Misaligned => {
                self.stats.undecodable += 1;
                joined.undecodable += 1;
                if joined.undecodable >= UNDECODABLE_LIMIT {
                    self.renew_or_give_up(now);
                }
            }
        }
        Ok(())
    }

    /// An epoch is of no more use. When several in a row never were, neither is the proxy.
    fn renew_or_give_up(&mut self, now: Instant) {
        match &self.phase {
            Phase::Joined(joined) if joined.fruitless >= FRUITLESS_LIMIT => {
                self.leave();
                self.lose(Reason::Unintelligible, now);
            }
            _ => self.renew(now),
        }
    }

    /// So many packets in a row are not lost by chance. Either the proxy is slow to take them in,
    /// or they do not pass by it (any more).
    fn doubt(&mut self, now: Instant) {
        let Phase::Joined(joined) = &mut self.phase else { return };
        joined.doubtful = true;
        if now.saturating_duration_since(joined.last_progress) >= SILENCE {
            self.leave();
            self.lose(Reason::NotOnPath, now);
        }
    }

    /// The answer to a poll knew of no packet. What was sent a probe timeout before the poll had
    /// passed when the epoch began, or is lost, or does not pass by the proxy. The end-to-end
    /// mechanism knows what to do about each.
    fn before_epoch(&mut self, polled_at: Instant, now: Instant) {
        let Phase::Joined(joined) = &mut self.phase else { return };
        let Some(until) = polled_at.checked_sub(self.near_rtt.probe_timeout()) else { return };
        joined.tail_declared += self.history.forget_until(until);
        if joined.tail_declared > SLOW_TAIL_LIMIT {
            self.doubt(now);
        }
    }

    /// What a poll's answer did not name, although it was sent a probe timeout before the poll, was
    /// lost (SPEC.md, section 7.4).
    fn tail(&mut self, polled_at: Instant, now: Instant) {
        let Phase::Joined(joined) = &mut self.phase else { return };
        let Some(until) = polled_at.checked_sub(self.near_rtt.probe_timeout()) else { return };
        let tail = joined.tail_declared + self.history.unseen_until(until);
        let slow = now.saturating_duration_since(joined.last_progress) >= SILENCE;
        if tail > TAIL_LIMIT || slow && tail > SLOW_TAIL_LIMIT {
            self.doubt(now);
        } else {
            joined.tail_declared = tail;
            self.history.mark_tail(until);
        }
    }

    /// How long a packet that was given up may still turn up in the proxy's sums.
    fn grace(&self) -> Duration {
        let every = self.granted().and_then(|granted| granted.every).unwrap_or_default();
        4 * self.near_rtt.loss_delay() + 3 * every
    }

    /// Declares lost what has waited long enough (SPEC.md, section 7.3).
    fn declare(&mut self, grace: Duration, now: Instant) {
        let before = self.lost.len();
        let patience = (self.config.packet_threshold, self.near_rtt.loss_delay());
        self.history.take_lost(now, patience, grace, &mut self.lost);
        self.stats.early_lost += u64::try_from(self.lost.len() - before).unwrap_or(0);
    }
}
