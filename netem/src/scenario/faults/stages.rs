//! The effect of faults on a segment of the path over time.

use std::time::Duration;

use super::{Event, Fault, Faults, Place};
use crate::link::{Outage, Outages};
use crate::scenario::Segment;

impl Faults {
    /// The segment at the start of a run, with its outages during the whole run.
    pub fn first_stage(&self, place: Place, segment: &Segment) -> Segment {
        self.stage(place, segment, Duration::ZERO)
    }

    /// The later states of the segment, each with its start since the beginning of the run, in
    /// order.
    pub fn later_stages(&self, place: Place, segment: &Segment) -> Vec<(Duration, Segment)> {
        let changes = |event: &&Event| match event.fault {
            Fault::Delay(of, _) | Fault::Rate(of, _) => of == place,
            _ => false,
        };
        let events = self.events.iter().filter(changes);
        let mut times: Vec<_> =
            events.flat_map(|event| [Some(event.at), event.end()]).flatten().collect();
        times.retain(|time| !time.is_zero());
        times.sort();
        times.dedup();
        times.into_iter().map(|time| (time, self.stage(place, segment, time))).collect()
    }

    fn stage(&self, place: Place, segment: &Segment, elapsed: Duration) -> Segment {
        let delay = self.in_force(elapsed, |fault| match fault {
            Fault::Delay(of, delay) if of == place => Some(delay),
            _ => None,
        });
        let rate = self.in_force(elapsed, |fault| match fault {
            Fault::Rate(of, rate) if of == place => Some(rate),
            _ => None,
        });
        let mut stage = segment.clone();
        stage.both.delay = delay.unwrap_or(segment.both.delay);
        if let Some(rate) = rate {
            (stage.both.rate, stage.rate_to, stage.rate_from) = (rate, None, None);
        }
        stage.both.outages = self.outages(place, &segment.both.outages);
        stage
    }

    fn outages(&self, place: Place, scheduled: &Outages) -> Outages {
        let faults = self.events.iter().filter(|event| event.fault == Fault::Outage(place));
        let faults = faults
            .map(|event| Outage { from: event.at, length: event.length.unwrap_or(Duration::MAX) });
        scheduled.iter().copied().chain(faults).collect()
    }
}
