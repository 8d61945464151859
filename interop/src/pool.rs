//! Runs many tries, several at a time, and shows their progress.

use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cell::Outcome;

/// Calls `work` with each item, `jobs` at a time. Returns the results in the order of the items.
pub(crate) fn each<T: Sync, R: Send>(
    items: &[T],
    jobs: u8,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let worker = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { return };
            let result = work(item);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((index, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(worker);
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// The progress on standard error: a bar on a terminal, otherwise a line for each try.
pub(crate) struct Progress {
    bar: ProgressBar,
    total: usize,
    done: AtomicUsize,
}

impl Progress {
    pub(crate) fn new(total: usize) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::stderr());
        if let Ok(style) =
            ProgressStyle::with_template("{bar:32} {pos}/{len} tries  {elapsed}  {msg}")
        {
            bar.set_style(style);
        }
        Self { bar, total, done: AtomicUsize::new(0) }
    }

    /// Shows the result of the try `title`.
    pub(crate) fn show(&self, title: String, outcome: &Outcome) {
        let line = match outcome {
            Outcome::Passed(measured) => {
                let repaired = measured.repeats.map_or(0, |repeats| repeats.repaired_near);
                let gaps = if repaired > 0 {
                    format!(", {repaired} gaps repaired")
                } else {
                    String::new()
                };
                format!("{title}: {:.2} Mbit/s{gaps}", measured.goodput_mbit_s)
            }
            Outcome::Failed { why } => format!("{title}: FAILED: {why}"),
            Outcome::Unsupported { .. } => format!("{title}: the peer does not support it"),
            Outcome::Missing { why } => format!("{title}: not installed: {why}"),
        };
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        if std::io::stderr().is_terminal() {
            if outcome.failure().is_some() {
                self.bar.println(&line);
            }
            self.bar.set_message(title);
            self.bar.inc(1);
        } else {
            eprintln!("{done}/{}  {line}", self.total);
        }
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_items_run_once_and_results_keep_their_order() {
        let items: Vec<u32> = (0..100).collect();
        for jobs in [1, 7] {
            let doubled: Vec<u32> = (0..200).step_by(2).collect();
            assert_eq!(each(&items, jobs, |item| item * 2), doubled);
        }
    }
}
