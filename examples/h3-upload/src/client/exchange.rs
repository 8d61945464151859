//! One request on a connection: its events, the head and the text of its answer, and the close.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use quic_sidekick::quiche::h3::{Header, NameValue as _};
use sha2::{Digest as _, Sha256};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::connect::{Link, Needs, connect_http3};
use crate::http3::{Answer, Event, Http3};
use crate::options::Plan;
use crate::patience::{Activity, stalled};
use crate::text::{content_length, hex};
use crate::words::sentence;

/// The longest text of an answer that is read, in bytes.
const LONGEST_TEXT: usize = 64 * 1024;
/// The longest wait until the last packets have left this machine.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// The error code of a connection that ends without an error (RFC 9114, section 8.1).
pub const H3_NO_ERROR: u64 = 0x100;
const H3_REQUEST_CANCELLED: u64 = 0x10c;

/// A whole file that was sent or received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Its length.
    pub bytes: u64,
    /// Its SHA-256, in lower-case hexadecimal.
    pub sha256: String,
}

impl Content {
    /// What was hashed.
    #[must_use]
    pub fn new(bytes: u64, hash: Sha256) -> Self {
        Self { bytes, sha256: hex(&hash.finalize()) }
    }
}

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

/// The events of a connection.
pub type Events = mpsc::UnboundedReceiver<Event>;

/// The head of the answer, if this event of the connection has it. `transfer` names the
/// program's task, for errors.
///
/// # Errors
/// The connection or the stream ended, or the programs cannot use the answer.
pub fn answer(event: Option<Event>, transfer: &str) -> anyhow::Result<Answer> {
    match event {
        None => Err(lost()),
        Some(Event::Answer(answer)) => {
            let status = status(&answer.headers);
            // Only the first headers count.
            ensure!(
                !status.starts_with('1'),
                "the server sent an interim answer (status {status}), which this program does not \
                 support: ask its operator to disable them"
            );
            Ok(answer)
        }
        Some(Event::Reset) => {
            bail!("the server reset the {transfer}: check its log for the reason")
        }
        Some(Event::Violation(error)) => bail!(
            "the server violated the protocol of HTTP/3 ({error}), so this program cannot use it"
        ),
    }
}

/// Waits for the event that ends the request after its answer began, and returns the reason.
pub async fn end(events: &mut Events, transfer: &str) -> anyhow::Error {
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

/// The length that the server announces, if any.
///
/// # Errors
/// It is not a number.
pub fn length(headers: &[Header]) -> anyhow::Result<Option<u64>> {
    content_length(fields(headers, "content-length"))
        .context("the server announced a length that is not a number: check its log")
}

/// Reads a short answer's body. A truncated receipt is not valid JSON, so the end of the connection
/// counts as its end, too.
///
/// # Errors
/// It takes longer than the plan allows, or is not short.
pub async fn text(plan: &Plan, answer: &mut Answer) -> anyhow::Result<Vec<u8>> {
    let read = async {
        let mut text = Vec::new();
        while let Some(piece) = answer.body.recv().await {
            text.extend_from_slice(&piece.bytes);
            ensure!(text.len() <= LONGEST_TEXT, "the server's answer is too long to be read");
            if piece.last {
                break;
            }
        }
        Ok(text)
    };
    timeout(plan.stall_timeout, read)
        .await
        .map_err(|_| anyhow!("the server did not complete its answer: check its log"))?
}

/// Waits a moment for what should be there soon.
pub async fn soon<T>(result: impl Future<Output = T>) -> Option<T> {
    timeout(CLOSE_TIMEOUT, result).await.ok()
}

/// What a program does on a connection, for its errors.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// Its name.
    pub name: &'static str,
    /// The fault of a server that makes no progress.
    pub fault: &'static str,
}

/// Connects, runs `request` until it ends, `stop` fires or the server stalls, and closes the
/// connection. `moved` returns the bytes that the server accepted or sent, as [`stalled`] needs
/// them.
///
/// # Errors
/// Those of the connection and of the request. One that the end of the connection caused names the
/// reason.
pub async fn transfer<T>(
    plan: &Plan,
    needs: Needs<'_>,
    task: Task,
    stop: &mut oneshot::Receiver<()>,
    moved: impl Fn(&Link<()>, &Activity) -> u64,
    request: impl AsyncFnOnce(&mut Link, Arc<Activity>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    // Before the handshake there is no connection to close.
    let mut link = tokio::select! {
        link = connect_http3(plan, needs) => link?,
        _ = &mut *stop => bail!("stopped"),
    };
    let activity = Arc::<Activity>::default();
    let seen = link.view();
    let moved = || moved(&seen, &activity);
    let outcome = tokio::select! {
        outcome = request(&mut link, Arc::clone(&activity)) => outcome,
        _ = stop => Err(anyhow!("stopped")),
        error = stalled(plan.stall_timeout, &activity, moved, task.fault) => Err(error),
    };
    // Before the close, which would replace the server's own reason.
    let outcome = outcome.map_err(|error| why(error, &link, task.name));
    let code = if outcome.is_ok() { H3_NO_ERROR } else { H3_REQUEST_CANCELLED };
    close(&mut link.controller, code).await;
    outcome
}

/// Runs `access`, which reads or writes a file, on a thread of its own: it blocks, and hashing
/// keeps a core busy.
///
/// # Errors
/// The system starts no thread.
pub fn on_a_thread<T: Send + 'static>(
    name: &str,
    access: impl FnOnce() -> T + Send + 'static,
) -> anyhow::Result<oneshot::Receiver<T>> {
    let (result, done) = oneshot::channel();
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || drop(result.send(access())))
        .with_context(|| format!("cannot start a thread to {name}"))?;
    Ok(done)
}

/// Closes the connection, and waits until the CONNECTION_CLOSE frame has left.
pub async fn close(http: &mut Http3, error_code: u64) {
    http.close(error_code);
    let _ = timeout(CLOSE_TIMEOUT, async { while http.events.recv().await.is_some() {} }).await;
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
