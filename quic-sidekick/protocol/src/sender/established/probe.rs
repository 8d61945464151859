//! Requests without an answer: polls, and others that back off.

use crate::clock::scale;
use std::time::{Duration, Instant};

/// A proxy that stays silent for this long, although packets wait to be reported, is lost.
pub(in crate::sender) const SILENCE: Duration = Duration::from_secs(1);
/// The longest interval between requests for a new epoch.
const LONGEST: Duration = Duration::from_secs(60);
/// Polls double their interval up to this power of two while nothing new is reported.
const MAX_DOUBLINGS: u32 = 10;

/// A request that the sender repeats at doubling intervals until its answer.
#[derive(Debug)]
pub(super) struct Backoff {
    pub(super) since: Instant,
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

/// So many polls in a row without progress tell that packets or reports are lost.
const FRUITLESS: u32 = 3;

/// Polls that are remembered until their answer. With one each 25 ms, a queue of 100 ms shows at
/// once.
const OUTSTANDING: usize = 4;

/// A poll that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    token: u16,
    pub(super) at: Instant,
    /// How long before the poll a packet must have left so that the answer shows its loss, if that
    /// is less than the probe timeout.
    pub(super) delay: Option<Duration>,
}

/// The outstanding polls, and how soon the next may follow.
#[derive(Debug, Default)]
pub(super) struct Probe {
    /// The latest first.
    outstanding: [Option<Sent>; OUTSTANDING],
    /// When the sender sent the first poll since the proxy's last message.
    pub(super) unheard_since: Option<Instant>,
    pub(super) last_polled: Option<Instant>,
    doublings: u32,
    /// Polls in a row without an answer before the next poll.
    unanswered: u32,
}

impl Probe {
    /// Records a poll. Returns whether several in a row brought no progress.
    pub(super) fn sent(&mut self, token: u16, delay: Option<Duration>, now: Instant) -> bool {
        self.outstanding.rotate_right(1);
        if let Some(latest) = self.outstanding.first_mut() {
            *latest = Some(Sent { token, at: now, delay });
        }
        self.last_polled = Some(now);
        self.unheard_since.get_or_insert(now);
        self.doublings = (self.doublings + 1).min(MAX_DOUBLINGS);
        self.unanswered = self.unanswered.saturating_add(1);
        self.doublings >= FRUITLESS
    }

    /// Records that a quACK arrived.
    pub(super) fn heard(&mut self) {
        self.unheard_since = None;
    }

    /// The poll with this token, if it is outstanding.
    pub(super) fn answer(&mut self, token: u16) -> Option<Sent> {
        let is_answered =
            |poll: &Option<Sent>| token != 0 && poll.is_some_and(|poll| poll.token == token);
        let place = self.outstanding.iter().position(is_answered)?;
        let sent = self.outstanding.get_mut(place)?.take()?;
        // Answers to earlier polls are outdated now.
        self.outstanding.iter_mut().skip(place).for_each(|poll| *poll = None);
        self.unanswered = 0;
        Some(sent)
    }

    /// Records that a quACK reported a packet for the first time.
    pub(super) fn progress(&mut self) {
        self.doublings = 0;
    }

    pub(super) fn patience(&self, timeout: Duration) -> Duration {
        scale(timeout, 1 << self.doublings, 1)
    }

    /// How long to wait for an answer that measures the near RTT. Reports do not shorten it: it
    /// must outgrow an unknown near RTT.
    pub(super) fn measuring_interval(&self, retry_interval: Duration) -> Duration {
        scale(retry_interval, 1 << self.unanswered.saturating_sub(1).min(MAX_DOUBLINGS), 1)
            .min(SILENCE)
    }
}
