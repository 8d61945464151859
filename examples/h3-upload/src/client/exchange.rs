//! One request on a connection: its events, the head and the text of its answer, and the close.

use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, ensure};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_quiche::ClientH3Controller;
use tokio_quiche::http3::driver::{
    ClientEventStream, ClientH3Event, H3Event, InboundFrame, IncomingH3Headers, NewClientRequest,
};
use tokio_quiche::quic::{ConnectionShutdownBehaviour, QuicCommand};
use tokio_quiche::quiche::h3::{Header, NameValue as _};

use crate::connect::Link;
use crate::options::Plan;
use crate::report::Measured;
use crate::watch::Counters;
use crate::words::sentence;

/// The longest text of an answer that is read, in bytes.
const LONGEST_TEXT: usize = 64 * 1024;
/// The longest wait until the last packets have left this machine.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// The error code of a connection that ends without an error (RFC 9114, section 8.1).
pub const H3_NO_ERROR: u64 = 0x100;
const H3_REQUEST_CANCELLED: u64 = 0x10c;

/// The headers of a request for the plan's target.
#[must_use]
pub fn headers(plan: &Plan, method: &str) -> Vec<Header> {
    let agent = format!("{}/{}", plan.program, env!("CARGO_PKG_VERSION"));
    vec![
        Header::new(b":method", method.as_bytes()),
        Header::new(b":scheme", b"https"),
        Header::new(b":authority", plan.target.authority.as_bytes()),
        Header::new(b":path", plan.target.path.as_bytes()),
        Header::new(b"user-agent", agent.as_bytes()),
    ]
}

/// Sends a request.
///
/// # Errors
/// The connection has ended.
pub fn send(link: &Link, request: NewClientRequest) -> anyhow::Result<()> {
    link.controller.request_sender().send(request).map_err(|_| lost())
}

/// The head of the answer, if this event of the connection has it. `transfer` names the
/// program's task, for errors.
///
/// # Errors
/// The connection or the stream ended, or the programs cannot use the answer.
pub fn answer(
    event: Option<ClientH3Event>,
    transfer: &str,
) -> anyhow::Result<Option<IncomingH3Headers>> {
    match event {
        None => Err(lost()),
        Some(ClientH3Event::Core(H3Event::IncomingHeaders(answer))) => {
            let status = status(&answer.headers);
            // The driver passes on the first headers only.
            ensure!(
                !status.starts_with('1'),
                "the server sent an interim answer (status {status}), which this program does not \
                 support: ask its operator to disable them"
            );
            Ok(Some(answer))
        }
        Some(ClientH3Event::Core(H3Event::ResetStream { .. })) => {
            bail!("the server reset the {transfer}: check its log for the reason")
        }
        Some(ClientH3Event::Core(H3Event::ConnectionError(error))) => bail!(
            "the server violated the protocol of HTTP/3 ({error}), so this program cannot use it"
        ),
        Some(_) => Ok(None),
    }
}

/// Reads events, so that they do not accumulate. Returns the reason once one ends the request; see
/// [`answer`].
pub async fn end(events: &mut ClientEventStream, transfer: &str) -> anyhow::Error {
    loop {
        if let Err(error) = answer(events.recv().await, transfer) {
            return error;
        }
    }
}

/// The status of an answer, made safe to show.
#[must_use]
pub fn status(headers: &[Header]) -> String {
    fields(headers, ":status").next().map(|status| sentence(&status)).unwrap_or_default()
}

/// The values of all fields of this name, which is in lower case.
pub fn fields<'a>(headers: &'a [Header], name: &'a str) -> impl Iterator<Item = String> + 'a {
    let named = headers.iter().filter(move |field| field.name() == name.as_bytes());
    named.map(|field| String::from_utf8_lossy(field.value()).into_owned())
}

