//! Alternating measurement of two functions.

use crate::figures::Figures;
use criterion::Criterion;
use std::time::{Duration, Instant};

/// Turns per sample.
const TURNS: u64 = 8;
/// Criterion's samples after warming up.
const SAMPLES: usize = 30;

impl Figures {
    /// Measures `ours` and `baseline` in turns. Each handles `items` per call.
    pub(crate) fn measure(
        &mut self,
        criterion: &mut Criterion,
        name: &str,
        items: usize,
        mut ours: impl FnMut(),
        mut baseline: impl FnMut(),
    ) {
        let mut samples = Vec::new();
        let (crate_name, case) = name.split_once('/').unwrap_or(("", name));
        let mut group = criterion.benchmark_group(crate_name);
        group.sample_size(SAMPLES);
        group.warm_up_time(Duration::from_millis(200));
        group.measurement_time(Duration::from_secs(1));
        group.bench_function(case, |bencher| {
            bencher.iter_custom(|iterations| {
                let (mut our_time, mut base_time) = (Duration::ZERO, Duration::ZERO);
                for turn in 0..TURNS {
                    let calls = iterations / TURNS + u64::from(turn < iterations % TURNS);
                    our_time += time(calls, &mut ours);
                    base_time += time(calls, &mut baseline);
                }
                let each =
                    |time: Duration| time.as_secs_f64() * 1e9 / (iterations as f64 * items as f64);
                samples.push((each(our_time), each(base_time)));
                our_time
            });
        });
        group.finish();
        // A name that the user's filter excludes has no samples.
        let first = samples.len().saturating_sub(SAMPLES);
        let Some(samples) = samples.get(first..).filter(|samples| !samples.is_empty()) else {
            return;
        };
        let (value, baseline) =
            (median(samples.iter().map(|s| s.0)), median(samples.iter().map(|s| s.1)));
        let ratio = median(samples.iter().map(|s| s.1 / s.0));
        self.add(name, "ns", (value, baseline), ratio);
    }
}

#[allow(clippy::disallowed_methods, reason = "a benchmark measures the time")]
fn time(calls: u64, work: &mut impl FnMut()) -> Duration {
    let start = Instant::now();
    (0..calls).for_each(|_| work());
    start.elapsed()
}

fn median(samples: impl Iterator<Item = f64>) -> f64 {
    let mut samples: Vec<f64> = samples.collect();
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN)
}
