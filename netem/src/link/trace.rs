//! Transmission opportunities in the format of mahimahi (Netravali et al., USENIX ATC 2015).
//!
//! Each line of the file is a time in whole milliseconds, in order, at which 1504 bytes may leave.
//! A time that occurs twice gives twice the room, and unused room is lost. A packet that is larger
//! than the room continues in the next one. After its last line the file begins again, and that
//! line's time is its new zero.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes that may leave at one opportunity. By mahimahi's count, it carries a full IP packet of
/// 1500 bytes.
pub(super) const OPPORTUNITY_BYTES: u64 = 1504;

/// The largest time of a line: about 49 days.
const MOST_MS: u64 = u32::MAX as u64;

/// Why a trace cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read.
    #[error("cannot read the trace {}: {reason}", path.display())]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// Why.
        reason: std::io::Error,
    },
    /// A line is wrong.
    #[error("{}, line {line}: {problem}", path.display())]
    Line {
        /// The path.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong, and what is expected.
        problem: String,
    },
}

/// A trace, ready to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Milliseconds since the beginning of a pass, not decreasing. The last is above zero, and is
    /// the length of a pass.
    times: Vec<u64>,
    period: u64,
}

impl Trace {
    /// Reads the trace from a file. An error names the file and the line.
    pub(crate) fn read(path: &Path) -> Result<Self, TraceError> {
        let text = std::fs::read_to_string(path)
            .map_err(|reason| TraceError::Unreadable { path: path.to_owned(), reason })?;
        Self::parse(path, &text)
    }

    /// Reads the trace from the text of the file `path`.
    pub(crate) fn parse(path: &Path, text: &str) -> Result<Self, TraceError> {
        let wrong =
            |line, problem: String| TraceError::Line { path: path.to_owned(), line, problem };
        let mut times = Vec::new();
        let mut period = 0;
        for (number, line) in text.lines().enumerate() {
            let time: u64 = line.trim().parse().ok().filter(|&time| time <= MOST_MS).ok_or_else(|| {
                wrong(
                    number + 1,
                    format!("`{line}` is no time; each line takes whole milliseconds up to {MOST_MS}"),
                )
            })?;
            if time < period {
                let problem = format!("{time} comes after {period}; the times must not decrease");
                return Err(wrong(number + 1, problem));
            }
            period = time;
            times.push(time);
        }
        if period == 0 {
            let problem = "the trace ends at 0 ms; its last line must be a later time".to_owned();
            return Err(wrong(times.len().max(1), problem));
        }
        Ok(Self { times, period })
    }

    /// The mean bits per second, at least 1.
    pub(super) fn mean_bits_per_second(&self) -> u64 {
        (self.times.len() as u64 * OPPORTUNITY_BYTES * 8 * 1000 / self.period).max(1)
    }

    /// The time of an opportunity. Indices count from 0 over all passes.
    fn time(&self, index: u64) -> Duration {
        let count = self.times.len() as u64;
        let within = usize::try_from(index % count).ok().and_then(|index| self.times.get(index));
        let start = (index / count).saturating_mul(self.period);
        Duration::from_millis(start.saturating_add(within.copied().unwrap_or(self.period)))
    }

    /// The first opportunity that is not before `time`.
    fn first_at(&self, time: Duration) -> u64 {
        let ms = u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        // The last opportunity of a pass may lie on the boundary to the next pass.
        let pass = ms.saturating_sub(1) / self.period;
        let within = ms - pass * self.period;
        let skipped = self.times.partition_point(|&time| time < within);
        pass.saturating_mul(self.times.len() as u64).saturating_add(skipped as u64)
    }
}

/// The position in a trace: the opportunities and bytes that were used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    index: u64,
    /// The unused bytes of this opportunity.
    left: u64,
}

impl Default for Cursor {
    fn default() -> Self {
        Self::whole(0)
    }
}

impl Cursor {
    /// A cursor at an opportunity with all its room unused.
    fn whole(index: u64) -> Self {
        Self { index, left: OPPORTUNITY_BYTES }
    }

    /// The cursor at the first opportunity with room that is not before `time`.
    fn seek(self, trace: &Trace, time: Duration) -> Self {
        let next = if self.left == 0 { Self::whole(self.index + 1) } else { self };
        let first = trace.first_at(time);
        if first > next.index { Self::whole(first) } else { next }
    }

