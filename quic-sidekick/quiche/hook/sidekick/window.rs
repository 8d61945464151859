//! A wider window for duplicates.
//!
//! quiche drops a packet whose number is 128 or more below the highest: it may be a duplicate. A
//! repaired packet can be older than that. This window remembers more numbers, while it is on.

/// How many numbers below the highest are remembered: at 500 Mbit/s those of 90 ms.
const NUMBERS: u64 = 4096;
const WORDS: usize = 64;

/// The packet numbers received lately, if it is on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WideWindow {
    /// Numbers below are not remembered; `None` while the window is off.
    from: Option<u64>,
    /// The number after the highest.
    end: u64,
    seen: [u64; WORDS],
}

impl Default for WideWindow {
    fn default() -> Self {
        Self { from: None, end: 0, seen: [0; WORDS] }
    }
}

impl WideWindow {
    /// Remembers the numbers from `from` on. The caller has received none of them yet.
    pub(super) fn begin(&mut self, from: u64) {
        if self.from.is_none() {
            *self = Self { from: Some(from), end: from, seen: [0; WORDS] };
        }
    }

    fn bit(number: u64) -> (usize, u64) {
        let place = number % NUMBERS;
        (usize::try_from(place / 64).unwrap_or(0), 1 << (place % 64))
    }

    /// Notes a number that was received.
    #[inline]
    pub(crate) fn insert(&mut self, number: u64) {
        // This runs for every packet that arrives, and few connections ask for it.
        if let Some(from) = self.from {
            self.insert_from(from, number);
        }
    }

    fn insert_from(&mut self, from: u64, number: u64) {
        if number < from || number + NUMBERS < self.end {
            return;
        }
        // The places of the numbers in between were those of older ones.
        for skipped in self.end.max((number + 1).saturating_sub(NUMBERS))..number {
            let (word, bit) = Self::bit(skipped);
            self.seen[word] &= !bit;
        }
        self.end = self.end.max(number + 1);
        let (word, bit) = Self::bit(number);
        self.seen[word] |= bit;
    }

    /// Whether a number was received, if the window remembers it.
    #[inline]
    pub(crate) fn contains(&self, number: u64) -> Option<bool> {
        let from = self.from?.max(self.end.saturating_sub(NUMBERS));
        let (word, bit) = Self::bit(number);
        (from..self.end).contains(&number).then(|| self.seen[word] & bit != 0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::packet::PktNumWindow;

    #[test]
    fn off_it_remembers_nothing() {
        let mut window = WideWindow::default();
        window.insert(5);
        assert_eq!(window.contains(5), None);
    }

    #[test]
    fn it_remembers_what_a_set_remembers() {
        for from in [0, 17, 5000] {
            let (mut window, mut set) = (WideWindow::default(), BTreeSet::new());
            window.begin(from);
            let (mut state, mut highest) = (3 + from, from);
            for _ in 0..100_000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let number = match state >> 60 {
                    0 => highest + (state >> 40) % 5000,
                    1..=7 => highest + 1,
                    _ => highest.saturating_sub((state >> 40) % 6000).max(from),
                };
                if number + NUMBERS > highest || set.is_empty() {
                    set.insert(number);
                }
                window.insert(number);
                highest = highest.max(number);
                let asked = (highest + 10).saturating_sub((state >> 20) % 6000);
                let remembered = asked >= from && asked <= highest && asked + NUMBERS > highest;
                let expected = remembered.then(|| set.contains(&asked));
                assert_eq!(window.contains(asked), expected, "{asked} of {highest}");
            }
        }
    }

    #[test]
    fn quiche_drops_old_packets_without_it_and_only_duplicates_with_it() {
        let (mut stock, mut wide) = (PktNumWindow::default(), PktNumWindow::default());
        wide.sidekick.begin(0);
        for number in (0..4000).filter(|number| number % 7 != 0) {
            stock.insert(number);
            wide.insert(number);
        }
        assert!(stock.contains(7 * 400));
        for number in 0..4000 {
            assert_eq!(wide.contains(number), number % 7 != 0, "{number}");
        }
        wide.insert(7 * 400);
        assert!(wide.contains(7 * 400));
        wide.insert(20_000);
        assert!(wide.contains(7 * 401), "too old to know");
    }
}
