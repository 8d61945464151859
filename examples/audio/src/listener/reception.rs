//! A listener's reports of the packets that arrive (RFC 3550, section 6.4.1 and appendix A).

use crate::ntp::{Reference, low32, ticks};
use crate::session::CLOCK_RATE;
use hdrhistogram::Histogram;
use rtcp_types::{ReportBlock, ReportBlockBuilder};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::dejitter::micros;

/// The number and length of the intervals over which the shortest transit time is taken. In that
/// time, clocks 100 ppm apart drift by 1 ms. A pause of the talker is forgotten after it.
const QUICKEST_OF: u64 = 10;
const QUICKEST_INTERVAL: Duration = Duration::from_secs(1);
/// Greater lateness counts as this.
const MAX_LATENESS: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Statistics {
    received: u64,
    /// Packets expected and received at the last report.
    reported: (u64, u64),
    /// Interarrival jitter in units of the media's clock, times 16 (RFC 3550, appendix A.8).
    jitter_16: u64,
    /// The last packet's arrival, and its timestamp without rollovers.
    last: Option<(Instant, i64)>,
    /// Those of the first packet, from which transit times count.
    first: Option<(Instant, i64)>,
    /// The last intervals with packets, and the shortest transit time in each, in microseconds.
    quickest_us: VecDeque<(u64, i64)>,
    /// The lateness against the shortest transit time of the packets that came in time, in
    /// microseconds.
    pub(super) lateness_us: Histogram<u64>,
    /// The clock of the last sender report.
    pub(super) sender_report: Option<Reference>,
}

impl Statistics {
    pub(super) fn new() -> Result<Self, hdrhistogram::CreationError> {
        Ok(Self {
            received: 0,
            reported: (0, 0),
            jitter_16: 0,
            last: None,
            first: None,
            quickest_us: VecDeque::new(),
            lateness_us: Histogram::new_with_bounds(1, micros(MAX_LATENESS), 3)?,
            sender_report: None,
        })
    }

    /// Records a new packet. One that is not `in_time` was skipped, and already counts as lost.
    pub(super) fn arrived(&mut self, timestamp: u32, in_time: bool, now: Instant) {
        self.received += 1;
        let media = match self.last {
            None => i64::from(timestamp),
            Some((_, last)) => {
                let step = timestamp.wrapping_sub(low32(last.cast_unsigned())).cast_signed();
                last.saturating_add(step.into())
            }
        };
        let rate = i64::from(CLOCK_RATE);
        if let Some((at, before)) = self.last {
            let ticks = ticks(now.saturating_duration_since(at));
            let ticks = i64::try_from(ticks).unwrap_or(i64::MAX);
            let difference = ticks
                .saturating_sub(media.saturating_sub(before))
                .unsigned_abs()
                .min(u32::MAX.into());
            self.jitter_16 = self.jitter_16 + difference - ((self.jitter_16 + 8) >> 4);
        }
        self.last = Some((now, media));
        let (began, first) = *self.first.get_or_insert((now, media));
        let since = now.saturating_duration_since(began);
        let arrival = i64::try_from(since.as_micros()).unwrap_or(i64::MAX);
        let transit =
            arrival.saturating_sub(media.saturating_sub(first).saturating_mul(1_000_000) / rate);
        let lateness = transit.saturating_sub(self.quickest(transit, since));
        if in_time {
            self.lateness_us.saturating_record(u64::try_from(lateness).unwrap_or(0));
        }
    }

    /// The shortest recent transit time, including this one.
    fn quickest(&mut self, transit: i64, since: Duration) -> i64 {
        let interval = since.as_secs() / QUICKEST_INTERVAL.as_secs();
        match self.quickest_us.back_mut() {
            Some((last, quickest)) if *last == interval => *quickest = transit.min(*quickest),
            _ => self.quickest_us.push_back((interval, transit)),
        }
        while self.quickest_us.front().is_some_and(|(first, _)| first + QUICKEST_OF <= interval) {
            self.quickest_us.pop_front();
        }
        self.quickest_us.iter().map(|(_, quickest)| *quickest).min().unwrap_or(transit)
    }

