//! All tries.

use std::path::Path;

use anyhow::{Context as _, ensure};
use serde::Serialize;
use sidekick_netem::pool::each;

use crate::FAILED;
use crate::case::{Case, SENDERS, Sender};
use crate::cell::{Cell, Outcome};
use crate::cli::Cli;
use crate::files::Files;
use crate::peer::Peer;
use crate::progress::Progress;
use crate::served::{Served, ServedResult};

/// The loss of downloads from our own server, in percent, unless the user names others.
const LOSS_FROM_OURS: f64 = 2.0;

/// A try with a peer, and its result.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Tried {
    pub(crate) peer: String,
    pub(crate) case: Case,
    pub(crate) sender: &'static str,
    pub(crate) near_loss_percent: f64,
    pub(crate) seed: u64,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Results {
    pub(crate) tries: Vec<Tried>,
    /// Downloads from our own server.
    pub(crate) served: Vec<ServedResult>,
}

impl Results {
    pub(crate) fn total(&self) -> usize {
        self.tries.len() + self.served.len()
    }

    pub(crate) fn failed(&self) -> usize {
        let tries = self.tries.iter().map(|tried| &tried.outcome);
        tries
            .chain(self.served.iter().map(|served| &served.outcome))
            .filter(|outcome| outcome.failure().is_some())
            .count()
    }
}

/// The tries to run.
#[derive(Debug)]
pub(crate) struct Matrix<'a> {
    cells: Vec<Cell<'a>>,
    served: Vec<Served>,
}

impl<'a> Matrix<'a> {
    /// All tries that the command line selects.
    ///
    /// # Errors
    /// It selects none.
    pub(crate) fn plan(cli: &Cli, peers: &'a [Peer]) -> anyhow::Result<Self> {
        let cases: &[Case] = if cli.case.is_empty() { &Case::ALL } else { &cli.case };
        let senders: &[Sender] = if cli.sender.is_empty() { &SENDERS } else { &cli.sender };
        let mut cells = Vec::new();
        for peer in peers {
            for &case in cases {
                let near_losses =
                    if cli.near_loss.is_empty() { case.near_losses() } else { &cli.near_loss };
                for &sender in senders.iter().filter(|sender| sender.takes(case)) {
                    for &near_loss in near_losses {
                        cells.push(Cell { peer, case, sender, near_loss, seed: cli.seed });
                    }
                }
            }
        }
        let most = cli.near_loss.iter().copied().reduce(f64::max).unwrap_or(LOSS_FROM_OURS);
        let mut served = if cli.selects_ours() { Served::all(most, cli.seed) } else { Vec::new() };
        served.retain(|served| senders.contains(&served.sender));
        ensure!(
            cli.case.is_empty() || served.is_empty(),
            "our own server has only downloads: leave out --case"
        );
        ensure!(
            !cells.is_empty() || !served.is_empty(),
            "there is nothing to try: bbr2 runs only the case upload, receive only the cases in \
             which a file goes down, and of the modes only auto and receive run the case download"
        );
        Ok(Self { cells, served })
    }

    /// Runs all tries.
    pub(crate) fn run(
        &self,
        cli: &Cli,
        caches: &Path,
        directory: &Path,
    ) -> anyhow::Result<Results> {
        let files = Files::make(directory, cli.seed)?;
        let progress = Progress::new(self.cells.len() + self.served.len());
        // A try without a directory fails like any other, and the rest runs.
        let attempt = |what: String, run: &dyn Fn(&Path) -> Outcome| -> Outcome {
            let outcome = match tempfile::Builder::new().prefix("try-").tempdir_in(directory) {
                Ok(own) => {
                    let outcome = run(own.path());
                    if let Some(why) = outcome.failure() {
                        let name =
                            what.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "-");
                        if let Err(error) = keep(own.path(), why, &cli.out.join(FAILED).join(name))
                        {
                            eprintln!("{error:#}");
                        }
                    }
                    outcome
                }
                Err(error) => {
                    Outcome::Failed { why: format!("cannot make a directory for the try: {error}") }
                }
            };
            progress.show(what, &outcome);
            outcome
        };
        let try_cell = |cell: &Cell<'_>| {
            let run = |own: &Path| cell.run(&files, caches, own);
            tried(cell, attempt(cell.title(), &run))
        };
        let tries = each(cli.jobs.into(), &self.cells, try_cell, |_, _| ());
        let try_served = |served: &Served| {
            let run = |own: &Path| served.run(&files, own);
            served.with(attempt(served.title(), &run))
        };
        let served = each(cli.jobs.into(), &self.served, try_served, |_, _| ());
        progress.finish();
        Ok(Results { tries, served })
    }
}

fn tried(cell: &Cell<'_>, outcome: Outcome) -> Tried {
    Tried {
        peer: cell.peer.folder.clone(),
        case: cell.case,
        sender: cell.sender.name,
        near_loss_percent: cell.near_loss,
        seed: cell.seed,
        outcome,
    }
}

/// Stores the logs of a try's programs, and why it failed.
fn keep(from: &Path, why: &str, to: &Path) -> anyhow::Result<()> {
    let cannot = || format!("cannot store the logs of the programs in {}", to.display());
    std::fs::create_dir_all(to).with_context(cannot)?;
    std::fs::write(to.join("why"), format!("{why}\n")).with_context(cannot)?;
    for entry in std::fs::read_dir(from).with_context(cannot)? {
        let entry = entry.with_context(cannot)?;
        if entry.path().is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name())).with_context(cannot)?;
        }
    }
    Ok(())
}
