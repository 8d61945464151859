//! How far apart the datagrams of a flow are.

use std::time::{Duration, Instant};

/// The number of remembered gaps. A burst has short ones among them.
const GAPS: u8 = 4;

/// The latest datagrams, one more than there are gaps.
const PLACES: usize = GAPS as usize + 1;

/// The latest gaps between datagrams.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spacing {
    /// When they passed, each in the place of an older one.
    times: [Option<Instant>; PLACES],
    /// The place of the oldest.
    oldest: usize,
}

impl Spacing {
    /// Notes a datagram.
    #[inline]
    pub(crate) fn note(&mut self, now: Instant) {
        if let Some(oldest) = self.times.get_mut(self.oldest) {
            *oldest = Some(now);
        }
        self.oldest = if self.oldest + 1 < PLACES { self.oldest + 1 } else { 0 };
    }

    /// The least of the latest gaps; 0 before there are enough, and if it is `floor` or shorter.
    pub(crate) fn least_above(&self, floor: Duration) -> Duration {
        let (later, earlier) = self.times.split_at_checked(self.oldest).unwrap_or_default();
        let Some(Some(first)) = earlier.first() else { return Duration::ZERO };
        // Datagrams that are close together are many, and show that at once.
        let last = later.last().or(earlier.last()).copied().flatten().unwrap_or(*first);
        if last.saturating_duration_since(*first) <= floor * u32::from(GAPS) {
            return Duration::ZERO;
        }
        let mut before = *first;
        let gaps = earlier
            .iter()
            .skip(1)
            .chain(later)
            .flatten()
            .map(|time| time.saturating_duration_since(std::mem::replace(&mut before, *time)));
        gaps.min().filter(|least| *least > floor).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
    fn a_burst_is_not_spaced() {
        let (mut spacing, begun) = (Spacing::default(), Instant::now());
        let mut at = |ms| {
            spacing.note(begun + Duration::from_millis(ms));
            [0, 1, 18, 20].map(|ms| spacing.least_above(Duration::from_millis(ms)).as_millis())
        };
        assert_eq!([0, 20, 40, 60].map(&mut at), [[0; 4]; 4], "too few gaps");
        assert_eq!([80, 101].map(&mut at), [[20, 20, 20, 0]; 2]);
        assert_eq!([119, 139].map(&mut at), [[18, 18, 0, 0]; 2]);
        assert_eq!([140, 160, 180, 200].map(&mut at), [[1, 0, 0, 0]; 4]);
        assert_eq!(at(220), [20, 20, 20, 0]);
    }
}
