//! A connection of MQTT: moves bytes between its stream and the session.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use anyhow::{bail, ensure};
use bytes::{Buf as _, BytesMut};
use h3_server::quota::Client;
use quinn::{Connection, VarInt};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use super::PATIENCE;
use super::topics::Broker;
use crate::mqtt::session::{End, Session};

#[cfg(test)]
mod tests;

/// The most bytes of unwritten packets before the broker adds no further message.
const CHUNK: usize = 16 * 1024;
/// The most bytes of a read. Each connection keeps as many.
const READ: usize = 4 * 1024;
/// The longest wait until the client has received the last packet.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves the one stream of a connection.
pub(crate) async fn serve(quic: &Connection, broker: &Broker, client: Client) {
    let peer = quic.remote_address();
    let (mut send, mut receive) = match timeout(PATIENCE, quic.accept_bi()).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return debug!(%peer, %error, "a connection without a stream"),
        Err(_) => return quic.close(VarInt::from_u32(0), b"no stream for too long"),
    };
    let mut session = Session::new(broker, client);
    match converse(&mut session, &mut send, &mut receive).await {
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
/// acknowledge.
async fn converse(
    session: &mut Session<'_>,
    send: &mut (impl AsyncWrite + Unpin),
    receive: &mut (impl AsyncRead + Unpin),
) -> anyhow::Result<End> {
    let (mut out, mut arrived) = (BytesMut::new(), BytesMut::with_capacity(READ));
    let mut silence = pin!(sleep(PATIENCE));
    loop {
        session.deliver(&mut out, CHUNK);
        let waits_for_silence = session.patience().is_some() || !session.is_connected();
        let room = out.len() < CHUNK;
        // A backlog of messages fills `out` at most this far. It must not delay the client's
        // packets. The answers to these packets may.
        let reads = out.len() < 2 * CHUNK + session.longest();
        tokio::select! {
            written = send.write(&out), if !out.is_empty() => out.advance(written?),
            read = receive.read_buf(&mut arrived), if reads => {
                if read? == 0 {
                    ensure!(session.may_end(), "the stream ended within a packet");
                    return Ok(End::Left);
                }
                if let Err(end) = session.receive(&arrived, &mut out) {
                    // The client may have stopped reading.
                    let _ = timeout(CLOSE_TIMEOUT, send.write_all(&out)).await;
                    return Ok(end);
                }
                arrived.clear();
                // The time limit is for the whole of CONNECT, however many pieces it has.
                if session.is_connected() {
                    let patience = session.patience().unwrap_or(PATIENCE);
                    silence.as_mut().reset(tokio::time::Instant::now() + patience);
                }
            }
            () = news(session), if room && session.may_deliver() => {}
            () = silence.as_mut(), if waits_for_silence => {
                bail!("the client was silent for too long");
            }
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
