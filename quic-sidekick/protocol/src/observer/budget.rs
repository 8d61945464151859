//! A session's budget of bytes to send (SPEC.md, section 6.7).

use crate::wire::Quack;

/// The budget of a new session, in bytes.
pub(super) const GRANT: u32 = 16 * 1024;
/// The largest budget, in bytes.
const MOST: u32 = 256 * 1024;

/// The bytes that a session may still send: a grant, half the bytes of the flow that it saw, and
/// all bytes that it received from the sender.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget(u32);

impl Default for Budget {
    fn default() -> Self {
        Self(GRANT)
    }
}

impl Budget {
    /// Adds half of `bytes`, which the proxy saw of the flow.
    pub(super) fn seen(&mut self, bytes: usize) {
        self.earn(bytes / 2);
    }

    /// Adds `bytes`, which the proxy received from the sender.
    pub(super) fn earn(&mut self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.0 = self.0.saturating_add(bytes).min(MOST);
    }

    /// The number of sums that a quACK within the budget can carry.
    pub(super) fn sums(&self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX).saturating_sub(Quack::sealed_len(0)) / 4
    }

    /// Spends `bytes`, or returns false if fewer are left.
    pub(super) fn spend(&mut self, bytes: usize) -> bool {
        let left = u32::try_from(bytes).ok().and_then(|bytes| self.0.checked_sub(bytes));
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}
