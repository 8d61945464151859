//! When the proxy's program is killed, and when it starts again.

use std::collections::VecDeque;
use std::time::Instant;

use super::Schedule;
use crate::scenario::Fault;

/// A change of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::sim) enum Power {
    /// It is killed.
    Off,
    /// It is started.
    On,
}

/// The restarts of a run that have not happened yet.
#[derive(Debug)]
pub(in crate::sim) struct Restarts(VecDeque<(Instant, Power)>);

impl Restarts {
    /// The restarts of these faults. If two overlap, the program is down until both are over.
    pub(in crate::sim) fn new(schedule: &Schedule) -> Self {
        let mut to_come = VecDeque::<(Instant, Power)>::new();
        for (off, length) in schedule.times(Fault::ProxyRestart) {
            let on = off + length.unwrap_or_default();
            match to_come.back_mut() {
                Some((back, _)) if *back > off => *back = on.max(*back),
                _ => to_come.extend([(off, Power::Off), (on, Power::On)]),
            }
        }
        Self(to_come)
    }

    pub(in crate::sim) fn poll_timeout(&self) -> Option<Instant> {
        self.0.front().map(|&(at, _)| at)
    }

    pub(in crate::sim) fn due(&mut self, now: Instant) -> Option<Power> {
        let (_, power) = *self.0.front().filter(|(at, _)| *at <= now)?;
        self.0.pop_front();
        Some(power)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;
    use crate::sim::faults::tests::schedule;

    #[test]
    fn the_program_is_killed_and_comes_back() {
        let events = "proxy-restart at 90; proxy-restart at 10 for 20; proxy-restart at 15 for 5; proxy-restart at 20 for 30";
        let (schedule, start) = schedule(&Scenario::load("upload-paper").unwrap(), events);
        let restarts = Restarts::new(&schedule);
        let changes: Vec<_> =
            restarts.0.iter().map(|&(at, power)| ((at - start).as_millis(), power)).collect();
        assert_eq!(changes, [(10, Power::Off), (50, Power::On), (90, Power::Off), (90, Power::On)]);
    }
}
