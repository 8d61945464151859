//! One download: the request, the server's answer, and the checks of the file.

use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail, ensure};
use h3_client::connect::{HTTP3, Link, Needs};
use h3_client::exchange::{self, Content, Events, Task, answer, fields, lost, on_a_thread};
use h3_client::http3::Answer;
use h3_client::options::Plan;
use h3_client::patience::Activity;
use h3_client::progress::Progress;
use h3_client::quiche::h3::Header;
use h3_client::report::{Measured, remark};
use h3_client::words::{hex, sentence};
use tokio::sync::oneshot;

use crate::body::{self, Done, Received};
use crate::digest;
use crate::output::{Begun, Output, Part, Place, Writer};

const TASK: Task = Task { name: "download", fault: "sent hardly anything" };
/// Flow control credit for the file, in bytes: 200 Mbit/s at a round trip of 0.6 s. A server can
/// make this program keep as much while the writer waits for a pipe's reader.
const WINDOW: u64 = 16 * 1024 * 1024;

/// A finished download.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) content: Content,
    /// Whether the server announced the SHA-256, which then is the file's.
    pub(crate) announced_digest: bool,
    pub(crate) measured: Measured,
}

/// Downloads the plan's file. When `stop` fires, it closes the connection and returns an error.
pub(crate) async fn download(
    output: &Output,
    plan: &Plan,
    mut stop: oneshot::Receiver<()>,
) -> anyhow::Result<Outcome> {
    let file = begin(output, &mut stop).await?;
    let files: &[_] = match &output.place {
        Place::File(path) => &[path.as_path()],
        Place::Stdout => &[],
    };
    let needs = Needs { protocol: HTTP3, window: WINDOW, object: None, files };
    let moved = |_: &Link<()>, activity: &Activity| activity.bytes();
    exchange::transfer(plan, needs, TASK, &mut stop, moved, async |link, activity| {
        request(plan, file, link, activity).await
    })
    .await
}

/// Begins the file. A new one is made at once: a thread that made it could outlast the program, and
/// the file with it. A pipe waits for its reader, and this thread must react to Ctrl-C meanwhile.
async fn begin(
    output: &Output,
    stop: &mut oneshot::Receiver<()>,
) -> anyhow::Result<(Writer, Part)> {
    let existing = match output.begin()? {
        Begun::Open(writer, part) => return Ok((writer, part)),
        Begun::Existing(existing) => existing,
    };
    tokio::select! {
        opened = tokio::task::spawn_blocking(|| existing.open()) => {
            opened.context("the thread that opens the file failed")?
        }
        _ = stop => bail!("stopped"),
    }
}

/// Sends the request and receives the file.
async fn request(
    plan: &Plan,
    (writer, part): (Writer, Part),
    link: &mut Link,
    activity: Arc<Activity>,
) -> anyhow::Result<Outcome> {
    let mut headers = exchange::headers(plan, "GET");
    // The file as it is: this program cannot decode it.
    headers.push(Header::new(b"accept-encoding", b"identity"));
    headers.push(Header::new(b"want-repr-digest", digest::WANTED.as_bytes()));
    link.controller.request(headers, false)?;
    let mut head = answer(link.controller.events.recv().await, TASK.name)?;
    let status = exchange::status(&head.headers);
    if status != "200" {
        // The text of a refusal has its own deadline.
        activity.suspend();
        return Err(refusal(plan, &status, &mut head).await);
    }
    let Answer { headers, mut body } = head;
    ensure_plain(&headers)?;
    let announced = exchange::length(&headers)?;
    if let Some(announced) = announced {
        writer.limit().check_announced(announced)?;
    }
    let progress = Progress::new(plan, announced);
    let written = Arc::clone(&activity);
    let writing = on_a_thread("write the file", move || {
        body::receive(writer, || body.blocking_recv(), announced, &written)
    })?;
    let seen = link.view();
    let received = tokio::select! {
        received = receive(writing, &mut link.controller.events) => received,
        never = progress.watch(|| (activity.bytes(), remark(seen.status()))) => match never {},
    };
    drop(progress);
    let received = received?;
    let announced_digest = check(&headers, &received.content)?;
    let measured = link.measured(received.ended);
    part.keep()?;
    Ok(Outcome { content: received.content, announced_digest, measured })
}

/// Waits for the thread that writes the body. A server may end the connection as soon as it has
/// sent the file. So the thread, and no event, decides whether the file is complete.
async fn receive(
    mut writing: oneshot::Receiver<Done>,
    events: &mut Events,
) -> anyhow::Result<Received> {
    let (done, reason) = tokio::select! {
        biased;
        done = &mut writing => (done, None),
        error = exchange::end(events, TASK.name) => (writing.await, Some(error)),
    };
    match (done.context("the thread that wrote the file failed")??, reason) {
        (Some(received), _) => Ok(received),
        (None, Some(error)) => Err(error),
        (None, None) => {
            Err(exchange::soon(exchange::end(events, TASK.name)).await.unwrap_or_else(lost))
        }
    }
}

/// Why there is no file in an answer of this status.
async fn refusal(plan: &Plan, status: &str, head: &mut Answer) -> anyhow::Error {
    if status.starts_with('3')
        && let Some(location) = fields(&head.headers, "location").next()
    {
        let location = sentence(&location);
        return anyhow!(
            "the server redirects (status {status}), which this program does not follow: download \
             {location}"
        );
    }
    if status.starts_with('2') {
        return anyhow!("the server answered without the whole file (status {status})");
    }
    match exchange::text(plan, head).await {
        Ok(text) => {
            let reason = sentence(&String::from_utf8_lossy(&text));
            anyhow!("the server refused the download (status {status}): {reason}")
        }
        Err(error) => error.context(format!("the server refused the download (status {status})")),
    }
}

/// Refuses an encoded file. The request excludes encodings, and the file's name does not show one.
fn ensure_plain(headers: &[Header]) -> anyhow::Result<()> {
    for encoding in fields(headers, "content-encoding") {
        ensure!(
            encoding.trim().eq_ignore_ascii_case("identity"),
            "the server sent the file encoded as {}, although it was asked not to: check its \
             configuration",
            encoding.escape_debug()
        );
    }
    Ok(())
}

/// Compares the file with the digests that the server announced. Returns whether there were any.
fn check(headers: &[Header], received: &Content) -> anyhow::Result<bool> {
    let mut announced = false;
    for name in digest::FIELDS {
        let values: Vec<_> = fields(headers, name).collect();
        if let Some(sha256) = digest::sha256(name, &values) {
            ensure!(
                hex(&sha256) == received.sha256,
                "the received file differs from the server's (its SHA-256 is {}, the received \
                 one's {}): download it again",
                hex(&sha256),
                received.sha256
            );
            announced = true;
        }
    }
    Ok(announced)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value that Ctrl-C drops must be the last owner of the file.
    #[test]
    fn a_file_that_is_begun_during_an_interrupt_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::File(dir.path().join("x"));
        let output = Output { place, replace: false, max_bytes: None };
        for _ in 0..20 {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let (stop, mut stopped) = oneshot::channel();
            stop.send(()).unwrap();
            drop(runtime.block_on(begin(&output, &mut stopped)));
            runtime.shutdown_background();
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }
}
