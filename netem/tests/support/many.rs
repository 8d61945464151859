//! Runs the same function on many items, with as many threads as processors.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls `work` on each of `items`. Returns the results in the order of the items.
pub(crate) fn run<T: Sync, R: Send>(items: Vec<T>, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((index, item)) = Some(next.fetch_add(1, Ordering::Relaxed))
                    .and_then(|index| items.get(index).map(|item| (index, item)))
                {
                    let came_to = work(item);
                    done.lock().unwrap().push((index, came_to));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap();
    done.sort_by_key(|&(index, _)| index);
    done.into_iter().map(|(_, came_to)| came_to).collect()
}
