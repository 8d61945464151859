//! Many runs in virtual time.

use std::time::Duration;

use sidekick_netem::record::RunRecord;
use sidekick_netem::report::median;
use sidekick_netem::scenario::Scenario;
use sidekick_netem::sim;

use super::many;

/// One run of a scenario with some settings.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    scenario: &'static str,
    settings: Vec<String>,
    seed: u64,
}

pub(crate) fn job(scenario: &'static str, settings: &[&str], seed: u64) -> Job {
    Job { scenario, settings: settings.iter().map(|&setting| setting.to_owned()).collect(), seed }
}

fn run(job: &Job) -> RunRecord {
    let mut scenario = Scenario::load(job.scenario).unwrap();
    scenario.apply(&job.settings).unwrap();
    sim::run(&scenario, job.seed, None, &mut |_: Duration, _| {})
        .unwrap_or_else(|error| panic!("{job:?}: {error}"))
}

/// Runs all of them, and returns the records in the order of the jobs.
pub(crate) fn run_all(jobs: &[Job]) -> Vec<RunRecord> {
    many::run(jobs.iter().collect(), |job| run(job))
}

pub(crate) fn median_of(records: &[RunRecord], figure: impl Fn(&RunRecord) -> f64) -> f64 {
    median(records.iter().map(figure)).unwrap().0
}
