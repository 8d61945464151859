//! Runs jobs on all cores.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use super::job::{Job, Outcome};

/// A function that does one run.
pub type Runner<'a> = &'a (dyn Fn(&Job) -> Outcome + Sync);

/// Runs all of `jobs` on `threads` threads, and returns their outcomes in the order of the jobs.
/// Calls `done` for each run when it ends, in any order.
///
/// A run that fails or panics affects no other.
pub fn run_all(
    jobs: &[&Job],
    threads: usize,
    runner: Runner<'_>,
    mut done: impl FnMut(&Job, &Outcome),
) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let (sender, outcomes) = mpsc::channel();
    let mut all: Vec<Outcome> = jobs.iter().map(|_| Err("it was not run".to_owned())).collect();
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.len().max(1)) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(index) else { break };
                    // Only the outcome of a run outlives it.
                    let outcome =
                        catch_unwind(AssertUnwindSafe(|| runner(job))).unwrap_or_else(|panic| {
                            Err(format!("the lab has a fault: {}", words(&*panic)))
                        });
                    if sender.send((index, outcome)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for (index, outcome) in outcomes {
            if let (Some(job), Some(place)) = (jobs.get(index), all.get_mut(index)) {
                done(job, &outcome);
                *place = outcome;
            }
        }
    });
    all
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without words")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::job::Case;
    use crate::record::RunRecord;

    fn fate(job: &Job) -> Outcome {
        match job.seed() {
            3 => Err("no progress".to_owned()),
            5 => panic!("a bug"),
            seed => Ok(RunRecord { seed, ..RunRecord::default() }),
        }
    }

    #[test]
    fn outcomes_are_in_order_and_a_failure_stays_alone() {
        let jobs: Vec<Job> = Case::of("a").seeds(9).jobs().collect();
        let jobs: Vec<&Job> = jobs.iter().collect();
        for threads in [0, 1, 4] {
            let mut told = 0;
            let all = run_all(&jobs, threads, &fate, |_, _| told += 1);
            assert_eq!(told, 9);
            for (job, outcome) in jobs.iter().zip(&all) {
                match job.seed() {
                    3 => assert_eq!(outcome, &Err("no progress".to_owned())),
                    5 => assert_eq!(outcome, &Err("the lab has a fault: a bug".to_owned())),
                    seed => assert_eq!(outcome.as_ref().unwrap().seed, seed),
                }
            }
        }
        assert_eq!(run_all(&[], 2, &fate, |_, _| ()), []);
    }
}
