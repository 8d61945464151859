//! The progress of the file, on standard error.

use std::convert::Infallible;
use std::future::pending;
use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::interval;

use crate::options::Plan;
use crate::words::say;

/// The interval between updates.
const TICK: Duration = Duration::from_millis(100);
/// For a file of unknown length, a line follows this many bytes.
const LINE_EVERY: u64 = 100 * 1024 * 1024;

/// Shows the progress.
#[derive(Debug)]
pub struct Progress {
    program: &'static str,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Silent,
    Bar(ProgressBar),
    /// Standard error is a file or a pipe. It receives a line for each tenth, or for each 100 MiB
    /// of unknown length.
    Lines {
        total: Option<u64>,
        printed: AtomicU64,
    },
}

impl Progress {
    /// `total` is the file's length in bytes, if known.
    #[must_use]
    pub fn new(plan: &Plan, total: Option<u64>) -> Self {
        let kind = match plan.quiet {
            true => Kind::Silent,
            false if std::io::stderr().is_terminal() => Kind::Bar(bar(total)),
            false => Kind::Lines { total, printed: AtomicU64::new(0) },
        };
        Self { program: plan.program, kind }
    }

    /// Shows what `now` returns, until it is dropped: the bytes so far, and a remark, which is
    /// empty without the plugin.
    pub async fn watch(&self, now: impl Fn() -> (u64, String)) -> Infallible {
        if matches!(self.kind, Kind::Silent) {
            return pending().await;
        }
        let mut ticks = interval(TICK);
        loop {
            ticks.tick().await;
            let (bytes, remark) = now();
            self.show(bytes, remark);
        }
    }

    fn show(&self, bytes: u64, remark: String) {
        match &self.kind {
            Kind::Silent => {}
            Kind::Bar(bar) => {
                bar.set_message(remark);
                bar.set_position(bytes);
            }
            Kind::Lines { total, printed } => {
                let step = step(bytes, *total);
                if step > printed.swap(step, Ordering::Relaxed) {
                    let (program, bytes) = (self.program, HumanBytes(bytes));
                    let comma = if remark.is_empty() { "" } else { ", " };
                    match total {
                        Some(_) => say(&format!("{program}: {step}0 % ({bytes}){comma}{remark}")),
                        None => say(&format!("{program}: {bytes}{comma}{remark}")),
                    }
                }
            }
        }
    }
}

/// Removes the bar, before the summary or an error.
impl Drop for Progress {
    fn drop(&mut self) {
        if let Kind::Bar(bar) = &self.kind {
            bar.finish_and_clear();
        }
    }
}

fn bar(total: Option<u64>) -> ProgressBar {
    let (bar, template) = match total {
        Some(total) => (
            ProgressBar::new(total),
            "{bar:32} {bytes}/{total_bytes}  {bytes_per_sec}  {eta}  {msg}",
        ),
        None => (ProgressBar::new_spinner(), "{spinner} {bytes}  {bytes_per_sec}  {msg}"),
    };
    bar.set_draw_target(ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

/// Tenths of a known length, or steps of an unknown one. The summary reports the last tenth.
fn step(bytes: u64, total: Option<u64>) -> u64 {
    match total {
        Some(0) => 0,
        Some(total) => (u128::from(bytes) * 10 / u128::from(total)).min(9) as u64,
        None => bytes / LINE_EVERY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenths_of_any_length() {
        assert_eq!(step(0, Some(0)), 0);
        assert_eq!(step(99, Some(1000)), 0);
        assert_eq!(step(100, Some(1000)), 1);
        assert_eq!(step(1000, Some(1000)), 9);
        assert_eq!(step(u64::MAX, Some(u64::MAX)), 9);
        assert_eq!(step(250 * 1024 * 1024, None), 2);
    }
}
