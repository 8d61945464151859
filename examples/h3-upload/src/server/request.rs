//! One HTTP request, from its headers to its answer.

use std::net::SocketAddr;

use bytes::{Buf as _, Bytes};
use h3::error::Code;
use h3::server::{RequestResolver, RequestStream};
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};
use http::{Method, Request, Response, StatusCode};
use serde::Serialize;
use thiserror::Error;
use tracing::{debug, info, warn};

use crate::name::{NameError, file_name};
use crate::store::{Store, StoreError};

type Stream = RequestStream<h3_quinn::BidiStream<Bytes>, Bytes>;

/// Why a file was not taken.
#[derive(Debug, Error)]
enum Refusal {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("only PUT and POST store a file")]
    Method,
    #[error("content-length is not a number")]
    LengthHeader,
    #[error("{announced} bytes were announced and {received} came")]
    Length { announced: u64, received: u64 },
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The client went away; nobody is left to answer.
    #[error("the upload broke off: {0}")]
    Broken(#[from] h3::error::StreamError),
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::Name(_) | Self::LengthHeader | Self::Length { .. } | Self::Broken(_) => {
                StatusCode::BAD_REQUEST
            }
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Store(StoreError::TooLong(_)) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Store(StoreError::Io(_)) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// What the client is told of a stored file.
#[derive(Debug, Serialize)]
struct Receipt {
    name: String,
    bytes: u64,
    sha256: String,
}

/// Serves one request.
pub(crate) async fn serve(
    resolver: RequestResolver<h3_quinn::Connection, Bytes>,
    store: Store,
    peer: SocketAddr,
) {
    let (request, mut stream) = match resolver.resolve_request().await {
        Ok(resolved) => resolved,
        Err(error) => return debug!(%peer, %error, "no request"),
    };
    if request.method() == Method::GET && request.uri().path() == "/" {
        let hello = "h3-upload-server: PUT /NAME stores a file\n";
        return sent(
            answer(&mut stream, StatusCode::OK, "text/plain; charset=utf-8", hello.into()).await,
            peer,
        );
    }
    debug!(%peer, method = %request.method(), path = request.uri().path(), "request");
    match take(&request, &mut stream, &store).await {
        Ok(receipt) => {
            info!(%peer, name = receipt.name, bytes = receipt.bytes, "stored");
            let json = serde_json::to_string(&receipt).unwrap_or_default();
            sent(answer(&mut stream, StatusCode::CREATED, "application/json", json).await, peer);
        }
        Err(Refusal::Broken(error)) => info!(%peer, %error, "an upload broke off, nothing was stored"),
        Err(refusal) => {
            warn!(%peer, path = request.uri().path(), %refusal, "refused");
            let text = format!("{refusal}\n");
            let answered = answer(&mut stream, refusal.status(), "text/plain; charset=utf-8", text).await;
            // The rest of the body is not wanted, and that is no error (RFC 9114, section 4.1).
            stream.stop_sending(Code::H3_NO_ERROR);
            sent(answered, peer);
        }
    }
}

/// A client may leave without waiting for its answer.
fn sent(answered: Result<(), h3::error::StreamError>, peer: SocketAddr) {
    if let Err(error) = answered {
        debug!(%peer, %error, "the answer was not taken");
    }
}

async fn take(request: &Request<()>, stream: &mut Stream, store: &Store) -> Result<Receipt, Refusal> {
    if !matches!(*request.method(), Method::PUT | Method::POST) {
        return Err(Refusal::Method);
    }
    let name = file_name(request.uri().path())?;
    let announced = content_length(request.headers())?;
    if let Some(announced) = announced {
        store.check_length(announced)?;
    }
    let mut upload = store.begin()?;
    debug!(name = %name.display(), announced, "receiving");
    while let Some(mut data) = stream.recv_data().await? {
        while data.has_remaining() {
            let chunk = data.chunk();
            let len = chunk.len();
            upload.write(chunk).await?;
            data.advance(len);
        }
        if let Some(announced) = announced
            && upload.bytes() > announced
        {
            return Err(Refusal::Length { announced, received: upload.bytes() });
        }
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

/// The announced length of the body, if any; several headers must not disagree.
fn content_length(headers: &HeaderMap) -> Result<Option<u64>, Refusal> {
    let mut announced = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        let digits = value.to_str().map_err(|_| Refusal::LengthHeader)?;
        // `parse` would take a sign.
        if !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(Refusal::LengthHeader);
        }
        let length: u64 = digits.parse().map_err(|_| Refusal::LengthHeader)?;
        if announced.is_some_and(|before| before != length) {
            return Err(Refusal::LengthHeader);
        }
        announced = Some(length);
    }
    Ok(announced)
}

async fn answer(
    stream: &mut Stream,
    status: StatusCode,
    content_type: &str,
    body: String,
) -> Result<(), h3::error::StreamError> {
    let mut response = Response::new(());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    if let Ok(value) = content_type.parse() {
        headers.insert(CONTENT_TYPE, value);
    }
    headers.insert(CONTENT_LENGTH, body.len().into());
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, http::HeaderValue::from_static("PUT, POST"));
    }
    stream.send_response(response).await?;
    stream.send_data(body.into()).await?;
    stream.finish().await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length(values: &[&'static str]) -> Result<Option<u64>, String> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(CONTENT_LENGTH, http::HeaderValue::from_static(value));
        }
        content_length(&headers).map_err(|e| e.to_string())
    }

    #[test]
    fn lengths_are_numbers_and_agree() {
        assert_eq!(length(&[]), Ok(None));
        assert_eq!(length(&["0"]), Ok(Some(0)));
        assert_eq!(length(&["18446744073709551615"]), Ok(Some(u64::MAX)));
        assert_eq!(length(&["7", "7"]), Ok(Some(7)));
        for bad in [&["7", "8"][..], &["-1"], &["+1"], &["1, 1"], &[""], &["18446744073709551616"]] {
            assert!(length(bad).is_err(), "{bad:?}");
        }
    }
}
