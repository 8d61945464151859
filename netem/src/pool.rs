//! Jobs on several threads.

use std::any::Any;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use crate::figures::job::Outcome;

/// Does `work` for each job on so many threads, beginning in the order of the jobs, and calls
/// `done` for each result as soon as it is there. Returns the results in the order of the jobs.
///
/// # Errors
///
/// The error of the first job that failed. After a failure, no further job begins.
pub fn in_lanes<J: Sync, T: Send, E: Send>(
    lanes: usize,
    jobs: &[J],
    work: impl Fn(&J) -> Result<T, E> + Sync,
    mut done: impl FnMut(&J, &T),
) -> Result<Vec<T>, E> {
    let next = &AtomicUsize::new(0);
    let (sender, results) = mpsc::channel();
    let mut all = Vec::new();
    thread::scope(|scope| {
        for _ in 0..lanes.clamp(1, jobs.len().max(1)) {
            let (sender, work) = (sender.clone(), &work);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(index) else { break };
                    let result = work(job);
                    if result.is_err() {
                        next.store(jobs.len(), Ordering::Relaxed);
                    }
                    // The receiver lasts as long as the threads.
                    let _ = sender.send((index, job, result));
                }
            });
        }
        drop(sender);
        for (index, job, result) in results {
            if let Ok(result) = &result {
                done(job, result);
            }
            all.push((index, result));
        }
    });
    all.sort_by_key(|(index, _)| *index);
    all.into_iter().map(|(_, result)| result).collect()
}

/// Like [`in_lanes`], for work that cannot fail.
pub fn each<J: Sync, T: Send>(
    lanes: usize,
    jobs: &[J],
    work: impl Fn(&J) -> T + Sync,
    done: impl FnMut(&J, &T),
) -> Vec<T> {
    let Ok(all): Result<_, Infallible> = in_lanes(lanes, jobs, |job| Ok(work(job)), done);
    all
}

/// Does all runs of `jobs` by `runner`, as [`each`]. A run that fails or panics affects no
/// other.
pub fn run_all<J: Sync>(
    jobs: &[J],
    threads: usize,
    runner: impl Fn(&J) -> Outcome + Sync,
    done: impl FnMut(&J, &Outcome),
) -> Vec<Outcome> {
    let run = |job: &J| {
        // Only the outcome of a run outlives it.
        let outcome = catch_unwind(AssertUnwindSafe(|| runner(job)));
        outcome.unwrap_or_else(|panic| Err(format!("the lab has a fault: {}", words(&*panic))))
    };
    each(threads, jobs, run, done)
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without words")
}

#[cfg(test)]
mod tests {
    use std::sync::{Barrier, Mutex};

    use super::*;
    use crate::figures::job::{Case, Job};
    use crate::record::RunRecord;

    #[test]
    fn two_jobs_run_at_a_time() {
        // Each waits for the other.
        let both = Barrier::new(2);
        let work = |number: &i32| {
            both.wait();
            Ok::<_, ()>(*number)
        };
        assert_eq!(in_lanes(2, &[1, 2, 3, 4], work, |_, _| ()), Ok(vec![1, 2, 3, 4]));
    }

    #[test]
    fn after_a_failure_no_job_begins() {
        let begun = Mutex::new(Vec::new());
        let work = |number: &i32| {
            begun.lock().unwrap().push(*number);
            if *number == 2 { Err("two") } else { Ok(*number) }
        };
        let done = in_lanes(1, &[1, 2, 3], work, |_, _| ());
        assert_eq!((done, begun.into_inner().unwrap()), (Err("two"), vec![1, 2]));
    }

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
        for threads in [0, 1, 4] {
            let mut told = 0;
            let all = run_all(&jobs, threads, fate, |_, _| told += 1);
            assert_eq!(told, 9);
            for (job, outcome) in jobs.iter().zip(&all) {
                match job.seed() {
                    3 => assert_eq!(outcome, &Err("no progress".to_owned())),
                    5 => assert_eq!(outcome, &Err("the lab has a fault: a bug".to_owned())),
                    seed => assert_eq!(outcome.as_ref().unwrap().seed, seed),
                }
            }
        }
        assert_eq!(run_all::<Job>(&[], 2, fate, |_, _| ()), []);
    }
}
