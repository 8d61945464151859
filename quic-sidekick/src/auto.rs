//! Which repair fits what is measured.

use crate::Mode;
use std::fmt;
use std::time::{Duration, Instant};

/// A queue before the proxy that delays packets by more than this, and by more than the near round
/// trip takes without it, is one that fills up. Less is jitter, of a radio for example.
const STANDING_QUEUE: Duration = Duration::from_millis(5);
/// A part of the path takes no longer than the whole, but for what two averages differ.
const PROMPT: f64 = 1.25;
/// And for CUBIC, which fills a queue until it overflows, by more than this share of the whole
/// round trip: it would lose most by mistaking a proxy that is slow to answer for one behind a
/// queue.
const FULL_QUEUE: f64 = 0.1;
/// How long the near segment counts as congested after a loss found it so.
const MEMORY: Duration = Duration::from_secs(1);
/// With a larger share of the round trip, the near segment is no first hop: a repair comes hardly
/// sooner than the receiver's own word.
const NEAR_SHARE: f64 = 0.5;

/// What [`Mode::Auto`] does at the moment, and why. `Display` is a sentence's worth of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The mode whose repair is used.
    pub mode: Mode,
    /// Why.
    pub why: Why,
}

/// Why [`Mode::Auto`] does what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// Nothing was lost before the proxy yet.
    NoLoss,
    /// Packets are lost before the proxy, where no queue grows.
    RandomLoss,
    /// Packets are lost before the proxy while a queue grows there: that is congestion.
    NearQueue,
    /// The near segment is the larger part of the path.
    FarProxy,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoLoss => "nothing was lost before the proxy",
            Self::RandomLoss => "packets are lost before the proxy, and no queue grows there",
            Self::NearQueue => "packets are lost before the proxy because a queue there is full",
            Self::FarProxy => "the proxy is nearer to the receiver than to this end",
        })
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.mode, self.why)
    }
}

/// What is known of the path when packets turn out to be lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// Round-trip time to the proxy, smoothed.
    pub(crate) near: Duration,
    /// By how much the near segment delays packets now, smoothed: by a queue, or by a radio.
    pub(crate) queueing: Duration,
    /// By how much it has delayed each of the latest packets at least: by a queue.
    pub(crate) standing: Duration,
    /// Round-trip time of the whole path.
    pub(crate) whole: Duration,
}

impl Measured {
    /// Whether this delay before the proxy is a queue that fills up.
    fn is_queue(&self, delay: Duration) -> bool {
        delay > STANDING_QUEUE.max(self.near.saturating_sub(self.queueing))
    }

    /// Whether the proxy is nearer to the receiver than to the sender, by time.
    pub(crate) fn is_far_proxy(&self) -> bool {
        self.near > self.whole.mul_f64(NEAR_SHARE)
    }

    /// The same, and its reports do not take much longer than the receiver's answers, as those of a
    /// slow one would.
    pub(crate) fn is_prompt_far_proxy(&self) -> bool {
        self.is_far_proxy() && self.near < self.whole.mul_f64(PROMPT)
    }
}

/// The choice so far.
#[derive(Debug)]
pub(crate) struct Auto {
    chosen: Chosen,
    congested_until: Option<Instant>,
}

impl Default for Auto {
    fn default() -> Self {
        Self { chosen: Chosen { mode: Mode::Reinject, why: Why::NoLoss }, congested_until: None }
    }
}

impl Auto {
    pub(crate) fn chosen(&self) -> Chosen {
        self.chosen
    }

    /// Packets were lost before the proxy: whether that is congestion. Of use to every mode that
    /// would hide the losses from the congestion controller.
    pub(crate) fn is_congested(&mut self, measured: Option<Measured>, now: Instant) -> bool {
        self.remember(measured.is_some_and(|measured| measured.is_queue(measured.standing)), now)
    }

    /// The same for a controller that fills queues, and with quACKs so far apart that a queue has
    /// drained before it stands.
    pub(crate) fn is_overflowing(&mut self, measured: Option<Measured>, now: Instant) -> bool {
        let full = |measured: Measured| {
            measured.queueing > measured.whole.mul_f64(FULL_QUEUE)
                && measured.is_queue(measured.queueing)
        };
        self.remember(measured.is_some_and(full), now)
    }

    fn remember(&mut self, congested: bool, now: Instant) -> bool {
        if congested {
            self.congested_until = Some(now + MEMORY);
        }
        self.congested_until.is_some_and(|until| now < until)
    }

    /// Packets were lost before the proxy: what to do about these. Without measurements they count
    /// as any loss.
    pub(crate) fn choose(&mut self, measured: Option<Measured>, now: Instant) -> Mode {
        let congested = self.is_congested(measured, now);
        let Some(measured) = measured else { return Mode::EarlyLoss };
        let (mode, why) = if congested {
            (Mode::EarlyLoss, Why::NearQueue)
        } else if measured.is_far_proxy() {
            (Mode::EarlyLoss, Why::FarProxy)
        } else {
            (Mode::Reinject, Why::RandomLoss)
        };
        self.chosen = Chosen { mode, why };
        mode
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[allow(clippy::disallowed_methods, reason = "any instant will do to begin with")]
    fn start() -> Instant {
        Instant::now()
    }

    fn measured(near: u32, queueing: u32, whole: u32) -> Option<Measured> {
        let queueing = queueing * MS;
        Some(Measured { near: near * MS, queueing, standing: queueing, whole: whole * MS })
    }

    #[test]
    fn each_path_gets_its_repair() {
        let now = start();
        for (measured, mode, why) in [
            (measured(2, 0, 52), Mode::Reinject, Why::RandomLoss),
            (measured(7, 5, 57), Mode::Reinject, Why::RandomLoss),
            (measured(30, 20, 80), Mode::EarlyLoss, Why::NearQueue),
            (measured(300, 20, 700), Mode::Reinject, Why::RandomLoss),
            (measured(50, 0, 52), Mode::EarlyLoss, Why::FarProxy),
        ] {
            let mut auto = Auto::default();
            assert_eq!(auto.chosen().why, Why::NoLoss);
            assert_eq!(auto.choose(measured, now), mode, "{measured:?}");
            assert_eq!(auto.chosen(), Chosen { mode, why }, "{measured:?}");
        }
        assert_eq!(Auto::default().choose(None, now), Mode::EarlyLoss);
    }

    /// Some packets are delayed, others are not: a queue would delay them all.
    #[test]
    fn jitter_is_no_queue() {
        let jitter = measured(12, 10, 60).map(|measured| Measured { standing: MS, ..measured });
        assert_eq!(Auto::default().choose(jitter, start()), Mode::Reinject);
    }

    #[test]
    fn a_queue_that_overflows_is_a_part_of_the_round_trip() {
        for (measured, overflows) in [
            (measured(9, 7, 80), false),
            (measured(50, 48, 100), true),
            (measured(300, 20, 700), false),
        ] {
            assert_eq!(
                Auto::default().is_overflowing(measured, start()),
                overflows,
                "{measured:?}"
            );
        }
        assert!(!Auto::default().is_overflowing(None, start()));
    }

    #[test]
    fn congestion_is_remembered_for_a_second() {
        let now = start();
        let mut auto = Auto::default();
        auto.choose(measured(50, 48, 100), now);
        assert_eq!(auto.choose(measured(3, 1, 53), now + 999 * MS), Mode::EarlyLoss);
        assert_eq!(auto.choose(measured(3, 1, 53), now + 1000 * MS), Mode::Reinject);
        assert_eq!(
            auto.chosen().to_string(),
            "reinject: packets are lost before the proxy, and no queue grows there"
        );
    }
}
