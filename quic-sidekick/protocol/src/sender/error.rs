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
    /// Its source is not the address of a proxy in use.
    #[error("not from a proxy in use")]
    Stranger,
    /// It belongs to another session, or to none.
    #[error("not of this session")]
    OtherSession,
    /// The proxy made neither its seal nor its handshake message.
    #[error("not authentic")]
    Forged,
    /// It belongs to another epoch, or is older than the sender's state.
    #[error("outdated")]
    Outdated,
    /// It names an address that the sender does not ask for help (SPEC.md, section 9.3).
    #[error("names an address that is not asked")]
    NotAsked,
    /// Its contents are invalid: it grants more than requested, or a sum is out of range.
    #[error("invalid contents")]
    Impossible,
}
