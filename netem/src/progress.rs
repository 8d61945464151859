//! What a person sees while the lab works: a bar a run on a terminal, plain lines elsewhere. All of it on standard error.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};

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
    Bar(ProgressBar),
    Lines { next: Duration },
}

impl Progress {
    /// Begins to show a run that carries a file of `total` bytes.
    pub fn begin(label: impl Into<String>, total: u64) -> Self {
        let label = label.into();
        #[allow(clippy::disallowed_methods, reason = "the edge: a person is told how long it has taken")]
        let start = Instant::now();
        let kind = if stderr().is_terminal() {
            let bar = ProgressBar::new(total);
            bar.set_draw_target(ProgressDrawTarget::stderr());
            if let Ok(style) =
                ProgressStyle::with_template("{prefix:40} {bar:24} {bytes:>10} {elapsed:>4}  {msg}")
            {
                bar.set_style(style);
            }
            bar.set_prefix(label.clone());
            bar.tick();
            Kind::Bar(bar)
        } else {
            eprintln!("{label}: started, {}", HumanBytes(total));
            Kind::Lines { next: LINE_EVERY }
        };
        Self { label, total, start, kind }
    }

    /// Shows that `carried` bytes have reached the receiver's end of the path, headers and repetitions included.
    pub fn show(&mut self, carried: u64) {
        let elapsed = self.start.elapsed();
        let rate = format!("{:.2} Mbit/s", mbit_s(carried, elapsed));
        match &mut self.kind {
            Kind::Bar(bar) => {
                bar.set_message(rate);
                bar.set_position(carried.min(self.total));
            }
            Kind::Lines { next } => {
                if elapsed >= *next {
                    *next += LINE_EVERY;
                    let (label, carried) = (&self.label, HumanBytes(carried));
                    eprintln!(
                        "{label}: {carried} on the far side after {:.0} s, {rate}",
                        elapsed.as_secs_f64()
                    );
                }
            }
        }
    }

    /// Ends with a word on how it went.
    pub fn end(self, outcome: &str) {
        match self.kind {
            Kind::Bar(bar) => {
                bar.set_position(self.total);
                bar.finish_with_message(outcome.to_owned());
            }
            Kind::Lines { .. } => eprintln!("{}: {outcome}", self.label),
        }
    }
}

fn mbit_s(bytes: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { bytes as f64 * 8e-6 / time.as_secs_f64() }
}
