//! `sidekick-proxy replay`: prints what the proxy would have counted of a capture file.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use sidekick_protocol::Terms;

use super::counter::Replay;
use super::file::CaptureFile;
use crate::runtime::clock;

/// Flows that are shown where not all are.
const SHOWN: usize = 20;
/// How often one who waits is told how far it is.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Packets between two looks at the clock.
const PROGRESS_PACKETS: u64 = 1 << 16;

/// Which file to replay, and how.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The file; `-` is standard input.
    pub file: PathBuf,
    /// What the sender of each flow would have requested.
    pub terms: Terms,
    /// Most flows to count.
    pub flows: usize,
    /// Whether to print JSON.
    pub json: bool,
}

/// The result of a replay.
#[derive(Clone, Debug, Serialize)]
struct Outcome {
    /// Packets in the file, of whatever kind.
    packets: u64,
    /// UDP datagrams among them.
    datagrams: u64,
    /// Datagrams that were counted.
    counted: u64,
    /// Datagrams that do not count, such as QUIC handshake packets.
    ignored: u64,
    /// Datagrams of flows beyond the limit.
    other_flows: u64,
    fragments: u64,
    malformed: u64,
    /// Datagrams longer than any on a wire.
    merged: u64,
    quacks: u64,
    /// Bytes of quACKs.
    bytes: u64,
    /// Seconds from the first packet to the last.
    span_s: f64,
    /// Nanoseconds that a packet took here, from the file to the sums.
    packet_ns: f64,
    /// The file ends in the middle of a packet.
    truncated: bool,
    flows: Vec<Flow>,
}

#[derive(Clone, Debug, Serialize)]
struct Flow {
    source: String,
    destination: String,
    counted: u32,
    quacks: u64,
    /// Identifiers of the first and of the last packet that was counted.
    first: Option<u32>,
    last: Option<u32>,
}

/// Replays a file, and shows what came of it.
///
/// # Errors
/// One sentence for the operator: why the file cannot be read.
pub(crate) fn run(settings: &Settings) -> Result<()> {
    let begun = clock();
    let mut replay = Replay::new(settings.flows, settings.terms, begun)?;
    let mut file = CaptureFile::open(&settings.file)?;
    let mut progress = Progress::new(begun);
    let broken = loop {
        match file.next() {
            Ok(Some(frame)) => replay.take(frame.datagram(), frame.time),
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
        progress.tell(file.packets());
    };
    progress.end();
    let took = clock().saturating_duration_since(begun);
    let outcome = outcome(&replay, &file, took);
    let mut out = io::stdout().lock();
    let written = if settings.json {
        serde_json::to_writer(&mut out, &outcome)
            .map_err(io::Error::from)
            .and_then(|()| writeln!(out))
    } else {
        show(&mut out, &outcome)
    };
    match written {
        // Whoever reads may have seen enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        // What there was before is told all the same.
        _ => broken.map_or(Ok(()), |error| Err(error.into())),
    }
}

fn outcome(replay: &Replay, file: &CaptureFile, took: Duration) -> Outcome {
    let (counters, stats) = (replay.counters(), replay.stats());
    let flow = |flow: &sidekick_protocol::SessionStatus| Flow {
        source: flow.flow.source.to_string(),
        destination: flow.flow.destination.to_string(),
        counted: flow.counted,
        quacks: flow.quacks,
        first: flow.ends.map(|(first, _)| first),
        last: flow.ends.map(|(_, last)| last),
    };
    Outcome {
        packets: file.packets(),
        datagrams: counters.datagrams,
        counted: stats.counted,
        ignored: stats.ignored,
        other_flows: replay.untold(),
        fragments: counters.fragments,
        malformed: counters.malformed,
        merged: counters.unsplit,
        quacks: stats.quacks_sent,
        bytes: stats.bytes_sent,
        span_s: replay.span().as_secs_f64(),
        packet_ns: took.as_secs_f64() * 1e9 / file.packets().max(1) as f64,
        truncated: file.truncated(),
        flows: replay.flows().iter().map(flow).collect(),
    }
}

fn show(out: &mut impl Write, outcome: &Outcome) -> io::Result<()> {
    let Outcome { packets, datagrams, counted, quacks, bytes, span_s, packet_ns, flows, .. } =
        outcome;
    writeln!(
        out,
        "{packets} packets in {span_s:.3} s, {datagrams} of them UDP, in {} flows",
        flows.len()
    )?;
    writeln!(
        out,
        "{counted} counted, {quacks} quACKs sent in {bytes} bytes; {packet_ns:.0} ns a packet here"
    )?;
    for (number, what) in [
        (outcome.ignored, "do not count: long headers, too short, or doubled"),
        (outcome.other_flows, "belong to flows beyond the limit of --flows"),
        (outcome.fragments, "are fragments, which are not counted"),
        (outcome.malformed, "are malformed, or cut within their headers"),
        (outcome.merged, "were merged by the machine that captured them, and counted as one each"),
    ] {
        if number > 0 {
            writeln!(out, "{number} {what}")?;
        }
    }
    if outcome.truncated {
        writeln!(out, "the file ends in the middle of a packet")?;
    }
    let shown: Vec<_> = flows.iter().take(SHOWN).collect();
    let width = |text: fn(&Flow) -> &String, title: &str| {
        shown.iter().map(|flow| text(flow).len()).max().unwrap_or(0).max(title.len())
    };
    let (source, destination) =
        (width(|flow| &flow.source, "source"), width(|flow| &flow.destination, "destination"));
    if !shown.is_empty() {
        writeln!(out)?;
        writeln!(
            out,
            "{:source$}  {:destination$}  {:>10}  {:>8}  first     last",
            "source", "destination", "counted", "quACKs"
        )?;
    }
    for flow in &shown {
        let identifier = |id: Option<u32>| id.map_or("-".to_owned(), |id| format!("{id:08x}"));
        writeln!(
            out,
            "{:source$}  {:destination$}  {:>10}  {:>8}  {:8}  {:8}",
            flow.source,
            flow.destination,
            flow.counted,
            flow.quacks,
            identifier(flow.first),
            identifier(flow.last)
        )?;
    }
    if flows.len() > shown.len() {
        writeln!(out, "and {} more: --json shows all", flows.len() - shown.len())?;
    }
    Ok(())
}

/// A line on standard error, for one who waits at a terminal.
struct Progress {
    shown: bool,
    next: Instant,
    wanted: bool,
}

impl Progress {
    fn new(begun: Instant) -> Self {
        Self {
            shown: false,
            next: begun + 2 * PROGRESS_INTERVAL,
            wanted: io::stderr().is_terminal(),
        }
    }

    fn tell(&mut self, packets: u64) {
        if self.wanted && packets.is_multiple_of(PROGRESS_PACKETS) {
            let now = clock();
            if now >= self.next {
                self.next = now + PROGRESS_INTERVAL;
                self.shown = true;
                eprint!("\r{packets} packets");
            }
        }
    }

    fn end(&self) {
        if self.shown {
            eprintln!();
        }
    }
}