/// Reads a short answer's body. The driver does not mark its end if the server also stopped the
/// request, so the end of the channel counts, too. A truncated receipt is not valid JSON.
///
/// # Errors
/// It takes longer than the plan allows, or is not short.
pub async fn text(
    plan: &Plan,
    answer: &mut IncomingH3Headers,
    events: &mut ClientEventStream,
) -> anyhow::Result<Vec<u8>> {
    let read = async {
        let mut text = Vec::new();
        let mut ended = answer.read_fin;
        while !ended && let Some(frame) = answer.recv.recv().await {
            let InboundFrame::Body(bytes, end) = frame else { continue };
            text.extend_from_slice(&bytes);
            ensure!(text.len() <= LONGEST_TEXT, "the server's answer is too long to be read");
            ended = end;
        }
        Ok(text)
    };
    let answered = async {
        tokio::select! {
            text = read => text,
            // Reads the events, so that they do not accumulate.
            never = async { while events.recv().await.is_some() {} std::future::pending().await } => never,
        }
    };
    timeout(plan.stall_timeout, answered)
        .await
        .map_err(|_| anyhow!("the server did not complete its answer: check its log"))?
}

/// What the connection and the plugin have measured. `ended` is when the transfer did.
pub async fn measure(link: &Link, ended: Instant) -> Measured {
    link.measured_with(counters(link).await, ended)
}

/// quiche's own counters, from the connection's worker. A server may have closed the connection,
/// and the worker then left its last ones.
async fn counters(link: &Link) -> Counters {
    let (sender, receiver) = oneshot::channel();
    let command = QuicCommand::ConnectionStats(Box::new(move |stats| {
        let _ = sender.send(Counters::of(&stats.stats, stats.path_stats.as_ref()));
    }));
    let _ = link.controller.cmd_sender().send(command);
    match receiver.await {
        Ok(counters) => counters,
        Err(_) => link.seen.last.get().copied().unwrap_or_default(),
    }
}

/// Waits a moment for what should be there soon.
pub async fn soon<T>(result: impl Future<Output = T>) -> Option<T> {
    timeout(CLOSE_TIMEOUT, result).await.ok()
}

/// Runs `exchange` on the connection, then closes it. `transfer` names the program's task, for
/// errors.
///
/// # Errors
/// That of the exchange. One that the end of the connection caused names the reason.
pub async fn on<T>(
    link: &mut Link,
    transfer: &str,
    exchange: impl AsyncFnOnce(&Link, &mut ClientEventStream) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let mut events = link.controller.take_event_receiver();
    // Before the close, which would replace the server's own reason.
    let outcome = exchange(link, &mut events).await.map_err(|error| why(error, link, transfer));
    let code = if outcome.is_ok() { H3_NO_ERROR } else { H3_REQUEST_CANCELLED };
    close(&link.controller, &mut events, code).await;
    outcome
}

/// Closes the connection, and waits until the CONNECTION_CLOSE frame has left.
pub async fn close(
    controller: &ClientH3Controller,
    events: &mut ClientEventStream,
    error_code: u64,
) {
    let shutdown = ConnectionShutdownBehaviour {
        send_application_close: true,
        error_code,
        reason: Vec::new(),
    };
    if controller.cmd_sender().send(QuicCommand::ConnectionClose(shutdown)).is_ok() {
        // The driver's events end after its worker has flushed the last packet.
        let _ = timeout(CLOSE_TIMEOUT, async { while events.recv().await.is_some() {} }).await;
    }
}

/// The connection ended. [`why`] replaces this error once the reason is known.
#[derive(Debug, thiserror::Error)]
#[error("the connection to the server was lost")]
struct Lost;

/// The error of a connection that ended.
#[must_use]
pub fn lost() -> anyhow::Error {
    Lost.into()
}

fn why(error: anyhow::Error, link: &Link, transfer: &str) -> anyhow::Error {
    match (error.downcast_ref::<Lost>(), link.seen.ending.get()) {
        (Some(Lost), Some(ending)) => anyhow!("the {transfer} failed: {ending}; try again"),
        _ => error,
    }
}
