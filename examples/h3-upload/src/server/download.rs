//! The answer with a stored file.

use std::fs::File;
use std::io::{self, Read, Seek as _};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use h3::error::Code;
use h3_server::connection::Stream;
use h3_server::quota::{Client, Place};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Request, Response};
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;
use tracing::{debug, info, warn};

use crate::Service;
use crate::digests::{self, SMALL, Version};
use crate::name::file_name;
use crate::request::Refusal;
use crate::store::Store;

/// Bytes that are read and sent at a time. A client must take as many within the stall timeout.
const CHUNK: usize = 16 * 1024;

/// A file to send.
struct Found {
    file: File,
    version: Version,
    /// `None` if the file is large, and its hash not known yet.
    sha256: Option<digests::Sha256>,
    /// The client's place, until the file is sent.
    _place: Place,
}

/// Sends the file that `request` names, with its length, and its hash if that is known (RFC 9530).
/// The first byte does not wait until a large file is hashed.
pub(crate) async fn give(
    request: &Request<()>,
    stream: &mut Stream,
    service: &Service,
    client: Client,
) -> Result<(), Refusal> {
    let path = request.uri().path();
    let name = file_name(path)?;
    let place = service.transfers.take(client)?;
    let store = service.store.clone();
    // Even if the client leaves meanwhile, its place is occupied as long as the disk is.
    let found = tokio::task::spawn_blocking(move || find(&store, &name, place)).await;
    let found = found.map_err(|died| Refusal::Read(io::Error::other(died)))?;
    let found = found.map_err(Refusal::Read)?.ok_or(Refusal::NotFound)?;
    let bytes = found.version.bytes;
    match send(found, stream, service).await {
        Ok(()) => info!(path, bytes, "sent"),
        Err(Unsent::Client(error)) => debug!(path, %error, "the client did not take the file"),
        Err(Unsent::Slow) => {
            debug!(path, "the client takes the file too slowly");
            stream.stop_stream(Code::H3_REQUEST_CANCELLED);
        }
        // The answer has begun, so only a reset can report the error to the client.
        Err(Unsent::File(error)) => {
            warn!(path, %error, "cannot read the file");
            stream.stop_stream(Code::H3_INTERNAL_ERROR);
        }
    }
    Ok(())
}

fn find(store: &Store, name: &std::ffi::OsStr, place: Place) -> io::Result<Option<Found>> {
    let Some(mut file) = store.open(name)? else { return Ok(None) };
    let version = Version::from(&file.metadata()?);
    let sha256 = match version.bytes <= SMALL {
        true => Some(hash(&mut file, version.bytes)?),
        false => store.digests.get(&version),
    };
    Ok(Some(Found { file, version, sha256, _place: place }))
}

/// The hash of the first `bytes` of a file, which may grow meanwhile.
fn hash(file: &mut File, bytes: u64) -> io::Result<digests::Sha256> {
    let mut content = Vec::new();
    file.take(bytes).read_to_end(&mut content)?;
    file.rewind()?;
    Ok(Sha256::digest(content).into())
}

/// Why a file was not sent whole.
enum Unsent {
    Client(h3::error::StreamError),
    Slow,
    File(io::Error),
}

async fn send(found: Found, stream: &mut Stream, service: &Service) -> Result<(), Unsent> {
    let Found { file, version, sha256, _place } = found;
    let patience = service.limits.stall_timeout();
    let mut head = Response::new(());
    let headers = head.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CONTENT_LENGTH, version.bytes.into());
    if let Some(sha256) = sha256
        && let Ok(digest) =
            HeaderValue::from_str(&format!("sha-256=:{}:", BASE64_STANDARD.encode(sha256)))
    {
        headers.insert("repr-digest", digest);
    }
    let slow = |_| Unsent::Slow;
    timeout(patience, stream.send_response(head)).await.map_err(slow)?.map_err(Unsent::Client)?;

    let mut hash = sha256.is_none().then(Sha256::new);
    let mut file = tokio::fs::File::from_std(file);
    let mut left = version.bytes;
    while left > 0 {
        let mut chunk = vec![0; CHUNK.min(usize::try_from(left).unwrap_or(CHUNK))];
        file.read_exact(&mut chunk).await.map_err(Unsent::File)?;
        left -= chunk.len() as u64;
        if let Some(hash) = &mut hash {
            hash.update(&chunk);
        }
        // A client may leave once it has the last bytes.
        if left == 0
            && let Some(hash) = hash.take()
        {
            // Otherwise parts of two versions were hashed.
            if let Ok(now) = file.metadata().await
                && Version::from(&now) == version
            {
                service.store.digests.remember(version, hash.finalize().into());
            }
        }
        timeout(patience, stream.send_data(chunk.into()))
            .await
            .map_err(slow)?
            .map_err(Unsent::Client)?;
    }
    timeout(patience, stream.finish()).await.map_err(slow)?.map_err(Unsent::Client)
}
