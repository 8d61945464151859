//! The gaps between the datagrams of a flow.

use std::time::{Duration, Instant};

/// The number of gaps that a [`Spacing`] remembers. In a burst, some of them are short.
const GAPS: u8 = 4;

/// The number of datagrams that a [`Spacing`] remembers: one more than gaps.
const PLACES: usize = GAPS as usize + 1;

/// The latest gaps between datagrams.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spacing {
    /// When the latest datagrams passed. Each replaces the oldest.
    times: [Option<Instant>; PLACES],
    /// The place of the oldest datagram.
    oldest: usize,
}

impl Spacing {
    /// Records a datagram that passes at `now`.
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
        // Dense flows have the most datagrams, and this check is quick.
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
