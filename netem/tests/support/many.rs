//! Runs the same function on many items, with as many threads as processors.

use std::convert::Infallible;

use sidekick_netem::pool::in_lanes;

/// Calls `work` on each of `items`. Returns the results in the order of the items.
pub(crate) fn run<T: Sync, R: Send>(items: Vec<T>, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let Ok(done): Result<_, Infallible> =
        in_lanes(threads, &items, |item| Ok(work(item)), |_, _| ());
    done
}
