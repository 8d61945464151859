//! How far apart the datagrams of a flow are.

use std::time::{Duration, Instant};

/// So many gaps are remembered. A burst has short ones among them.
const GAPS: usize = 4;

/// The latest gaps between datagrams.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spacing {
    latest: Option<Instant>,
    gaps: [Duration; GAPS],
}

impl Spacing {
    /// Notes a datagram.
    pub(crate) fn note(&mut self, now: Instant) {
        let gap = self.latest.map(|latest| now.saturating_duration_since(latest));
        self.gaps.rotate_right(1);
        if let Some(first) = self.gaps.first_mut() {
            *first = gap.unwrap_or_default();
        }
        self.latest = Some(now);
    }

    /// The least of the latest gaps; 0 before there are enough.
    pub(crate) fn least(&self) -> Duration {
        self.gaps.iter().min().copied().unwrap_or_default()
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
            spacing.least().as_millis()
        };
        assert_eq!([0, 20, 40, 60].map(&mut at), [0; 4], "too few gaps");
        assert_eq!([80, 101, 119].map(&mut at), [20, 20, 18]);
        assert_eq!([139, 140, 160].map(&mut at), [18, 1, 1]);
        assert_eq!([180, 200, 220].map(&mut at), [1, 1, 20]);
    }
}
