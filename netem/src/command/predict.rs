//! `sidekick-lab predict`.

use std::num::NonZero;
use std::process::ExitCode;
use std::thread::available_parallelism;

use crate::figures::job::Outcome;
use crate::link::replay;
use crate::pool::run_all;
use crate::predict::{self, Prediction, Run};
use crate::progress::Tally;
use crate::scenario::ScenarioError;
use crate::sim;
use anyhow::{Result, bail};
use serde::Serialize;
use sidekick_proxy::Summary;

use super::{cli, print, print_json};

/// The first object of `--json`.
#[derive(Serialize)]
struct Recording<'a> {
    trace: &'a str,
    summary: &'a Summary,
}

pub(super) fn run(options: &cli::Predict) -> Result<ExitCode> {
    let cli::Predict { file, runs, set, json } = options;
    let trace = replay::read(file).map_err(ScenarioError::from)?;
    let file = file.display().to_string();
    let prediction = Prediction { file, summary: trace.summary(), set: set.clone() };
    drop(trace);
    let Prediction { file, summary, .. } = &prediction;
    if prediction.lacks_a_delay() {
        bail!("{file} has no round trips to the proxy; give the delay by --set near.delay_ms=N");
    }
    let planned = prediction.plan()?;
    if *json {
        print_json(&Recording { trace: file, summary })?;
    } else {
        print(&format!("{summary}{}", prediction.assumptions(&planned, *runs)))?;
    }
    let outcomes = simulate(&predict::runs(&planned, *runs));
    let rows = predict::rows(&planned, &outcomes);
    if *json {
        rows.iter().try_for_each(print_json)?;
    } else {
        print(&predict::table(&rows))?;
    }
    let all_failed = rows.iter().all(|row| row.failed == row.runs);
    Ok(if all_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Does all runs on all cores, and shows the progress.
fn simulate(runs: &[Run<'_>]) -> Vec<Outcome> {
    let threads = available_parallelism().map_or(1, NonZero::get);
    let mut tally = Tally::begin(runs.len());
    let simulate = |run: &Run<'_>| {
        let watch = &mut |_, _| ();
        sim::run(&run.planned.scenario, run.seed, None, watch).map_err(|error| error.to_string())
    };
    let outcomes = run_all(runs, threads, simulate, |run, outcome| {
        let sentence =
            outcome.as_ref().err().map(|error| format!("failed: {}\n    {error}", run.command()));
        tally.count(sentence.as_deref());
    });
    tally.end();
    outcomes
}
