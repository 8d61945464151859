//! The status of a program, from which all of its pages are made.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::runtime::clock;

/// The names of the programs that serve a status.
pub(crate) const PROXY: &str = "sidekick-proxy";
pub(crate) const AGENT: &str = "sidekick-agent";

/// A program that serves its status.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The name of its command, which its status has, too.
    pub name: &'static str,
    /// What it is, in a sentence.
    pub what: &'static str,
    /// What its status lists. A client gets all of them by `/status?ROWS=all`.
    pub rows: &'static str,
    /// Which of them it lists if it does not list all.
    pub first: &'static str,
    /// Where it serves metrics by default.
    pub address: SocketAddr,
}

/// The status of a program in one value. `/status` returns it as JSON.
pub trait ProgramStatus: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The program.
    const PROGRAM: Program;

    /// The page `/metrics`, in the text format of Prometheus. `resident`: the resident memory of
    /// the process in bytes, if known.
    fn metrics(&self, resident: Option<u64>) -> String;

    /// A sentence about what prevents the program from its work, or hides whether it works. The
    /// page `/health` returns it.
    fn complaint(&self) -> Option<String>;

    /// The status as text for people.
    fn show(&self) -> String;
}

/// Reads the status of this process.
pub trait StatusSource: Debug + Send + 'static {
    /// The status.
    type Status: ProgramStatus;

    /// Reads the status, with at most `rows` sessions or flows. It may block for two seconds.
    fn read(&mut self, rows: usize) -> Self::Status;
}

/// When a program started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    /// By the monotonic clock.
    begun: Instant,
    /// In seconds since 1970.
    pub(crate) wall: f64,
}

impl Start {
    /// A start at this moment.
    #[allow(clippy::disallowed_methods, reason = "the start time is one of the wall clock")]
    pub(crate) fn now() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self { begun: clock(), wall: since.map_or(Duration::ZERO, |since| since).as_secs_f64() }
    }

    /// Whole seconds since then.
    pub(crate) fn uptime(&self) -> u64 {
        clock().saturating_duration_since(self.begun).as_secs()
    }
}
