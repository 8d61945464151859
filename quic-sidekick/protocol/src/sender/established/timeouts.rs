//! When the sender of an established session speaks first (SPEC.md, sections 7.1 and 7.4).
//!
//! Every deadline is a pure function of the state, so none has to be kept in step with it.

use super::Established;
use super::probe::SILENCE;
use crate::clock::{earlier, scale};
use crate::sender::config::SenderConfig;
use std::time::{Duration, Instant};

/// The proxy forgets a session whose sender is silent for a minute.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
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
