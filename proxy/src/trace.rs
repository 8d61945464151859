//! What a link did to packets: when each passed, how long it was, and whether it arrived.
//!
//! `sidekick-agent measure` records a trace of a link, and `sidekick-lab predict` replays it. The
//! agent's reference has the format.

mod recorder;
pub(crate) mod summary;

use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub(crate) use recorder::{Recorder, Watch};
pub use summary::{Change, DirectionSummary, RoundTripSummary, Run, Summary};

/// The first line.
const HEADER: &str = "sidekick-trace 1";
/// No trace has more lines: half an hour of 2300 packets a second.
pub(crate) const MAX_LINES: usize = 1 << 22;
/// No trace is longer than a day and a bit, so that all its times fit.
const LONGEST: Duration = Duration::from_secs(90_000);

/// A direction of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Towards the proxy.
    Up,
    /// From the proxy.
    Down,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrived, in its place among the others as far as the trace shows.
    Arrived,
    /// It arrived so long after the next one.
    Late(Duration),
    /// The link lost it.
    Lost,
}

/// A packet of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Since the trace began.
    pub at: Duration,
    /// The length of its UDP payload.
    pub bytes: u16,
    /// What became of it.
    pub fate: Fate,
}

/// A round trip of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// When it ended, since the trace began.
    pub at: Duration,
    /// How long it took, to the proxy and back.
    pub took: Duration,
}

/// A recording of a link, in microseconds.
///
/// ```
/// use sidekick_proxy::{Direction, Trace};
///
/// let trace: Trace = "sidekick-trace 1\nu 0 1200\nu 500 1200 -\nend 500\n".parse()?;
/// assert_eq!(trace.packets(Direction::Up).len(), 2);
/// assert_eq!(trace.summary().up.lost, 1);
/// # Ok::<(), sidekick_proxy::NotATrace>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    up: Vec<Packet>,
    down: Vec<Packet>,
    round_trips: Vec<RoundTrip>,
    length: Duration,
}

/// Why a text is no trace.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line} of the trace: {what}")]
pub struct NotATrace {
    line: usize,
    what: String,
}

/// What a line holds, beside its time.
#[derive(Clone, Copy)]
enum Line {
    Packet(Direction, u16, Fate),
    RoundTrip(Duration),
}

impl Trace {
    /// A trace of this length. Sorts the packets and round trips by their times.
    pub(crate) fn new(
        mut up: Vec<Packet>,
        mut down: Vec<Packet>,
        mut round_trips: Vec<RoundTrip>,
        length: Duration,
    ) -> Self {
        up.sort_by_key(|packet| packet.at);
        down.sort_by_key(|packet| packet.at);
        round_trips.sort_by_key(|round_trip| round_trip.at);
        Self { up, down, round_trips, length }
    }

    /// The packets of a direction, the earliest first.
    #[must_use]
    pub fn packets(&self, direction: Direction) -> &[Packet] {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }

    /// The round trips to the proxy, the earliest first.
    #[must_use]
    pub fn round_trips(&self) -> &[RoundTrip] {
        &self.round_trips
    }

    /// How long it was recorded.
    #[must_use]
    pub fn length(&self) -> Duration {
        self.length
    }

    /// What it says of the link.
    #[must_use]
    pub fn summary(&self) -> Summary {
        Summary::of(self)
    }

    /// Writes it as text.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let packets = |direction, packets: &'_ [Packet]| {
            let line = move |it: &Packet| (it.at, Line::Packet(direction, it.bytes, it.fate));
            packets.iter().map(line).collect::<Vec<_>>()
        };
        let mut lines = packets(Direction::Up, &self.up);
        lines.extend(packets(Direction::Down, &self.down));
        lines.extend(self.round_trips.iter().map(|it| (it.at, Line::RoundTrip(it.took))));
        lines.sort_by_key(|(at, _)| *at);
        writeln!(out, "{HEADER}")?;
        let mut before = 0;
        let mut since = |at: Duration| {
            let at = at.as_micros();
            at.saturating_sub(std::mem::replace(&mut before, at))
        };
        for (at, line) in lines {
            let since = since(at);
            match line {
                Line::Packet(direction, bytes, fate) => {
                    writeln!(out, "{direction} {since} {bytes}{fate}")?;
                }
                Line::RoundTrip(took) => writeln!(out, "r {since} {}", took.as_micros())?,
            }
        }
        writeln!(out, "end {}", since(self.length))
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Up => "u",
            Self::Down => "d",
        })
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arrived => Ok(()),
            Self::Late(by) => write!(f, " +{}", by.as_micros()),
            Self::Lost => f.write_str(" -"),
        }
    }
}

impl std::str::FromStr for Trace {
    type Err = NotATrace;

    fn from_str(text: &str) -> Result<Self, NotATrace> {
        let mut trace = Self::default();
        let mut at = Duration::ZERO;
        let mut has_header = false;
        for (number, line) in text.lines().enumerate() {
            let wrong = |what: String| NotATrace { line: number + 1, what };
            if !has_header {
                if line != HEADER {
                    return Err(wrong(format!("expected {HEADER:?}, as measure --trace writes")));
                }
                has_header = true;
                continue;
            }
            // Beside the first line and the last.
            if number > MAX_LINES + 1 {
                return Err(wrong(format!("a trace has at most {MAX_LINES} packets")));
            }
            let mut words = line.split(' ');
            let kind = words.next().unwrap_or_default();
            at += micros(words.next().unwrap_or_default()).map_err(wrong)?;
            if at > LONGEST {
                return Err(wrong("a trace lasts a day at most".to_owned()));
            }
            let value = words.next();
            let fate = words.next();
            if words.next().is_some() {
                return Err(wrong(format!("{line:?} has more than four words")));
            }
            match (kind, value, fate) {
                ("u" | "d", Some(bytes), fate) => {
                    let bytes = bytes.parse().map_err(|_| wrong(no_length(bytes)))?;
                    let fate = fate.map_or(Ok(Fate::Arrived), fate_of).map_err(wrong)?;
                    let packets = if kind == "u" { &mut trace.up } else { &mut trace.down };
                    packets.push(Packet { at, bytes, fate });
                }
                ("r", Some(took), None) => {
                    let took = micros(took).map_err(wrong)?;
                    trace.round_trips.push(RoundTrip { at, took });
                }
                ("end", None, None) => {
                    if text.lines().nth(number + 1).is_some() {
                        return Err(wrong("nothing follows end".to_owned()));
                    }
                    trace.length = at;
                    return Ok(trace);
                }
                _ => return Err(wrong(format!("{line:?} is neither a packet nor a round trip"))),
            }
        }
        let line = text.lines().count() + 1;
        Err(NotATrace { line, what: "expected end: the file was cut off".to_owned() })
    }
}

fn fate_of(word: &str) -> Result<Fate, String> {
    match word.strip_prefix('+') {
        Some(late) => Ok(Fate::Late(micros(late)?)),
        None if word == "-" => Ok(Fate::Lost),
        None => Err(format!("expected - or + and microseconds, not {word:?}")),
    }
}

fn micros(word: &str) -> Result<Duration, String> {
    let micros = word.parse::<u64>().ok().map(Duration::from_micros);
    micros
        .filter(|it| *it <= LONGEST)
        .ok_or_else(|| format!("{word:?} is no number of microseconds"))
}

fn no_length(word: &str) -> String {
    format!("{word:?} is no length of a payload from 0 to 65535 bytes")
}

#[cfg(test)]
mod tests;
