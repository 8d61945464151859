//! Requests without an answer: polls, and requests that back off.

use crate::clock::scale;
use std::time::{Duration, Instant};

/// The sender gives up a proxy that is silent for this long while packets are unreported.
pub(in crate::sender) const SILENCE: Duration = Duration::from_secs(1);
/// The longest interval between requests for a new epoch.
const LONGEST: Duration = Duration::from_secs(60);
/// While reports bring no progress, the interval of polls doubles, up to this power of two.
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

/// After this many consecutive polls without progress, packets or reports are probably lost.
const FRUITLESS: u32 = 3;

/// The most polls that the sender remembers until their answers. With a poll every 25 ms, this is
/// enough to measure a queue of 100 ms.
const OUTSTANDING: usize = 4;

/// A poll that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    token: u16,
    pub(super) at: Instant,
    /// How long before the poll a packet must have left for the answer to show its loss. `None`
    /// stands for the probe timeout.
    pub(super) delay: Option<Duration>,
}

/// The outstanding polls, and how soon the next may follow.
#[derive(Debug, Default)]
pub(super) struct Probe {
    /// The latest is first.
    outstanding: [Option<Sent>; OUTSTANDING],
    /// When the sender sent the first poll since the latest quACK.
    pub(super) silent_since: Option<Instant>,
    pub(super) last_polled: Option<Instant>,
    doublings: u32,
    /// Consecutive polls without an answer.
    unanswered: u32,
}

impl Probe {
    /// Records a poll. Returns whether several consecutive polls brought no progress.
    pub(super) fn sent(&mut self, token: u16, delay: Option<Duration>, now: Instant) -> bool {
        self.outstanding.rotate_right(1);
        if let Some(latest) = self.outstanding.first_mut() {
            *latest = Some(Sent { token, at: now, delay });
        }
        self.last_polled = Some(now);
        self.silent_since.get_or_insert(now);
        self.doublings = (self.doublings + 1).min(MAX_DOUBLINGS);
        self.unanswered = self.unanswered.saturating_add(1);
        self.doublings >= FRUITLESS
    }

    /// Records that a quACK arrived.
    pub(super) fn on_quack(&mut self) {
        self.silent_since = None;
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

    /// Records progress (SPEC.md, section 7.4).
    pub(super) fn on_progress(&mut self) {
        self.doublings = 0;
    }

    /// The *wait* (SPEC.md, section 7.4): `timeout`, doubled for each poll since the latest
    /// progress.
    pub(super) fn wait(&self, timeout: Duration) -> Duration {
        scale(timeout, 1 << self.doublings, 1)
    }

    /// How long to wait for an answer that measures the near RTT. Reports do not shorten this time,
    /// because it must exceed an unknown near RTT.
    pub(super) fn measuring_interval(&self, retry_interval: Duration) -> Duration {
        scale(retry_interval, 1 << self.unanswered.saturating_sub(1).min(MAX_DOUBLINGS), 1)
            .min(SILENCE)
    }
}
