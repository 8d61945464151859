//! How long datagrams may be that the near segment carries.

use std::mem;
use std::time::{Duration, Instant};

/// What every path of QUIC carries (RFC 9000, section 14).
const ALWAYS: usize = 1200;
/// A length counts for one to two of these.
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
        let since = *self.since.get_or_insert(now);
        if now >= since + WINDOW {
            (self.before, self.since) = (mem::take(&mut self.longest), Some(now));
        }
        self.longest = self.longest.max(length);
    }

    /// Whether a datagram of this length can have been lost for another reason than its length.
    ///
    /// An endpoint that probes for the path's MTU takes one that arrives for proof that the path
    /// carries its length (RFC 8899). A copy of a lost probe, which comes in two parts, would be a
    /// false one, and afterwards every datagram would be too long.
    pub(super) fn carries(&self, length: usize) -> bool {
        length <= ALWAYS.max(self.longest).max(self.before)
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
        let carries = |lengths: &Lengths| [1200, 1201, 1400, 1401].map(|len| lengths.carries(len));
        assert_eq!(carries(&lengths), [true, false, false, false]);
        lengths.note(1400, start);
        assert_eq!(carries(&lengths), [true, true, true, false]);
        lengths.note(60, start + WINDOW);
        assert_eq!(carries(&lengths), [true, true, true, false]);
        lengths.note(60, start + 2 * WINDOW);
        assert_eq!(carries(&lengths), [true, false, false, false]);
    }
}
