//! The answer with a stored file.

use std::fs::File;
use std::io::{self, Read, Seek as _};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use h3::error::Code;
use h3::server::RequestStream;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Request, Response};
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;
use tracing::{debug, info, warn};

use crate::connection::Service;
use crate::limits::{Client, Place};
use crate::name::file_name;
use crate::refusal::Refusal;
use crate::store::Store;
use crate::transport;

/// A request's stream.
pub(crate) type Stream = RequestStream<transport::BidiStream, Bytes>;

/// Bytes that are read and sent at a time. A client must take as many within the stall timeout.
const CHUNK: usize = 16 * 1024;

/// A file to send.
struct Found {
    file: File,
    bytes: u64,
    sha256: [u8; 32],
    /// The client's place, until the file is sent.
    _place: Place,
}

/// Sends the file that `request` names, with its length and its hash (RFC 9530).
pub(crate) async fn give(
    request: &Request<()>,
    stream: &mut Stream,
    service: &Service,
    client: Client,
) -> Result<(), Refusal> {
    let path = request.uri().path();
    let name = file_name(path)?;
    let place = service.transfers().take(client)?;
    let store = service.store().clone();
    // Even if the client leaves meanwhile, its place is occupied as long as the disk is.
    let found = tokio::task::spawn_blocking(move || find(&store, &name, place)).await;
    let found = found.map_err(|died| Refusal::Read(io::Error::other(died)))?;
    let found = found.map_err(Refusal::Read)?.ok_or(Refusal::NotFound)?;
    let bytes = found.bytes;
    match send(found, stream, service).await {
        Ok(()) => info!(path, bytes, "sent"),
        Err(Unsent::Client(error)) => debug!(path, %error, "the client did not take the file"),
        Err(Unsent::Slow) => {
            debug!(path, "the client takes the file too slowly");
            stream.stop_stream(Code::H3_REQUEST_CANCELLED);
        }
        // The answer has begun, so only a reset tells the client.
        Err(Unsent::File(error)) => {
            warn!(path, %error, "cannot read the file");
            stream.stop_stream(Code::H3_INTERNAL_ERROR);
        }
    }
    Ok(())
}

fn find(store: &Store, name: &std::ffi::OsStr, place: Place) -> io::Result<Option<Found>> {
    let Some(mut file) = store.open(name)? else { return Ok(None) };
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 4 * CHUNK];
    let mut bytes = 0;
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        hash.update(buffer.get(..read).unwrap_or_default());
        bytes += read as u64;
    }
    file.rewind()?;
    Ok(Some(Found { file, bytes, sha256: hash.finalize().into(), _place: place }))
}

/// Why a file was not sent whole.
enum Unsent {
    Client(h3::error::StreamError),
    Slow,
    File(io::Error),
}

async fn send(found: Found, stream: &mut Stream, service: &Service) -> Result<(), Unsent> {
    let patience = service.limits().stall_timeout();
    let digest = format!("sha-256=:{}:", BASE64_STANDARD.encode(found.sha256));
    let mut head = Response::new(());
    let headers = head.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CONTENT_LENGTH, found.bytes.into());
    if let Ok(digest) = HeaderValue::from_str(&digest) {
        headers.insert("repr-digest", digest);
    }
    let slow = |_| Unsent::Slow;
    timeout(patience, stream.send_response(head)).await.map_err(slow)?.map_err(Unsent::Client)?;

    let mut file = tokio::fs::File::from_std(found.file);
    let mut left = found.bytes;
    while left > 0 {
        let mut chunk = vec![0; CHUNK.min(usize::try_from(left).unwrap_or(CHUNK))];
        file.read_exact(&mut chunk).await.map_err(Unsent::File)?;
        left -= chunk.len() as u64;
        timeout(patience, stream.send_data(chunk.into()))
            .await
            .map_err(slow)?
            .map_err(Unsent::Client)?;
    }
    timeout(patience, stream.finish()).await.map_err(slow)?.map_err(Unsent::Client)
}
