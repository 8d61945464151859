//! Many runs in virtual time.

use std::time::Duration;

use sidekick_netem::pool::each;
use sidekick_netem::record::RunRecord;
use sidekick_netem::report::{median, percentile};
use sidekick_netem::scenario::Scenario;
use sidekick_netem::sim;

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
    let scenario = Scenario::with(job.scenario, &job.settings).unwrap();
    sim::run(&scenario, job.seed, None, &mut |_: Duration, _| {})
        .unwrap_or_else(|error| panic!("{job:?}: {error}"))
}

/// Runs all of them, and returns the records in the order of the jobs.
pub(crate) fn run_all(jobs: &[Job]) -> Vec<RunRecord> {
    many(jobs.iter().collect(), |job| run(job))
}

/// Runs the first `seeds` seeds of a scenario with these lists of settings.
pub(crate) fn runs(scenario: &'static str, seeds: u64, settings: &[&[&str]]) -> Vec<RunRecord> {
    let settings = settings.concat();
    run_all(&(1..=seeds).map(|seed| job(scenario, &settings, seed)).collect::<Vec<_>>())
}

pub(crate) fn median_of(records: &[RunRecord], figure: impl Fn(&RunRecord) -> f64) -> f64 {
    median(records.iter().map(figure)).unwrap().0
}

/// The median goodput, in Mbit/s.
pub(crate) fn goodput(records: &[RunRecord]) -> f64 {
    median_of(records, |record| record.goodput_mbit_s)
}

/// The median time in milliseconds, and its 99th percentile.
pub(crate) fn times(records: &[RunRecord]) -> (f64, f64) {
    let at = |percent| percentile(records.iter().map(|record| record.time_s * 1e3), percent);
    (at(50).unwrap(), at(99).unwrap())
}

/// Calls `work` on each of `items`, with as many threads as processors. Returns the results in the
/// order of the items.
pub(crate) fn many<T: Sync, R: Send>(items: Vec<T>, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    each(threads, &items, work, |_, _| ())
}
