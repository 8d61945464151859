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
    /// There is no such session. The observer answers UNKNOWN SESSION.
    #[error("no such session")]
    UnknownSession,
    /// Its cookie is not valid. The observer answers RETRY.
    #[error("no valid cookie")]
    Unproven,
    /// Too many handshakes at once.
    #[error("too many handshakes at once")]
    Busy,
    /// The handshake failed: the sender pins another key, or the message was altered.
    #[error("the handshake failed")]
    Handshake,
    /// It repeats a HELLO whose session is confirmed.
    #[error("a HELLO that was answered before")]
    Duplicate,
    /// The session's sender did not seal it.
    #[error("not authentic")]
    Forged,
    /// It was received before.
    #[error("a replay")]
    Replay,
    /// The session keeps no copies.
    #[error("no copies are kept")]
    NotKept,
    /// The session runs another epoch.
    #[error("another epoch")]
    WrongEpoch,
    /// It exceeds a limit of [`ObserverConfig`](super::ObserverConfig), or requests terms that
    /// cannot be granted. The observer answers REFUSE.
    #[error("refused")]
    Refused,
}
