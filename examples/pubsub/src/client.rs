//! The clients: a publisher and a subscriber, over HTTP/3 or MQTT.

pub(crate) mod codec;
mod connection;
mod patience;
mod pipe;
mod printer;
pub(crate) mod publish;
pub(crate) mod source;
mod stream;
pub(crate) mod subscribe;

use std::time::SystemTime;

use hdrhistogram::Histogram;
use serde::Serialize;

/// The present time, in microseconds since 1970.
#[allow(clippy::disallowed_methods, reason = "a program's edge: it reads the real clock")]
fn wall_clock() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// A signal ended the client.
#[derive(Debug, thiserror::Error)]
#[error("stopped")]
struct Stopped;

/// The longest latency, in microseconds: a day. Longer ones count as this.
const LONGEST_LATENCY: u64 = 86_400_000_000;

/// Latencies, with three significant digits.
#[derive(Debug)]
struct Latencies(Histogram<u64>);

/// Latencies of a report, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
struct Percentiles {
    p50: f64,
    p99: f64,
    max: f64,
}

impl Latencies {
    fn new() -> anyhow::Result<Self> {
        Ok(Self(Histogram::new_with_bounds(1, LONGEST_LATENCY, 3)?))
    }

    /// Adds a latency in microseconds.
    fn add(&mut self, microseconds: u64) {
        self.0.saturating_record(microseconds);
    }

    /// `None` without a latency.
    fn percentiles(&self) -> Option<Percentiles> {
        let at = |quantile| self.0.value_at_quantile(quantile) as f64 / 1e3;
        let all = Percentiles { p50: at(0.5), p99: at(0.99), max: self.0.max() as f64 / 1e3 };
        (!self.0.is_empty()).then_some(all)
    }
}

/// Latencies in words.
fn latency(percentiles: Option<Percentiles>) -> String {
    percentiles.map_or_else(|| "an unknown time".to_owned(), |known| known.to_string())
}

impl std::fmt::Display for Percentiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { p50, p99, max } = self;
        write!(f, "{p50:.1} ms (median), {p99:.1} ms (99 %), {max:.1} ms at most")
    }
}
