//! A sender's configuration.

use super::history::{Entry, MAX_PENDING};
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
    /// The interval between the flow's packets, from 1 µs to 1 s, if it is steady, as in a call.
    /// The proxy then sends a quACK when a packet is overdue, and few others. A flow with
    /// occasional pauses is steady, too. `None` requests quACKs by the terms and `sparse`.
    pub steady: Option<Duration>,
    /// The longest time between two quACKs while no packet is lost, in whole microseconds: the
    /// sender then requests fewer than the terms specify, and those of the terms again at the first
    /// loss. This needs an interval in the terms above 1 ms, and at most half of this time. `None`
    /// never requests fewer quACKs. The default is 20 ms. More than about a quarter of the path's
    /// round-trip time is not useful.
    pub sparse: Option<Duration>,
    /// How many packets must arrive without a loss before the sender is *frugal* for the first
    /// time, if it may be. It then asks for a quACK once in 128 packets or in two seconds, in place
    /// of `sparse`. It no longer polls for the last packet, and measures rarely. The first loss
    /// after that is found late. Then it goes on as the terms say, for 512 packets without a loss
    /// at first. This suits a sender for flows of other programs, whose packets few messages may
    /// accompany.
    pub frugal: Option<u32>,
    /// How long the sender asks the proxy to keep copies of the reverse flow's datagrams, at most
    /// one second. `None` requests no copies.
    pub keep: Option<Duration>,
    /// There is a second link to the proxy (see [`Sender::set_second_link`]).
    ///
    /// [`Sender::set_second_link`]: super::Sender::set_second_link
    pub second_link: bool,
    /// What leaves and arrives may go by the second link while the first is silent. To see that
    /// early, the sender asks for as many quACKs as the terms have, and for copies that are kept
    /// for a second.
    pub carries: bool,
    /// The most packets that the sender remembers before the proxy accepts, 1 to 8192. The default
    /// is 8192. Beyond it, the sender forgets the oldest packets, so an epoch cannot begin with
    /// these, and their loss is not detected.
    pub unanswered: usize,
}

impl SenderConfig {
    /// [`SenderConfig::frugal`], unless the second link carries flows: few reports would show late
    /// that the first one is silent.
    pub(super) fn is_frugal_after(&self) -> Option<u32> {
        self.frugal.filter(|_| !self.carries)
    }

    /// Bytes of memory for the packets that the sender remembers before the proxy accepts.
    ///
    /// ```
    /// use sidekick_protocol::SenderConfig;
    ///
    /// let few = SenderConfig { unanswered: 1024, ..SenderConfig::default() };
    /// assert_eq!(8 * few.unanswered_bytes(), SenderConfig::default().unanswered_bytes());
    /// ```
    #[must_use]
    pub fn unanswered_bytes(&self) -> usize {
        self.unanswered.clamp(1, MAX_PENDING) * size_of::<Entry>()
    }

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
            steady: None,
            sparse: Some(Duration::from_millis(20)),
            frugal: None,
            keep: None,
            second_link: false,
            carries: false,
            unanswered: MAX_PENDING,
        }
    }
}
