//! Why the sender rejects a datagram.

use crate::wire::ParseError;
use thiserror::Error;

/// Why a datagram changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HandleError {
    /// It is not a message.
    #[error("malformed: {0}")]
    Malformed(#[from] ParseError),
    /// It is a message that only a sender sends.
    #[error("a message that only a sender sends")]
    NotForSender,
    /// It does not come from a proxy that was asked.
    #[error("not from a proxy that was asked")]
    Stranger,
    /// It is of another session, or none is asked for.
    #[error("not of this session")]
    OtherSession,
    /// Its seal or handshake is not the proxy's.
    #[error("not authentic")]
    Forged,
    /// It reports another epoch, or is older than what is known already.
    #[error("outdated")]
    Outdated,
    /// Its contents cannot be: more granted than was asked, or sums out of range.
    #[error("impossible contents")]
    Impossible,
}
