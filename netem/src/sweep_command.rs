//! `sidekick-lab sweep`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use sidekick_netem::files::write_whole;
use sidekick_netem::sweep::{Sweep, plot, summary};

use crate::{cli, figures_command, print, print_json};

pub(crate) fn run(options: &cli::Sweep) -> Result<ExitCode> {
    let cli::Sweep { topologies, seeds, seed, jobs, .. } = *options;
    if let Some(directory) = options.plot.as_deref().and_then(Path::parent) {
        ensure!(
            directory.as_os_str().is_empty() || directory.is_dir(),
            "there is no directory {}: create it, or name another file by --plot",
            directory.display()
        );
    }
    let sweep = Sweep { topologies, seeds, seed };
    let reached = sweep.run(|runs| figures_command::simulate(runs, jobs));
    let Some(distribution) = sweep.distribution(&reached) else {
        bail!("all runs failed; the lines above have their command lines");
    };
    if options.json {
        for reach in &reached {
            print_json(reach)?;
        }
        print_json(&distribution)?;
    } else {
        print(&summary(&distribution, &reached))?;
    }
    if let Some(path) = &options.plot {
        write_whole(path, plot(&reached)?.as_bytes()).context("cannot keep the plot")?;
        eprintln!("plot: {}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}
