//! When the sender speaks without being spoken to (SPEC.md, sections 7.1 and 7.4).

use super::contact::{Contact, KEEP_ALIVE, Origin, Phase, SILENCE};
use super::{Assistance, Reason};
use crate::clock::{earlier, scale};
use std::time::{Duration, Instant};

/// HELLOs in a row before the sender says that nobody answers.
pub(super) const HELLO_ATTEMPTS: u32 = 6;
/// The first HELLO is repeated after this long, the next after twice as long, and so on, while the
/// near RTT is not known.
const HELLO_INTERVAL: Duration = Duration::from_millis(50);
/// HELLOs to a proxy whose near RTT is known that are repeated at equal intervals: it is there, and
/// messages are lost.
pub(super) const QUICK_HELLOS: u32 = 6;
/// How long to leave a proxy alone that went away, refused or does not see the flow; twice as long
/// each time.
const RETURN: Duration = Duration::from_secs(2);
/// The longest interval between HELLOs.
const HELLO_MAX: Duration = Duration::from_secs(60);
/// The longest interval between HELLOs and between markers to a proxy that is missed.
const MISSED_MAX: Duration = Duration::from_millis(800);
/// How many of these: half a minute, in which a proxy that was only restarted is back.
const MISSED_ATTEMPTS: u32 = 40;
/// Polls double their interval up to this power of two while nothing new is reported.
const MAX_DOUBLINGS: u32 = 10;

/// How long to leave a proxy alone after it has failed so many times before.
pub(super) fn return_after(failures: u32) -> Duration {
    scale(RETURN, 1 << failures.min(8), 1).min(HELLO_MAX)
}

/// The interval before the next HELLO or marker, after `attempts`, when the first interval is
/// `first`. `missed`: a proxy had reported, and fell silent.
pub(super) fn seeking_interval(first: Duration, attempts: u32, missed: bool) -> Duration {
    let most = if missed && attempts < MISSED_ATTEMPTS { MISSED_MAX } else { HELLO_MAX };
    scale(first, 1 << attempts.min(11), 1).min(most)
}

/// A request that is repeated with doubling intervals until it is answered.
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

    fn again(&mut self, now: Instant) {
        self.interval = (2 * self.interval).min(HELLO_MAX);
        self.at = now + self.interval;
    }
}

/// The poll that is out, and how patient to be with the next.
#[derive(Debug, Default)]
pub(super) struct Probe {
    outstanding: Option<(u16, Instant)>,
    /// When the first poll left that nothing was heard after.
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

