//! Measurement of the near segment's round-trip time (SPEC.md, section 7.2).

use crate::clock::Least;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Nanoseconds. Every quACK yields a sample, and arithmetic with a [`Duration`] costs several times
/// as much.
type Nanos = u64;

/// The granularity of timers (RFC 9002, section 6.1.2).
const GRANULARITY: Nanos = 1_000_000;
/// The number of samples that distinguish a queue from jitter.
const LAST: usize = 16;
/// The assumed value before the first measurement.
const INITIAL: Nanos = 100 * GRANULARITY;

/// A queue grows when the latest samples exceed a sum. Its terms are 1.5 times the shortest sample,
/// `QUEUE_MORE`, and `QUEUE_JITTERS` times the jitter. A radio link that preserves the order delays
/// most packets of a fast flow by its longest delay.
const QUEUE_MORE: Nanos = 4 * GRANULARITY;
const QUEUE_JITTERS: Nanos = 5;
/// On a long near segment, even a full queue delays packets by less, so a queue also grows when its
/// delay is at least three quarters of the greatest one of the session. That one has to exceed a
/// sum: an eighth of the shortest sample, this time, and `QUEUE_JITTERS` times the jitter. A queue
/// that drops packets is that long. Random losses also occur behind shorter queues.
const FULL_MORE: Nanos = 12 * GRANULARITY;
/// A new greatest delay counts only after up to this time, in which slow start may fill a queue.
const RISE: Duration = Duration::from_secs(3);
/// A message overtakes a packet by less than this many times the jitter.
const OVERTAKING_JITTERS: Nanos = 6;

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

fn nanos(duration: Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}

/// `time` times `numerator / denominator`, saturating.
fn scale(time: Nanos, numerator: Nanos, denominator: Nanos) -> Nanos {
    time.saturating_mul(numerator) / denominator
}

/// The time to an answer to one of several messages.
#[derive(Clone, Copy, Debug)]
struct Guess {
    /// The time since the last of them.
    least: Nanos,
    /// The time since the one before. If the round trip is longer than their interval, the answer
    /// belongs to that one, or to an earlier one.
    long: Nanos,
}

#[derive(Debug, Default)]
pub(super) struct NearRtt {
    smoothed: Option<Nanos>,
    /// The mean deviation from the smoothed value (RFC 9002, section 5.3).
    deviation: Nanos,
    latest: Nanos,
    /// The shortest time to an answer: a proxy can delay an answer but not hasten it, whereas it
    /// can claim any waiting time.
    least: Option<Nanos>,
    guess: Option<Guess>,
    recent: Least<Nanos>,
    /// When a quACK last yielded a sample.
    sampled: Option<Instant>,
    /// The shortest recent sample of quACKs alone.
    recent_quacks: Least<Nanos>,
    last: VecDeque<Nanos>,
    /// The least of them.
    least_of_last: Nanos,
    most: Most,
    jitter: Jitter,
}

/// How much the round-trip times of quACKs differ, apart from the effect of a queue.
#[derive(Debug, Default)]
struct Jitter {
    /// The mean difference of successive samples, smoothed (RFC 3550, section 6.4.1).
    mean: Nanos,
    samples: usize,
    /// The least recent mean. A queue that grows and shrinks raises the mean, but rarely for ten
    /// seconds without a break.
    recent: Least<Nanos>,
}

impl Jitter {
    fn note(&mut self, before: Nanos, sample: Nanos, now: Instant) {
        self.mean = scale(self.mean, 15, 16) + before.abs_diff(sample) / 16;
        // The first means are too small.
        self.samples += 1;
        if self.samples >= LAST {
            self.recent.note(self.mean, now);
        }
    }
}

/// The greatest value of the session that no single delayed packet explains.
#[derive(Debug, Default)]
struct Most {
    value: Nanos,
    /// The greatest value of late, and when it begins to count.
    latest: Nanos,
    until: Option<Instant>,
}

impl Most {
    fn note(&mut self, late: Nanos, now: Instant) {
        if self.until.is_none_or(|until| until <= now) {
            (self.value, self.latest) = (self.value.max(self.latest), 0);
            self.until = Some(now + RISE);
        }
        self.latest = self.latest.max(late);
    }
}

