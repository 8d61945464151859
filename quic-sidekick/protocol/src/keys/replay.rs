//! An anti-replay window (RFC 6479 describes the problem; 64 numbers are enough here).

/// The newest sequence number received, and which of the 64 up to it were received.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Window {
    newest: u32,
    /// Bit i stands for `newest - i`. If it is 0, no number was received.
    seen: u64,
}

impl Window {
    /// Whether `number` was not received, and is within the window or newer.
    pub(crate) fn is_new(&self, number: u32) -> bool {
        match self.newest.checked_sub(number) {
            _ if self.seen == 0 => true,
            None => true,
            Some(age) => age < u64::BITS && self.seen >> age & 1 == 0,
        }
    }

    /// Records a number that [`Self::is_new`].
    pub(crate) fn record(&mut self, number: u32) {
        if self.seen == 0 || number > self.newest {
            let ahead = number - self.newest;
            self.seen = if ahead < u64::BITS { self.seen << ahead } else { 0 } | 1;
            self.newest = number;
            return;
        }
        let age = self.newest - number;
        if age < u64::BITS {
            self.seen |= 1 << age;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Compares with a set of all numbers received.
        #[test]
        fn a_sequence_number_is_accepted_once(
            numbers in prop::collection::vec(
                prop_oneof![0u32..200, u32::MAX - 100..=u32::MAX],
                1..300,
            ),
        ) {
            let (mut window, mut all) = (Window::default(), BTreeSet::new());
            for number in numbers {
                let newest: u32 = all.last().copied().unwrap_or(0);
                let too_old = newest.saturating_sub(number) >= 64;
                let new = window.is_new(number);
                prop_assert_eq!(new, !all.contains(&number) && !too_old);
                if new {
                    window.record(number);
                    all.insert(number);
                }
            }
        }
    }
}
