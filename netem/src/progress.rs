//! What a person sees while the lab works: a bar a run on a terminal, plain lines elsewhere. All of
//! it on standard error.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What takes less needs no telling.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time between two plain lines.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// The progress of one run.
#[derive(Debug)]
pub struct Progress {
    label: String,
    total: u64,
    start: Instant,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// It may be over before anybody asks.
    Waiting,
    Bar(ProgressBar),
    Lines {
        next: Duration,
    },
}

impl Progress {
    /// Begins to show a run that carries a file of `total` bytes.
    pub fn begin(label: impl Into<String>, total: u64) -> Self {
        let label = label.into();
        #[allow(
            clippy::disallowed_methods,
            reason = "the edge: a person is told how long it has taken"
        )]
        let start = Instant::now();
        let kind = Kind::begin(&label, total);
        Self { label, total, start, kind }
    }

    /// Begins to show a run that may be over in no time: nothing is said in its first two seconds.
    pub fn begin_later(label: impl Into<String>, total: u64) -> Self {
        #[allow(
            clippy::disallowed_methods,
            reason = "the edge: a person is told how long it has taken"
        )]
        let start = Instant::now();
        Self { label: label.into(), total, start, kind: Kind::Waiting }
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
            self.kind = Kind::begin(&self.label, self.total);
        }
        let rate = format!("{:.2} Mbit/s", mbit_s(carried, passed));
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

impl Kind {
    fn begin(label: &str, total: u64) -> Self {
        if !stderr().is_terminal() {
            eprintln!("{label}: started, {}", HumanBytes(total));
            return Self::Lines { next: LINE_EVERY };
        }
        let bar = ProgressBar::new(total);
        bar.set_draw_target(ProgressDrawTarget::stderr());
        if let Ok(style) =
            ProgressStyle::with_template("{prefix:40} {bar:24} {bytes:>10} {elapsed:>4}  {msg}")
        {
            bar.set_style(style);
        }
        bar.set_prefix(label.to_owned());
        bar.tick();
        Self::Bar(bar)
    }
}

/// The progress of many runs.
#[derive(Debug)]
pub struct Tally {
    total: usize,
    done: usize,
    failed: usize,
    start: Instant,
    /// A bar, or the time of the next plain line.
    kind: Result<ProgressBar, Duration>,
}

impl Tally {
    /// Begins to count `total` runs.
    pub fn begin(total: usize) -> Self {
        #[allow(
            clippy::disallowed_methods,
            reason = "the edge: a person is told how long it has taken"
        )]
        let start = Instant::now();
        let kind = if stderr().is_terminal() {
            let bar = ProgressBar::new(total as u64);
            bar.set_draw_target(ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template(
                "{bar:30} {pos} of {len} runs {elapsed:>4}, {eta} left  {msg}",
            ) {
                bar.set_style(style);
            }
            Ok(bar)
        } else {
            eprintln!("{total} runs: started");
            Err(LINE_EVERY)
        };
        Self { total, done: 0, failed: 0, start, kind }
    }

    /// Counts a run that has ended; `failed` is what there is to say of one that came to nothing.
    pub fn count(&mut self, failed: Option<&str>) {
        self.done += 1;
        self.failed += usize::from(failed.is_some());
        let elapsed = self.start.elapsed();
        match &mut self.kind {
            Ok(bar) => {
                bar.inc(1);
                if let Some(sentence) = failed {
                    bar.println(sentence);
                    bar.set_message(format!("{} failed", self.failed));
                }
            }
            Err(next) => {
                if let Some(sentence) = failed {
                    eprintln!("{sentence}");
                }
                if elapsed >= *next && self.done < self.total {
                    *next = elapsed + LINE_EVERY;
                    eprintln!(
                        "{} of {} runs after {:.0} s",
                        self.done,
                        self.total,
                        elapsed.as_secs_f64()
                    );
                }
            }
        }
    }

    /// Ends with how many runs there were, and how long they took.
    pub fn end(self) {
        if let Ok(bar) = &self.kind {
            bar.finish_and_clear();
        }
        let seconds = self.start.elapsed().as_secs_f64();
        let failed = if self.failed == 0 {
            String::new()
        } else {
            format!(", {} of them failed", self.failed)
        };
        eprintln!("{} runs in {seconds:.0} s{failed}", self.done);
    }
}

fn mbit_s(bytes: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { bytes as f64 * 8e-6 / time.as_secs_f64() }
}
