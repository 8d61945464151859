//! Measurement of the near segment's round-trip time (SPEC.md, section 7.2).

use crate::clock::scale;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The granularity of timers (RFC 9002, section 6.1.2).
const GRANULARITY: Duration = Duration::from_millis(1);
/// How long the shortest sample counts at least.
const RECENT: Duration = Duration::from_secs(10);
/// The number of samples that distinguish a queue from jitter.
const LAST: usize = 16;
/// The assumed value before the first measurement.
const INITIAL: Duration = Duration::from_millis(100);

/// A queue grows when the latest samples exceed one and a half times the shortest, the time that
/// follows, and so many times the jitter. A radio that keeps the packets in order delays a fast
/// flow nearly always by its greatest delay.
const QUEUE_MORE: Duration = Duration::from_millis(4);
const QUEUE_JITTERS: u32 = 5;

/// A measurement of the round-trip time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sample {
    /// From a HELLO to its answer.
    Handshake(Duration),
    /// From a poll to its answer.
    Answer(Duration),
    /// From a packet to the quACK that names it last, and the waiting time that the proxy claims.
    Report(Duration, Duration),
}

#[derive(Debug, Default)]
pub(super) struct NearRtt {
    smoothed: Option<Duration>,
    /// The mean deviation from the smoothed value (RFC 9002, section 5.3).
    deviation: Duration,
    latest: Duration,
    /// The shortest time to an answer. A proxy can delay answers but not hasten them, while it can
    /// claim any waiting time.
    least: Option<Duration>,
    /// From a retransmitted message to an answer that may belong to an earlier one: a rough value.
    guess: Option<Duration>,
    recent: Recent,
    /// When a quACK last gave a sample.
    sampled: Option<Instant>,
    /// The shortest recent sample of quACKs alone.
    recent_quacks: Recent,
    last: VecDeque<Duration>,
    jitter: Jitter,
}

/// How much the round-trip times of quACKs differ, without a queue's part.
#[derive(Debug, Default)]
struct Jitter {
    /// The mean difference of successive samples, smoothed (RFC 3550, section 6.4.1).
    mean: Duration,
    samples: usize,
    /// A queue that grows and shrinks adds to the mean, but seldom for ten seconds on end.
    recent: Recent,
}

impl Jitter {
    fn note(&mut self, before: Duration, sample: Duration, now: Instant) {
        self.mean = scale(self.mean, 15, 16) + before.abs_diff(sample) / 16;
        // The first means are too small.
        self.samples += 1;
        if self.samples >= LAST {
            self.recent.note(self.mean, now);
        }
    }
}

/// The least value of the last ten to twenty seconds, because a path may become longer for good.
#[derive(Debug, Default)]
struct Recent {
    /// When `current` becomes `before`.
    until: Option<Instant>,
    before: Option<Duration>,
    current: Option<Duration>,
}

impl Recent {
    fn note(&mut self, sample: Duration, now: Instant) {
        if self.until.is_none_or(|until| until <= now) {
            (self.until, self.before, self.current) = (Some(now + RECENT), self.current, None);
        }
        self.current = Some(self.current.map_or(sample, |current| current.min(sample)));
    }

    fn least(&self) -> Option<Duration> {
        match (self.before, self.current) {
            (Some(before), Some(current)) => Some(before.min(current)),
            (before, current) => before.or(current),
        }
    }
}

impl NearRtt {
    pub(super) fn sample(&mut self, sample: Sample, now: Instant) {
        // A proxy may take longer for a quACK than for an answer to a HELLO. That is no queue.
        let of_quack = !matches!(sample, Sample::Handshake(_));
        let sample = match (sample, self.least) {
            (Sample::Handshake(time) | Sample::Answer(time), least) => {
                self.least = Some(least.map_or(time, |least| least.min(time)));
                time
            }
            (Sample::Report(time, waited), Some(least)) if waited <= time => {
                (time - waited).max(least)
            }
            (Sample::Report(..), _) => return,
        };
        self.latest = sample;
        self.recent.note(sample, now);
        if of_quack {
            self.sampled = Some(now);
            self.recent_quacks.note(sample, now);
            if let Some(before) = self.last.front() {
                self.jitter.note(*before, sample, now);
            }
            self.last.truncate(LAST - 1);
            self.last.push_front(sample);
        }
        self.smoothed = Some(match self.smoothed {
            None => {
                self.deviation = sample / 2;
                sample
            }
            Some(smoothed) => {
                self.deviation = scale(self.deviation, 3, 4) + smoothed.abs_diff(sample) / 4;
                scale(smoothed, 7, 8) + sample / 8
            }
        });
    }

