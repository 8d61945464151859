//! A budget for datagrams that are sent again.

/// The budget of a new [`Allowance`], in bytes.
pub(crate) const INITIAL_ALLOWANCE: usize = 16 * 1024;

/// A budget, in bytes, for datagrams that are sent again: half the bytes sent for the first time,
/// plus 16 KiB. It bounds the cost of a path that loses more than a third of all packets. It also
/// bounds the cost of a proxy that reports such losses falsely.
///
/// ```
/// use sidekick_protocol::Allowance;
///
/// let mut allowance = Allowance::new(64 * 1024);
/// allowance.earn(1200);
/// assert!(allowance.spend(16 * 1024 + 600), "the whole budget");
/// assert!(!allowance.spend(1));
/// ```
#[derive(Clone, Debug)]
pub struct Allowance {
    left: usize,
    most: usize,
}

impl Allowance {
    /// A budget that saves up at most `most` bytes. It begins with 16 KiB, or with `most` if that
    /// is less.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { left: most.min(INITIAL_ALLOWANCE), most }
    }

    /// Adds half of `bytes`, which the caller sent for the first time.
    pub fn earn(&mut self, bytes: usize) {
        self.add(bytes / 2);
    }

    /// Spends `bytes` to send them again. Returns false, and spends nothing, if fewer are left.
    pub fn spend(&mut self, bytes: usize) -> bool {
        let left = self.left.checked_sub(bytes);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }

    /// Returns `bytes` to the budget that the caller spent but did not send.
    pub fn refund(&mut self, bytes: usize) {
        self.add(bytes);
    }

    pub(crate) fn left(&self) -> usize {
        self.left
    }

    pub(crate) fn add(&mut self, bytes: usize) {
        self.left = self.left.saturating_add(bytes).min(self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn spending_and_saving_are_bounded(
            steps in prop::collection::vec((any::<bool>(), 0usize..5000), 1..300),
            most in 0usize..40_000,
        ) {
            let mut allowance = Allowance::new(most);
            let (mut earned, mut spent) = (0, 0);
            for (earns, bytes) in steps {
                if earns {
                    allowance.earn(bytes);
                    earned += bytes / 2;
                } else if allowance.spend(bytes) {
                    spent += bytes;
                }
                prop_assert!(spent <= earned + INITIAL_ALLOWANCE.min(most));
            }
            prop_assert!(!allowance.spend(most + 1));
        }
    }
}
