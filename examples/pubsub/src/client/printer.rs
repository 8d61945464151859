//! Prints messages on a thread of its own, because a reader of standard output may be slow. Then
//! flow control holds back the broker, and the connection continues.

use std::io::{self, BufWriter, Write};

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use h3_client::words::harmless;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};

/// Messages that wait for the thread.
const WAITING: usize = 16;
const DIED: &str = "the thread that prints messages failed";

/// The content of a line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Line {
    Message { sequence: Option<u64>, latency_ms: Option<f64>, payload: Bytes },
    Missed(u64),
    Restarted,
}

/// A line of JSON.
#[derive(Debug, Serialize)]
struct Object<'a> {
    topic: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<usize>,
    /// Bytes that are not UTF-8 become U+FFFD.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    missed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    restarted: Option<bool>,
}

/// The channel to the thread.
#[derive(Debug)]
pub(crate) struct Printer {
    pub(crate) lines: mpsc::Sender<Line>,
    /// Resolves when the thread has printed all lines, or failed; `None` after that.
    done: Option<oneshot::Receiver<anyhow::Result<()>>>,
}

impl Printer {
    /// Starts the thread. It prints messages, or JSON.
    ///
    /// # Errors
    /// The thread cannot start.
    pub(crate) fn start(topic: String, json: bool) -> anyhow::Result<Self> {
        let (lines, mut waiting) = mpsc::channel(WAITING);
        let (result, done) = oneshot::channel();
        std::thread::Builder::new()
            .name("print".to_owned())
            .spawn(move || {
                let out = io::stdout();
                let mut out = BufWriter::new(out.lock());
                let mut print = || -> io::Result<()> {
                    while let Some(line) = waiting.blocking_recv() {
                        match json {
                            true => print_json(&mut out, &topic, line)?,
                            false => print_message(&mut out, line)?,
                        }
                        if waiting.is_empty() {
                            out.flush()?;
                        }
                    }
                    out.flush()
                };
                let _ = result.send(print().context("cannot write to standard output"));
            })
            .context("cannot start a thread to print messages")?;
        Ok(Self { lines, done: Some(done) })
    }

    /// Waits until the thread fails. Cancel safe.
    pub(crate) async fn failed(&mut self) -> anyhow::Error {
        let ended = match &mut self.done {
            Some(done) => done.await,
            None => std::future::pending().await,
        };
        self.done = None;
        // The thread does not end while there may be more lines.
        ended.context(DIED).flatten().err().unwrap_or_else(|| anyhow!(DIED))
    }

    /// Waits until all lines are printed.
    ///
    /// # Errors
    /// The thread failed, and [`failed`](Self::failed) did not report it.
    pub(crate) async fn end(self) -> anyhow::Result<()> {
        let Self { lines, done } = self;
        drop(lines);
        match done {
            Some(done) => done.await.context(DIED)?,
            None => Ok(()),
        }
    }
}

fn print_json(out: &mut impl Write, topic: &str, line: Line) -> io::Result<()> {
    let mut object = Object {
        topic,
        sequence: None,
        latency_ms: None,
        bytes: None,
        message: None,
        missed: None,
        restarted: None,
    };
    match line {
        Line::Message { sequence, latency_ms, payload } => {
            object.sequence = sequence;
            object.latency_ms = latency_ms;
            object.bytes = Some(payload.len());
            object.message = Some(String::from_utf8_lossy(&payload).into_owned());
        }
        Line::Missed(count) => object.missed = Some(count),
        Line::Restarted => object.restarted = Some(true),
    }
    serde_json::to_writer(&mut *out, &object)?;
    out.write_all(b"\n")
}

/// Prints a message as one line. The subscriber reports missed messages on standard error.
///
/// A publisher must control neither the terminal, nor how many messages a program reads from it.
fn print_message(out: &mut impl Write, line: Line) -> io::Result<()> {
    let Line::Message { payload, .. } = line else { return Ok(()) };
    writeln!(out, "{}", harmless(&String::from_utf8_lossy(&payload)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_json_has_the_known_fields() {
        let print = |line| {
            let mut out = Vec::new();
            print_json(&mut out, "a/b", line).unwrap();
            String::from_utf8(out).unwrap()
        };
        let payload = Bytes::from_static(b"21.5\xff");
        let line = Line::Message { sequence: Some(7), latency_ms: Some(1.5), payload };
        let whole = "{\"topic\":\"a/b\",\"sequence\":7,\"latency_ms\":1.5,\"bytes\":5,\
                     \"message\":\"21.5\u{fffd}\"}\n";
        assert_eq!(print(line), whole);
        assert_eq!(print(Line::Missed(3)), "{\"topic\":\"a/b\",\"missed\":3}\n");
        assert_eq!(print(Line::Restarted), "{\"topic\":\"a/b\",\"restarted\":true}\n");
    }

    #[test]
    fn a_message_is_one_line_and_controls_no_terminal() {
        let mut out = Vec::new();
        let payload = Bytes::from_static(b"a\x1b[2J\nb\r\n\xe2\x80\xa8c\xff");
        let line = Line::Message { sequence: None, latency_ms: None, payload };
        print_message(&mut out, line).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "a[2Jbc\u{fffd}\n");
    }
}