    /// Records a rough value: the time to an answer since the last of several messages that it may
    /// answer.
    pub(super) fn guess(&mut self, time: Duration) {
        self.guess = Some(time);
    }

    /// Whether a measured or a rough value exists.
    pub(super) fn is_known_roughly(&self) -> bool {
        self.smoothed.is_some() || self.guess.is_some()
    }

    pub(super) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// When a quACK last gave a sample.
    pub(super) fn sampled(&self) -> Option<Instant> {
        self.sampled
    }

    /// The excess of the smoothed value over the shortest recent sample.
    pub(super) fn queueing(&self) -> Option<Duration> {
        self.smoothed
            .zip(self.recent.least())
            .map(|(smoothed, least)| smoothed.saturating_sub(least))
    }

    /// The least excess of the last samples over the shortest recent one.
    pub(super) fn standing(&self) -> Option<Duration> {
        let least = self.recent_quacks.least()?;
        self.last.iter().min().map(|latest| latest.saturating_sub(least))
    }

    /// The least of the last three samples: what no single delayed packet explains.
    pub(super) fn of_late(&self) -> Option<Duration> {
        self.last.iter().take(3).min().copied()
    }

    /// The mean difference of successive samples of quACKs, the least of the last ten seconds.
    pub(super) fn jitter(&self) -> Option<Duration> {
        self.jitter.recent.least()
    }

    /// Whether a queue grows (SPEC.md, section 7.10).
    pub(super) fn queue_grows(&self) -> bool {
        let Some(least) = self.recent.least() else { return false };
        let most =
            scale(least, 3, 2) + QUEUE_MORE + QUEUE_JITTERS * self.jitter().unwrap_or_default();
        self.of_late().is_some_and(|late| late > most)
    }

    fn bound(&self) -> Duration {
        self.smoothed.map_or(INITIAL, |smoothed| smoothed.max(self.latest))
    }

    /// As [`Self::bound`], or the rough value if nothing was measured.
    pub(super) fn rough(&self) -> Duration {
        self.smoothed.map_or(self.guess.unwrap_or(INITIAL), |_| self.bound())
    }

    /// How long a packet may trail a later one before it is declared lost: 9/8 of the near RTT
    /// (kTimeThreshold of RFC 9002, section 6.1.2).
    pub(super) fn loss_delay(&self) -> Duration {
        scale(self.bound(), 9, 8).max(GRANULARITY)
    }

    /// By how much a packet may overtake another around an epoch's beginning, where the sums cannot
    /// show it.
    pub(super) fn overtaking(&self) -> Duration {
        self.rough() / 2 + GRANULARITY
    }

    /// How long the last packet may stay unreported before a poll: 1.1 near RTT.
    pub(super) fn probe_timeout(&self) -> Duration {
        scale(self.bound(), 11, 10).max(GRANULARITY)
    }

    /// How long a copy may stay away before it is requested again: 1.1 near RTT and four
    /// deviations. A rough value that is too low costs a few requests.
    pub(super) fn copy_timeout(&self) -> Duration {
        scale(self.rough(), 11, 10).max(GRANULARITY) + 4 * self.deviation
    }

    /// The interval before a KEEP is repeated. The data follow soon, so a repetition that was not
    /// necessary costs less than a late one.
    pub(super) fn keep_interval(&self) -> Duration {
        scale(self.rough(), 5, 4) + 2 * GRANULARITY
    }

    /// The interval before a request is repeated. A rough value that is too low costs a few
    /// repetitions.
    pub(super) fn retry_interval(&self) -> Duration {
        (2 * self.rough()).max(Duration::from_millis(20))
    }
}

#[cfg(test)]
mod tests;