impl NearRtt {
    pub(super) fn sample(&mut self, sample: Sample, now: Instant) {
        // A proxy may need longer for a quACK than for an answer to a HELLO. That is no queue.
        let of_quack = !matches!(sample, Sample::Handshake(_));
        let sample = match (sample, self.least) {
            (Sample::Handshake(time) | Sample::Answer(time), least) => {
                let time = nanos(time);
                self.least = Some(least.map_or(time, |least| least.min(time)));
                time
            }
            (Sample::Report(time, waited), Some(least)) if waited <= time => {
                nanos(time - waited).max(least)
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
            self.note_last(sample);
            if let Some(late) = self.least_of_three() {
                self.most.note(late, now);
            }
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

    /// Records one of the last samples, in place of the oldest.
    fn note_last(&mut self, sample: Nanos) {
        let oldest = if self.last.len() < LAST { None } else { self.last.pop_back() };
        self.last.push_front(sample);
        let stays = self.last.len() > 1 && oldest != Some(self.least_of_last);
        self.least_of_last = if stays {
            self.least_of_last.min(sample)
        } else {
            self.last.iter().min().copied().unwrap_or(sample)
        };
    }

    /// Records rough values: the time to an answer since the last of several messages that it may
    /// answer, and since the one before.
    pub(super) fn guess(&mut self, least: Duration, long: Duration) {
        self.guess = Some(Guess { least: nanos(least), long: nanos(long) });
    }

    /// Whether a measured or a rough value exists.
    pub(super) fn is_known_roughly(&self) -> bool {
        self.smoothed.is_some() || self.guess.is_some()
    }

    pub(super) fn smoothed(&self) -> Option<Duration> {
        self.smoothed.map(Duration::from_nanos)
    }

    /// When a quACK last yielded a sample.
    pub(super) fn sampled(&self) -> Option<Instant> {
        self.sampled
    }

    /// The excess of the smoothed value over the shortest recent sample.
    pub(super) fn queueing(&self) -> Option<Duration> {
        self.smoothed
            .zip(self.recent.get())
            .map(|(smoothed, least)| Duration::from_nanos(smoothed.saturating_sub(least)))
    }

    /// The latest sample.
    pub(super) fn latest(&self) -> Option<Duration> {
        self.smoothed.map(|_| Duration::from_nanos(self.latest))
    }

    /// The excess of the latest sample over the shortest recent one.
    pub(super) fn latest_queue(&self) -> Duration {
        let least = self.recent.get().unwrap_or(self.latest);
        Duration::from_nanos(self.latest.saturating_sub(least))
    }

    /// The least excess of the last samples over the shortest recent one.
    pub(super) fn standing(&self) -> Option<Duration> {
        let least = self.recent_quacks.get()?;
        let latest = self.last.front().map(|_| self.least_of_last)?;
        Some(Duration::from_nanos(latest.saturating_sub(least)))
    }

    /// The least of the last three samples, which a single delayed packet does not raise.
    fn least_of_three(&self) -> Option<Nanos> {
        self.last.get(2)?;
        self.last.iter().take(3).min().copied()
    }

    /// The mean difference of successive samples of quACKs, the least recent one.
    fn jitter(&self) -> Option<Nanos> {
        self.jitter.recent.get()
    }

    /// Whether a queue grows (SPEC.md, appendix A.6).
    pub(super) fn queue_grows(&self) -> bool {
        let (Some(least), Some(late)) = (self.recent.get(), self.least_of_three()) else {
            return false;
        };
        let jitter = self.jitter();
        let jitters = QUEUE_JITTERS.saturating_mul(jitter.unwrap_or_default());
        let delay = late.saturating_sub(least);
        if delay > (least / 2).saturating_add(QUEUE_MORE).saturating_add(jitters) {
            return true;
        }
        let most = self.most.value.saturating_sub(least);
        // Before the jitter is known, a radio's delay looks like a full queue.
        jitter.is_some()
            && most > (least / 8).saturating_add(FULL_MORE).saturating_add(jitters)
            && delay >= scale(most, 3, 4)
    }

    fn bound(&self) -> Nanos {
        self.smoothed.map_or(INITIAL, |smoothed| smoothed.max(self.latest))
    }

    fn rough_nanos(&self) -> Nanos {
        let guess = self.guess.map_or(INITIAL, |guess| guess.least);
        self.smoothed.map_or(guess, |_| self.bound())
    }

    /// The larger of the smoothed and the latest value, or the rough one if nothing was measured.
    pub(super) fn rough(&self) -> Duration {
        Duration::from_nanos(self.rough_nanos())
    }

    /// As [`rough`](Self::rough), but a guess errs on the long side. Use it where a far proxy must
    /// not look like a near one.
    pub(super) fn rough_at_most(&self) -> Duration {
        match (self.smoothed, self.guess) {
            (None, Some(guess)) => Duration::from_nanos(guess.long),
            _ => self.rough(),
        }
    }

    /// How long a packet may trail a later one before it is declared lost: 9/8 of the near RTT
    /// (kTimeThreshold of RFC 9002, section 6.1.2).
    pub(super) fn loss_delay(&self) -> Duration {
        Duration::from_nanos(scale(self.bound(), 9, 8).max(GRANULARITY))
    }

    /// The time by which a packet may overtake another around an epoch's beginning, where the sums
    /// do not show the order.
    pub(super) fn overtaking(&self) -> Duration {
        Duration::from_nanos((self.rough_nanos() / 2).saturating_add(GRANULARITY))
    }

    /// The time by which a message may overtake a packet that leaves before it: the granularity of
    /// timers, and several times the jitter. `None` until the jitter is measured.
    pub(super) fn overtaking_by_jitter(&self) -> Option<Duration> {
        let jitter = self.jitter()?.max(self.jitter.mean);
        let jitters = jitter.saturating_mul(OVERTAKING_JITTERS);
        Some(Duration::from_nanos(jitters.saturating_add(GRANULARITY)))
    }

    /// How long the last packet may stay unreported before a poll: 1.1 near RTT.
    pub(super) fn probe_timeout(&self) -> Duration {
        Duration::from_nanos(scale(self.bound(), 11, 10).max(GRANULARITY))
    }

    /// How long the sender waits for a copy before it requests the copy again: 1.1 near RTT and
    /// four deviations. A rough value that is too low costs a few requests.
    pub(super) fn copy_timeout(&self) -> Duration {
        let time = scale(self.rough_nanos(), 11, 10).max(GRANULARITY);
        Duration::from_nanos(time.saturating_add(self.deviation.saturating_mul(4)))
    }

    /// How long the sender waits before it repeats a KEEP. The data follow soon, so an unnecessary
    /// repetition costs less than a late one.
    pub(super) fn keep_interval(&self) -> Duration {
        Duration::from_nanos(scale(self.rough_nanos(), 5, 4).saturating_add(2 * GRANULARITY))
    }

    /// How long the sender waits before it repeats a request. A rough value that is too low costs a
    /// few repetitions.
    pub(super) fn retry_interval(&self) -> Duration {
        const LEAST: Nanos = 20 * GRANULARITY;
        Duration::from_nanos(self.rough_nanos().saturating_mul(2).max(LEAST))
    }
}

#[cfg(test)]
mod tests;
