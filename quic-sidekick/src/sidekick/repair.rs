//! Decides how the connection repairs packets that were lost before the proxy.

use crate::auto::Chosen;
use crate::config::{Mode, Paper};
use crate::measured::{Measured, NearQueue};
use quiche::sidekick::Reaction;
use sidekick_protocol::NearLoss;
use std::time::Instant;

/// A re-injected datagram leaves at once, in addition to what the controller sends. Where more than
/// this share of the losses is congestion, that addition would be lost again and again. So the
/// frames are resent within what the controller sends.
const SHARED: f32 = 0.3;
/// The share is the mean over about so many reports of losses: packets that probe for bandwidth
/// are lost by congestion even where few others are.
const SMOOTHING: f32 = 16.0;

/// How the connection repairs lost packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Repair {
    /// It re-injects the datagrams. The congestion controller does not learn of the loss.
    Reinject,
    /// It declares the packets lost and resends their frames. The congestion controller reacts as
    /// stated.
    EarlyLoss(Reaction),
}

/// The repairs of packets that are lost at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Repairs {
    /// Of those lost by congestion.
    pub(crate) of_congestion: Repair,
    /// Of the others.
    pub(crate) of_random: Repair,
}

/// Decides on the repair by the mode and by the measurements.
#[derive(Debug)]
pub(crate) struct RepairPolicy {
    mode: Mode,
    near_queue: NearQueue,
    /// The mean share of the losses that is congestion.
    congestion: f32,
    /// The latest choice of [`Mode::Auto`].
    chosen: Chosen,
}

impl RepairPolicy {
    pub(crate) fn new(mode: Mode) -> Self {
        Self { mode, near_queue: NearQueue::default(), congestion: 0.0, chosen: Chosen::FIRST }
    }

    /// The latest choice of [`Mode::Auto`]; `None` in another mode.
    pub(crate) fn chosen(&self) -> Option<Chosen> {
        (self.mode == Mode::Auto).then_some(self.chosen)
    }

    /// Notes the measurements at `now`. The connection calls it for each quACK, so that a queue's
    /// age is known when packets are lost.
    pub(crate) fn observe(&mut self, measured: Option<Measured>, now: Instant) {
        if let Some(measured) = measured {
            self.near_queue.observe(measured, now);
        }
    }

    /// Decides on the repair of packets that were found lost at `now`, while the near segment loses
    /// packets as stated.
    pub(crate) fn decide(
        &mut self,
        measured: Option<Measured>,
        near_loss: NearLoss,
        now: Instant,
    ) -> Repairs {
        let queued = match self.mode {
            Mode::Paper(Paper::Pacubic) => self.near_queue.is_overflowing(measured, now),
            _ => self.near_queue.is_congested(measured, now),
        };
        self.congestion += (near_loss.congestion - self.congestion) / SMOOTHING;
        if self.mode == Mode::Auto && measured.is_some() {
            self.choose(Chosen::for_loss(queued, near_loss.congestion > 0.5));
        }
        // No mode hides congestion.
        let of_congestion = Repair::EarlyLoss(Reaction::Congestion);
        let of_random = if queued { of_congestion } else { self.of_random(measured) };
        Repairs { of_congestion, of_random }
    }

    fn of_random(&self, measured: Option<Measured>) -> Repair {
        match self.mode {
            // Without measurements the packets count as any loss.
            Mode::Auto if measured.is_none() => Repair::EarlyLoss(Reaction::Loss),
            Mode::Auto if self.congestion > SHARED => Repair::EarlyLoss(Reaction::Neutered),
            Mode::Auto | Mode::Reinject | Mode::Receive => Repair::Reinject,
            Mode::Paper(Paper::EarlyLoss | Paper::AckReduction) => {
                Repair::EarlyLoss(Reaction::Loss)
            }
            Mode::Paper(Paper::PathAwareBbr) => Repair::EarlyLoss(Reaction::Neutered),
            Mode::Paper(Paper::Pacubic) => Repair::EarlyLoss(match measured {
                Some(Measured { near, whole, .. }) if !whole.is_zero() => {
                    Reaction::NearLoss { ratio: near.as_secs_f64() / whole.as_secs_f64() }
                }
                _ => Reaction::Loss,
            }),
        }
    }

