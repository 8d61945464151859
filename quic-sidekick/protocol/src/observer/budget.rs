//! How much a proxy may say about a flow (SPEC.md, section 6.7).

use crate::wire::Quack;

/// Bytes that a session may send on top of its share.
pub(super) const GRANT: u32 = 16 * 1024;
/// A session saves up no more than this.
const MOST: u32 = 256 * 1024;

/// Bytes that a session may still send: half of what it has seen of the flow, all of what it has
/// heard from the sender, and a grant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget(u32);

impl Default for Budget {
    fn default() -> Self {
        Self(GRANT)
    }
}

impl Budget {
    /// So many bytes of the flow were seen.
    pub(super) fn seen(&mut self, bytes: usize) {
        self.earn(bytes / 2);
    }

    /// So many bytes of the session's messages were heard.
    pub(super) fn earn(&mut self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.0 = self.0.saturating_add(bytes).min(MOST);
    }

    /// How many sums of a quACK can be paid for.
    pub(super) fn sums(&self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX).saturating_sub(Quack::sealed_len(0)) / 4
    }

    /// Takes so many bytes, if there are as many.
    pub(super) fn spend(&mut self, bytes: usize) -> bool {
        let left = u32::try_from(bytes).ok().and_then(|bytes| self.0.checked_sub(bytes));
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}
