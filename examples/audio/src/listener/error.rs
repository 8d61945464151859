//! The errors of a listener.

use crate::rtcp::RtcpError;
use crate::srtp::{Refused, SrtpError};
use std::time::Duration;
use thiserror::Error;

/// The longest playout limit.
pub(super) const MAX_PLAYOUT_LIMIT: Duration = Duration::from_secs(60);

/// Why a datagram from the talker changed nothing but a counter.
#[derive(Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HandleError {
    /// SRTP rejects it.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// It is authentic, but not RTCP.
    #[error(transparent)]
    Malformed(#[from] RtcpError),
    /// It belongs to another stream than the listener's first, or has another payload type.
    #[error("a packet of another stream")]
    OtherStream,
    /// Its sequence number is too far from those of its stream.
    #[error("a sequence number too far from those of its stream")]
    Implausible,
}

/// Why a listener cannot be configured so.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The playout limit is out of range.
    #[error("the playout limit must be 1 ms to {} s", MAX_PLAYOUT_LIMIT.as_secs())]
    PlayoutLimit,
    /// The share of parity is out of range.
    #[error("the share of parity must be above 0, and at most 1")]
    Share,
    /// The cipher rejects the key.
    #[error(transparent)]
    Srtp(#[from] SrtpError),
}
