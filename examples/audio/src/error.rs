//! The errors of both ends.

use crate::rtcp::RtcpError;
use crate::srtp::{Refused, SrtpError};
use crate::talker::{MAX_INTERVAL, MIN_INTERVAL};
use std::time::Duration;
use thiserror::Error;

/// The longest playout limit.
pub(crate) const MAX_PLAYOUT_LIMIT: Duration = Duration::from_secs(60);

/// Why a datagram changed nothing but a counter.
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
    NotForTalker,
    /// It belongs to another stream than the listener's first, or has another payload type.
    #[error("of another stream")]
    OtherStream,
    /// Its sequence number is too far from those of its stream.
    #[error("too far from the others of its stream")]
    Implausible,
}

/// Why a talker or a listener cannot be configured so.
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
    /// The playout limit is out of range.
    #[error("the playout limit must be 1 ms to {} s", MAX_PLAYOUT_LIMIT.as_secs())]
    PlayoutLimit,
    /// The cipher rejects the key.
    #[error(transparent)]
    Srtp(#[from] SrtpError),
}
