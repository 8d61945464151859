//! Prints messages on a thread of its own, because a reader of standard output may be slow. Then
//! flow control holds back the broker, and the connection continues.

use std::io::{self, BufWriter, Write};

use anyhow::{Context as _, anyhow};
use h3_client::words::harmless;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle, spawn_blocking};

/// Messages that wait for the thread.
const WAITING: usize = 16;
const FAILED: &str = "cannot write to standard output";

/// The content of a line, as the fields of JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Line {
    Message {
        #[serde(skip_serializing_if = "Option::is_none")]
        sequence: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        latency_ms: Option<f64>,
        bytes: usize,
        /// Bytes that are not UTF-8 become U+FFFD.
        message: String,
    },
    Missed {
        missed: u64,
    },
    Restarted {
        restarted: bool,
    },
}

impl Line {
    /// Prints the line as JSON, or a message as it is. The subscriber reports missed messages on
    /// standard error.
    fn print(&self, out: &mut impl Write, topic: &str, json: bool) -> io::Result<()> {
        #[derive(Serialize)]
        struct Object<'a> {
            topic: &'a str,
            #[serde(flatten)]
            line: &'a Line,
        }
        match self {
            _ if json => {
                serde_json::to_writer(&mut *out, &Object { topic, line: self })?;
                writeln!(out)
            }
            // A publisher must control neither the terminal, nor how many messages a program reads
            // from it.
            Self::Message { message, .. } => writeln!(out, "{}", harmless(message)),
            Self::Missed { .. } | Self::Restarted { .. } => Ok(()),
        }
    }
}

/// The channel to the thread.
#[derive(Debug)]
pub(crate) struct Printer {
    pub(crate) lines: mpsc::Sender<Line>,
    /// Ends when the thread has printed all lines, or failed; `None` after that.
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Printer {
    /// Starts the thread. It prints messages, or JSON.
    pub(crate) fn start(topic: String, json: bool) -> Self {
        let (lines, mut waiting) = mpsc::channel::<Line>(WAITING);
        let thread = spawn_blocking(move || {
            let mut out = BufWriter::new(io::stdout().lock());
            while let Some(line) = waiting.blocking_recv() {
                line.print(&mut out, &topic, json)?;
                if waiting.is_empty() {
                    out.flush()?;
                }
            }
            out.flush()
        });
        Self { lines, thread: Some(thread) }
    }

    /// Waits until the thread fails. Cancel safe.
    pub(crate) async fn failed(&mut self) -> anyhow::Error {
        let ended = match &mut self.thread {
            Some(thread) => result(thread.await),
            None => std::future::pending().await,
        };
        self.thread = None;
        // The thread does not end while there may be more lines.
        ended.err().unwrap_or_else(|| anyhow!(FAILED))
    }

    /// Waits until all lines are printed.
    ///
    /// # Errors
    /// The thread failed, and [`failed`](Self::failed) did not report it.
    pub(crate) async fn end(self) -> anyhow::Result<()> {
        let Self { lines, thread } = self;
        drop(lines);
        match thread {
            Some(thread) => result(thread.await),
            None => Ok(()),
        }
    }
}

fn result(ended: Result<io::Result<()>, JoinError>) -> anyhow::Result<()> {
    ended.map_err(io::Error::from).flatten().context(FAILED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(line: &Line, json: bool) -> String {
        let mut out = Vec::new();
        line.print(&mut out, "a/b", json).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_of_json_has_the_documented_fields() {
        let message = "21.5\u{fffd}".to_owned();
        let line = Line::Message { sequence: Some(7), latency_ms: Some(1.5), bytes: 5, message };
        let whole = "{\"topic\":\"a/b\",\"sequence\":7,\"latency_ms\":1.5,\"bytes\":5,\
                     \"message\":\"21.5\u{fffd}\"}\n";
        assert_eq!(printed(&line, true), whole);
        let missed = printed(&Line::Missed { missed: 3 }, true);
        assert_eq!(missed, "{\"topic\":\"a/b\",\"missed\":3}\n");
        let restarted = printed(&Line::Restarted { restarted: true }, true);
        assert_eq!(restarted, "{\"topic\":\"a/b\",\"restarted\":true}\n");
    }

    #[test]
    fn a_message_is_one_line_and_controls_no_terminal() {
        let message = "a\x1b[2J\nb\r\n\u{2028}c\u{fffd}".to_owned();
        let line = Line::Message { sequence: None, latency_ms: None, bytes: 0, message };
        assert_eq!(printed(&line, false), "a[2Jbc\u{fffd}\n");
    }
}
