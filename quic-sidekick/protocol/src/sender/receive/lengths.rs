//! The longest copy that a peer may take for a datagram of its own.
//!
//! An endpoint that probes for the path's MTU takes a probe that arrives for proof that the path
//! carries its length (RFC 8899). A copy of a lost one, which may come in parts or as IP fragments,
//! would be a false proof, and from then on every datagram would be too long.

use std::mem;
use std::time::{Duration, Instant};

/// What every path of QUIC carries (RFC 9000, section 14).
const ALWAYS: usize = 1200;
/// A length counts until the end of the window after its own.
const WINDOW: Duration = Duration::from_secs(2);

/// The longest datagrams that arrived themselves of late.
#[derive(Debug, Default)]
pub(super) struct Lengths {
    longest: usize,
    /// The longest of the window before.
    before: usize,
    since: Option<Instant>,
}

impl Lengths {
    /// A datagram of this length arrived.
    pub(super) fn note(&mut self, length: usize, now: Instant) {
        let windows = self.since.map(|since| (since, now.saturating_duration_since(since)));
        match windows {
            Some((_, age)) if age < WINDOW => {}
            Some((since, age)) if age < 2 * WINDOW => {
                self.before = mem::take(&mut self.longest);
                self.since = Some(since + WINDOW);
            }
            _ => *self = Self { since: Some(now), ..Self::default() },
        }
        self.longest = self.longest.max(length);
    }

    /// The longest copy that can have been lost for another reason than its length.
    pub(super) fn longest(&self, now: Instant) -> usize {
        let age = self.since.map(|since| now.saturating_duration_since(since));
        let longest = match age {
            Some(age) if age < WINDOW => self.longest.max(self.before),
            Some(age) if age < 2 * WINDOW => self.longest,
            _ => 0,
        };
        longest.max(ALWAYS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
    fn only_lengths_of_late_count() {
        let start = Instant::now();
        let mut lengths = Lengths::default();
        assert_eq!(lengths.longest(start), 1200);
        lengths.note(1400, start + WINDOW / 2);
        for (windows, longest) in [(1, 1400), (2, 1400), (3, 1200)] {
            assert_eq!(lengths.longest(start + windows * WINDOW), longest, "{windows}");
        }
        lengths.note(60, start + 2 * WINDOW);
        assert_eq!(lengths.longest(start + 2 * WINDOW), 1400);
        lengths.note(60, start + 3 * WINDOW);
        assert_eq!(lengths.longest(start + 3 * WINDOW), 1200);
        // After a pause, no earlier one counts.
        lengths.note(1400, start + 4 * WINDOW);
        lengths.note(60, start + 9 * WINDOW);
        assert_eq!(lengths.longest(start + 9 * WINDOW), 1200);
    }
}
