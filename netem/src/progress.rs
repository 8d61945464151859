//! Progress on standard error: a bar for each run on a terminal, plain lines elsewhere.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::units::mbit_s;

/// A run that ends sooner shows no progress.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time between two plain lines.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// The bars on a terminal of one run, and of many runs.
const RUN: &str = "{prefix:40} {bar:24} {bytes:>10} {elapsed:>4}  {msg}";
const RUNS: &str = "{bar:30} {pos} of {len} runs {elapsed:>4}, {eta} left  {msg}";

#[allow(clippy::disallowed_methods, reason = "the edge: the time that a person waits")]
fn now() -> Instant {
    Instant::now()
}

#[derive(Debug)]
enum Display {
    Bar(ProgressBar),
    /// The next line is due this long after the start.
    Lines {
        next: Duration,
    },
}

impl Display {
    /// Begins a bar on a terminal, below others if it has any. Elsewhere it prints lines, and
    /// `started` is the first.
    fn begin(total: u64, template: &str, started: &str, others: Option<&Bars>) -> Self {
        if !stderr().is_terminal() {
            eprintln!("{started}");
            return Self::Lines { next: LINE_EVERY };
        }
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        // Only now, so that nothing is drawn in another style.
        Self::Bar(match others {
            Some(Bars(bars)) => bars.add(bar),
            None => {
                bar.set_draw_target(ProgressDrawTarget::stderr());
                bar
            }
        })
    }
}

/// The bars of runs that run side by side, one below the other.
#[derive(Debug, Default)]
pub(crate) struct Bars(MultiProgress);

impl Bars {
    /// Shows a run beside the others. It carries a file of `total` bytes.
    pub(crate) fn begin(&self, label: impl Into<String>, total: u64) -> Progress {
        let mut progress = Progress::begin_later(label, total);
        progress.appear(Some(self));
        progress
    }
}

#[derive(Debug)]
pub(crate) struct Progress {
    label: String,
    total: u64,
    start: Instant,
    /// `None` until the run has lasted for [`PATIENCE`].
    display: Option<Display>,
}

impl Progress {
    /// Shows a run that carries a file of `total` bytes.
    pub(crate) fn begin(label: impl Into<String>, total: u64) -> Self {
        let mut progress = Self::begin_later(label, total);
        progress.appear(None);
        progress
    }

    /// Like [`Progress::begin`], but shows nothing in the first two seconds, because the run may
    /// end sooner.
    pub(crate) fn begin_later(label: impl Into<String>, total: u64) -> Self {
        Self { label: label.into(), total, start: now(), display: None }
    }

    fn appear(&mut self, others: Option<&Bars>) {
        let started = format!("{}: started, {}", self.label, HumanBytes(self.total));
        let display = Display::begin(self.total, RUN, &started, others);
        if let Display::Bar(bar) = &display {
            bar.set_prefix(self.label.clone());
            bar.tick();
        }
        self.display = Some(display);
    }

    /// Shows that `carried` bytes have reached the receiver's end of the path. They include headers
    /// and repetitions.
    pub(crate) fn show(&mut self, carried: u64) {
        let passed = self.start.elapsed();
        self.update(carried, passed, &on_the_wire(carried, passed));
    }

    /// Shows that applications have received `received` bytes of a run in virtual time. `passed` is
    /// the virtual time since its start.
    pub(crate) fn show_virtual(&mut self, received: u64, passed: Duration) {
        self.update(received, passed, &of_the_file(received, self.total, passed));
    }

    /// Updates the display. `line` has the same figures, for a display without a bar.
    fn update(&mut self, carried: u64, passed: Duration, line: &str) {
        let elapsed = self.start.elapsed();
        if self.display.is_none() && elapsed >= PATIENCE {
            self.appear(None);
        }
        let rate = format!("{:.2} Mbit/s", mbit_s(carried, passed.as_secs_f64()));
        match &mut self.display {
            Some(Display::Bar(bar)) => {
                bar.set_message(rate);
                bar.set_position(carried.min(self.total));
            }
            Some(Display::Lines { next }) if elapsed >= *next => {
                *next += LINE_EVERY;
                eprintln!("{}: {line}, {rate}", self.label);
            }
            None | Some(Display::Lines { .. }) => {}
        }
    }

    /// Ends the display with the outcome of the run.
    pub(crate) fn end(self, outcome: &str) {
        match self.display {
            None => {}
            Some(Display::Bar(bar)) => {
                bar.set_position(self.total);
                bar.finish_with_message(outcome.to_owned());
            }
            Some(Display::Lines { .. }) => eprintln!("{}: {outcome}", self.label),
        }
    }
}

/// The progress of a run of real programs. The links count packets, and cannot count the file's
/// bytes.
fn on_the_wire(carried: u64, passed: Duration) -> String {
    let (carried, seconds) = (HumanBytes(carried), passed.as_secs_f64());
    format!("{carried} arrived after {seconds:.0} s, with headers and repetitions")
}

/// The progress of a run in virtual time.
fn of_the_file(received: u64, total: u64, passed: Duration) -> String {
    let (received, total, seconds) =
        (HumanBytes(received), HumanBytes(total), passed.as_secs_f64());
    format!("{received} of {total} arrived after {seconds:.0} s of virtual time")
}

#[derive(Debug)]
pub(crate) struct Tally {
    total: usize,
    done: usize,
    failed: usize,
    start: Instant,
    display: Display,
}

impl Tally {
    pub(crate) fn begin(total: usize) -> Self {
        let display = Display::begin(total as u64, RUNS, &format!("{total} runs: started"), None);
        Self { total, done: 0, failed: 0, start: now(), display }
    }

    /// Counts a run that ended. If it failed, `failed` has the reason.
    pub(crate) fn count(&mut self, failed: Option<&str>) {
        self.done += 1;
        self.failed += usize::from(failed.is_some());
        let elapsed = self.start.elapsed();
        match &mut self.display {
            Display::Bar(bar) => {
                bar.inc(1);
                if let Some(sentence) = failed {
                    bar.println(sentence);
                    bar.set_message(format!("{} failed", self.failed));
                }
            }
            Display::Lines { next } => {
                if let Some(sentence) = failed {
                    eprintln!("{sentence}");
                }
                if elapsed >= *next && self.done < self.total {
                    *next = elapsed + LINE_EVERY;
                    let seconds = elapsed.as_secs_f64();
                    eprintln!("{} of {} runs after {seconds:.0} s", self.done, self.total);
                }
            }
        }
    }

    /// Ends the display, and prints the number of runs and their time.
    pub(crate) fn end(self) {
        if let Display::Bar(bar) = &self.display {
            bar.finish_and_clear();
        }
        let seconds = self.start.elapsed().as_secs_f64();
        let failed = match self.failed {
            0 => String::new(),
            failed => format!(", {failed} of them failed"),
        };
        eprintln!("{} runs in {seconds:.0} s{failed}", self.done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_state_which_bytes_they_count() {
        let passed = Duration::from_secs(5);
        assert_eq!(
            on_the_wire(11 << 20, passed),
            "11.00 MiB arrived after 5 s, with headers and repetitions"
        );
        assert_eq!(
            of_the_file(5 << 20, 10 << 20, passed),
            "5.00 MiB of 10.00 MiB arrived after 5 s of virtual time"
        );
    }
}