    /// The report block about `ssrc`, which sent `expected` packets; `highest` is the extended
    /// number of the last.
    pub(super) fn reception(
        &mut self,
        ssrc: u32,
        expected: u64,
        highest: u32,
        now: Instant,
    ) -> ReportBlockBuilder {
        let (expected_before, received_before) = self.reported;
        self.reported = (expected, self.received);
        let expected_since = expected.saturating_sub(expected_before);
        let lost_since =
            expected_since.saturating_sub(self.received.saturating_sub(received_before));
        let fraction = (lost_since << 8).checked_div(expected_since).unwrap_or(0);
        let lost = expected.saturating_sub(self.received).min(0x7f_ffff);
        let block = ReportBlock::builder(ssrc)
            .fraction_lost(u8::try_from(fraction).unwrap_or(u8::MAX))
            .cumulative_lost(u32::try_from(lost).unwrap_or(0))
            .extended_sequence_number(highest)
            .interarrival_jitter(u32::try_from(self.jitter_16 >> 4).unwrap_or(u32::MAX));
        let Some(answer) = self.sender_report.map(|clock| clock.echo(now)) else { return block };
        block
            .last_sender_report_timestamp(answer.last)
            .delay_since_last_sender_report_timestamp(answer.delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, MS};
    use proptest::prelude::*;

    fn start() -> (Statistics, Instant) {
        (Statistics::new().unwrap(), testing::start())
    }

    #[test]
    fn losses_and_delays_are_reported_since_the_last_report() {
        let (mut statistics, now) = start();
        for number in 0..100 {
            if number % 4 != 0 {
                statistics.arrived(960 * number, true, now + 20 * number * MS);
            }
        }
        statistics.sender_report = Some(Reference::new(5, 77 << 16, now));
        for (after, fraction, delay) in [(500, 64, 1 << 15), (750, 0, 3 << 14)] {
            let wanted = ReportBlock::builder(5)
                .fraction_lost(fraction)
                .cumulative_lost(25)
                .extended_sequence_number(99)
                .last_sender_report_timestamp(77)
                .delay_since_last_sender_report_timestamp(delay);
            assert_eq!(statistics.reception(5, 100, 99, now + after * MS), wanted);
        }
    }

    #[test]
    fn jitter_is_that_of_the_rfc() {
        let (mut statistics, now) = start();
        // Every other packet comes 2 ms later: each difference is 96 ticks of 48 kHz.
        for number in 0..2000_u32 {
            statistics.arrived(
                (960 * number).wrapping_sub(3),
                true,
                now + (20 * number + number % 2 * 2) * MS,
            );
        }
        // In whole ticks it settles just below.
        assert_eq!(statistics.jitter_16 >> 4, 95);
        assert_eq!(statistics.lateness_us.max(), 2000);
    }

    #[test]
    fn clocks_that_drift_apart_make_no_packet_late() {
        // Two hours, 50 ppm apart: 360 ms in the end.
        for interval in [Duration::from_nanos(20_001_000), Duration::from_nanos(19_999_000)] {
            let (mut statistics, now) = start();
            for number in 0..360_000_u32 {
                statistics.arrived(960_u32.wrapping_mul(number), true, now + number * interval);
            }
            assert!(statistics.lateness_us.max() <= 501, "{} us", statistics.lateness_us.max());
        }
    }

    #[test]
    fn a_pause_of_the_talker_is_soon_forgotten() {
        let (mut statistics, now) = start();
        for number in 0..3000 {
            let pause = if number < 1000 { 0 } else { 1000 };
            statistics.arrived(960 * number, true, now + (20 * number + pause) * MS);
        }
        let late = statistics.lateness_us.len() - statistics.lateness_us.count_between(0, 1000);
        assert!(
            (400..=500).contains(&late),
            "{late} packets are late against those before the pause"
        );
    }

    #[test]
    fn a_skipped_packet_counts_as_lost_and_not_as_late() {
        let (mut statistics, now) = start();
        statistics.arrived(0, true, now);
        statistics.arrived(960, false, now + 5000 * MS);
        assert_eq!((statistics.lateness_us.len(), statistics.received), (1, 2));
    }

    proptest! {
        #[test]
        fn any_timestamps_are_survived(times in proptest::collection::vec((any::<u32>(), 0..5000_u32), 1..100)) {
            let (mut statistics, mut now) = start();
            for (timestamp, pause) in times {
                now += pause * MS;
                statistics.arrived(timestamp, pause % 2 == 0, now);
                let _ = statistics.reception(5, pause.into(), timestamp, now);
            }
        }
    }
}
