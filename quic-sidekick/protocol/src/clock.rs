//! Arithmetic of times and deadlines, what the latest values were, and random numbers from a seed.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::fmt;
use std::time::{Duration, Instant};

/// `duration` times `numerator / denominator`, saturating; `denominator` is not 0. Inlined, so that
/// the usual denominators, which are constants, cost no division.
#[inline(always)]
pub(crate) fn scale(duration: Duration, numerator: u32, denominator: u32) -> Duration {
    let denominator = denominator.max(1);
    let scaled = u64::try_from(duration.as_nanos())
        .ok()
        .and_then(|nanoseconds| nanoseconds.checked_mul(numerator.into()));
    match scaled {
        Some(scaled) => Duration::from_nanos(scaled / u64::from(denominator)),
        // More than five centuries.
        None => duration.saturating_mul(numerator) / denominator,
    }
}

/// `duration` in whole microseconds, as the wire carries it.
pub(crate) fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

/// The earlier of two optional deadlines.
pub(crate) fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Random keys, nonces, session numbers and poll tokens: the output of a stream cipher, so that an
/// attacker who sees some cannot predict others. The caller supplies the key: a daemon draws it at
/// random, and a simulation repeats it.
#[derive(Clone)]
pub(crate) struct Numbers(ChaCha20Rng);

impl fmt::Debug for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Numbers(..)")
    }
}

impl Numbers {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self(ChaCha20Rng::from_seed(seed))
    }

    pub(crate) fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// A poll token. It is never 0, which means "no token" on the wire.
    pub(crate) fn token(&mut self) -> u16 {
        u16::try_from(self.0.next_u32() >> 16).unwrap_or(1).max(1)
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }

    /// A seed or key of `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.fill(&mut bytes);
        bytes
    }
}

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
