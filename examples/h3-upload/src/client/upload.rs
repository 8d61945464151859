//! One upload: the request, its body, the server's answer, and the close.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use quic_sidekick::Status;
use quic_sidekick::tokio_quiche::Handle;
use serde::Deserialize;
use tokio::sync::oneshot;
use tokio::time::{interval, timeout};
use tokio_quiche::http3::driver::{
    ClientEventStream, ClientH3Event, H3Event, InboundFrame, IncomingH3Headers, NewClientRequest,
    OutboundFrameSender,
};
use tokio_quiche::quic::{ConnectionShutdownBehaviour, QuicCommand, QuicConnectionStats};
use tokio_quiche::quiche::h3::{self, NameValue as _};

use crate::body::{self, Counted, Sent, Source};
use crate::cli::Plan;
use crate::connect::{self, Link};
use crate::discover::Found;
use crate::patience::stalled;
use crate::report::{Progress, harmless};

/// The longest answer that is read, in bytes.
const LONGEST_ANSWER: usize = 64 * 1024;
/// The longest sentence of a server that is shown, in characters.
const LONGEST_SENTENCE: usize = 300;
/// The longest wait until the last packets have left this machine.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// The interval between updates of the progress.
const TICK: Duration = Duration::from_millis(100);
/// HTTP/3 error codes (RFC 9114, section 8.1).
const H3_NO_ERROR: u64 = 0x100;
const H3_REQUEST_CANCELLED: u64 = 0x10c;

/// The server's receipt for the stored file.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Receipt {
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
}

/// A finished upload.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) sent: Sent,
    pub(crate) receipt: Receipt,
    /// From the first packet of the connection to the end of the server's answer.
    pub(crate) time: Duration,
    pub(crate) packets: QuicConnectionStats,
    pub(crate) server: SocketAddr,
    pub(crate) found: Found,
    /// `None` without a mode.
    pub(crate) sidekick: Option<Status>,
    /// Errors that the network reported at the plugin's socket.
    pub(crate) socket_errors: u64,
}

impl Outcome {
    /// Application bits per microsecond, that is Mbit/s.
    pub(crate) fn goodput(&self) -> f64 {
        let seconds = self.time.as_secs_f64();
        if seconds > 0.0 { self.sent.bytes as f64 * 8.0 / seconds / 1e6 } else { 0.0 }
    }

    /// Checks that the server stored what was sent.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.receipt.bytes == self.sent.bytes,
            "the server stored {} of {} bytes: upload the file again",
            self.receipt.bytes,
            self.sent.bytes
        );
        ensure!(
            self.receipt.sha256.eq_ignore_ascii_case(&self.sent.sha256),
            "the server stored other content than was sent (its SHA-256 is {}, ours {}): upload \
             the file again",
            self.receipt.sha256,
            self.sent.sha256
        );
        Ok(())
    }
}

/// Uploads the plan's file. When `stop` fires, it closes the connection and returns an error.
pub(crate) async fn upload(
    plan: &Plan,
    mut stop: oneshot::Receiver<()>,
) -> anyhow::Result<Outcome> {
    // Opening a named pipe waits for its writer, and this thread must react to Ctrl-C meanwhile.
    let file = plan.file.clone();
    let source = tokio::select! {
        source = tokio::task::spawn_blocking(move || Source::open(&file)) => {
            source.context("the thread that opens the file died")??
        }
        _ = &mut stop => bail!("stopped"),
    };
    let len = source.len();
    // Before the handshake there is no connection to close.
    let mut link = tokio::select! {
        link = connect::connect(plan) => link?,
        _ = &mut stop => bail!("stopped"),
    };
    let mut events = link.controller.take_event_receiver();
    let counted = Arc::<Counted>::default();
    let progress = Progress::new(plan, len);

    let outcome = tokio::select! {
        outcome = request(plan, source, &link, &mut events, Arc::clone(&counted)) => outcome,
        _ = &mut stop => Err(anyhow!("stopped")),
        error = stalled(plan.stall_timeout, &counted, &link.seen) => Err(error),
        never = watch(&progress, &counted, &link) => match never {},
    };
    progress.finish(counted.handed.load(Ordering::Relaxed));
    // Before the close, which would replace the server's own reason.
    let outcome = outcome.map_err(|error| why(error, &link));
    let code = if outcome.is_ok() { H3_NO_ERROR } else { H3_REQUEST_CANCELLED };
    close(&link, &mut events, code).await;
    outcome
}

