//! What a talker sends, and whom it asks for help.

use crate::wire::MEDIA_HEADER_LEN;
use sidekick_protocol::{Filter, Flow, HEAD_LEN, Identification, SenderConfig, Terms};
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::time::Duration;
use thiserror::Error;

/// The least payload: an identifier at offset 21 has to be in it.
pub const MIN_PAYLOAD: usize = HEAD_LEN;
/// The largest payload: what fits an Ethernet frame with IPv6.
pub const MAX_PAYLOAD: usize = 1452;
/// The shortest interval between packets.
pub const MIN_INTERVAL: Duration = Duration::from_millis(1);
/// The longest interval between packets.
pub const MAX_INTERVAL: Duration = Duration::from_secs(1);

/// A stream.
#[derive(Clone, Debug)]
pub struct TalkerConfig {
    /// From one packet to the next, [`MIN_INTERVAL`] to [`MAX_INTERVAL`]. The default is 20 ms.
    pub interval: Duration,
    /// UDP payload of each packet in bytes, its header of 17 among them, [`MIN_PAYLOAD`] to [`MAX_PAYLOAD`]. The default
    /// is 240.
    pub payload: usize,
    /// Packets in the stream, at least 1. The default is 3000: a minute.
    pub packets: u32,
    /// What the stream's identifier and contents follow from.
    pub seed: u64,
    /// Help from a proxy on the path, if it is wanted.
    pub reinject: Option<Reinject>,
}

impl Default for TalkerConfig {
    fn default() -> Self {
        Self { interval: Duration::from_millis(20), payload: 240, packets: 3000, seed: 1, reinject: None }
    }
}

/// Re-injection: what a proxy reports missing is sent again at once.
#[derive(Clone, Debug)]
pub struct Reinject {
    /// Where the proxy is reached.
    pub proxy: SocketAddr,
    /// The stream's flow. Its source's port has to be the one that the proxy sees; the address may be unspecified.
    pub flow: Flow,
    /// A quACK after this many packets, if any.
    pub every_packets: Option<NonZeroU16>,
    /// A quACK this long after the first unreported packet, if any. If both are `None` the proxy refuses.
    pub every: Option<Duration>,
    /// Power sums in a quACK: as many missing packets can be told from one. At least 1.
    pub threshold: u8,
    /// Whether to ask for a quACK that stays away.
    pub poll: bool,
    /// What the session's keys follow from: draw it at random, unless a simulation is to repeat itself.
    pub seed: [u8; 32],
}

impl Reinject {
    pub(super) fn sender(&self) -> SenderConfig {
        SenderConfig {
            terms: Terms {
                threshold: self.threshold,
                every_packets: self.every_packets,
                every: self.every,
                // All of the flow is ours, and RTP would not pass QUIC's filter.
                identification: Identification { filter: Filter::All, ..Identification::default() },
            },
            poll: self.poll,
            // Milliseconds lie between two packets: none overtakes another.
            packet_threshold: 1,
            ..SenderConfig::of(self.proxy)
        }
    }
}

/// A stream that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The interval is out of range.
    #[error("packets must be {} to {} ms apart", MIN_INTERVAL.as_millis(), MAX_INTERVAL.as_millis())]
    Interval,
    /// The payload is out of range.
    #[error("a packet must have {MIN_PAYLOAD} to {MAX_PAYLOAD} bytes")]
    Payload,
    /// There is nothing to send.
    #[error("a stream must have at least one packet")]
    Empty,
}

impl TalkerConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        const { assert!(MIN_PAYLOAD > MEDIA_HEADER_LEN) };
        if !(MIN_INTERVAL..=MAX_INTERVAL).contains(&self.interval) {
            return Err(ConfigError::Interval);
        }
        if !(MIN_PAYLOAD..=MAX_PAYLOAD).contains(&self.payload) {
            return Err(ConfigError::Payload);
        }
        if self.packets == 0 {
            return Err(ConfigError::Empty);
        }
        Ok(())
    }
}
