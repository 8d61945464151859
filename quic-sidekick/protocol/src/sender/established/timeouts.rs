//! The deadlines of an established session (SPEC.md, sections 7.1 and 7.4).
//!
//! Every deadline is a pure function of the state, so none can become stale.

use super::Established;
use super::probe::SILENCE;
use super::schedule::FRUGAL_MOST;
use crate::clock::{earlier, scale};
use crate::sender::config::SenderConfig;
use std::num::NonZeroU16;
use std::time::{Duration, Instant};

/// A session on a silent first link ends after this time, whatever the second one shows.
const LONGEST_SILENCE: Duration = Duration::from_secs(60);
/// The longest silence of the sender. The proxy ends a session after a minute of silence.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// If the proxy's own timer for a quACK is at most this long, the sender waits for that quACK. It
/// then does not poll after each lone packet.
pub(super) const SOON: Duration = Duration::from_millis(1);

impl Established {
    /// When [`Established::on_timeout`] is due.
    pub(in crate::sender) fn next_timeout(&self, config: &SenderConfig) -> Option<Instant> {
        [
            self.renewing.as_ref().map(|request| request.at),
            self.doubt.as_ref().map(|doubt| doubt.until),
            self.probe_at(config),
            self.silent_at(config),
            self.keep_alive_at(),
            self.measure_at(config),
            self.schedule_at(config),
            self.keeping.next_timeout(),
            self.parity_at(),
            self.second_link_at(),
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
        let last_polled = probe.last_polled.unwrap_or(self.last_message_at);
        if self.epoch.sequence.is_none() || self.epoch.wanted_sums > 0 {
            // The proxy counts nothing before the first poll arrives. After a quACK with too few
            // sums, none decodes before one with more.
            return Some(last_polled + self.near_rtt.retry_interval());
        }
        if self.near_rtt.smoothed().is_none() {
            // Before the near RTT is measured, the sender cannot time losses. More polls would only
            // displace the outstanding ones.
            return Some(last_polled + probe.measuring_interval(self.near_rtt.retry_interval()));
        }
        if !config.poll || self.history.is_empty() {
            return None;
        }
        // Poll when the last packet is unreported for a probe timeout, or a quACK is overdue. Poll
        // also when a suspect is due to be declared lost, because the proxy may still report it.
        let timeout = self.near_rtt.probe_timeout();
        let wait = probe.wait(timeout);
        let briefly = timeout.min(SOON);
        let scheduled = self.granted.every.filter(|every| *every <= briefly).unwrap_or_default();
        let soon = self.poll_delay().unwrap_or(scheduled + wait);
        let awaited = self.awaited_since().filter(|_| !self.is_frugal(config));
        let tail = awaited.map(|sent| sent + soon.min(scheduled + wait));
        let suspect = self.history.loss_deadline(self.near_rtt.loss_delay());
        // A flow may become faster than when its interval was chosen.
        let crowd = self.history.nth(FRUGAL_MOST).filter(|_| self.is_frugal(config));
        let owed =
            self.owed_since().map(|(since, every)| since + every + self.near_rtt.loss_delay());
        let at = earlier(earlier(tail, crowd), earlier(suspect, owed))?;
        Some(probe.last_polled.map_or(at, |polled| at.max(polled + wait)))
    }

    /// When the proxy's timer for the next quACK began, and its interval. Without a timer, the
    /// quACK leaves as soon as the agreed number of packets is unreported.
    fn owed_since(&self) -> Option<(Instant, Duration)> {
        let is_steady = self.scheduling.watches();
        if let Some(every) = self.every().filter(|_| !is_steady) {
            return Some((self.last_quack_at.max(self.history.oldest()?), every));
        }
        let terms = self.granted.every_packets.map_or(0, NonZeroU16::get);
        let watched = if is_steady { self.scheduling.watched_packets() } else { 0 };
        let last = self.history.nth(terms.max(watched).checked_sub(1)?)?;
        Some((self.last_quack_at.max(last), Duration::ZERO))
    }

    /// When the sender gives up a silent proxy: some time after a request without an answer. A
    /// sender that does not poll gives up some time after a report is overdue.
    pub(super) fn silent_at(&self, config: &SenderConfig) -> Option<Instant> {
        let renewing = self.renewing.as_ref().map(|request| request.since);
        let asked = earlier(self.epoch.probe.silent_since, renewing);
        let patience = SILENCE.max(self.near_rtt.retry_interval());
        // The proxy never reports lost packets. So without polls, its silence is conclusive only if
        // it sends timed quACKs, or reports overdue packets.
        let is_conclusive = self.every().is_some() || self.scheduling.watches();
        let owed = self
            .owed_since()
            .filter(|_| !config.poll && is_conclusive)
            .map(|(since, every)| since + patience.max(scale(every, 10, 1)));
        // While the second link shows that the proxy is there, only the first one is silent.
        let silent = earlier(asked.map(|at| at + patience), owed)?;
        let until = self.second.linked_until().map_or(silent, |until| until + patience);
        Some(silent.max(until).min(silent + LONGEST_SILENCE))
    }

    /// When to poll for a sample of the near RTT, while the reverse flow has datagrams.
    pub(super) fn measure_at(&self, config: &SenderConfig) -> Option<Instant> {
        self.near_rtt.smoothed()?;
        let polled = self.epoch.probe.last_polled;
        if self.keeping.awaits_samples() {
            // Reports of the flow's own packets must not postpone this.
            return Some(polled? + self.near_rtt.probe_timeout());
        }
        let last = self.near_rtt.sampled().max(polled)?;
        self.keeping.measure_at(last, config.is_frugal_after().is_some())
    }

    /// When to poll so that the proxy keeps the session.
    pub(super) fn keep_alive_at(&self) -> Option<Instant> {
        let sent = self.history.last_sent().filter(|sent| *sent > self.last_message_at);
        sent.map(|_| self.last_message_at + KEEP_ALIVE)
    }
}

/// The near segment counts as lossy for this time after a packet is declared lost.
const LOSSY: Duration = Duration::from_secs(10);
/// The most packets that count as lone: a message may fill two.
const MOST: usize = 2;

/// The state for lone packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lone {
    /// The identifier of the latest packet that was sent while the log was empty. `None` unless the
    /// packet before it left at least a near RTT earlier.
    first: Option<u32>,
    /// When a packet was last declared lost. `None` if the proxy has reported such a packet since.
    lost_at: Option<Instant>,
}

