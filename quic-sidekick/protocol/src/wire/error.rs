//! Errors of the wire format.

use thiserror::Error;

/// Why bytes do not parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The input ends before its last field, or is shorter than required.
    #[error("the message is truncated")]
    Truncated,
    /// Bytes follow the last field.
    #[error("the message has trailing bytes")]
    TrailingBytes,
    /// Another version, or another protocol.
    #[error("version {0} is not supported")]
    Version(u8),
    /// A type that version 1 does not define.
    #[error("message type {0} is unknown")]
    Type(u8),
    /// A field holds a value that is not allowed.
    #[error("the field `{0}` holds a value that is not allowed")]
    Field(&'static str),
}

/// The output buffer is too short. [`MAX_DATAGRAM_LEN`](super::MAX_DATAGRAM_LEN) bytes are always
/// enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the buffer is too short")]
pub struct BufferTooShort;
