//! One request.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use bytes::{Buf as _, Bytes};
use h3::server::{RequestResolver, RequestStream};
use http::{Method, Response, StatusCode};
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncReadExt as _;

/// The size of a read of a file, in bytes.
const CHUNK: usize = 64 * 1024;

type Stream = RequestStream<h3_quinn::BidiStream<Bytes>, Bytes>;

/// Updates a connection's keys in the middle of a transfer.
#[derive(Clone)]
pub(crate) struct KeyUpdate {
    connection: quinn::Connection,
    after: Option<usize>,
    moved: Arc<AtomicUsize>,
}

impl KeyUpdate {
    /// Updates the keys once `after` bytes of bodies are transferred; never if `None`.
    pub(crate) fn new(connection: quinn::Connection, after: Option<usize>) -> Self {
        Self { connection, after, moved: Arc::default() }
    }

    fn count(&self, bytes: usize) {
        let before = self.moved.fetch_add(bytes, Ordering::Relaxed);
        if self.after.is_some_and(|after| (before..before + bytes).contains(&after)) {
            self.connection.force_key_update();
        }
    }
}

/// Answers a request.
pub(crate) async fn serve(
    resolver: RequestResolver<h3_quinn::Connection, Bytes>,
    root: Arc<Path>,
    update: KeyUpdate,
) {
    let Ok((request, mut stream)) = resolver.resolve_request().await else { return };
    let answered = match *request.method() {
        Method::PUT | Method::POST => take(&mut stream, &update).await,
        Method::GET => give(&mut stream, request.uri().path(), &root, &update).await,
        _ => answer(&mut stream, StatusCode::METHOD_NOT_ALLOWED, Bytes::new()).await,
    };
    if let Err(error) = answered {
        eprintln!("quinn-server: a request failed: {error:#}");
    }
}

async fn take(stream: &mut Stream, update: &KeyUpdate) -> anyhow::Result<()> {
    let (mut bytes, mut hash) = (0, Sha256::new());
    while let Some(mut data) = stream.recv_data().await? {
        update.count(data.remaining());
        while data.has_remaining() {
            let chunk = data.chunk();
            hash.update(chunk);
            bytes += chunk.len();
            data.advance(chunk.len());
        }
    }
    let sha256: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    answer(
        stream,
        StatusCode::OK,
        format!("{{\"bytes\": {bytes}, \"sha256\": \"{sha256}\"}}\n").into(),
    )
    .await
}

async fn give(
    stream: &mut Stream,
    path: &str,
    root: &Path,
    update: &KeyUpdate,
) -> anyhow::Result<()> {
    let Some(path) = file_below(root, path) else {
        return answer(stream, StatusCode::NOT_FOUND, Bytes::new()).await;
    };
    let (Ok(mut file), true) = (tokio::fs::File::open(&path).await, path.is_file()) else {
        return answer(stream, StatusCode::NOT_FOUND, Bytes::new()).await;
    };
    let length = file.metadata().await.context("no length")?.len();
    stream.send_response(Response::builder().header("content-length", length).body(())?).await?;
    loop {
        let mut chunk = Vec::with_capacity(CHUNK);
        (&mut file)
            .take(CHUNK as u64)
            .read_to_end(&mut chunk)
            .await
            .context("cannot read the file")?;
        if chunk.is_empty() {
            return Ok(stream.finish().await?);
        }
        update.count(chunk.len());
        stream.send_data(chunk.into()).await?;
    }
}

/// The file that a request's path names, if it stays below the root.
fn file_below(root: &Path, path: &str) -> Option<PathBuf> {
    let name = Path::new(path.strip_prefix('/')?);
    name.components().all(|part| matches!(part, Component::Normal(_))).then(|| root.join(name))
}

async fn answer(stream: &mut Stream, status: StatusCode, body: Bytes) -> anyhow::Result<()> {
    let response = Response::builder().status(status).header("content-length", body.len());
    stream.send_response(response.header("content-type", "application/json").body(())?).await?;
    stream.send_data(body).await?;
    Ok(stream.finish().await?)
}
