//! Whether a heavy loss falls when the peer slows down (SPEC.md, appendix A.8).
//!
//! A peer that hears of no loss sends ever more into a policer, and the loss rises with it, at a
//! load that shows no lower one to compare with. So where much is lost, the receiver lets the peer
//! hear of it until the loss has fallen, or until it has not for two seconds.

use std::time::{Duration, Instant};

/// A loss of this share is heavy.
const HEAVY: f32 = 0.15;
/// The weight of the latest datagram in that share.
const WEIGHT: f32 = 1.0 / 256.0;
/// A peer on any usual path has slowed down within this time, by more than once.
const HEARD: Duration = Duration::from_secs(2);
/// Datagrams that show the loss meanwhile.
const SAMPLE: u32 = 256;
/// The loss is congestion if this part of it or less remains.
const REMAINS: f32 = 0.5;
/// A random loss is tested again after this time.
const AGAIN: Duration = Duration::from_secs(30);
/// After congestion, the peer hears of every loss for this time, which doubles up to the longest.
const LEFT: Duration = Duration::from_secs(30);
const LONGEST_LEFT: Duration = Duration::from_secs(480);

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Not before this time, if there is one.
    Waits(Option<Instant>),
    /// The peer hears of all losses until then at most. So many datagrams came since the latest
    /// sample, and so many of them are lost.
    Heard { until: Instant, datagrams: u32, lost: u32 },
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
    left: Duration,
}

impl Default for Trial {
    fn default() -> Self {
        Self { phase: Phase::Waits(None), share: 0.0, before: 0.0, left: LEFT }
    }
}

impl Trial {
    /// Notes a datagram that arrived, or is missing.
    pub(super) fn note(&mut self, now: Instant) {
        self.share -= WEIGHT * self.share;
        let Phase::Heard { until, datagrams, lost } = &mut self.phase else { return };
        *datagrams += 1;
        if *datagrams < SAMPLE {
            return;
        }
        #[allow(clippy::cast_precision_loss, reason = "few datagrams")]
        let after = std::mem::take(lost) as f32 / std::mem::take(datagrams) as f32;
        if after < REMAINS * self.before {
            let left = self.left;
            self.left = (2 * left).min(LONGEST_LEFT);
            self.phase = Phase::Left(now + left);
        } else if *until <= now {
            self.left = LEFT;
            self.phase = Phase::Waits(Some(now + AGAIN));
        }
    }

    /// Notes that the near segment lost datagrams.
    pub(super) fn lose(&mut self, packets: u32) {
        (0..packets).for_each(|_| self.share += WEIGHT * (1.0 - self.share));
        if let Phase::Heard { lost, .. } = &mut self.phase {
            *lost += packets;
        }
    }

    /// Whether the peer is to hear of a loss now.
    pub(super) fn is_heard(&mut self, now: Instant) -> bool {
        match self.phase {
            Phase::Waits(until) if self.share > HEAVY && until.is_none_or(|at| at <= now) => {
                self.before = self.share;
                self.phase = Phase::Heard { until: now + HEARD, datagrams: 0, lost: 0 };
                true
            }
            Phase::Left(until) if now >= until => {
                self.phase = Phase::Waits(None);
                false
            }
            Phase::Heard { .. } | Phase::Left(_) => true,
            Phase::Waits(_) => false,
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
        let heard = pass(&mut trial, &mut now, |number| number % 4 == 0);
        assert!((500..=550).contains(&heard), "of two seconds and a sample: {heard}");
        // A minute has one more trial.
        let more: u32 = (0..20).map(|_| pass(&mut trial, &mut now, |it| it % 4 == 0)).sum();
        assert!((500..=550).contains(&more), "{more}");
    }

    #[test]
    fn a_loss_that_falls_is_left_to_the_peer() {
        let (mut trial, mut now) = (Trial::default(), start());
        // It falls to a tenth once the peer has heard of it, and comes back later.
        let heard = pass(&mut trial, &mut now, |number| {
            if (400..1000).contains(&number) { number % 20 == 0 } else { number % 2 == 0 }
        });
        assert!(heard > 900, "{heard}");
    }

    #[test]
    fn a_small_loss_is_never_tested() {
        let (mut trial, mut now) = (Trial::default(), start());
        assert_eq!(pass(&mut trial, &mut now, |number| number % 10 == 0), 0);
    }
}
