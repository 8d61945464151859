//! Why the observer rejects a datagram.

use crate::wire::ParseError;
use thiserror::Error;

/// Why a datagram at the proxy's port changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HandleError {
    /// It is not a message.
    #[error("malformed: {0}")]
    Malformed(#[from] ParseError),
    /// It is a message that only a proxy sends.
    #[error("a message that only a proxy sends")]
    NotForProxy,
    /// There is no such session; the peer is told so.
    #[error("no such session")]
    UnknownSession,
    /// Its cookie proves nothing; the peer is sent another.
    #[error("no valid cookie")]
    Unproven,
    /// Too many handshakes at once.
    #[error("too many handshakes at once")]
    Busy,
    /// The handshake failed: another key was expected, or the message was altered.
    #[error("the handshake failed")]
    Handshake,
    /// It repeats a HELLO whose session is at work.
    #[error("a HELLO that was answered before")]
    Duplicate,
    /// It was not sealed by the session's sender.
    #[error("not authentic")]
    Forged,
    /// It was received before.
    #[error("a replay")]
    Replay,
    /// The session is in another epoch.
    #[error("another epoch")]
    WrongEpoch,
    /// A limit of [`ObserverConfig`] stands against it, or its terms cannot be granted; the peer is
    /// told so.
    #[error("refused")]
    Refused,
}
