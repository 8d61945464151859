//! The least value of late.

use std::time::{Duration, Instant};

/// How long a value counts at least.
const PERIOD: Duration = Duration::from_secs(10);

/// The least value of the last ten to thirty seconds, because a path may get worse for good.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Least<T> {
    /// When `current` becomes `before`.
    until: Option<Instant>,
    before: Option<T>,
    current: Option<T>,
}

impl<T> Default for Least<T> {
    fn default() -> Self {
        Self { until: None, before: None, current: None }
    }
}

impl<T: Copy + PartialOrd> Least<T> {
    /// Notes a value, or that there is none at present.
    pub(crate) fn note(&mut self, value: impl Into<Option<T>>, now: Instant) {
        if self.until.is_none_or(|until| until <= now) {
            // After a pause, the value of the time before it is too old.
            let is_recent = self.until.is_some_and(|until| now < until + PERIOD);
            self.before = self.current.take().filter(|_| is_recent);
            self.until = Some(now + PERIOD);
        }
        self.current = least(self.current, value.into());
    }

    /// The least value, if there is one.
    pub(crate) fn get(&self) -> Option<T> {
        least(self.before, self.current)
    }
}

fn least<T: PartialOrd>(one: Option<T>, other: Option<T>) -> Option<T> {
    one.into_iter().chain(other).reduce(|one, other| if other < one { other } else { one })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing measures the path in a pause.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
    fn a_value_before_a_long_pause_is_not_recent() {
        for (pause, expected) in [(5, 20), (15, 20), (25, 50)] {
            let (now, mut least) = (Instant::now(), Least::default());
            least.note(20, now);
            least.note(None, now);
            least.note(50, now + Duration::from_secs(pause));
            assert_eq!(least.get(), Some(expected), "{pause} s");
        }
    }
}
