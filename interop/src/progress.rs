//! The progress of many tries.

use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cell::Outcome;

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
