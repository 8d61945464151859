//! Why the server refuses a request.

use std::io;

use h3_server::quota::Full;
use http::StatusCode;
use rustix::io::Errno;
use thiserror::Error;

use crate::name::NameError;
use crate::store::StoreError;

/// Why the server refused a request.
#[derive(Debug, Error)]
pub(crate) enum Refusal {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("only PUT and POST store a file, and GET returns one")]
    Method,
    #[error("there is no such file: check its name")]
    NotFound,
    #[error("the server cannot read the file: {0}")]
    Read(io::Error),
    #[error("content-length is not a number")]
    LengthHeader,
    /// RFC 9110, section 14.5.
    #[error("the server stores whole files: send the file without content-range")]
    Part,
    #[error("the client announced {announced} bytes and sent {received}")]
    Length { announced: u64, received: u64 },
    #[error(transparent)]
    Full(#[from] Full),
    #[error(
        "the body gained less than {least} bytes in {seconds} s and did not end: send it faster"
    )]
    Stalled { least: u64, seconds: u16 },
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The client left, so there is no answer.
    #[error("the upload ended early: {0}")]
    Broken(#[from] h3::error::StreamError),
}

impl Refusal {
    /// The status of the answer.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Name(_)
            | Self::LengthHeader
            | Self::Part
            | Self::Length { .. }
            | Self::Broken(_) => StatusCode::BAD_REQUEST,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Full(Full::Client(..)) => StatusCode::TOO_MANY_REQUESTS,
            Self::Full(Full::Total(..)) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Stalled { .. } => StatusCode::REQUEST_TIMEOUT,
            Self::Store(StoreError::TooLong(_)) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Store(StoreError::NoRoom(_)) => StatusCode::INSUFFICIENT_STORAGE,
            Self::Store(StoreError::Io(error)) | Self::Read(error) => of_io(error),
        }
    }
}

/// The status for an error of the file system. Some are temporary.
fn of_io(error: &io::Error) -> StatusCode {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE | Errno::NFILE) => StatusCode::SERVICE_UNAVAILABLE,
        Some(Errno::NOSPC | Errno::DQUOT) => StatusCode::INSUFFICIENT_STORAGE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
