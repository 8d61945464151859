//! The progress that a program logs from time to time.

use std::fmt::Display;
use std::time::{Duration, Instant};

use tracing::info;

use crate::runtime::clock;

/// How often a program logs its progress.
const INTERVAL: Duration = Duration::from_secs(10);

/// The state of the progress log of a program with these totals.
pub(crate) struct Progress<T> {
    logged: Instant,
    last: T,
}

impl<T: Default> Default for Progress<T> {
    fn default() -> Self {
        Self { logged: clock(), last: T::default() }
    }
}

impl<T: Display + PartialEq> Progress<T> {
    /// Whether the totals are due at `now`. If so, the next ones are due after the interval.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = now.saturating_duration_since(self.logged) >= INTERVAL;
        if is_due {
            self.logged = now;
        }
        is_due
    }

    /// Logs the totals, and how many sessions or flows are open now, if the totals have changed.
    /// Returns the totals before.
    pub(crate) fn log(&mut self, totals: T, open: usize) -> T {
        if totals != self.last {
            info!("{totals}, open now {open}");
        }
        std::mem::replace(&mut self.last, totals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_due_once_in_an_interval() {
        let now = clock();
        let mut progress = Progress { logged: now, last: 3 };
        for (at, is_due) in [
            (now, false),
            (now + INTERVAL / 2, false),
            (now + INTERVAL, true),
            (now + INTERVAL, false),
            (now + INTERVAL * 3 / 2, false),
            (now + INTERVAL * 2, true),
        ] {
            assert_eq!(progress.is_due(at), is_due, "{:?}", at - now);
        }
        assert_eq!((progress.log(5, 0), progress.log(5, 1), progress.last), (3, 5, 5));
    }
}