    fn choose(&mut self, chosen: Chosen) {
        if chosen != self.chosen {
            tracing::debug!(%chosen, "auto mode chose another repair");
            self.chosen = chosen;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Why;
    use crate::measured::tests::{MS, measured};

    const EARLY_LOSS: Mode = Mode::Paper(Paper::EarlyLoss);

    #[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
    fn start() -> Instant {
        Instant::now()
    }

    /// The mode whose repair auto mode uses for a loss at `now`.
    fn mode_of(policy: &mut RepairPolicy, measured: Option<Measured>, now: Instant) -> Mode {
        policy.observe(measured, now);
        match policy.decide(measured, NearLoss::default(), now).of_random {
            Repair::Reinject => Mode::Reinject,
            Repair::EarlyLoss(_) => EARLY_LOSS,
        }
    }

    fn auto() -> RepairPolicy {
        RepairPolicy::new(Mode::Auto)
    }

    /// The distance to the proxy does not matter, and a queue does once it stands.
    #[test]
    fn each_path_gets_its_repair() {
        let now = start();
        for (measured, mode, why) in [
            (measured(2, 0, 52), Mode::Reinject, Why::RandomLoss),
            (measured(7, 5, 57), Mode::Reinject, Why::RandomLoss),
            (measured(30, 20, 80), EARLY_LOSS, Why::NearQueue),
            (measured(300, 20, 700), Mode::Reinject, Why::RandomLoss),
            (measured(50, 0, 52), Mode::Reinject, Why::RandomLoss),
            (measured(80, 0, 81), Mode::Reinject, Why::RandomLoss),
        ] {
            let mut policy = auto();
            assert_eq!(policy.chosen().unwrap().why, Why::NoLoss);
            for round_trips in 0..3 {
                policy.observe(Some(measured), now + round_trips * measured.whole);
            }
            let later = now + 3 * measured.whole;
            assert_eq!(mode_of(&mut policy, Some(measured), later), mode, "{measured:?}");
            assert_eq!(policy.chosen(), Some(Chosen { mode, why }), "{measured:?}");
        }
        assert_eq!(mode_of(&mut auto(), None, now), EARLY_LOSS);
    }

    /// Some packets are delayed, others are not: a queue would delay them all.
    #[test]
    fn jitter_is_no_queue() {
        let (now, mut policy) = (start(), auto());
        let jitter = Measured { standing: MS, ..measured(12, 10, 60) };
        policy.observe(Some(jitter), now);
        assert_eq!(mode_of(&mut policy, Some(jitter), now + 1000 * MS), Mode::Reinject);
    }

    /// A search for bandwidth fills a queue that drains soon. A loss meanwhile is no congestion.
    #[test]
    fn a_queue_is_congestion_once_it_stands_for_three_round_trips() {
        let (begin, mut policy) = (start(), auto());
        let (queued, empty) = (Some(measured(50, 48, 100)), Some(measured(3, 1, 53)));
        for (after, measured, mode) in [
            (0, queued, Mode::Reinject),
            (100, queued, Mode::Reinject),
            (200, queued, Mode::Reinject),
            (299, queued, Mode::Reinject),
            (300, empty, Mode::Reinject),
            (310, queued, Mode::Reinject),
            (410, queued, Mode::Reinject),
            (510, queued, Mode::Reinject),
            (609, queued, Mode::Reinject),
            (610, queued, EARLY_LOSS),
        ] {
            assert_eq!(mode_of(&mut policy, measured, begin + after * MS), mode, "{after} ms");
        }
    }

    #[test]
    fn without_measurements_no_queue_overflows() {
        let mut policy = RepairPolicy::new(Mode::Paper(Paper::Pacubic));
        let repairs = policy.decide(None, NearLoss::default(), start());
        assert_eq!(repairs.of_random, Repair::EarlyLoss(Reaction::Loss));
    }

    /// A shallow queue delays nothing, so `auto` has to see it by the losses alone.
    #[test]
    fn losses_by_the_load_are_left_to_the_controller() {
        let (mut policy, measured) = (auto(), Some(measured(2, 0, 52)));
        let (hidden, resent) = (Repair::Reinject, Repair::EarlyLoss(Reaction::Neutered));
        for (congestion, reports, of_random, mode, why) in [
            (0.1, 100, hidden, Mode::Reinject, Why::RandomLoss),
            // What a probe for bandwidth loses is no reason yet.
            (0.9, 4, hidden, EARLY_LOSS, Why::Load),
            (0.9, 20, resent, EARLY_LOSS, Why::Load),
            (0.1, 40, hidden, Mode::Reinject, Why::RandomLoss),
        ] {
            let near_loss = NearLoss { rate: 0.1, congestion };
            let mut repairs = policy.decide(measured, near_loss, start());
            for _ in 1..reports {
                repairs = policy.decide(measured, near_loss, start());
            }
            assert_eq!(repairs.of_congestion, Repair::EarlyLoss(Reaction::Congestion));
            assert_eq!(repairs.of_random, of_random, "{congestion} in {reports} reports");
            assert_eq!(policy.chosen(), Some(Chosen { mode, why }));
        }
    }

    #[test]
    fn congestion_is_remembered_for_three_round_trips() {
        let (begin, mut policy) = (start(), auto());
        let (queued, now) = (Some(measured(50, 48, 100)), begin + 300 * MS);
        for after in [0, 100, 200] {
            mode_of(&mut policy, queued, begin + after * MS);
        }
        assert_eq!(mode_of(&mut policy, queued, now), EARLY_LOSS);
        let later = Some(measured(3, 1, 53));
        assert_eq!(mode_of(&mut policy, later, now + 299 * MS), EARLY_LOSS);
        assert_eq!(mode_of(&mut policy, later, now + 300 * MS), Mode::Reinject);
        assert_eq!(
            policy.chosen().unwrap().to_string(),
            "reinject: packets are lost before the proxy, and no queue stands there"
        );
    }
}
