//! The errors of a talker.

use crate::rtcp::RtcpError;
use crate::srtp::{Refused, SrtpError};
use std::time::Duration;
use thiserror::Error;

/// The shortest interval between packets.
pub const MIN_INTERVAL: Duration = Duration::from_millis(1);
/// The longest interval between packets.
pub const MAX_INTERVAL: Duration = Duration::from_secs(1);

/// Why a datagram from the listener changed nothing but a counter.
#[derive(Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HandleError {
    /// SRTP rejects it.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// It is authentic, but not RTCP.
    #[error(transparent)]
    Malformed(#[from] RtcpError),
    /// It is media, which a listener does not send.
    #[error("a packet of media")]
    Media,
}

/// Why a talker cannot be configured so.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The interval is out of range.
    #[error("packets must be {} to {} ms apart", MIN_INTERVAL.as_millis(), MAX_INTERVAL.as_millis())]
    Interval,
    /// There is nothing to send.
    #[error("a stream must have at least one packet")]
    Empty,
    /// A payload type is not dynamic (RFC 3551, section 6), or both are equal.
    #[error("payload types must be different ones from 96 to 127")]
    PayloadType,
    /// The cipher rejects the key.
    #[error(transparent)]
    Srtp(#[from] SrtpError),
}
