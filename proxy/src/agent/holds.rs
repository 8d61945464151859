//! How long arriving packets of flows in order waited.

use std::time::Duration;

use hdrhistogram::Histogram;

/// The longest time that is told apart, in microseconds. The gate holds no packet for so long.
const LONGEST: u64 = 10_000_000;

/// The waits of all arriving packets of flows in order, to within a hundredth. They need 20 KB.
#[derive(Clone, Debug)]
pub struct Holds {
    /// In microseconds. `None` never happens, since the bounds are constant.
    waits: Option<Histogram<u64>>,
    sum: Duration,
}

impl Default for Holds {
    fn default() -> Self {
        Self { waits: Histogram::new_with_bounds(1, LONGEST, 2).ok(), sum: Duration::ZERO }
    }
}

impl Holds {
    /// Notes how long a packet waited.
    pub(super) fn note(&mut self, waited: Duration) {
        self.sum += waited;
        let waited = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        self.waits.iter_mut().for_each(|waits| waits.saturating_record(waited));
    }

    /// All of these packets.
    #[must_use]
    pub fn arrived(&self) -> u64 {
        self.waits.as_ref().map_or(0, Histogram::len)
    }

    /// Those that waited for at least a microsecond.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.arrived() - self.waits.as_ref().map_or(0, |waits| waits.count_at(0))
    }

    /// How long all together waited.
    #[must_use]
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// This share of all packets waited at most so long.
    #[must_use]
    pub fn wait(&self, share: f64) -> Duration {
        let us = self.waits.as_ref().map_or(0, |waits| waits.value_at_quantile(share));
        Duration::from_micros(us)
    }

    /// This share of those that waited did so at most so long. `None` if none waited.
    #[must_use]
    pub fn hold(&self, share: f64) -> Option<Duration> {
        let (arrived, held) = (self.arrived() as f64, self.held() as f64);
        (held > 0.0).then(|| self.wait(1.0 - (1.0 - share) * held / arrived))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_did_not_wait_do_not_count_as_held() {
        let mut holds = Holds::default();
        assert_eq!((holds.hold(0.5), holds.wait(0.5)), (None, Duration::ZERO));
        (0..1000).for_each(|_| holds.note(Duration::ZERO));
        (1..=100).for_each(|ms| holds.note(Duration::from_millis(ms)));
        assert_eq!((holds.arrived(), holds.held()), (1100, 100));
        assert_eq!((holds.wait(0.5), holds.sum()), (Duration::ZERO, Duration::from_millis(5050)));
        for (share, ms) in [(0.5, 50), (0.99, 99), (1.0, 100)] {
            let (hold, exact) = (holds.hold(share).unwrap(), Duration::from_millis(ms));
            assert!(hold >= exact && hold <= exact + exact / 100, "{share}: {hold:?}");
        }
        holds.note(Duration::MAX / 2);
        assert!(holds.wait(1.0) >= Duration::from_micros(LONGEST));
    }
}
