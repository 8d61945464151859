//! `sidekick-lab sweep`.

use std::path::Path;
use std::process::ExitCode;

use crate::figures::draw::DrawError;
use crate::figures::job::Job;
use crate::files::write_whole;
use crate::sweep::helped::{self, CONGESTED_PATHS, FAR_PATHS};
use crate::sweep::{self, Sweep};
use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;

use super::cli::{self, Paths};
use super::{figures, print, print_json};

pub(super) fn run(options: &cli::Sweep) -> Result<ExitCode> {
    let cli::Sweep { topologies, seeds, seed, jobs, .. } = *options;
    if let Some(directory) = options.plot.as_deref().and_then(Path::parent) {
        ensure!(
            directory.as_os_str().is_empty() || directory.is_dir(),
            "there is no directory {}: create it, or name another file by --plot",
            directory.display()
        );
    }
    let sweep = Sweep { topologies, seeds, seed };
    let simulate = |runs: &[&Job]| figures::simulate(runs, jobs);
    let against_none = |kind| {
        let compared = helped::run(kind, sweep, simulate);
        show(options, &compared, helped::overall(&compared), helped::summary, helped::plot)
    };
    match options.paths {
        Paths::Lossy => {
            let reached = sweep.run(simulate);
            let distribution = sweep.distribution(&reached);
            show(options, &reached, distribution, sweep::summary, sweep::plot)
        }
        Paths::Congested => against_none(CONGESTED_PATHS),
        Paths::Far => against_none(FAR_PATHS),
    }
}

/// Prints the figures of each path and those of all, and draws the plot.
fn show<T: Serialize, A: Serialize>(
    options: &cli::Sweep,
    each: &[T],
    of_all: Option<A>,
    summary: fn(&A, &[T]) -> String,
    plot: fn(&[T]) -> Result<String, DrawError>,
) -> Result<ExitCode> {
    let Some(of_all) = of_all else {
        bail!("all runs failed; the lines above have their command lines");
    };
    if options.json {
        for path in each {
            print_json(path)?;
        }
        print_json(&of_all)?;
    } else {
        print(&summary(&of_all, each))?;
    }
    if let Some(path) = &options.plot {
        write_whole(path, plot(each)?.as_bytes()).context("cannot keep the plot")?;
        eprintln!("plot: {}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}
