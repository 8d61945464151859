//! Messages at a constant rate on one stream, and the delay of messages behind a lost one.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::record::Percentiles;
use crate::scenario::Flow;

/// The longest recorded delay. A connection times out earlier.
const MOST_WAIT_US: u64 = 600_000_000;

/// When the bytes of a stream become available to the sender.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    interval: Duration,
    each: u64,
    count: u32,
    begin: Option<Instant>,
    due: u32,
}

impl Pace {
    pub(super) fn of(flow: &Flow) -> Self {
        Self {
            interval: flow.frame_interval,
            each: flow.frame_bytes.into(),
            count: flow.frames(),
            begin: None,
            due: 0,
        }
    }

    /// The bytes of the messages that are due by `now`. The first message is due at the first call.
    pub(super) fn due(&mut self, now: Instant) -> u64 {
        let begin = *self.begin.get_or_insert(now);
        while self.due < self.count && begin + self.interval * self.due <= now {
            self.due += 1;
        }
        self.each * u64::from(self.due)
    }

    pub(super) fn next(&self) -> Option<Instant> {
        (self.due < self.count).then_some(self.begin? + self.interval * self.due)
    }

    /// How much longer than the quickest each message took, in milliseconds. The last byte of each
    /// message arrived at `arrivals`.
    pub(super) fn head_of_line(&self, arrivals: &[Instant]) -> Option<Percentiles> {
        let begin = self.begin?;
        let took = arrivals.iter().zip(0_u32..).map(|(arrival, number)| {
            arrival.saturating_duration_since(begin + self.interval * number)
        });
        let quickest = took.clone().min()?;
        let mut histogram = Histogram::<u64>::new_with_max(MOST_WAIT_US, 3).ok()?;
        for took in took {
            let waited = u64::try_from((took - quickest).as_micros()).unwrap_or(u64::MAX);
            histogram.saturating_record(waited);
        }
        Some(Percentiles::of(&histogram))
    }
}

/// When the messages of a stream arrived, each with all earlier ones.
#[derive(Clone, Debug)]
pub(super) struct Arrivals {
    each: u64,
    pub(super) times: Vec<Instant>,
}

impl Arrivals {
    /// No arrivals yet, for the messages of `flow`.
    pub(super) fn of(flow: &Flow) -> Self {
        Self { each: u64::from(flow.frame_bytes).max(1), times: Vec::new() }
    }

    /// Notes that `bytes` of the stream have arrived by `now`.
    pub(super) fn note(&mut self, bytes: u64, now: Instant) {
        let whole = usize::try_from(bytes / self.each).unwrap_or(usize::MAX);
        if whole > self.times.len() {
            self.times.resize(whole, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use virtual_time::World;

    #[test]
    fn a_message_waits_for_those_ahead_of_it() {
        let world = World::enter(1).unwrap();
        let at = |ms| world.start() + Duration::from_millis(ms);
        let flow = Flow { limit: Some(Duration::from_millis(60)), ..Flow::default() };
        let (mut pace, mut arrivals) = (Pace::of(&flow), Arrivals::of(&flow));
        assert_eq!((flow.frames(), pace.next()), (3, None));
        assert_eq!((pace.due(at(10)), pace.next()), (240, Some(at(30))));
        assert_eq!((pace.due(at(29)), pace.due(at(30)), pace.next()), (240, 480, Some(at(50))));
        assert_eq!((pace.due(at(100)), pace.next()), (720, None));
        // The second message is lost, so the third arrives together with it.
        for (bytes, ms) in [(239, 35), (240, 36), (300, 37), (720, 94)] {
            arrivals.note(bytes, at(ms));
        }
        assert_eq!(arrivals.times, [at(36), at(94), at(94)]);
        let waits = pace.head_of_line(&arrivals.times).unwrap();
        let near = |wait: f64, wanted: f64| (wait / wanted - 1.0).abs() < 1e-3;
        assert!(
            near(waits.p50, 18.0) && near(waits.p99, 38.0) && near(waits.max, 38.0),
            "{waits:?}"
        );
    }
}
