//! Detects a server that makes no progress.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::anyhow;
use tokio::time::sleep;

use crate::body::Counted;
use crate::watch::Seen;

/// The least rate at which a server must accept the file, in bytes per second.
const LEAST: u64 = 512;
/// The acknowledged bytes beyond the file that count as progress: those of the handshake, and of
/// small files.
const SLACK: u64 = 64 * 1024;

/// Returns once the server, for `patience`, accepted less than [`LEAST`] bytes per second of a file
/// that was ready. So every upload ends, at the latest about when its file would at that rate.
pub(crate) async fn stalled(patience: Duration, counted: &Counted, seen: &Seen) -> anyhow::Error {
    let mut before = Progress::now(counted, seen);
    loop {
        sleep(patience).await;
        let now = Progress::now(counted, seen);
        if now.is_none_since(before, patience) {
            return anyhow!(
                "the server accepted nothing and sent no answer for {} s: try again, or wait \
                 longer with --stall-timeout",
                patience.as_secs_f64()
            );
        }
        before = now;
    }
}

/// The progress of an upload. It is bounded: the file is read once, and acknowledgements count up
/// to a little more than the bytes read from it.
#[derive(Clone, Copy, Debug)]
struct Progress {
    reads: u64,
    taken: u64,
}

impl Progress {
    fn now(counted: &Counted, seen: &Seen) -> Self {
        let handed = counted.handed.load(Ordering::Relaxed);
        let most = handed.saturating_add(handed / 2).saturating_add(SLACK);
        Self {
            reads: counted.reads.load(Ordering::Relaxed),
            taken: seen.taken.load(Ordering::Relaxed).min(most),
        }
    }

    fn is_none_since(self, before: Self, time: Duration) -> bool {
        let reads = self.reads % 2 == 1 || self.reads != before.reads;
        let least = LEAST as f64 * time.as_secs_f64();
        !reads && (self.taken.saturating_sub(before.taken) as f64) < least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a file of 10 bytes.
    fn at(reads: u64, taken: u64) -> Progress {
        let (counted, seen) = (Counted::default(), Seen::default());
        counted.handed.store(10, Ordering::Relaxed);
        counted.reads.store(reads, Ordering::Relaxed);
        seen.taken.store(taken, Ordering::Relaxed);
        Progress::now(&counted, &seen)
    }

    fn none(now: Progress, before: Progress) -> bool {
        now.is_none_since(before, Duration::from_secs(2))
    }

    #[test]
    fn accepted_bytes_are_progress() {
        assert!(!none(at(2, 2000), at(2, 0)));
        assert!(none(at(2, 10), at(2, 0)));
        assert!(none(at(2, 2000), at(2, 2000)));
    }

    #[test]
    fn so_is_reading_the_file() {
        assert!(!none(at(3, 0), at(3, 0)));
        assert!(!none(at(4, 0), at(2, 0)));
    }

    #[test]
    fn acknowledgements_of_more_than_the_file_are_no_progress() {
        assert!(none(at(2, SLACK + 1_000_000), at(2, SLACK + 20)));
    }
}
