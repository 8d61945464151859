//! Timestamps of RTCP (RFC 3550, section 4), and the round-trip time that they measure.

use crate::rtcp::Echo;
use crate::session::CLOCK_RATE;
use std::time::{Duration, Instant};

/// The longest round-trip time; longer ones count as this.
const MAX_RTT: Duration = Duration::from_secs(1);
/// The assumed round-trip time until it is measured.
const INITIAL_RTT: Duration = Duration::from_millis(100);
/// The clock's value at its origin. Zero would mean "none" in reports.
const ORIGIN: Duration = Duration::from_secs(3600);

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

/// Another participant's timestamp, to be answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reference {
    ssrc: u32,
    /// The middle 32 bits of the timestamp, in units of 1/65536 s.
    middle: u32,
    came: Instant,
}

impl Reference {
    pub(crate) fn new(ssrc: u32, timestamp: u64, now: Instant) -> Self {
        Self { ssrc, middle: low32(timestamp >> 16), came: now }
    }

    /// The answer that leaves at `now`.
    pub(crate) fn echo(&self, now: Instant) -> Echo {
        let delay = units(now.saturating_duration_since(self.came));
        Echo { ssrc: self.ssrc, last: self.middle, delay }
    }
}

/// A participant's clock, and the smoothed round-trip time that it measures (RFC 6298, section 2).
///
/// The clock counts from its first timestamp. A sender without wall-clock time may use any clock
/// that runs evenly (RFC 3550, section 6.4.1).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundTrip {
    began: Option<Instant>,
    pub(crate) smoothed: Option<Duration>,
    latest: Duration,
}

impl RoundTrip {
    /// The timestamp of `now`: seconds in the upper 32 bits, their fraction in the lower.
    pub(crate) fn timestamp(&mut self, now: Instant) -> u64 {
        let began = *self.began.get_or_insert(now);
        let since = now.saturating_duration_since(began) + ORIGIN;
        let fraction = (u64::from(since.subsec_nanos()) << 32) / 1_000_000_000;
        since.as_secs() << 32 | fraction
    }

    /// Measures the round-trip time by an answer to our timestamp that arrived `now`, unless it is
    /// impossible.
    pub(crate) fn measure(&mut self, echo: &Echo, now: Instant) {
        if echo.last == 0 {
            return;
        }
        let middle = low32(self.timestamp(now) >> 16);
        let units = u64::from(middle.wrapping_sub(echo.last).wrapping_sub(echo.delay));
        let trip = Duration::from_nanos((units * 1_000_000_000) >> 16);
        // A negative time becomes nearly a day.
        if trip <= Duration::from_secs(3600) {
            self.sample(trip.min(MAX_RTT));
        }
    }

    fn sample(&mut self, sample: Duration) {
        self.latest = sample;
        self.smoothed =
            Some(self.smoothed.map_or(sample, |smoothed| smoothed * 7 / 8 + sample / 8));
    }

    /// The larger of the smoothed and the latest value.
    pub(crate) fn current(&self) -> Duration {
        self.smoothed.map_or(INITIAL_RTT, |smoothed| smoothed.max(self.latest))
    }

    /// How long to wait for a requested packet: 9/8 of the round-trip time (kTimeThreshold of RFC
    /// 9002, section 6.1.2).
    pub(crate) fn patience(&self) -> Duration {
        (self.current() * 9 / 8).max(Duration::from_millis(1))
    }

    /// The smoothed value in milliseconds, for reports.
    pub(crate) fn smoothed_ms(&self) -> Option<f64> {
        self.smoothed.map(|rtt| rtt.as_secs_f64() * 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use proptest::prelude::*;

    fn start() -> (RoundTrip, Instant) {
        (RoundTrip::default(), testing::start())
    }

    proptest! {
        #[test]
        fn round_trips_come_out(begin in 0..100_000_000_u64, trip in 0..1000_u64, held in 0..3_000_u64) {
            let (mut rtt, origin) = start();
            rtt.timestamp(origin);
            let ms = Duration::from_millis;
            let sent = rtt.timestamp(origin + ms(begin));
            let arrives = origin + ms(begin + trip / 2);
            let echo = Reference::new(7, sent, arrives).echo(arrives + ms(held));
            rtt.measure(&echo, origin + ms(begin + trip + held));
            let found = rtt.smoothed.unwrap();
            prop_assert!(found.abs_diff(ms(trip)) < Duration::from_micros(50), "{found:?}");
        }
    }

    #[test]
    fn impossible_round_trips_are_ignored() {
        let (mut rtt, origin) = start();
        let last = low32(rtt.timestamp(origin) >> 16);
        // There was no report yet, or the peer held it for longer than it exists.
        for (last, delay) in [(0, 0), (last, 1 << 16)] {
            rtt.measure(&Echo { ssrc: 7, last, delay }, origin);
            assert_eq!(rtt.smoothed, None, "{last} {delay}");
        }
        rtt.measure(&Echo { ssrc: 7, last, delay: 0 }, origin + Duration::from_secs(100));
        assert_eq!(rtt.smoothed, Some(MAX_RTT));
    }

    #[test]
    fn one_long_round_trip_counts_at_once() {
        let (ms, mut rtt) = (Duration::from_millis, start().0);
        assert_eq!((rtt.smoothed, rtt.current()), (None, ms(100)));
        rtt.sample(ms(40));
        assert_eq!((rtt.smoothed, rtt.patience()), (Some(ms(40)), ms(45)));
        rtt.sample(ms(120));
        assert_eq!((rtt.smoothed, rtt.current()), (Some(ms(50)), ms(120)));
    }
}
