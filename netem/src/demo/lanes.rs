//! Runs side by side. Each has a path and programs of its own, and mostly waits for packets.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::DemoError;

/// The number of runs at a time. Each takes about a fifth of a core, so two measure what each
/// measures alone.
const LANES: usize = 2;

/// Does `work` for each job, two at a time. They begin in their order. Returns their results in the
/// same order.
///
/// # Errors
///
/// The error of the first job that failed. After a failure, no further job begins.
pub(super) fn side_by_side<J: Sync, T: Send>(
    jobs: &[J],
    work: impl Fn(&J) -> Result<T, DemoError> + Sync,
) -> Result<Vec<T>, DemoError> {
    in_lanes(LANES, jobs, work)
}

fn in_lanes<J: Sync, T: Send, E: Send>(
    lanes: usize,
    jobs: &[J],
    work: impl Fn(&J) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let next = AtomicUsize::new(0);
    let lane = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(index) else { return done };
            let result = work(job);
            if result.is_err() {
                next.store(jobs.len(), Ordering::Relaxed);
            }
            done.push((index, result));
        }
    };
    let mut done = thread::scope(|scope| {
        let lanes: Vec<_> = (0..lanes).map(|_| scope.spawn(lane)).collect();
        let join = |lane: thread::ScopedJoinHandle<'_, Vec<_>>| {
            lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        lanes.into_iter().flat_map(join).collect::<Vec<_>>()
    });
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::{Barrier, Mutex};

    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_jobs() {
        for lanes in [1, 2, 5] {
            let squares = in_lanes(lanes, &[1, 2, 3], |number| Ok::<_, ()>(number * number));
            assert_eq!(squares, Ok(vec![1, 4, 9]));
        }
        assert_eq!(in_lanes(2, &[], |()| Ok::<_, ()>(())), Ok(vec![]));
    }

    #[test]
    fn two_jobs_run_at_a_time() {
        // Each waits for the other.
        let both = Barrier::new(2);
        let done = in_lanes(2, &[1, 2, 3, 4], |number| {
            both.wait();
            Ok::<_, ()>(*number)
        });
        assert_eq!(done, Ok(vec![1, 2, 3, 4]));
    }

    #[test]
    fn after_a_failure_no_job_begins() {
        let begun = Mutex::new(Vec::new());
        let done = in_lanes(1, &[1, 2, 3], |number| {
            begun.lock().unwrap().push(*number);
            if *number == 2 { Err("two") } else { Ok(*number) }
        });
        assert_eq!((done, begun.into_inner().unwrap()), (Err("two"), vec![1, 2]));
    }
}
