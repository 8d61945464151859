//! How long the latest gaps were open.

use std::collections::VecDeque;
use std::time::Duration;

/// The times of this many gaps are kept.
const MOST: usize = 1024;

/// The times of the latest gaps. Their percentiles cost no search, because an application may ask
/// in each round.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// The oldest first.
    in_order: VecDeque<Duration>,
    /// The shortest first.
    sorted: Vec<Duration>,
}

impl Times {
    /// Adds the time of a gap. It displaces that of the oldest.
    pub(super) fn push(&mut self, time: Duration) {
        if self.in_order.len() >= MOST
            && let Some(oldest) = self.in_order.pop_front()
            && let Ok(place) = self.sorted.binary_search(&oldest)
        {
            self.sorted.remove(place);
        }
        self.in_order.push_back(time);
        let (Ok(place) | Err(place)) = self.sorted.binary_search(&time);
        self.sorted.insert(place, time);
    }

    /// The times that 50, 99 and 100 % of the gaps do not exceed; 0 without gaps.
    pub(super) fn percentiles(&self) -> [Duration; 3] {
        let number = self.sorted.len();
        [50, 99, 100].map(|percent| {
            let place = (number * percent / 100).min(number.saturating_sub(1));
            self.sorted.get(place).copied().unwrap_or_default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_latest() {
        let mut times = Times::default();
        assert_eq!(times.percentiles(), [Duration::ZERO; 3]);
        let all: Vec<_> = (0..5000_u64).map(|n| Duration::from_millis(n * 7919 % 1009)).collect();
        for (count, time) in (1..).zip(&all) {
            times.push(*time);
            let mut latest = all[usize::saturating_sub(count, MOST)..count].to_vec();
            latest.sort_unstable();
            let at = |percent: usize| latest[(latest.len() * percent / 100).min(latest.len() - 1)];
            assert_eq!(times.percentiles(), [at(50), at(99), at(100)], "after {count}");
        }
    }
}
