//! A talker's configuration.

use crate::end::{ConfigError, MAX_INTERVAL, MIN_INTERVAL};
use crate::ntp::low16;
use crate::rtp::{HEADER_LEN, OSN_LEN};
use crate::session::{Encoding, MasterKey, Session, Sources};
use crate::srtp::TAG_LEN;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use sidekick_protocol::{Filter, HEAD_LEN, SenderConfig};
use std::net::SocketAddr;
use std::time::Duration;

/// The least content of a packet in bytes: the identifier at offset 21 must fit.
pub const MIN_PAYLOAD: usize = HEAD_LEN - HEADER_LEN;
/// The most content of a packet in bytes: its retransmission fits an Ethernet frame with IPv6.
pub const MAX_PAYLOAD: usize = 1452 - HEADER_LEN - OSN_LEN - TAG_LEN;

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

/// A talker's SSRCs and first numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity {
    pub(super) sources: Sources,
    /// The first packet's number, in the lower half. So a listener that misses the first packets
    /// still counts rollovers correctly (RFC 4568, section 6.4, recommends it).
    pub(super) first: u16,
    pub(super) first_timestamp: u32,
    /// The first retransmission's number.
    pub(super) first_rtx: u16,
}

impl Identity {
    pub(super) fn drawn(seed: [u8; 32]) -> Self {
        let mut random = ChaCha8Rng::from_seed(seed);
        let media = random.next_u32();
        let mut rtx = random.next_u32();
        while rtx == media {
            rtx = random.next_u32();
        }
        let mut number = || low16(random.next_u32() >> 16) & 0x7fff;
        let (first, first_rtx) = (number(), number());
        Self {
            sources: Sources { media, rtx },
            first,
            first_timestamp: random.next_u32(),
            first_rtx,
        }
    }
}
