//! What the caller asks of a sender.

use crate::keys::PublicKey;
use crate::terms::Terms;
use std::net::SocketAddr;

/// What a sender asks for, and of whom.
#[derive(Clone, Debug)]
pub struct SenderConfig {
    /// The proxy's address; `None` to discover proxies by markers on the flow's own path.
    pub proxy: Option<SocketAddr>,
    /// The key of the proxy that is believed; `None` to believe any on the path.
    pub key: Option<PublicKey>,
    /// The terms to ask for.
    pub terms: Terms,
    /// Whether to poll when packets stay unreported for longer than the near segment's probe
    /// timeout. Without it the loss of a lone or last packet is left to the end-to-end mechanism.
    /// Polls that set the session up, until the near RTT is known, and that keep it alive are sent
    /// in any case.
    pub poll: bool,
    /// How many packets sent after a missing one must have been seen before it counts as lost at
    /// once; at least 1. The default is 3 (kPacketThreshold of RFC 9002, section 6.1.1). A flow
    /// whose packets are too far apart to overtake each other takes 1.
    pub packet_threshold: u32,
}

impl SenderConfig {
    /// The usual terms, asked of the proxy at this address.
    #[must_use]
    pub fn of(proxy: SocketAddr) -> Self {
        Self { proxy: Some(proxy), ..Self::default() }
    }
}

impl Default for SenderConfig {
    /// The usual terms, asked of whatever proxy is discovered.
    fn default() -> Self {
        Self { proxy: None, key: None, terms: Terms::default(), poll: true, packet_threshold: 3 }
    }
}
