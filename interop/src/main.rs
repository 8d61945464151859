//! `sidekick-interop`: the plugin against HTTP/3 stacks that other people wrote, over an emulated
//! path.
//!
//! | file | what it does |
//! |---|---|
//! | `cli.rs` | the command line |
//! | `peer.rs` | the folders of `peers/`, and their installation |
//! | `case.rs` | the cases to try with each peer, the senders, and the criteria of success |
//! | `cell.rs` | one try: a path, a server, a proxy, a client |
//! | `files.rs` | the certificates and files that all tries share |
//! | `name_server.rs` | a name server with one record, for the server |
//! | `served.rs` | one download from our own server, which is helped |
//! | `matrix.rs`, `progress.rs` | all tries, several at a time |
//! | `table.rs`, `table/` | the results, as Markdown |

mod case;
mod cell;
mod cli;
mod files;
mod matrix;
mod name_server;
mod peer;
mod progress;
mod served;
mod table;

use std::fs::{File, TryLockError};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use clap::Parser as _;
use sidekick_netem::enclosure;
use sidekick_netem::programs::Programs;

use cli::Cli;
use matrix::Matrix;
use peer::Peer;

/// The folder, below the output directory, with the logs of failed tries.
const FAILED: &str = "failed";

/// Our own programs.
const PROGRAMS: [&str; 4] = ["h3-upload", "interop-client", "interop-server", "sidekick-proxy"];

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("sidekick-interop: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    let peers = Peer::all(&cli.peers_from, &cli.peer)?;
    if cli.list {
        print(&cli::listing(&peers))?;
        return Ok(ExitCode::SUCCESS);
    }
    let matrix = Matrix::plan(cli, &peers)?;
    let cache = cli.out.join("peers");
    let Some(directory) = enclosure::inside() else {
        let programs = Programs::find(None)?;
        for name in PROGRAMS {
            programs.path(name)?;
        }
        let _alone = alone(&cli.out)?;
        if let Some(file) = &cli.write {
            let there =
                file.parent().is_none_or(|parent| parent.as_os_str().is_empty() || parent.is_dir());
            ensure!(
                there && !file.is_dir(),
                "{} cannot be written: name a file in an existing directory",
                file.display()
            );
        }
        // Removes the logs of an earlier run.
        let _ = std::fs::remove_dir_all(cli.out.join(FAILED));
        // The enclosure has only its own network, so the peers must be installed first.
        for peer in &peers {
            peer.install(&cache)?;
        }
        return Ok(ExitCode::from(enclosure::enter()?));
    };
    enclosure::end_with_outer(directory.clone())?;
    let results = matrix.run(cli, &cache, &directory)?;
    let results_file = cli.out.join("results.json");
    write(&results_file, &(serde_json::to_string_pretty(&results)? + "\n"))?;
    let table = table::markdown(&peers, &results, cli.seed, &cli.command());
    match &cli.write {
        Some(file) => write(file, &table)?,
        None if cli.json => print(&(serde_json::to_string(&results)? + "\n"))?,
        None => print(&table)?,
    }
    eprintln!("all results are in {}", results_file.display());
    let failed = results.failed();
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        eprintln!(
            "sidekick-interop: {failed} of {} tries failed; the logs are in {}",
            results.total(),
            cli.out.join(FAILED).display()
        );
        ExitCode::FAILURE
    })
}

/// Locks the output directory until the file is dropped. Another run would install the same peers
/// at the same place.
fn alone(out: &Path) -> anyhow::Result<File> {
    let cannot =
        || format!("cannot write to {}: choose another directory with --out", out.display());
    std::fs::create_dir_all(out).with_context(cannot)?;
    let lock = File::create(out.join("lock")).with_context(cannot)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => {
            bail!(
                "another run is using {}: wait for it, or choose another directory with --out",
                out.display()
            )
        }
        Err(TryLockError::Error(error)) => Err(error).with_context(cannot),
    }
}

fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("cannot write to standard output")
}

fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    ensure!(!file.is_dir(), "{} is a directory: name a file", file.display());
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
