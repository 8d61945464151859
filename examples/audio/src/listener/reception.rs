//! What a listener reports about the packets that it gets (RFC 3550, section 6.4.1 and appendix A).

use crate::ntp::units;
use crate::rtcp::Reception;
use crate::session::CLOCK_RATE;
use hdrhistogram::Histogram;
use std::time::{Duration, Instant};

use super::dejitter::micros;

/// A packet that is later than this against the quickest is counted with those of this lateness.
const MAX_LATENESS: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Statistics {
    received: u64,
    /// Of the last report: packets expected and received.
    reported: (u64, u64),
    /// Interarrival jitter in units of the media's clock, times 16 (RFC 3550, appendix A.8).
    jitter_16: u64,
    /// The last packet's arrival and its time in the media's clock, counted on without rollovers.
    last: Option<(Instant, i64)>,
    /// The first packet's, by which transit times are counted, and the shortest of them, in microseconds.
    first: Option<(Instant, i64)>,
    quickest_us: i64,
    /// How much later than the quickest packets came, in microseconds.
    lateness_us: Histogram<u64>,
    sender_report: Option<(u32, Instant)>,
}

impl Statistics {
    pub(super) fn new() -> Result<Self, hdrhistogram::CreationError> {
        Ok(Self {
            received: 0,
            reported: (0, 0),
            jitter_16: 0,
            last: None,
            first: None,
            quickest_us: 0,
            lateness_us: Histogram::new_with_bounds(1, micros(MAX_LATENESS), 3)?,
            sender_report: None,
        })
    }

    /// A packet that was not there before.
    pub(super) fn arrived(&mut self, timestamp: u32, now: Instant) {
        self.received += 1;
        let media = match self.last {
            None => i64::from(timestamp),
            Some((_, last)) => {
                let [.., a, b, c, d] = last.to_be_bytes();
                let step = timestamp.wrapping_sub(u32::from_be_bytes([a, b, c, d])).cast_signed();
                last.saturating_add(step.into())
            }
        };
        let rate = i64::from(CLOCK_RATE);
        if let Some((at, before)) = self.last {
            let ticks = now.saturating_duration_since(at).as_nanos() * u128::from(CLOCK_RATE) / 1_000_000_000;
            let ticks = i64::try_from(ticks).unwrap_or(i64::MAX);
            let difference =
                ticks.saturating_sub(media.saturating_sub(before)).unsigned_abs().min(u32::MAX.into());
            self.jitter_16 = self.jitter_16 + difference - ((self.jitter_16 + 8) >> 4);
        }
        self.last = Some((now, media));
        let (began, first) = *self.first.get_or_insert((now, media));
        let arrival = i64::try_from(now.saturating_duration_since(began).as_micros()).unwrap_or(i64::MAX);
        let transit = arrival.saturating_sub(media.saturating_sub(first).saturating_mul(1_000_000) / rate);
        self.quickest_us = self.quickest_us.min(transit);
        let lateness = transit.saturating_sub(self.quickest_us);
        self.lateness_us.saturating_record(u64::try_from(lateness).unwrap_or(0));
    }

    pub(super) fn sender_reported(&mut self, middle: u32, now: Instant) {
        self.sender_report = Some((middle, now));
    }

    pub(super) fn lateness(&self) -> &Histogram<u64> {
        &self.lateness_us
    }

    /// The report block about `ssrc`, of which `expected` packets must have been sent, the last of them with the number
    /// `highest`.
    pub(super) fn reception(&mut self, ssrc: u32, expected: u64, highest: u32, now: Instant) -> Reception {
        let (expected_before, received_before) = self.reported;
        self.reported = (expected, self.received);
        let expected_since = expected.saturating_sub(expected_before);
        let lost_since = expected_since.saturating_sub(self.received.saturating_sub(received_before));
        let fraction = (lost_since << 8).checked_div(expected_since).unwrap_or(0);
        let lost = expected.saturating_sub(self.received).min(0x7f_ffff);
        let (last_report, delay) = self
            .sender_report
            .map(|(middle, came)| (middle, units(now.saturating_duration_since(came))))
            .unwrap_or_default();
        Reception {
            ssrc,
            fraction_lost: u8::try_from(fraction).unwrap_or(u8::MAX),
            lost: u32::try_from(lost).unwrap_or(0),
            highest,
            jitter: u32::try_from(self.jitter_16 >> 4).unwrap_or(u32::MAX),
            last_report,
            delay,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    #[allow(clippy::disallowed_methods, reason = "virtual time has to begin somewhere")]
    fn start() -> (Statistics, Instant) {
        (Statistics::new().unwrap(), Instant::now())
    }

    #[test]
    fn losses_and_delays_are_reported_since_the_last_report() {
        let (mut statistics, now) = start();
        for number in 0..100 {
            if number % 4 != 0 {
                statistics.arrived(960 * number, now + 20 * number * MS);
            }
        }
        statistics.sender_reported(77, now);
        let report = statistics.reception(5, 100, 99, now + 500 * MS);
        assert_eq!((report.fraction_lost, report.lost, report.jitter), (64, 25, 0));
        assert_eq!((report.last_report, report.delay), (77, 1 << 15));
        let report = statistics.reception(5, 100, 99, now + 600 * MS);
        assert_eq!((report.fraction_lost, report.lost), (0, 25));
    }

    #[test]
    fn jitter_is_that_of_the_rfc() {
        let (mut statistics, now) = start();
        // Every other packet comes 2 ms later: each difference is 96 ticks of 48 kHz.
        for number in 0..2000_u32 {
            statistics.arrived((960 * number).wrapping_sub(3), now + (20 * number + number % 2 * 2) * MS);
        }
        // In whole ticks it settles just below.
        assert_eq!(statistics.reception(5, 2000, 0, now).jitter, 95);
        assert_eq!(statistics.lateness().max(), 2000);
    }

    proptest! {
        #[test]
        fn any_timestamps_are_survived(times in proptest::collection::vec((any::<u32>(), 0..5000_u32), 1..100)) {
            let (mut statistics, mut now) = start();
            for (timestamp, pause) in times {
                now += pause * MS;
                statistics.arrived(timestamp, now);
                statistics.reception(5, pause.into(), timestamp, now);
            }
        }
    }
}
