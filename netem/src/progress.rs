//! What a person sees while the lab works: a bar a run on a terminal, plain lines elsewhere. All of
//! it on standard error.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::units::mbit_s;

/// What takes less needs no telling.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time between two plain lines.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// How a run and how many runs look on a terminal.
const RUN: &str = "{prefix:40} {bar:24} {bytes:>10} {elapsed:>4}  {msg}";
const RUNS: &str = "{bar:30} {pos} of {len} runs {elapsed:>4}, {eta} left  {msg}";

#[allow(clippy::disallowed_methods, reason = "the edge: a person sees how long it has taken")]
fn now() -> Instant {
    Instant::now()
}

#[derive(Debug)]
enum Kind {
    /// The run may be over before anybody asks.
    Waiting,
    Bar(ProgressBar),
    Lines {
        next: Duration,
    },
}

impl Kind {
    /// A bar on a terminal; elsewhere lines, of which `started` is the first.
    fn begin(total: u64, template: &str, started: &str) -> Self {
        if !stderr().is_terminal() {
            eprintln!("{started}");
            return Self::Lines { next: LINE_EVERY };
        }
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self::Bar(bar)
    }
}

/// The progress of one run.
#[derive(Debug)]
pub struct Progress {
    label: String,
    total: u64,
    start: Instant,
    kind: Kind,
}

impl Progress {
    /// Begins to show a run that carries a file of `total` bytes.
    pub fn begin(label: impl Into<String>, total: u64) -> Self {
        let mut progress = Self::begin_later(label, total);
        progress.appear();
        progress
    }

    /// Begins to show a run that may be over in no time: nothing is shown in its first two seconds.
    pub fn begin_later(label: impl Into<String>, total: u64) -> Self {
        Self { label: label.into(), total, start: now(), kind: Kind::Waiting }
    }

    fn appear(&mut self) {
        let started = format!("{}: started, {}", self.label, HumanBytes(self.total));
        self.kind = Kind::begin(self.total, RUN, &started);
        if let Kind::Bar(bar) = &self.kind {
            bar.set_prefix(self.label.clone());
            bar.tick();
        }
    }

    /// Shows that `carried` bytes have reached the receiver's end of the path, headers and
    /// repetitions included.
    pub fn show(&mut self, carried: u64) {
        let elapsed = self.start.elapsed();
        self.tell(carried, elapsed, "");
    }

    /// The same of a run in virtual time, of which so much has passed.
    pub fn show_virtual(&mut self, carried: u64, passed: Duration) {
        self.tell(carried, passed, " of virtual time");
    }

    fn tell(&mut self, carried: u64, passed: Duration, kind: &str) {
        let elapsed = self.start.elapsed();
        if matches!(self.kind, Kind::Waiting) && elapsed >= PATIENCE {
            self.appear();
        }
        let rate = format!("{:.2} Mbit/s", mbit_s(carried, passed.as_secs_f64()));
        match &mut self.kind {
            Kind::Waiting => {}
            Kind::Bar(bar) => {
                bar.set_message(rate);
                bar.set_position(carried.min(self.total));
            }
            Kind::Lines { next } => {
                if elapsed >= *next {
                    *next += LINE_EVERY;
                    let (label, carried) = (&self.label, HumanBytes(carried));
                    eprintln!(
                        "{label}: {carried} on the far side after {:.0} s{kind}, {rate}",
                        passed.as_secs_f64()
                    );
                }
            }
        }
    }

    /// Ends with a word on how it went.
    pub fn end(self, outcome: &str) {
        match self.kind {
            Kind::Waiting => {}
            Kind::Bar(bar) => {
                bar.set_position(self.total);
                bar.finish_with_message(outcome.to_owned());
            }
            Kind::Lines { .. } => eprintln!("{}: {outcome}", self.label),
        }
    }
}

/// The progress of many runs.
#[derive(Debug)]
pub struct Tally {
    total: usize,
    done: usize,
    failed: usize,
    start: Instant,
    kind: Kind,
}

impl Tally {
    /// Begins to count `total` runs.
    pub fn begin(total: usize) -> Self {
        let kind = Kind::begin(total as u64, RUNS, &format!("{total} runs: started"));
        Self { total, done: 0, failed: 0, start: now(), kind }
    }

    /// Counts a run that has ended; `failed` is what there is to say of one that came to nothing.
    pub fn count(&mut self, failed: Option<&str>) {
        self.done += 1;
        self.failed += usize::from(failed.is_some());
        let elapsed = self.start.elapsed();
        match &mut self.kind {
            Kind::Bar(bar) => {
                bar.inc(1);
                if let Some(sentence) = failed {
                    bar.println(sentence);
                    bar.set_message(format!("{} failed", self.failed));
                }
            }
            Kind::Waiting => {}
            Kind::Lines { next } => {
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

    /// Ends with how many runs there were, and how long they took.
    pub fn end(self) {
        if let Kind::Bar(bar) = &self.kind {
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
