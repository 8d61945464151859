//! Whether a heavy loss falls when the peer slows down (SPEC.md, appendix A.8).
//!
//! A peer that hears of no loss sends ever more into a policer, and the loss rises with it, at a
//! load that shows no lower one to compare with. So once much more is lost than before, the
//! receiver lets the peer hear of it until the loss has fallen, or has not for two seconds.

use std::time::{Duration, Instant};

/// A loss of this share is heavy.
const HEAVY: f32 = 0.15;
/// The weight of the latest datagram in that share.
const WEIGHT: f32 = 1.0 / 256.0;
/// Datagrams that show a loss.
const SAMPLE: u32 = 256;
/// A loss differs from another if it is less than this part of it.
const LESS: f32 = 0.5;
/// A peer on any usual path has slowed down within this time, by more than once.
const HEARD: Duration = Duration::from_secs(2);
/// After congestion, the peer hears of every loss for this time, which doubles up to the longest.
const LEFT: Duration = Duration::from_secs(30);
const LONGEST_LEFT: Duration = Duration::from_secs(480);

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// No loss is much heavier than one before.
    Waits,
    /// The peer hears of all losses until then at most.
    Heard(Instant),
    /// It was congestion, and the peer hears of all losses until then.
    Left(Instant),
}

/// Tests a heavy loss.
#[derive(Debug)]
pub(super) struct Trial {
    phase: Phase,
    /// The share of datagrams that are lost.
    share: f32,
    /// That share when the trial began.
    before: f32,
    /// The least share of a sample so far, or the one that a trial has shown to be random.
    least: f32,
    /// How many datagrams and losses the sample has.
    datagrams: u32,
    lost: u32,
    left: Duration,
}

impl Default for Trial {
    fn default() -> Self {
        Self {
            phase: Phase::Waits,
            share: 0.0,
            before: 0.0,
            least: 1.0,
            datagrams: 0,
            lost: 0,
            left: LEFT,
        }
    }
}

impl Trial {
    /// Notes a datagram that arrived, or is missing.
    pub(super) fn note(&mut self, now: Instant) {
        self.share -= WEIGHT * self.share;
        self.datagrams += 1;
        if self.datagrams < SAMPLE {
            return;
        }
        #[allow(clippy::cast_precision_loss, reason = "few datagrams")]
        let loss = self.lost as f32 / self.datagrams as f32;
        (self.datagrams, self.lost) = (0, 0);
        self.least = self.least.min(loss);
        match self.phase {
            Phase::Heard(_) if loss < LESS * self.before => {
                self.phase = Phase::Left(now + self.left);
                self.left = (2 * self.left).min(LONGEST_LEFT);
            }
            Phase::Heard(until) if until <= now => {
                (self.phase, self.least, self.left) = (Phase::Waits, self.before, LEFT);
            }
            Phase::Waits | Phase::Heard(_) | Phase::Left(_) => {}
        }
    }

    /// Notes that the near segment lost datagrams.
    pub(super) fn lose(&mut self, packets: u32) {
        (0..packets).for_each(|_| self.share += WEIGHT * (1.0 - self.share));
        self.lost += packets;
    }

    /// Whether the peer heard of the latest loss.
    pub(super) fn hears(&self) -> bool {
        matches!(self.phase, Phase::Heard(_) | Phase::Left(_))
    }

    /// Whether the peer is to hear of a loss now.
    pub(super) fn is_heard(&mut self, now: Instant) -> bool {
        match self.phase {
            Phase::Waits if self.share > HEAVY && self.least < LESS * self.share => {
                self.phase = Phase::Heard(now + HEARD);
                (self.before, self.datagrams, self.lost) = (self.share, 0, 0);
                true
            }
            Phase::Left(until) if now >= until => {
                self.phase = Phase::Waits;
                false
            }
            Phase::Heard(_) | Phase::Left(_) => true,
            Phase::Waits => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Passes datagrams, one each millisecond, of which `lost` says whether it is lost by its
    /// number. Returns how many losses the peer heard of.
    fn pass(trial: &mut Trial, now: &mut Instant, lost: impl Fn(u32) -> bool) -> u32 {
        let mut heard = 0;
        for number in 0..3000 {
            *now += MS;
            trial.note(*now);
            if lost(number) {
                heard += u32::from(trial.is_heard(*now));
                trial.lose(1);
            }
        }
        heard
    }

    #[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
    fn start() -> Instant {
        Instant::now()
    }

    #[test]
    fn a_loss_that_stays_is_hidden_again() {
        let (mut trial, mut now) = (Trial::default(), start());
        assert_eq!(pass(&mut trial, &mut now, |number| number % 4 == 0), 0, "nothing to compare");
        let (mut trial, mut now) = (Trial::default(), start());
        pass(&mut trial, &mut now, |number| number % 50 == 0);
        let heard: u32 = (0..20).map(|_| pass(&mut trial, &mut now, |it| it % 4 == 0)).sum();
        assert!((500..=570).contains(&heard), "of two seconds and a sample: {heard}");
    }

    #[test]
    fn a_loss_that_falls_is_left_to_the_peer() {
        let (mut trial, mut now) = (Trial::default(), start());
        pass(&mut trial, &mut now, |number| number % 50 == 0);
        // It falls to a tenth once the peer has heard of it, and comes back later.
        let heard = pass(&mut trial, &mut now, |number| {
            if (400..1000).contains(&number) { number % 20 == 0 } else { number % 2 == 0 }
        });
        assert!(heard > 900, "{heard}");
    }

    #[test]
    fn a_small_loss_is_never_tested() {
        let (mut trial, mut now) = (Trial::default(), start());
        pass(&mut trial, &mut now, |_| false);
        assert_eq!(pass(&mut trial, &mut now, |number| number % 10 == 0), 0);
    }
}
