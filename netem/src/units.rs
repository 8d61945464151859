//! Quantities with their units. Constructors check their ranges.

use std::fmt;
use std::time::Duration;

/// A rate above zero, in bits a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitRate(u64);

impl BitRate {
    /// The slowest and the fastest rate that a link may have, in Mbit/s.
    pub(crate) const RANGE_MBIT: (f64, f64) = (0.001, 100_000.0);

    /// A rate in Mbit/s (10^6 bits a second); `None` outside [`BitRate::RANGE_MBIT`].
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range is checked just before"
    )]
    pub(crate) fn from_mbit(mbit: f64) -> Option<Self> {
        let (least, most) = Self::RANGE_MBIT;
        (least..=most).contains(&mbit).then(|| Self((mbit * 1e6).round() as u64))
    }

    /// A whole number of bits a second; `None` for 0.
    pub(crate) fn from_bits_per_second(bits: u64) -> Option<Self> {
        (bits > 0).then_some(Self(bits))
    }

    pub(crate) fn bits_per_second(self) -> u64 {
        self.0
    }

    /// The time that `bytes` bytes take, rounded up to a nanosecond.
    pub(crate) fn time_for(self, bytes: u64) -> Duration {
        let nanos = (u128::from(bytes) * 8_000_000_000).div_ceil(u128::from(self.0));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} Mbit/s", self.0 as f64 / 1e6)
    }
}

/// A share from 0 to 100 percent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Percent(f64);

impl Percent {
    /// A share in percent; `None` outside 0 to 100.
    pub(crate) fn new(percent: f64) -> Option<Self> {
        (0.0..=100.0).contains(&percent).then_some(Self(percent))
    }

    /// The share in percent.
    pub(crate) fn get(self) -> f64 {
        self.0
    }

    /// Whether an event of this chance happens, from 64 random bits. At 0 it never happens, at 100
    /// always.
    pub(crate) fn strikes(self, random: u64) -> bool {
        unit_interval(random) < self.0 / 100.0
    }
}

/// The rate of `bytes` in `seconds`, in Mbit/s. 0 if `seconds` is 0.
pub(crate) fn mbit_s(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 * 8e-6 / seconds } else { 0.0 }
}

/// A number uniform over [0, 1), from 64 random bits. An `f64` holds 53 of them exactly.
pub(crate) fn unit_interval(random: u64) -> f64 {
    (random >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_gives_the_time_of_its_bytes() {
        let rate = BitRate::from_mbit(10.0).unwrap();
        assert_eq!(rate.time_for(1250), Duration::from_millis(1));
        assert_eq!(BitRate::from_mbit(3.0).unwrap().time_for(1), Duration::from_nanos(2667));
        assert_eq!(rate.to_string(), "10 Mbit/s");
    }

    #[test]
    fn values_outside_their_range_are_refused() {
        for mbit in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
            assert_eq!(BitRate::from_mbit(mbit), None, "{mbit}");
        }
        for percent in [-0.1, 100.1, f64::NAN] {
            assert_eq!(Percent::new(percent), None, "{percent}");
        }
    }

    #[test]
    fn the_ends_of_the_range_are_certain() {
        let never = Percent::new(0.0).unwrap();
        let always = Percent::new(100.0).unwrap();
        for random in [0, 1, u64::MAX / 2, u64::MAX] {
            assert!(!never.strikes(random));
            assert!(always.strikes(random));
        }
    }
}
