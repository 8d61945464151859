//! A connection of MQTT: moves bytes between its stream and the session.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use h3_server::quota::Client;
use quinn::{Connection, ReadError, RecvStream, VarInt};
use thiserror::Error;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use super::{Broker, PATIENCE};
use crate::mqtt::ADDED;
use crate::mqtt::session::{End, Session};

#[cfg(test)]
mod tests;

/// The most bytes of a read, and of unwritten packets before the broker adds no further message.
const CHUNK: usize = 16 * 1024;
/// The longest wait until the client has received the last packet.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug, Error)]
enum Broken {
    #[error("{0}")]
    Read(#[from] ReadError),
    #[error("{0}")]
    Write(#[from] io::Error),
    #[error("the stream ended within a packet")]
    Cut,
    #[error("the client was silent for too long")]
    Silent,
}

/// The bytes of a client: a stream, or those of a test.
trait Arrivals: Send {
    /// The next bytes; `None` at the end. Cancel safe.
    fn next(&mut self) -> impl Future<Output = Result<Option<Bytes>, ReadError>> + Send;
}

impl Arrivals for RecvStream {
    async fn next(&mut self) -> Result<Option<Bytes>, ReadError> {
        Ok(self.read_chunk(CHUNK, true).await?.map(|chunk| chunk.bytes))
    }
}

/// Serves the one stream of a connection.
pub(crate) async fn serve(quic: &Connection, broker: &Broker, client: Client) {
    let peer = quic.remote_address();
    let (mut send, mut receive) = match timeout(PATIENCE, quic.accept_bi()).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return debug!(%peer, %error, "a connection without a stream"),
        Err(_) => return quic.close(VarInt::from_u32(0), b"no stream for too long"),
    };
    let mut session = Session::new(broker, client);
    let longest = broker.limits.max_message as usize + ADDED;
    match converse(&mut session, longest, &mut send, &mut receive).await {
        Ok(end) => {
            if let End::Refused(reason) = end {
                warn!(%peer, reason, "refused");
            }
            let _ = send.finish();
            // The reason must arrive before the close.
            let _ = timeout(CLOSE_TIMEOUT, send.stopped()).await;
        }
        Err(error) => debug!(%peer, %error, "connection ended"),
    }
    quic.close(VarInt::from_u32(0), b"");
}

/// Reads, writes and waits for messages at the same time. So a client that reads slowly can still
/// acknowledge. The longest packet has `longest` bytes.
async fn converse(
    session: &mut Session<'_>,
    longest: usize,
    send: &mut (impl AsyncWrite + Unpin),
    receive: &mut impl Arrivals,
) -> Result<End, Broken> {
    let mut out = BytesMut::new();
    let mut silence = pin!(sleep(PATIENCE));
    loop {
        session.deliver(&mut out, CHUNK);
        let waits_for_silence = session.patience().is_some() || !session.is_connected();
        let room = out.len() < CHUNK;
        // A backlog of messages fills `out` at most this far. It must not delay the client's
        // packets. The answers to these packets may.
        let reads = out.len() < 2 * CHUNK + longest;
        tokio::select! {
            written = send.write(&out), if !out.is_empty() => out.advance(written?),
            arrived = receive.next(), if reads => {
                let Some(bytes) = arrived? else {
                    return if session.may_end() { Ok(End::Left) } else { Err(Broken::Cut) };
                };
                if let Err(end) = session.receive(&bytes, &mut out) {
                    // The client may have stopped reading.
                    let _ = timeout(CLOSE_TIMEOUT, send.write_all(&out)).await;
                    return Ok(end);
                }
                // The time limit is for the whole of CONNECT, however many pieces it has.
                if session.is_connected() {
                    let patience = session.patience().unwrap_or(PATIENCE);
                    silence.as_mut().reset(tokio::time::Instant::now() + patience);
                }
            }
            () = news(session), if room && session.may_deliver() => {}
            () = silence.as_mut(), if waits_for_silence => return Err(Broken::Silent),
        }
    }
}

/// Waits for a message to any subscription of the session.
async fn news(session: &mut Session<'_>) {
    let mut waits: Vec<_> = session.subscribers().map(|one| Box::pin(one.wait())).collect();
    poll_fn(|cx| match waits.iter_mut().any(|wait| wait.as_mut().poll(cx).is_ready()) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}
