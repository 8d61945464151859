//! A sender's configuration.

use crate::keys::PublicKey;
use crate::terms::Terms;
use std::net::SocketAddr;
use std::time::Duration;

/// The proxy that a sender uses, and the terms that it requests.
#[derive(Clone, Debug)]
pub struct SenderConfig {
    /// The proxy's address, or `None` to discover proxies by markers on the flow's own path.
    pub proxy: Option<SocketAddr>,
    /// The key that the proxy must hold, or `None` to accept any proxy on the path.
    pub key: Option<PublicKey>,
    /// The terms to request.
    pub terms: Terms,
    /// Whether to poll when packets stay unreported for longer than the near segment's probe
    /// timeout. If false, the end-to-end mechanism detects the loss of a lone or last packet. The
    /// sender polls in any case to establish a session, to measure the near RTT, and to keep the
    /// session alive.
    pub poll: bool,
    /// The number of later packets that must be reported before a missing one is declared lost; at
    /// least 1. The default is 3 (kPacketThreshold of RFC 9002, section 6.1.1). 1 suits a flow
    /// whose packets are too far apart to overtake each other.
    pub packet_threshold: u32,
    /// How long the proxy is asked to keep copies of the reverse flow's datagrams, at most a
    /// second; `None` to ask for none.
    pub keep: Option<Duration>,
}

impl SenderConfig {
    /// The default terms, requested of the proxy at this address.
    #[must_use]
    pub fn of(proxy: SocketAddr) -> Self {
        Self { proxy: Some(proxy), ..Self::default() }
    }
}

impl Default for SenderConfig {
    /// The default terms, requested of any proxy that is discovered.
    fn default() -> Self {
        Self {
            proxy: None,
            key: None,
            terms: Terms::default(),
            poll: true,
            packet_threshold: 3,
            keep: None,
        }
    }
}
