//! How much may be sent again.

/// What may be sent again without having been earned, in bytes.
pub(crate) const INITIAL_ALLOWANCE: usize = 16 * 1024;

/// A budget for what is sent again: half the bytes that were sent for the first time, and 16 KiB to
/// begin with. A path that loses more than a third of all packets, or a proxy that says so, costs
/// no more than that.
///
/// ```
/// use sidekick_protocol::Allowance;
///
/// let mut allowance = Allowance::new(64 * 1024);
/// allowance.earn(1200);
/// assert!(allowance.spend(16 * 1024 + 600), "all there is");
/// assert!(!allowance.spend(1));
/// ```
#[derive(Clone, Debug)]
pub struct Allowance {
    left: usize,
    most: usize,
}

impl Allowance {
    /// A budget of which `most` bytes may be saved up; of these, at most 16 KiB to begin with.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { left: most.min(INITIAL_ALLOWANCE), most }
    }

    /// So many bytes were sent for the first time.
    pub fn earn(&mut self, bytes: usize) {
        self.refund(bytes / 2);
    }

    /// So many bytes are to be sent again: false, and nothing is spent, if they may not.
    pub fn spend(&mut self, bytes: usize) -> bool {
        let left = self.left.checked_sub(bytes);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }

    /// So many bytes were not sent again after all.
    pub fn refund(&mut self, bytes: usize) {
        self.left = self.left.saturating_add(bytes).min(self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_more_is_spent_than_was_earned_and_no_more_saved_than_may_be(
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
