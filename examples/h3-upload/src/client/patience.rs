//! Detects a server that makes no progress.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::anyhow;
use tokio::time::sleep;

/// The least rate at which the file must move, in bytes per second.
const LEAST: u64 = 512;
/// The bit of a suspended [`Activity`] in its turns.
const SUSPENDED: u64 = 1 << 63;

/// The progress of a file at this end. A thread of its own reads or writes it, because that blocks.
#[derive(Debug, Default)]
pub struct Activity {
    bytes: AtomicU64,
    /// Odd while the file is accessed, and greater after each read. An access of a pipe can take
    /// long. [`SUSPENDED`] does not count.
    turns: AtomicU64,
}

impl Activity {
    /// Runs a read of the file. It is no fault of the server's if that blocks, and the server needs
    /// time to accept what was read.
    pub fn reading<T>(&self, read: impl FnOnce() -> T) -> T {
        self.turns.fetch_add(1, Ordering::Relaxed);
        let done = read();
        self.turns.fetch_add(1, Ordering::Relaxed);
        done
    }

    /// Runs a write of the file. It is no fault of the server's if that blocks. A finished write
    /// excuses nothing: the server may send single bytes.
    pub fn writing<T>(&self, write: impl FnOnce() -> T) -> T {
        self.turns.fetch_add(1, Ordering::Relaxed);
        let done = write();
        self.turns.fetch_sub(1, Ordering::Relaxed);
        done
    }

    /// Excuses the server from now on, because another deadline applies.
    pub fn suspend(&self) {
        self.turns.fetch_or(SUSPENDED, Ordering::Relaxed);
    }

    /// Sets how many bytes have moved between the file and the connection.
    pub fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// The bytes that have moved between the file and the connection.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// Returns once the server, for `patience`, moved less than `LEAST` bytes per second although the
/// file was ready. So every transfer ends, at the latest about when its file would at that rate.
///
/// `moved` returns the bytes so far that the server accepted or sent. It must be bounded by the
/// file. `fault` states what the server failed to do.
pub async fn stalled(
    patience: Duration,
    activity: &Activity,
    moved: impl Fn() -> u64,
    fault: &str,
) -> anyhow::Error {
    let now = || Progress { turns: activity.turns.load(Ordering::Relaxed), moved: moved() };
    let mut before = now();
    loop {
        sleep(patience).await;
        let now = now();
        if now.is_none_since(before, patience) {
            return anyhow!(
                "the server {fault} for {} s: try again, or wait longer with --stall-timeout",
                patience.as_secs_f64()
            );
        }
        before = now;
    }
}

#[derive(Clone, Copy, Debug)]
struct Progress {
    turns: u64,
    moved: u64,
}

impl Progress {
    fn is_none_since(self, before: Self, time: Duration) -> bool {
        let file_was_busy = self.turns % 2 == 1 || self.turns != before.turns;
        let excused = file_was_busy || self.turns & SUSPENDED != 0;
        let least = LEAST as f64 * time.as_secs_f64();
        !excused && (self.moved.saturating_sub(before.moved) as f64) < least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(now: (u64, u64), before: (u64, u64)) -> bool {
        let at = |(turns, moved)| Progress { turns, moved };
        at(now).is_none_since(at(before), Duration::from_secs(2))
    }

    #[test]
    fn moved_bytes_are_progress() {
        assert!(!none((2, 2000), (2, 0)));
        assert!(none((2, 10), (2, 0)));
        assert!(none((2, 2000), (2, 2000)));
    }

    #[test]
    fn an_access_to_the_file_excuses_the_server() {
        assert!(!none((3, 0), (3, 0)));
        assert!(!none((4, 0), (2, 0)));
    }

    #[test]
    fn an_access_is_odd_while_it_lasts() {
        let activity = Activity::default();
        let turns = || activity.turns.load(Ordering::Relaxed);
        assert_eq!((activity.writing(turns), turns()), (1, 0));
        assert_eq!((activity.reading(turns), turns()), (1, 2));
    }

    #[test]
    fn an_access_does_not_end_a_suspension() {
        let activity = Activity::default();
        activity.reading(|| activity.suspend());
        activity.reading(|| ());
        let turns = activity.turns.load(Ordering::Relaxed);
        assert!(!none((turns, 0), (turns, 0)));
    }
}