impl Established {
    /// Records a packet that is sent while the log is empty.
    pub(super) fn note_lone(&mut self, identifier: u32, now: Instant) {
        let near_rtt = self.near_rtt.smoothed().map(|_| self.near_rtt.rough());
        let is_apart = near_rtt
            .zip(self.history.last_sent())
            .is_some_and(|(near_rtt, sent)| sent + near_rtt <= now);
        self.lone.first = is_apart.then_some(identifier);
    }

    /// Records that a packet was declared lost.
    pub(super) fn note_loss(&mut self, now: Instant) {
        self.lone.lost_at = Some(now);
    }

    /// Records that the proxy reported a packet that had been declared lost.
    pub(super) fn note_false_loss(&mut self) {
        self.lone.lost_at = None;
    }

    /// The time from the latest packet to a poll, if the packets of the log are lone. A POLL this
    /// long after a packet does not overtake it.
    pub(super) fn poll_delay(&self) -> Option<Duration> {
        let pending = &self.history.pending;
        let first = pending.front()?.identifier;
        let is_lossy = self.lone.lost_at.zip(self.history.last_sent());
        let is_lossy = is_lossy.is_some_and(|(lost, latest)| latest < lost + LOSSY);
        if !is_lossy || self.lone.first != Some(first) || pending.len() > MOST {
            return None;
        }
        // The proxy reports some packets by itself.
        let terms = &self.granted;
        let is_reported =
            terms.every_packets.is_some_and(|n| usize::from(n.get()) <= pending.len())
                || terms.every.is_some_and(|every| every <= SOON)
                || self.scheduling.watches();
        let delay = self.near_rtt.overtaking_by_jitter().filter(|_| !is_reported)?;
        Some(delay.min(self.near_rtt.probe_timeout()))
    }
}