/// Shows the progress until the upload ends. It counts acknowledged bytes, because bytes that the
/// connection has read from the file may wait for minutes. Acknowledged packets contain a few bytes
/// more than the file.
async fn watch(progress: &Progress, counted: &Counted, link: &Link) -> std::convert::Infallible {
    if progress.is_silent() {
        return pending().await;
    }
    let mut ticks = interval(TICK);
    loop {
        ticks.tick().await;
        let early = link.sidekick.as_ref().map(|handle| handle.status().stats.early_lost);
        let acknowledged = link.seen.acknowledged.load(Ordering::Relaxed);
        progress.show(acknowledged.min(counted.handed.load(Ordering::Relaxed)), early);
    }
}

/// Sends the request and reads the answer.
async fn request(
    plan: &Plan,
    source: Source,
    link: &Link,
    events: &mut ClientEventStream,
    counted: Arc<Counted>,
) -> anyhow::Result<Outcome> {
    let (body_writer, body) = oneshot::channel::<OutboundFrameSender>();
    let request = NewClientRequest {
        request_id: 0,
        headers: headers(plan, source.len()),
        body_writer: Some(body_writer),
    };
    link.controller.request_sender().send(request).map_err(|_| lost())?;
    // The driver drops the sender if the connection ends before the request could be sent.
    let body = body.await.map_err(|_| lost())?;
    let frames = body.get_ref().cloned().ok_or_else(lost)?;
    let mut reading = body::spawn(source, frames, counted)?;

    let mut sent = None;
    let mut answer = loop {
        tokio::select! {
            biased;
            done = &mut reading, if sent.is_none() => {
                // `None` means that the driver stopped reading the body. The events give the
                // reason.
                sent = Some(done.context("the thread that read the file died")??);
            }
            event = events.recv() => match event {
                None => return Err(lost()),
                Some(ClientH3Event::Core(H3Event::IncomingHeaders(answer))) => break answer,
                Some(ClientH3Event::Core(H3Event::ResetStream { .. })) => {
                    bail!("the server reset the upload: check its log for the reason");
                }
                Some(ClientH3Event::Core(H3Event::ConnectionError(error))) => {
                    bail!(
                        "the server violated the protocol of HTTP/3 ({error}), so this program \
                         cannot use it"
                    );
                }
                Some(_) => {}
            }
        }
    };
    let status = status(&answer);
    // The driver passes on the first headers only.
    ensure!(
        !status.starts_with('1'),
        "the server sent an interim answer (status {status}), which this program does not support: \
         ask its operator to disable them"
    );
    let answered = async {
        tokio::select! {
            text = read_answer(&mut answer) => text,
            // Reads the events, so that they do not accumulate.
            never = async { while events.recv().await.is_some() {} pending().await } => never,
        }
    };
    let text = timeout(plan.stall_timeout, answered)
        .await
        .map_err(|_| anyhow!("the server did not complete its answer: check its log"))??;
    if status != "201" && status != "200" {
        let reason = sentence(&String::from_utf8_lossy(&text));
        bail!("the server refused the upload (status {status}): {reason}");
    }
    let time = connect::now().saturating_duration_since(link.started);
    let sidekick = link.sidekick.as_ref().map(Handle::status);
    let socket_errors = link.sidekick.as_ref().map_or(0, Handle::socket_errors);
    let packets = packets(link).await?;
    let sent = match sent {
        Some(sent) => sent,
        // The thread may deliver its result a little after the last frame.
        None => {
            timeout(CLOSE_TIMEOUT, reading).await.ok().and_then(Result::ok).transpose()?.flatten()
        }
    };
    let sent =
        sent.context("the server answered before it received the whole file: check its log")?;
    let receipt = serde_json::from_slice(&text).context(
        "the server accepted the file without a receipt, because it is not an h3-upload-server: \
         check the file there",
    )?;
    let (server, found) = (link.server, link.found);
    Ok(Outcome { sent, receipt, time, packets, server, found, sidekick, socket_errors })
}