    /// The proxy has said something.
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

impl Contact {
    /// When [`Contact::on_timeout`] wants to be called.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Off => None,
            Phase::Seeking { retry_at, .. } => Some(*retry_at),
            Phase::Joined(joined) => {
                let asked = joined.renewing.as_ref().map(|request| request.at);
                let due = earlier(
                    earlier(asked, joined.doubt.as_ref().map(|doubt| doubt.until)),
                    self.probe_at(),
                );
                earlier(due, earlier(self.silent_at(), self.keep_alive_at()))
            }
        }
    }

    /// When to poll next.
    fn probe_at(&self) -> Option<Instant> {
        let Phase::Joined(joined) = &self.phase else { return None };
        if joined.renewing.is_some() {
            return None;
        }
        let patience = joined.probe.patience(self.near_rtt.probe_timeout());
        let again = joined.probe.last_polled.map(|sent| sent + patience);
        if joined.sequence.is_none() || joined.wanted_sums > 0 {
            // The first poll proves the sender's address: without its answer nothing is counted.
            // And without an answer of more sums, nothing more is understood.
            let soon = self.near_rtt.retry_interval();
            return Some(joined.probe.last_polled.unwrap_or(joined.last_said) + soon);
        }
        if self.near_rtt.smoothed().is_none() {
            // No loss can be timed, nor the near segment's share of the path be told, before an
            // answer was. Another poll meanwhile would only make the sender miss the answer to this
            // one.
            let interval = joined.probe.measuring_interval(self.near_rtt.retry_interval());
            return Some(joined.probe.last_polled.unwrap_or(joined.last_said) + interval);
        }
        if !self.config.poll || self.history.is_empty() {
            return None;
        }
        // The last packet is unreported for a probe timeout; or a suspect's time is up, and the
        // proxy has the last word; or the proxy owes a quACK.
        let tail = self.last_sent.map(|sent| sent + patience);
        let suspect = self.history.loss_deadline(self.near_rtt.loss_delay());
        let owed =
            joined.granted.every.zip(self.history.oldest()).map(|(every, sent)| {
                joined.last_heard.max(sent) + every + self.near_rtt.loss_delay()
            });
        let at = earlier(tail, earlier(suspect, owed))?;
        Some(again.map_or(at, |again| again.max(at)))
    }

    /// When a silent proxy is given up: a while after a request that it has not answered, or
    /// without polls after the first packet that it owes a report on.
    fn silent_at(&self) -> Option<Instant> {
        let Phase::Joined(joined) = &self.phase else { return None };
        let asked = earlier(
            joined.probe.unheard_since,
            joined.renewing.as_ref().map(|request| request.since),
        );
        let patience = SILENCE.max(self.near_rtt.retry_interval());
        let owed =
            joined.granted.every.zip(self.history.oldest()).filter(|_| !self.config.poll).map(
                |(every, sent)| joined.last_heard.max(sent) + patience.max(scale(every, 10, 1)),
            );
        earlier(asked.map(|at| at + patience), owed)
    }

    fn keep_alive_at(&self) -> Option<Instant> {
        let Phase::Joined(joined) = &self.phase else { return None };
        self.last_sent
            .filter(|sent| *sent > joined.last_said)
            .map(|_| joined.last_said + KEEP_ALIVE)
    }

    /// How long the answer to a first HELLO may take.
    pub(super) fn hello_interval(&self) -> Duration {
        if self.near_rtt.is_known_roughly() {
            self.near_rtt.retry_interval()
        } else {
            HELLO_INTERVAL
        }
    }

    /// How many HELLOs go out before their intervals double: none to a proxy that has not answered
    /// yet.
    fn quick_hellos(&self) -> u32 {
        if self.near_rtt.is_known_roughly() { QUICK_HELLOS } else { 0 }
    }

    /// Does what is due at `now`.
    pub(super) fn on_timeout(&mut self, now: Instant) {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let (first, quick) = (self.hello_interval(), self.quick_hellos());
        match &mut self.phase {
            Phase::Off => {}
            Phase::Seeking { attempts, retry_at, handshake, .. } => {
                if *retry_at > now {
                    return;
                }
                if *attempts >= HELLO_ATTEMPTS + quick && self.origin != Origin::Configured {
                    // Another may answer the next marker.
                    self.lose(Reason::NoAnswer, now);
                    return;
                }
                if *attempts >= HELLO_ATTEMPTS + quick && self.assistance == Assistance::Seeking {
                    self.assistance = Assistance::Unassisted(Reason::NoAnswer);
                }
                *retry_at =
                    now + seeking_interval(first, attempts.saturating_sub(quick), self.missed);
                *attempts = attempts.saturating_add(1);
                // Only packets sent from here on can be the first of an epoch.
                if *attempts > HELLO_ATTEMPTS + quick || *attempts == 1 {
                    self.history.clear();
                }
                self.hello_sent = Some(now);
                self.say_hello = true;
                if handshake.is_none() {
                    let begun = self.begin_handshake();
                    if let Phase::Seeking { handshake, .. } = &mut self.phase {
                        *handshake = begun;
                    }
                }
            }
            Phase::Joined(joined) => {
                if let Some(request) = joined.renewing.as_mut().filter(|request| request.at <= now)
                {
                    request.again(now);
                    joined.last_said = now;
                    self.say_new_epoch = true;
                }
                self.on_doubt(now);
                let Phase::Joined(_) = &self.phase else { return };
                if due(self.silent_at()) {
                    self.leave();
                    // Without polls, a proxy that sees nothing says nothing.
                    if self.assistance != Assistance::Assisted && !self.config.poll {
                        self.lose(Reason::NotOnPath, now);
                    } else {
                        self.missed |= self.assistance == Assistance::Assisted;
                        self.assistance = Assistance::Unassisted(Reason::ProxyLost);
                        // If it was only restarted, it is back now.
                        self.seek(now);
                    }
                    return;
                }
                if due(self.probe_at()) || due(self.keep_alive_at()) {
                    self.poll(now);
                }
            }
        }
    }

    /// The proxy does not know the session any more. It is joined again at once; but only once
    /// until a quACK decodes.
    pub(super) fn restarted(&mut self, now: Instant) {
        if self.failures == 0 {
            self.failures = 1;
            self.missed |= self.assistance == Assistance::Assisted;
            self.assistance = Assistance::Seeking;
            self.seek(now);
        } else {
            self.lose(Reason::ProxyLost, now);
        }
    }
}
