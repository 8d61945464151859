//! One upload: the request, its body, and the server's answer.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use h3_client::connect::{HTTP3, Link, Needs};
use h3_client::exchange::{self, Content, Task, answer, lost, on_a_thread};
use h3_client::now;
use h3_client::options::Plan;
use h3_client::patience::Activity;
use h3_client::progress::Progress;
use h3_client::quiche::h3::Header;
use h3_client::report::{Measured, remark};
use h3_client::words::sentence;
use serde::Deserialize;
use tokio::sync::oneshot;

use crate::body::{self, Source};

const TASK: Task = Task { name: "upload", fault: "accepted nothing and sent no answer" };
/// Flow control credit for the answer, in bytes. It is short, and anything more would only fill the
/// memory.
const ANSWER_WINDOW: u64 = 128 * 1024;
/// The acknowledged bytes beyond the file that count as progress: those of the handshake, and of
/// small files.
const SLACK: u64 = 64 * 1024;

/// The server's receipt for the stored file.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Receipt {
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
}

/// A finished upload.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) sent: Content,
    pub(crate) receipt: Receipt,
    pub(crate) measured: Measured,
}

impl Outcome {
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

/// Uploads the file. When `stop` fires, it closes the connection and returns an error.
pub(crate) async fn upload(
    file: &Path,
    plan: &Plan,
    mut stop: oneshot::Receiver<()>,
) -> anyhow::Result<Outcome> {
    // Opening a named pipe waits for its writer, and this thread must react to Ctrl-C meanwhile.
    let path = file.to_owned();
    let source = tokio::select! {
        source = tokio::task::spawn_blocking(move || Source::open(&path)) => {
            source.context("the thread that opens the file failed")??
        }
        _ = &mut stop => bail!("stopped"),
    };
    let needs =
        Needs { protocol: HTTP3, window: ANSWER_WINDOW, object: source.len(), files: &[file] };
    exchange::transfer(plan, needs, TASK, &mut stop, taken, async |link, activity| {
        request(plan, source, link, activity).await
    })
    .await
}

/// Bytes that the server took. They are bounded: the file is read once, and acknowledgements count
/// up to a little more than the bytes read from it.
fn taken(link: &Link<()>, activity: &Activity) -> u64 {
    at_most(link.taken(), activity.bytes())
}

fn at_most(taken: u64, read: u64) -> u64 {
    taken.min(read.saturating_add(read / 2).saturating_add(SLACK))
}

/// Sends the request and reads the answer.
async fn request(
    plan: &Plan,
    source: Source,
    link: &mut Link,
    activity: Arc<Activity>,
) -> anyhow::Result<Outcome> {
    let progress = Progress::new(plan, source.len());
    let body = link.controller.request(headers(plan, source.len()), true)?.ok_or_else(lost)?;
    let reader = Arc::clone(&activity);
    let mut reading = on_a_thread("read the file", move || body::send(source, &body, &reader))?;

    let seen = link.view();
    // Acknowledged bytes, because bytes that the connection has read from the file may wait for
    // minutes. Acknowledged packets contain a few bytes more than the file.
    let shown = || (seen.acknowledged().min(activity.bytes()), remark(seen.status()));
    let mut watch = pin!(progress.watch(shown));
    let mut sent = None;
    let mut head = loop {
        tokio::select! {
            biased;
            done = &mut reading, if sent.is_none() => {
                // `None` means that the server stopped reading the body. The events give the
                // reason.
                sent = Some(done.context("the thread that read the file failed")??);
            }
            event = link.controller.events.recv() => break answer(event, TASK.name)?,
            never = &mut watch => match never {},
        }
    };
    // The text of the answer has its own deadline.
    activity.suspend();
    let text = exchange::text(plan, &mut head).await?;
    let status = exchange::status(&head.headers);
    if status != "201" && status != "200" {
        let reason = sentence(&String::from_utf8_lossy(&text));
        bail!("the server refused the upload (status {status}): {reason}");
    }
    let measured = link.measured(now());
    let sent = match sent {
        Some(sent) => sent,
        // The thread may deliver its result a little after the last piece.
        None => exchange::soon(reading).await.and_then(Result::ok).transpose()?.flatten(),
    };
    let sent =
        sent.context("the server answered before it received the whole file: check its log")?;
    let receipt = serde_json::from_slice(&text).context(
        "the server accepted the file without a receipt, because it is not an h3-upload-server: \
         check the file there",
    )?;
    Ok(Outcome { sent, receipt, measured })
}

fn headers(plan: &Plan, len: Option<u64>) -> Vec<Header> {
    let mut headers = exchange::headers(plan, "PUT");
    headers.push(Header::new(b"content-type", b"application/octet-stream"));
    if let Some(len) = len {
        headers.push(Header::new(b"content-length", len.to_string().as_bytes()));
    }
    headers
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
        let (file, plan) = crate::Cli::parse_from(arguments).plan().unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (stop, stopped) = oneshot::channel();
        stop.send(()).unwrap();
        let error = runtime.block_on(upload(&file, &plan, stopped)).err().unwrap();
        assert_eq!(error.to_string(), "stopped");
        runtime.shutdown_background();
    }

    #[test]
    fn acknowledgements_of_more_than_the_file_are_no_progress() {
        let of_ten_bytes = |taken| at_most(taken, 10);
        assert_eq!(of_ten_bytes(20), 20);
        assert_eq!(of_ten_bytes(SLACK + 1_000_000), of_ten_bytes(SLACK + 20));
    }
}
