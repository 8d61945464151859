//! Delays that vary from packet to packet.

use std::time::Duration;

use rand_chacha::rand_core::Rng;

use crate::units::unit_interval;

/// The number of halves of 64-bit draws in the sum for one normal deviate. With twelve, the
/// variance is 1.
const UNIFORMS: u32 = 12;

/// The variation of a delay from packet to packet. By default, the delay does not vary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Jitter {
    /// If uniform, the greatest difference from the delay. If normal, the standard deviation.
    pub spread: Duration,
    /// The distribution.
    pub shape: JitterShape,
    /// Whether a packet with a shorter delay overtakes others. If not, it waits for them.
    pub reorders: bool,
}

/// The distribution of a jitter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JitterShape {
    /// Every difference up to the spread is equally likely.
    #[default]
    Uniform,
    /// Normal. The sum of twelve draws limits it to six standard deviations.
    Normal,
}

impl Jitter {
    /// The delay of one packet, not below zero.
    pub(super) fn delay(self, mean: Duration, random: &mut impl Rng) -> Duration {
        if self.spread.is_zero() {
            return mean;
        }
        let spreads = match self.shape {
            JitterShape::Uniform => 2.0 * unit_interval(random.next_u64()) - 1.0,
            JitterShape::Normal => standard_normal(random),
        };
        let difference = self.spread.mul_f64(spreads.abs());
        if spreads < 0.0 { mean.saturating_sub(difference) } else { mean + difference }
    }
}

/// A deviate of mean 0 and variance 1: the sum of twelve uniform ones. Every machine draws the same
/// number to the last bit, because it uses only sums; the logarithms of two libraries may differ.
fn standard_normal(random: &mut impl Rng) -> f64 {
    let sum: f64 = (0..UNIFORMS).map(|_| f64::from(random.next_u32()) + 0.5).sum();
    sum / (f64::from(u32::MAX) + 1.0) - f64::from(UNIFORMS) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    const COUNT: usize = 40_000;
    /// The largest distance of an empirical distribution of so many samples from its own, exceeded
    /// one time in 10^6 (Kolmogorov, Smirnov).
    const KOLMOGOROV: f64 = 2.7 / 200.0;

    /// Sorted delays about 100 ms with a spread of 10 ms, as distances from the mean in units of
    /// the spread.
    fn sample(shape: JitterShape) -> Vec<f64> {
        let mut random = ChaCha8Rng::seed_from_u64(5);
        let jitter = Jitter { spread: Duration::from_millis(10), shape, reorders: false };
        let delay =
            |_| (jitter.delay(Duration::from_millis(100), &mut random).as_secs_f64() - 0.1) / 0.01;
        let mut sample: Vec<f64> = (0..COUNT).map(delay).collect();
        sample.sort_by(f64::total_cmp);
        sample
    }

    fn distance(sample: &[f64], distribution: impl Fn(f64) -> f64) -> f64 {
        let step = |i: usize| i as f64 / sample.len() as f64;
        sample
            .iter()
            .enumerate()
            .map(|(i, &x)| (distribution(x) - step(i)).abs())
            .fold(0.0, f64::max)
    }

    /// The normal distribution by numerical integration.
    fn normal(x: f64) -> f64 {
        let steps = 2000;
        let width = x / f64::from(steps);
        let density = |z: f64| (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt();
        0.5 + (0..steps).map(|i| density((f64::from(i) + 0.5) * width) * width).sum::<f64>()
    }

    #[test]
    fn uniform_jitter_is_uniform() {
        let sample = sample(JitterShape::Uniform);
        assert!(sample[0] >= -1.0 && sample[COUNT - 1] <= 1.0);
        let distance = distance(&sample, |x| (x + 1.0) / 2.0);
        assert!(distance < KOLMOGOROV, "{distance}");
    }

    #[test]
    fn normal_jitter_is_normal() {
        let sample = sample(JitterShape::Normal);
        let thinned: Vec<f64> = sample.iter().copied().step_by(10).collect();
        let distance = distance(&thinned, normal);
        assert!(distance < KOLMOGOROV, "{distance}");
        let variance = sample.iter().map(|x| x * x).sum::<f64>() / COUNT as f64;
        assert!((variance - 1.0).abs() < 0.04, "{variance}");
    }

    #[test]
    fn no_delay_is_negative() {
        let mut random = ChaCha8Rng::seed_from_u64(5);
        let jitter = Jitter { spread: Duration::from_millis(10), ..Jitter::default() };
        let delays: Vec<_> =
            (0..100).map(|_| jitter.delay(Duration::from_millis(1), &mut random)).collect();
        assert!(
            delays.iter().any(Duration::is_zero) && delays.iter().any(|delay| !delay.is_zero())
        );
    }
}
