//! The common part of both programs' command lines.

use std::fmt::Display;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use clap::error::ErrorKind;

use super::values::metrics;
use crate::monitor::ask::ask;
use crate::monitor::listener::MetricsAddress;
use crate::monitor::server::ALL_ROWS;
use crate::monitor::subject::ProgramStatus;
use crate::terminal::print;

/// The action of a command line.
#[derive(Debug)]
pub(crate) enum Action<C, D> {
    /// To run.
    Run {
        /// The settings, which have passed their check.
        config: C,
        /// Whether some of them come from a file, which the program can reread.
        has_file: bool,
    },
    /// To do something else.
    Command(D),
}

/// The options of `status`, for the program whose status is `S`.
#[derive(Clone, Debug, Args)]
pub(crate) struct StatusOptions<S: ProgramStatus> {
    /// Print the status as one JSON object
    #[arg(long)]
    json: bool,

    #[arg(
        long,
        help = format!(
            "Show up to {ALL_ROWS} {}, not only the {}", S::PROGRAM.rows, S::PROGRAM.first
        )
    )]
    all: bool,

    // clap would share one default value between both programs, so it gets none.
    #[arg(
        long,
        value_name = "ADDR:PORT",
        conflicts_with = "config",
        value_parser = metrics(S::PROGRAM.address),
        help = format!(
            "Where that {} serves its metrics [default: {}]",
            S::PROGRAM.what, S::PROGRAM.address
        )
    )]
    metrics: Option<SocketAddr>,

    #[arg(
        short,
        long,
        value_name = "FILE",
        help = format!(
            "The configuration file of that {}, which names the address of the metrics",
            S::PROGRAM.what
        )
    )]
    config: Option<PathBuf>,

    #[arg(skip)]
    program: PhantomData<S>,
}

impl<S: ProgramStatus> StatusOptions<S> {
    /// Prints the status of the running program. `setting` reads where it serves its metrics from
    /// its file.
    ///
    /// # Errors
    /// Why there is no status, and a remedy.
    pub(crate) fn print(
        &self,
        setting: impl FnOnce(&Path) -> Result<Option<MetricsAddress>>,
    ) -> Result<()> {
        let program = S::PROGRAM;
        let address = match &self.config {
            None => self.metrics.unwrap_or(program.address),
            Some(file) => match setting(file)? {
                None => program.address,
                Some(MetricsAddress::At(address)) => address,
                Some(MetricsAddress::Off) => bail!(
                    "{} has metrics off: its {} has no status to show",
                    file.display(),
                    program.what
                ),
            },
        };
        let (json, status) = ask::<S>(address, self.all)?;
        print(&if self.json { json } else { status.show() })
    }
}

/// The same names in their order, each once.
pub(crate) fn distinct(names: Vec<String>) -> Vec<String> {
    let mut distinct = Vec::new();
    for name in names {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    distinct
}

/// An error of the command line. Without the usage: the sentence names its own remedy.
pub(crate) fn error(kind: ErrorKind, sentence: &impl Display) -> clap::Error {
    clap::Error::raw(kind, format!("{sentence}\n"))
}

/// A remark for each interface that does not exist now.
pub(crate) fn absent_interfaces(names: &[String]) -> impl Iterator<Item = String> {
    let present = pnet_datalink::interfaces();
    let absent = names.iter().filter(move |name| !present.iter().any(|it| it.name == **name));
    absent.map(|name| format!("there is no interface {name} on this machine now"))
}
