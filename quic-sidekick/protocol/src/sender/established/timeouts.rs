//! When the sender of an established session speaks first (SPEC.md, sections 7.1 and 7.4).
//!
//! Every deadline is a pure function of the state, so none has to be kept in step with it.

use super::Established;
use crate::clock::{earlier, scale};
use crate::sender::SenderConfig;
use std::time::{Duration, Instant};

/// A proxy that stays silent for this long, although packets wait to be reported, is lost.
pub(in crate::sender) const SILENCE: Duration = Duration::from_secs(1);
/// The proxy forgets a session whose sender is silent for a minute.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// The longest interval between requests for a new epoch.
const LONGEST: Duration = Duration::from_secs(60);
/// Polls double their interval up to this power of two while nothing new is reported.
const MAX_DOUBLINGS: u32 = 10;

/// A request that the sender repeats with doubling intervals until it is answered.
#[derive(Debug)]
pub(super) struct Backoff {
    since: Instant,
    pub(super) at: Instant,
    interval: Duration,
}

impl Backoff {
    pub(super) fn start(now: Instant, interval: Duration) -> Self {
        Self { since: now, at: now + interval, interval }
    }

    pub(super) fn again(&mut self, now: Instant) {
        self.interval = (2 * self.interval).min(LONGEST);
        self.at = now + self.interval;
    }
}

/// The poll that waits for its answer, and how soon the next may follow.
#[derive(Debug, Default)]
pub(super) struct Probe {
    outstanding: Option<(u16, Instant)>,
    /// When the first poll was sent since the proxy was last heard.
    unheard_since: Option<Instant>,
    last_polled: Option<Instant>,
    doublings: u32,
    /// Polls since the last whose answer came before the next was sent.
    unanswered: u32,
}

impl Probe {
    pub(super) fn sent(&mut self, token: u16, now: Instant) {
        self.outstanding = Some((token, now));
        self.last_polled = Some(now);
        self.unheard_since.get_or_insert(now);
        self.doublings = (self.doublings + 1).min(MAX_DOUBLINGS);
        self.unanswered = self.unanswered.saturating_add(1);
    }

    pub(super) fn last_polled(&self) -> Option<Instant> {
        self.last_polled
    }

    /// A quACK came.
    pub(super) fn heard(&mut self) {
        self.unheard_since = None;
    }

    /// When the poll was sent that `token` answers.
    pub(super) fn answer(&mut self, token: u16) -> Option<Instant> {
        let (_, sent) = self.outstanding.take_if(|(waiting, _)| token != 0 && *waiting == token)?;
        self.unanswered = 0;
        Some(sent)
    }

    /// A quACK named a packet that was not known to have arrived.
    pub(super) fn progress(&mut self) {
        self.doublings = 0;
    }

    fn patience(&self, timeout: Duration) -> Duration {
        scale(timeout, 1 << self.doublings, 1)
    }

    /// How long the newest poll stands when its answer is to be timed. Reports do not shorten it:
    /// it has to outgrow a near RTT that nobody knows.
    fn measuring_interval(&self, retry_interval: Duration) -> Duration {
        scale(retry_interval, 1 << self.unanswered.saturating_sub(1).min(MAX_DOUBLINGS), 1)
            .min(SILENCE)
    }
}

impl Established {
    /// When [`Established::on_timeout`] is due.
    pub(in crate::sender) fn next_timeout(&self, config: &SenderConfig) -> Option<Instant> {
        [
            self.renewing.as_ref().map(|request| request.at),
            self.doubt.as_ref().map(|doubt| doubt.until),
            self.probe_at(config),
            self.silent_at(config),
            self.keep_alive_at(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// When to poll next.
    pub(super) fn probe_at(&self, config: &SenderConfig) -> Option<Instant> {
        if self.renewing.is_some() {
            return None;
        }
        let probe = &self.epoch.probe;
        let last_polled = probe.last_polled.unwrap_or(self.last_spoke);
        if self.epoch.sequence.is_none() || self.epoch.wanted_sums > 0 {
            // Without an answer to the first poll the proxy counts nothing; without one of more
            // sums the sender understands nothing more.
            return Some(last_polled + self.near_rtt.retry_interval());
        }
        if self.near_rtt.smoothed().is_none() {
            // Before the near RTT is measured, no loss can be timed. Another poll meanwhile would
            // only make the sender miss the answer to this one.
            return Some(last_polled + probe.measuring_interval(self.near_rtt.retry_interval()));
        }
        if !config.poll || self.history.is_empty() {
            return None;
        }
        // The last packet is unreported for a probe timeout; or a suspect's time is up, and the
        // proxy has the last word; or the proxy owes a quACK.
        let patience = probe.patience(self.near_rtt.probe_timeout());
        let tail = self.history.last_sent().map(|sent| sent + patience);
        let suspect = self.history.loss_deadline(self.near_rtt.loss_delay());
        let owed =
            self.owed_since().map(|(since, every)| since + every + self.near_rtt.loss_delay());
        let at = earlier(tail, earlier(suspect, owed))?;
        Some(probe.last_polled.map_or(at, |polled| at.max(polled + patience)))
    }

    /// When the proxy's timer began that leads to the next quACK, and its interval.
    fn owed_since(&self) -> Option<(Instant, Duration)> {
        let every = self.granted.every?;
        Some((self.last_heard.max(self.history.oldest()?), every))
    }

    /// When the sender gives up a silent proxy: a while after a request that it has not answered,
    /// or without polls after the first packet that it owes a report on.
    pub(super) fn silent_at(&self, config: &SenderConfig) -> Option<Instant> {
        let renewing = self.renewing.as_ref().map(|request| request.since);
        let asked = earlier(self.epoch.probe.unheard_since, renewing);
        let patience = SILENCE.max(self.near_rtt.retry_interval());
        let owed = self
            .owed_since()
            .filter(|_| !config.poll)
            .map(|(since, every)| since + patience.max(scale(every, 10, 1)));
        earlier(asked.map(|at| at + patience), owed)
    }

    /// When to poll so that the proxy keeps the session.
    pub(super) fn keep_alive_at(&self) -> Option<Instant> {
        let sent = self.history.last_sent().filter(|sent| *sent > self.last_spoke);
        sent.map(|_| self.last_spoke + KEEP_ALIVE)
    }
}