    /// When a packet can begin to leave if it waits from `since` on.
    pub(super) fn ready_at(self, trace: &Trace, since: Duration) -> Duration {
        trace.time(self.seek(trace, since).index)
    }

    /// Uses the room of a packet that begins to leave at `start`, and returns when it has left.
    pub(super) fn send(&mut self, trace: &Trace, start: Duration, bytes: u64) -> Duration {
        *self = self.seek(trace, start);
        let mut rest = bytes;
        while rest > self.left {
            rest -= self.left;
            *self = Self::whole(self.index + 1);
        }
        self.left -= rest;
        trace.time(self.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn trace(times: &[u64]) -> Trace {
        let text: String = times.iter().map(|time| format!("{time}\n")).collect();
        Trace::parse(Path::new("t"), &text).unwrap()
    }

    #[test]
    fn a_malformed_trace_names_its_line() {
        let error = |text: &str| Trace::parse(Path::new("a/lte.up"), text).unwrap_err().to_string();
        for (text, expected) in [
            (
                "1\n2\nx\n",
                "a/lte.up, line 3: `x` is no time; each line takes whole milliseconds up to 4294967295",
            ),
            (
                "1\n\n3\n",
                "a/lte.up, line 2: `` is no time; each line takes whole milliseconds up to 4294967295",
            ),
            ("5\n4\n", "a/lte.up, line 2: 4 comes after 5; the times must not decrease"),
            (
                "0\n0\n",
                "a/lte.up, line 2: the trace ends at 0 ms; its last line must be a later time",
            ),
            ("", "a/lte.up, line 1: the trace ends at 0 ms; its last line must be a later time"),
        ] {
            assert_eq!(error(text), expected);
        }
        let missing = Trace::read(Path::new("/nowhere/x")).unwrap_err().to_string();
        assert!(missing.starts_with("cannot read the trace /nowhere/x: "), "{missing}");
    }

    #[test]
    fn the_file_repeats() {
        let trace = trace(&[0, 3, 3, 10]);
        let times: Vec<u128> = (0..9).map(|index| trace.time(index).as_millis()).collect();
        assert_eq!(times, [0, 3, 3, 10, 10, 13, 13, 20, 20]);
        assert_eq!(trace.mean_bits_per_second(), 4 * 1504 * 8 * 100);
    }

    prop_compose! {
        fn any_trace()(mut times in prop::collection::vec(0_u64..40, 1..12), last in 1_u64..40) -> Vec<u64> {
            times.sort_unstable();
            let end = times.last().copied().unwrap_or(0).max(last);
            times.push(end);
            times
        }
    }

    proptest! {
        #[test]
        fn packets_leave_as_in_a_walk_over_every_opportunity(
            times in any_trace(),
            packets in prop::collection::vec((0_u64..30_000, 1_u64..4000), 1..60),
        ) {
            let trace = trace(&times);
            // The slow way: all opportunities one after the other, each filled from what is there
            // by then.
            let mut arrivals = Vec::new();
            let mut now = 0;
            for (gap_us, bytes) in packets {
                now += gap_us;
                arrivals.push((Duration::from_micros(now), bytes));
            }
            let mut expected = Vec::new();
            let mut waiting = arrivals.iter().copied().peekable();
            let mut rest = 0_u64;
            'passes: for pass in 0.. {
                for &time in &times {
                    let at = Duration::from_millis(pass * times[times.len() - 1] + time);
                    let mut room = OPPORTUNITY_BYTES;
                    while room > 0 {
                        if rest == 0 {
                            match waiting.peek() {
                                None => break 'passes,
                                Some(&(since, bytes)) if since <= at => rest = bytes,
                                Some(_) => break,
                            }
                        }
                        let part = rest.min(room);
                        (rest, room) = (rest - part, room - part);
                        if rest == 0 {
                            expected.push(at);
                            waiting.next();
                        }
                    }
                }
            }
            let mut cursor = Cursor::default();
            let mut idle_at = Duration::ZERO;
            for (&(since, bytes), &end) in arrivals.iter().zip(&expected) {
                let start = cursor.ready_at(&trace, since.max(idle_at));
                prop_assert!(start >= since && start <= end);
                idle_at = cursor.send(&trace, start, bytes);
                prop_assert_eq!(idle_at, end);
            }
        }
    }
}
