//! Timestamps of RTCP (RFC 3550, section 4), and the round-trip time that they measure.

use crate::session::CLOCK_RATE;
use std::time::{Duration, Instant};

/// The longest round-trip time; longer ones count as this.
const MAX_RTT: Duration = Duration::from_secs(1);
/// The clock's value at its origin. Zero would mean "none" in reports.
const ORIGIN: Duration = Duration::from_secs(3600);

/// A clock that counts from its origin. A sender without wall-clock time may use any clock that
/// runs evenly (RFC 3550, section 6.4.1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct NtpClock(Instant);

impl NtpClock {
    pub(crate) fn new(origin: Instant) -> Self {
        Self(origin)
    }

    /// The timestamp of `now`: seconds in the upper 32 bits, their fraction in the lower.
    pub(crate) fn at(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.0) + ORIGIN;
        let fraction = (u64::from(since.subsec_nanos()) << 32) / 1_000_000_000;
        since.as_secs() << 32 | fraction
    }

    /// The round-trip time to a peer that held our timestamp `last` for `delay`, and whose answer
    /// arrived `now`. Both are as in reports: LSR and DLSR, or LRR and DLRR. `None` if they are
    /// impossible.
    pub(crate) fn round_trip(&self, last: u32, delay: u32, now: Instant) -> Option<Duration> {
        if last == 0 {
            return None;
        }
        let units = middle(self.at(now)).wrapping_sub(last).wrapping_sub(delay);
        // A negative time becomes nearly a day.
        let trip = duration(units);
        (trip <= Duration::from_secs(3600)).then(|| trip.min(MAX_RTT))
    }
}

/// The middle 32 bits of a timestamp, to which reports refer, in units of 1/65536 s.
pub(crate) fn middle(timestamp: u64) -> u32 {
    low32(timestamp >> 16)
}

/// A duration in units of 1/65536 s.
pub(crate) fn units(duration: Duration) -> u32 {
    u32::try_from((duration.as_nanos() << 16) / 1_000_000_000).unwrap_or(u32::MAX)
}

/// A duration in ticks of the media's clock.
pub(crate) fn ticks(duration: Duration) -> u64 {
    let ticks = duration.as_nanos() * u128::from(CLOCK_RATE) / 1_000_000_000;
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

/// The low 32 bits.
pub(crate) fn low32(number: u64) -> u32 {
    let [.., a, b, c, d] = number.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// The low 16 bits.
pub(crate) fn low16(number: u32) -> u16 {
    let [.., high, low] = number.to_be_bytes();
    u16::from_be_bytes([high, low])
}

fn duration(units: u32) -> Duration {
    Duration::from_nanos((u64::from(units) * 1_000_000_000) >> 16)
}

/// A smoothed round-trip time (RFC 6298, section 2).
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrip {
    initial: Duration,
    pub(crate) smoothed: Option<Duration>,
    latest: Duration,
}

impl RoundTrip {
    /// `initial` is the value until the first sample.
    pub(crate) fn new(initial: Duration) -> Self {
        Self { initial, smoothed: None, latest: Duration::ZERO }
    }

    pub(crate) fn sample(&mut self, sample: Duration) {
        self.latest = sample;
        self.smoothed =
            Some(self.smoothed.map_or(sample, |smoothed| smoothed * 7 / 8 + sample / 8));
    }

    /// The larger of the smoothed and the latest value.
    pub(crate) fn current(&self) -> Duration {
        self.smoothed.map_or(self.initial, |smoothed| smoothed.max(self.latest))
    }

    /// How long to wait for a requested packet: 9/8 of the round-trip time (kTimeThreshold of RFC
    /// 9002, section 6.1.2).
    pub(crate) fn patience(&self) -> Duration {
        (self.current() * 9 / 8).max(Duration::from_millis(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[allow(clippy::disallowed_methods, reason = "virtual time has to begin somewhere")]
    fn start() -> Instant {
        Instant::now()
    }

    proptest! {
        #[test]
        fn round_trips_come_out(begin in 0..100_000_000_u64, trip in 0..1000_u64, held in 0..3_000_u64) {
            let origin = start();
            let clock = NtpClock::new(origin);
            let ms = Duration::from_millis;
            let last = middle(clock.at(origin + ms(begin)));
            let now = origin + ms(begin + trip + held);
            let found = clock.round_trip(last, units(ms(held)), now).unwrap();
            prop_assert!(found.abs_diff(ms(trip)) < Duration::from_micros(50), "{found:?}");
        }
    }

    #[test]
    fn impossible_round_trips_are_ignored() {
        let origin = start();
        let clock = NtpClock::new(origin);
        let last = middle(clock.at(origin));
        assert_eq!(clock.round_trip(0, 0, origin), None, "no report yet");
        assert_eq!(
            clock.round_trip(last, units(Duration::from_secs(1)), origin),
            None,
            "the peer held it for longer than it exists"
        );
        let long = clock.round_trip(last, 0, origin + Duration::from_secs(100));
        assert_eq!(long, Some(MAX_RTT));
    }

    #[test]
    fn one_long_round_trip_counts_at_once() {
        let ms = Duration::from_millis;
        let mut rtt = RoundTrip::new(ms(100));
        assert_eq!((rtt.smoothed, rtt.current()), (None, ms(100)));
        rtt.sample(ms(40));
        assert_eq!((rtt.smoothed, rtt.patience()), (Some(ms(40)), ms(45)));
        rtt.sample(ms(120));
        assert_eq!((rtt.smoothed, rtt.current()), (Some(ms(50)), ms(120)));
    }
}
