//! Many runs in virtual time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sidekick_netem::record::RunRecord;
use sidekick_netem::report::median;
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
    let mut scenario = Scenario::load(job.scenario).unwrap();
    scenario.apply(&job.settings).unwrap();
    sim::run(&scenario, job.seed, None, &mut |_: Duration, _| {})
        .unwrap_or_else(|error| panic!("{job:?}: {error}"))
}

/// Runs all of them, on as many threads as there are processors, and returns the records in the
/// order of the jobs.
pub(crate) fn run_all(jobs: &[Job]) -> Vec<RunRecord> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((index, job)) = Some(next.fetch_add(1, Ordering::Relaxed))
                    .and_then(|index| jobs.get(index).map(|job| (index, job)))
                {
                    let record = run(job);
                    done.lock().unwrap().push((index, record));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap();
    done.sort_by_key(|&(index, _)| index);
    done.into_iter().map(|(_, record)| record).collect()
}

pub(crate) fn median_of(records: &[RunRecord], figure: impl Fn(&RunRecord) -> f64) -> f64 {
    median(records.iter().map(figure)).unwrap().0
}
