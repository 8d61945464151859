//! Models of random loss.

use super::Draws;
use crate::units::Percent;

/// How losses depend on each other. The model defines the meaning of [`super::LinkConfig::loss`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum LossModel {
    /// Each packet is lost by the chance of the link's `loss`, independently of the others.
    #[default]
    Independent,
    /// With this chance, which is the correlation of neighbouring fates, a packet has the same fate
    /// as the previous one. Otherwise it is lost by the chance of the link's `loss`, which stays
    /// the long-term share.
    Correlated(Percent),
    /// Two states of the link (Gilbert 1960, Elliott 1963), which may change after each packet,
    /// determine the chance of loss: in the good state, it is the link's `loss`.
    GilbertElliott {
        /// The chance of each packet to change the state from good to bad.
        to_bad: Percent,
        /// The chance of each packet to change the state from bad to good.
        to_good: Percent,
        /// The chance of a packet to be lost in the bad state.
        bad_loss: Percent,
    },
}

/// The state of a loss model. A link begins in the good state.
#[derive(Debug, Default)]
pub(super) struct LossState {
    /// Whether the previous packet was lost. `None` before the first.
    last: Option<bool>,
    bad: bool,
}

impl LossState {
    /// Decides whether the next packet is lost.
    pub(super) fn strikes(&mut self, loss: Percent, model: LossModel, draws: &Draws) -> bool {
        let lost = match (model, self.last) {
            (LossModel::Correlated(chance), Some(last)) if chance.strikes(draws.loss_state) => last,
            (LossModel::GilbertElliott { bad_loss, .. }, _) if self.bad => {
                bad_loss.strikes(draws.loss)
            }
            _ => loss.strikes(draws.loss),
        };
        if let LossModel::GilbertElliott { to_bad, to_good, .. } = model {
            let turns = if self.bad { to_good } else { to_bad };
            self.bad ^= turns.strikes(draws.loss_state);
        }
        self.last = Some(lost);
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::super::RandomStreams;
    use super::*;

    const COUNT: usize = 400_000;

    fn percent(value: f64) -> Percent {
        Percent::new(value).unwrap()
    }

    fn fates(loss: f64, model: LossModel, seed: u64) -> Vec<bool> {
        let (mut state, mut streams) = (LossState::default(), RandomStreams::new(seed, 0));
        (0..COUNT).map(|_| state.strikes(percent(loss), model, &streams.draw())).collect()
    }

    fn share(fates: &[bool]) -> f64 {
        fates.iter().filter(|&&lost| lost).count() as f64 / fates.len() as f64
    }

    /// Five standard deviations of the share of a two-state chain with this correlation of
    /// neighbours.
    fn bound(share: f64, correlation: f64) -> f64 {
        5.0 * (share * (1.0 - share) / COUNT as f64 * (1.0 + correlation) / (1.0 - correlation))
            .sqrt()
    }

    fn mean_burst(fates: &[bool]) -> f64 {
        let begins =
            fates.windows(2).filter(|pair| !pair[0] && pair[1]).count() + usize::from(fates[0]);
        fates.iter().filter(|&&lost| lost).count() as f64 / begins as f64
    }

    #[test]
    fn correlated_losses_have_their_share_and_their_correlation() {
        for (seed, loss, correlation) in
            [(1, 2.0, 25.0), (2, 10.0, 50.0), (3, 30.0, 90.0), (4, 5.0, 0.0)]
        {
            let fates = fates(loss, LossModel::Correlated(percent(correlation)), seed);
            let (p, rho) = (loss / 100.0, correlation / 100.0);
            assert!(
                (share(&fates) - p).abs() < bound(p, rho),
                "{loss} {correlation}: {}",
                share(&fates)
            );
            let both =
                fates.windows(2).filter(|pair| pair[0] && pair[1]).count() as f64 / COUNT as f64;
            let p = share(&fates);
            let measured = (both - p * p) / (p * (1.0 - p));
            assert!((measured - rho).abs() < 0.02, "{loss} {correlation}: {measured}");
        }
    }

    #[test]
    fn gilbert_elliott_has_its_stationary_loss_and_bursts() {
        for (seed, to_bad, to_good) in [(1, 1.0, 20.0), (2, 0.5, 50.0), (3, 5.0, 5.0)] {
            let model = LossModel::GilbertElliott {
                to_bad: percent(to_bad),
                to_good: percent(to_good),
                bad_loss: percent(100.0),
            };
            let fates = fates(0.0, model, seed);
            let (p, r) = (to_bad / 100.0, to_good / 100.0);
            let stationary = p / (p + r);
            let off = (share(&fates) - stationary).abs();
            assert!(off < bound(stationary, 1.0 - p - r), "{to_bad} {to_good}: {}", share(&fates));
            // A burst is geometric: mean 1/r, variance (1-r)/r^2.
            let bursts = COUNT as f64 * stationary * r;
            let sigma = ((1.0 - r) / (r * r) / bursts).sqrt();
            assert!(
                (mean_burst(&fates) - 1.0 / r).abs() < 5.0 * sigma,
                "{to_good}: {}",
                mean_burst(&fates)
            );
        }
    }

    #[test]
    fn both_states_can_lose_some_and_spare_some() {
        let model = LossModel::GilbertElliott {
            to_bad: percent(2.0),
            to_good: percent(8.0),
            bad_loss: percent(40.0),
        };
        let expected = 0.8 * 0.01 + 0.2 * 0.4;
        let measured = share(&fates(1.0, model, 9));
        assert!((measured - expected).abs() < bound(expected, 0.9), "{measured}");
    }

    #[test]
    fn a_correlation_of_zero_is_independence() {
        assert_eq!(
            fates(7.0, LossModel::Correlated(percent(0.0)), 3),
            fates(7.0, LossModel::Independent, 3)
        );
    }
}
