//! One HTTP request, from its headers to its answer.

use std::io;
use std::net::SocketAddr;

use bytes::Buf as _;
use h3::error::Code;
use h3_server::connection::Stream;
use h3_server::quota::{Client, Full};
use h3_server::reply::Reply;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE};
use http::{Method, Request, StatusCode};
use rustix::io::Errno;
use serde::Serialize;
use thiserror::Error;
use tokio::time::timeout;
use tracing::{debug, info, warn};

use crate::name::{NameError, file_name};
use crate::store::{StoreError, Upload};
use crate::text::content_length;
use crate::{Service, download};

/// The answer for a stored file.
#[derive(Debug, Serialize)]
struct Receipt {
    name: String,
    bytes: u64,
    sha256: String,
}

/// Serves one request.
pub(crate) async fn serve(
    request: Request<()>,
    mut stream: Stream,
    service: Service,
    client: Client,
    peer: SocketAddr,
) {
    let patience = service.limits.request_timeout();
    let reply = if request.method() == Method::GET && request.uri().path() == "/" {
        let usage = "h3-upload-server: PUT /NAME stores a file, GET /NAME returns it\n";
        Reply::text(StatusCode::OK, usage.to_owned())
    } else {
        let done = match request.method() {
            &Method::GET => {
                download::give(&request, &mut stream, &service, client).await.map(|()| None)
            }
            _ => take(&request, &mut stream, &service, client).await.map(Some),
        };
        match done {
            Ok(Some(receipt)) => {
                info!(%peer, name = receipt.name, bytes = receipt.bytes, "stored");
                let receipt = serde_json::to_string(&receipt).unwrap_or_default();
                Reply::json(StatusCode::CREATED, receipt)
            }
            Ok(None) => {
                debug!(%peer, path = request.uri().path(), "a download ended");
                stream.stop_sending(Code::H3_NO_ERROR);
                return;
            }
            Err(Refusal::Broken(error)) => {
                info!(%peer, %error, "a transfer ended early, nothing was stored");
                return;
            }
            Err(refusal) => {
                warn!(%peer, path = request.uri().path(), %refusal, "refused");
                // After the stall timeout, stalled uploads have freed their places.
                let patience = service.limits.stall_timeout();
                let status = refusal.status();
                Reply::refusal(status, &refusal.to_string(), "GET, PUT, POST", patience)
            }
        }
    };
    reply.send(&mut stream, patience).await;
}

async fn take(
    request: &Request<()>,
    stream: &mut Stream,
    service: &Service,
    client: Client,
) -> Result<Receipt, Refusal> {
    if !matches!(*request.method(), Method::PUT | Method::POST) {
        return Err(Refusal::Method);
    }
    if request.headers().contains_key(CONTENT_RANGE) {
        return Err(Refusal::Part);
    }
    let name = file_name(request.uri().path())?;
    let announced = request.headers().get_all(CONTENT_LENGTH);
    let announced = content_length(announced).ok_or(Refusal::LengthHeader)?;
    let store = &service.store;
    if let Some(announced) = announced {
        store.check_length(announced)?;
    }
    let _place = service.transfers.take(client)?;
    let mut upload = store.begin(announced)?;
    debug!(name = %name.display(), announced, "receiving");
    let limits = &service.limits;
    let mut more = true;
    while more {
        let gain = gain(stream, &mut upload, announced, limits.min_progress);
        more = timeout(limits.stall_timeout(), gain).await.map_err(|_| Refusal::Stalled {
            least: limits.min_progress,
            seconds: limits.stall_timeout,
        })??;
    }
    let received = upload.bytes();
    if let Some(announced) = announced
        && received != announced
    {
        return Err(Refusal::Length { announced, received });
    }
    let sha256 = upload.finish(&name).await?;
    Ok(Receipt { name: name.to_string_lossy().into_owned(), bytes: received, sha256 })
}

/// Receives `least` bytes, or to the end of the body. Returns whether there may be more.
async fn gain(
    stream: &mut Stream,
    upload: &mut Upload,
    announced: Option<u64>,
    least: u64,
) -> Result<bool, Refusal> {
    let goal = upload.bytes().saturating_add(least);
    while upload.bytes() < goal {
        let Some(mut data) = stream.recv_data().await? else { return Ok(false) };
        while data.has_remaining() {
            let chunk = data.chunk();
            let len = chunk.len();
            upload.write(chunk).await?;
            data.advance(len);
        }
        let received = upload.bytes();
        if let Some(announced) = announced
            && received > announced
        {
            return Err(Refusal::Length { announced, received });
        }
    }
    Ok(true)
}

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
