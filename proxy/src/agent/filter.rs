//! Which flows are helped.

use sidekick_protocol::Flow;

/// A part of all flows, by an address and a port of the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selector;

impl Selector {
    /// Whether the flow is one of them.
    #[must_use]
    pub fn matches(&self, _flow: &Flow) -> bool {
        false
    }
}
