//! The progress that the daemon logs from time to time.

use std::time::{Duration, Instant};

use tracing::{info, warn};

use crate::pool::{WorkerPool, sum};
use crate::runtime::clock;
use crate::summary::Summary;

/// How often the daemon logs progress.
const INTERVAL: Duration = Duration::from_secs(10);

/// The state of the progress log.
pub(super) struct Progress {
    logged: Instant,
    last: Summary,
}

impl Default for Progress {
    fn default() -> Self {
        Self { logged: clock(), last: Summary::default() }
    }
}

impl Progress {
    /// Logs the totals if they are due and have changed.
    pub(super) fn log(&mut self, pool: &WorkerPool) {
        let now = clock();
        if now.saturating_duration_since(self.logged) < INTERVAL {
            return;
        }
        self.logged = now;
        let (totals, open) = sum(&pool.reports(0));
        let dropped = totals.capture_drops.saturating_sub(self.last.capture_drops);
        if dropped != 0 {
            warn!(
                "the proxy missed {dropped} packets: the kernel had no room for them, or the \
                 proxy discarded them beside such packets; while this continues, it does not help \
                 senders"
            );
        }
        if totals != self.last {
            match open {
                Some(open) => info!("{totals}, open now {open}"),
                None => info!("{totals}"),
            }
            self.last = totals;
        }
    }
}
