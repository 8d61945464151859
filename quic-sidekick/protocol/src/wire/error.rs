//! Errors of the wire format.

use thiserror::Error;

/// Why bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseError {
    /// It ends before its last field, or is shorter than it has to be.
    #[error("the message is cut short")]
    Truncated,
    /// Bytes follow its last field.
    #[error("bytes follow the message's end")]
    TrailingBytes,
    /// Another version, or not of this protocol.
    #[error("version {0} is not spoken here")]
    Version(u8),
    /// A type that version 1 does not have.
    #[error("message type {0} is unknown")]
    Type(u8),
    /// A field holds what it may not hold.
    #[error("the field `{0}` holds a value that is not allowed")]
    Field(&'static str),
}

/// The buffer is too short; [`MAX_DATAGRAM_LEN`] bytes are always enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the buffer is too short")]
pub struct BufferTooShort;