fn headers(plan: &Plan, len: Option<u64>) -> Vec<h3::Header> {
    let mut headers = vec![
        h3::Header::new(b":method", b"PUT"),
        h3::Header::new(b":scheme", b"https"),
        h3::Header::new(b":authority", plan.target.authority.as_bytes()),
        h3::Header::new(b":path", plan.target.path.as_bytes()),
        h3::Header::new(b"user-agent", concat!("h3-upload/", env!("CARGO_PKG_VERSION")).as_bytes()),
        h3::Header::new(b"content-type", b"application/octet-stream"),
    ];
    if let Some(len) = len {
        headers.push(h3::Header::new(b"content-length", len.to_string().as_bytes()));
    }
    headers
}

fn status(answer: &IncomingH3Headers) -> String {
    let found = answer.headers.iter().find(|header| header.name() == b":status");
    found.map(|header| sentence(&String::from_utf8_lossy(header.value()))).unwrap_or_default()
}

/// Reads the body of the answer. The driver does not mark its end if the server also stopped the
/// upload, so the end of the channel counts, too. A truncated receipt is not valid JSON.
async fn read_answer(answer: &mut IncomingH3Headers) -> anyhow::Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut ended = answer.read_fin;
    while !ended && let Some(frame) = answer.recv.recv().await {
        let InboundFrame::Body(bytes, end) = frame else { continue };
        text.extend_from_slice(&bytes);
        ensure!(text.len() <= LONGEST_ANSWER, "the server's answer is too long to be a receipt");
        ended = end;
    }
    Ok(text)
}

/// The first line of a server's text, without unsafe characters.
fn sentence(text: &str) -> String {
    let line = harmless(text.trim().lines().next().unwrap_or(""))
        .chars()
        .take(LONGEST_SENTENCE)
        .collect::<String>();
    if line.is_empty() { "it gives no reason".to_owned() } else { line }
}

/// Requests quiche's own counters from the connection's worker.
async fn packets(link: &Link) -> anyhow::Result<QuicConnectionStats> {
    let (sender, receiver) = oneshot::channel();
    let command = QuicCommand::ConnectionStats(Box::new(move |stats| {
        let _ = sender.send(stats);
    }));
    link.controller.cmd_sender().send(command).map_err(|_| lost())?;
    receiver.await.map_err(|_| lost())
}

/// Closes the connection, and waits until the CONNECTION_CLOSE frame has left.
async fn close(link: &Link, events: &mut ClientEventStream, error_code: u64) {
    let shutdown = ConnectionShutdownBehaviour {
        send_application_close: true,
        error_code,
        reason: Vec::new(),
    };
    if link.controller.cmd_sender().send(QuicCommand::ConnectionClose(shutdown)).is_ok() {
        // The driver's events end after its worker has flushed the last packet.
        let _ = timeout(CLOSE_TIMEOUT, async { while events.recv().await.is_some() {} }).await;
    }
}

/// The connection ended. [`why`] replaces this error once the reason is known.
#[derive(Debug, thiserror::Error)]
#[error("the connection to the server was lost")]
struct Lost;

fn lost() -> anyhow::Error {
    Lost.into()
}

fn why(error: anyhow::Error, link: &Link) -> anyhow::Error {
    match (error.downcast_ref::<Lost>(), link.seen.ending.get()) {
        (Some(Lost), Some(ending)) => anyhow!("the upload failed: {ending}; try again"),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[test]
    fn a_pipe_without_a_writer_can_be_interrupted() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let arguments = ["h3-upload", pipe.to_str().unwrap(), "https://127.0.0.1:1/x"];
        let plan = crate::cli::Cli::parse_from(arguments).plan().unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (stop, stopped) = oneshot::channel();
        stop.send(()).unwrap();
        let error = runtime.block_on(upload(&plan, stopped)).err().unwrap();
        assert_eq!(error.to_string(), "stopped");
        runtime.shutdown_background();
    }

    #[test]
    fn a_server_cannot_control_the_terminal() {
        assert_eq!(sentence("no\x1b[2Jsuch name\nand more"), "no[2Jsuch name");
        assert_eq!(sentence("\n"), "it gives no reason");
    }
}
