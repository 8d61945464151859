//! `sidekick-lab figures`.

use std::fs;
use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::available_parallelism;

use crate::figures::experiments::{Scope, all};
use crate::figures::job::{Job, Outcome};
use crate::figures::page::About;
use crate::figures::plan::{Plan, Shard};
use crate::figures::quantity::Results;
use crate::figures::store;
use crate::figures::{self, agreement};
use crate::pool::run_all;
use crate::progress::Tally;
use crate::record::RunRecord;
use crate::sim;
use anyhow::{Context, Result, bail};

use super::cli::Figures;

/// The exit status after Ctrl-C, as shells define it.
const INTERRUPTED: i32 = 130;

/// The lab holds this lock while it writes files, so that an interrupt leaves no partial file.
type Writing = Arc<Mutex<()>>;

pub(super) fn run(figures: &Figures) -> Result<ExitCode> {
    let plan = plan(figures)?;
    fs::create_dir_all(&figures.out)
        .with_context(|| format!("cannot make the directory {}", figures.out.display()))?;
    let writing = Writing::default();
    let held = writing.clone();
    ctrlc::set_handler(move || {
        let _held = held.lock().unwrap_or_else(PoisonError::into_inner);
        std::process::exit(INTERRUPTED);
    })
    .context("cannot watch for Ctrl-C")?;
    if let Some(paths) = &figures.merge {
        let here = [figures.out.clone()];
        let results = store::merge(&plan, if paths.is_empty() { &here } else { paths })?;
        return finish(figures, &plan, &results, &writing);
    }
    let shard = figures.shard.unwrap_or(Shard::WHOLE);
    let jobs: Vec<&Job> = plan.shard(shard).map(|(_, job)| job).collect();
    let outcomes = simulate(&jobs, None);
    {
        let _held = writing.lock().unwrap_or_else(PoisonError::into_inner);
        let path = store::write(&plan, shard, &outcomes, &figures.out)?;
        eprintln!("records: {}", path.display());
    }
    if figures.shard.is_some() {
        let failed = outcomes.iter().any(Result::is_err);
        return Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS });
    }
    let jobs = plan.jobs().iter().cloned();
    finish(figures, &plan, &jobs.zip(outcomes).collect(), &writing)
}

/// The plan of the experiments that the user selected.
fn plan(figures: &Figures) -> Result<Plan> {
    let others = figures.compare.as_deref().map(agreement::read).transpose()?.unwrap_or_default();
    let mut experiments = all(if figures.quick { Scope::Quick } else { Scope::Whole }, &others);
    let names: Vec<_> = experiments.iter().map(|experiment| experiment.id).collect();
    if let Some(unknown) = figures.only.iter().find(|only| !names.contains(&only.as_str())) {
        bail!("there is no experiment `{unknown}`; there are {}", names.join(", "));
    }
    if !figures.only.is_empty() {
        experiments.retain(|experiment| figures.only.iter().any(|only| only == experiment.id));
    }
    Ok(Plan::of(experiments))
}

/// Runs jobs in virtual time and shows the progress. Uses `threads` threads, or one for each core.
pub(super) fn simulate(jobs: &[&Job], threads: Option<NonZero<usize>>) -> Vec<Outcome> {
    let threads = threads.or_else(|| available_parallelism().ok()).map_or(1, NonZero::get);
    let mut tally = Tally::begin(jobs.len());
    let outcomes = run_all(
        jobs,
        threads,
        |job| simulate_once(job),
        |job, outcome| {
            let sentence = outcome
                .as_ref()
                .err()
                .map(|error| format!("failed: {}\n    {error}", job.command()));
            tally.count(sentence.as_deref());
        },
    );
    tally.end();
    outcomes
}

fn simulate_once(job: &Job) -> Outcome {
    let scenario = job.load().map_err(|error| error.to_string())?;
    let record =
        sim::run(&scenario, job.seed(), None, &mut |_, _| ()).map_err(|error| error.to_string())?;
    Ok(RunRecord { settings: job.assignments(), ..record })
}

/// Writes the page and the CSV files, and reports the failed runs.
fn finish(
    figures: &Figures,
    plan: &Plan,
    results: &Results,
    writing: &Writing,
) -> Result<ExitCode> {
    let _held = writing.lock().unwrap_or_else(PoisonError::into_inner);
    let page: PathBuf = figures::write(plan, results, &about(figures), &figures.out)?;
    eprintln!("page: {}", page.display());
    match results.values().filter(|outcome| outcome.is_err()).count() {
        0 => Ok(ExitCode::SUCCESS),
        failed => {
            let where_to_look = "the page shows their command lines";
            eprintln!("sidekick-lab: {failed} runs failed; {where_to_look}");
            Ok(ExitCode::FAILURE)
        }
    }
}

fn about(figures: &Figures) -> About {
    let mut command = "sidekick-lab figures".to_owned();
    if figures.quick {
        command += " --quick";
    }
    for only in &figures.only {
        command += &format!(" --only {only}");
    }
    if let Some(file) = &figures.compare {
        command += &format!(" --compare {}", file.display());
    }
    let mut versions = vec![("sidekick-lab".to_owned(), env!("CARGO_PKG_VERSION").to_owned())];
    versions.extend(quiche_version().map(|version| ("quiche".to_owned(), version)));
    About { command: command + " --out DIR", versions }
}

/// The version of quiche in the registry from which this program was built.
fn quiche_version() -> Option<String> {
    let lock: toml::Table = include_str!("../../../Cargo.lock").parse().ok()?;
    let packages = lock.get("package")?.as_array()?;
    let is_quiche = |package: &&toml::Value| {
        package.get("name").and_then(toml::Value::as_str) == Some("quiche")
            && package.get("source").is_some()
    };
    Some(packages.iter().find(is_quiche)?.get("version")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_version_of_quiche_is_known() {
        assert!(super::quiche_version().is_some_and(|version| version.starts_with("0.")));
    }
}
