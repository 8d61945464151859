//! The status of a program, from which all of its pages are made.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

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

/// Which program a status is of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// The name of the program's command.
    pub program: String,
    /// The program's version.
    pub version: String,
    /// When the program started, in seconds since 1970.
    #[serde(default)]
    pub started: f64,
    /// Seconds since then.
    #[serde(default)]
    pub uptime: u64,
}

/// A configured interface. Its counters restart at 0 when it disappears and comes back; the totals
/// do not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceReport {
    /// The interface's name.
    pub name: String,
    /// How the program reads packets: `ring` or `pnet`; `None` if the interface is gone.
    pub backend: Option<String>,
    /// Whether the interface exists and is up.
    pub up: bool,
    /// UDP datagrams captured; of an agent, those that leave.
    pub captured: u64,
    /// Packets that the kernel had no room for; of a proxy, also those that it discarded.
    pub dropped: u64,
}

impl InterfaceReport {
    /// Whether the interface is there and up, in a word.
    pub(super) fn state(&self) -> &'static str {
        match (&self.backend, self.up) {
            (None, _) => "gone",
            (_, true) => "up",
            (_, false) => "down",
        }
    }
}

/// A sentence if no interface is up, about `what` program.
pub(crate) fn interfaces_complaint<'a>(
    what: &str,
    interfaces: impl Iterator<Item = &'a InterfaceReport> + Clone,
) -> Option<String> {
    if interfaces.clone().any(|of| of.up) {
        return None;
    }
    let names = |captured_only: bool| {
        let of = interfaces.clone().filter(|of| of.backend.is_some() || !captured_only);
        of.map(|of| &*of.name).collect::<Vec<_>>().join(", ")
    };
    Some(if interfaces.clone().any(|of| of.backend.is_some()) {
        format!("all interfaces are down: {}", names(true))
    } else {
        format!("the {what} captures on no interface: there is no {}", names(false))
    })
}

/// When a program started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    /// By the monotonic clock.
    begun: Instant,
    /// In seconds since 1970.
    wall: f64,
}

impl Start {
    /// A start at this moment.
    #[allow(clippy::disallowed_methods, reason = "the start time is one of the wall clock")]
    pub(crate) fn now() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self { begun: clock(), wall: since.map_or(Duration::ZERO, |since| since).as_secs_f64() }
    }

    /// The origin of a status of this program.
    pub(crate) fn origin(&self, program: Program) -> Origin {
        Origin {
            program: program.name.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: self.wall,
            uptime: clock().saturating_duration_since(self.begun).as_secs(),
        }
    }
}
