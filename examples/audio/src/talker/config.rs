//! A talker's configuration.

use super::error::{ConfigError, MAX_INTERVAL, MIN_INTERVAL};
use crate::rtp::{HEADER_LEN, OSN_LEN};
use crate::session::{Encoding, MasterKey, Session};
use crate::srtp::SRTP_OVERHEAD;
use sidekick_protocol::{Filter, Flow, HEAD_LEN, SenderConfig};
use std::net::SocketAddr;
use std::time::Duration;

/// The least content of a packet in bytes: the identifier at offset 21 must fit.
pub const MIN_PAYLOAD: usize = HEAD_LEN - HEADER_LEN;
/// The most content of a packet in bytes: its retransmission fits an Ethernet frame with IPv6.
pub const MAX_PAYLOAD: usize = 1452 - HEADER_LEN - OSN_LEN - SRTP_OVERHEAD;

/// A stream.
#[derive(Clone, Debug)]
pub struct TalkerConfig {
    /// The session that both ends agreed on.
    pub session: Session,
    /// The interval between packets, [`MIN_INTERVAL`] to [`MAX_INTERVAL`]. The default is 20 ms.
    pub interval: Duration,
    /// The most packets in the stream, at least 1. The default is 3000: a minute.
    pub packets: u32,
    /// Determines SSRCs, and the first sequence numbers and timestamp. Must be random, except in a
    /// simulation that repeats itself.
    pub identity: [u8; 32],
    /// The silence after which a listener is gone, once it has sent something. The default is 10 s.
    pub idle_timeout: Duration,
    /// Re-injection with a proxy on the path.
    pub reinject: Option<Reinject>,
}

impl TalkerConfig {
    /// A minute of packets every 20 ms.
    #[must_use]
    pub fn new(session: Session) -> Self {
        Self {
            session,
            interval: Duration::from_millis(20),
            packets: 3000,
            identity: [0; 32],
            idle_timeout: Duration::from_secs(10),
            reinject: None,
        }
    }

    /// The stream of a simulation, which a seed repeats: random bytes under a key that is not
    /// secret.
    #[must_use]
    pub fn of_simulation(seed: u64) -> Self {
        let mut identity = [0; 32];
        for (byte, value) in identity.iter_mut().zip(seed.to_be_bytes()) {
            *byte = value;
        }
        let session = Session::new(MasterKey::of_simulation(seed), Encoding::Random);
        Self { identity, ..Self::new(session) }
    }
}

/// Re-injection of datagrams that a proxy reports missing.
#[derive(Clone, Debug)]
pub struct Reinject {
    /// The proxy, and the terms to request: [`sender_config`] with a schedule of quACKs.
    pub sender: SenderConfig,
    /// The stream's flow. The proxy must see its source port; the source address may be
    /// unspecified.
    pub flow: Flow,
    /// Determines the session's keys. Must be random, except in a simulation that repeats itself.
    pub seed: [u8; 32],
}

/// The default terms for a call, requested of the proxy at this address.
#[must_use]
pub fn sender_config(proxy: SocketAddr) -> SenderConfig {
    // Packets are milliseconds apart, so that none overtakes another.
    let mut config = SenderConfig { packet_threshold: 1, ..SenderConfig::of(proxy) };
    // Every datagram of the flow counts. QUIC's filter would reject RTP.
    config.terms.identification.filter = Filter::All;
    config
}

impl TalkerConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if !(MIN_INTERVAL..=MAX_INTERVAL).contains(&self.interval) {
            return Err(ConfigError::Interval);
        }
        if self.packets == 0 {
            return Err(ConfigError::Empty);
        }
        let Session { payload_type, rtx_payload_type, .. } = &self.session;
        let dynamic = |pt: &u8| (96..128).contains(pt);
        if !dynamic(payload_type)
            || rtx_payload_type.is_some_and(|rtx| !dynamic(&rtx) || rtx == *payload_type)
        {
            return Err(ConfigError::PayloadType);
        }
        Ok(())
    }
}
