//! `sidekick-proxy replay`: its options, and the counts that the proxy would have of a capture
//! file.

use std::io::{self, IsTerminal, Write};
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{Args, value_parser};
use serde::Serialize;
use sidekick_protocol::Terms;

use super::counter::{Found, Replay};
use super::file::CaptureFile;
use crate::monitor::text::table;
use crate::runtime::clock;

/// Flows that the text shows.
const SHOWN: usize = 20;
/// How often to print progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Packets between two readings of the clock.
const PROGRESS_PACKETS: u64 = 1 << 16;

const EXAMPLES: &str = "\
Examples:
  What the proxy would have counted, and how many quACKs it would have sent:
      sidekick-proxy replay trace.pcapng
  The same for quACKs of 10 sums after every 2 packets, for a program to read:
      sidekick-proxy replay --every-packets 2 --threshold 10 --json trace.pcap
  During the capture:
      tcpdump -i eth1 -s 128 -w - udp | sidekick-proxy replay -

The program counts each UDP flow as if its sender had requested it: QUIC packets with a short
header, by the four bytes at offset 21. A truncated capture is enough if it has 128 bytes of each
packet.";

/// Which file to replay, and how.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReplayOptions {
    /// A capture file, pcap or pcapng; `-` for standard input
    file: PathBuf,

    /// Send a quACK after every N packets of a flow [default: one every 30 ms]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..))]
    every_packets: Option<u16>,

    /// Send a quACK every N milliseconds, if packets have arrived since the last [default: 30,
    /// without --every-packets]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=60_000))]
    every_ms: Option<u32>,

    /// Sums in each quACK
    #[arg(
        long,
        value_name = "T",
        default_value_t = 20,
        value_parser = value_parser!(u8).range(1..)
    )]
    threshold: u8,

    /// Most flows to count. Packets of other flows appear only in the total
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10_000,
        value_parser = value_parser!(u32).range(1..=1_000_000)
    )]
    flows: u32,

    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

impl ReplayOptions {
    /// The terms that the sender of each flow would have requested.
    fn terms(&self) -> Terms {
        let every_packets = self.every_packets.and_then(NonZeroU16::new);
        let every = self.every_ms.map(|ms| Duration::from_millis(ms.into()));
        let every = if every_packets.is_some() { every } else { every.or(Terms::default().every) };
        Terms { threshold: self.threshold, every_packets, every, ..Terms::default() }
    }
}

/// The result of a replay.
#[derive(Clone, Debug, Serialize)]
struct Outcome {
    /// All packets in the file.
    packets: u64,
    #[serde(flatten)]
    found: Found,
    /// Counted datagrams.
    counted: u64,
    /// Datagrams that do not count, such as QUIC handshake packets.
    ignored: u64,
    quacks: u64,
    /// Bytes of quACKs.
    bytes: u64,
    /// Seconds from the first packet to the last.
    span_s: f64,
    /// Nanoseconds that this program spent on a packet, from the file to the sums.
    packet_ns: f64,
    /// Whether the file ends within a packet.
    truncated: bool,
    flows: Vec<Flow>,
}

#[derive(Clone, Debug, Serialize)]
struct Flow {
    source: String,
    destination: String,
    counted: u32,
    quacks: u64,
    /// The identifier of the first counted packet.
    first: Option<u32>,
    /// The identifier of the last counted packet.
    last: Option<u32>,
}

/// Replays a file, and prints the result.
///
/// # Errors
/// One sentence for the operator: why the file cannot be read.
pub(crate) fn run(options: &ReplayOptions) -> Result<()> {
    let begun = clock();
    let flows = usize::try_from(options.flows).unwrap_or(usize::MAX);
    let mut replay = Replay::new(flows, options.terms(), begun)?;
    let mut file = CaptureFile::open(&options.file)?;
    let mut progress = Progress::new(begun);
    let broken = loop {
        match file.next() {
            Ok(Some(frame)) => replay.observe(frame.datagram(), frame.time),
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
        progress.show(file.packets());
    };
    progress.end();
    let took = clock().saturating_duration_since(begun);
    let outcome = outcome(&replay, &file, took);
    let mut out = io::stdout().lock();
    let written = if options.json {
        serde_json::to_writer(&mut out, &outcome)
            .map_err(io::Error::from)
            .and_then(|()| writeln!(out))
    } else {
        show(&mut out, &outcome)
    };
    match written {
        // The reader of the pipe closed it.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        // The result covers the packets before the error.
        _ => broken.map_or(Ok(()), Err),
    }
}

fn outcome(replay: &Replay, file: &CaptureFile, took: Duration) -> Outcome {
    let stats = replay.stats();
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
        found: replay.found.clone(),
        counted: stats.counted,
        ignored: stats.ignored,
        quacks: stats.quacks_sent,
        bytes: stats.bytes_sent,
        span_s: replay.span().as_secs_f64(),
        packet_ns: took.as_secs_f64() * 1e9 / file.packets().max(1) as f64,
        truncated: file.truncated(),
        flows: replay.flows().iter().map(flow).collect(),
    }
}

fn show(out: &mut impl Write, outcome: &Outcome) -> io::Result<()> {
    let Outcome { packets, found, counted, quacks, bytes, span_s, packet_ns, flows, .. } = outcome;
    writeln!(
        out,
        "{packets} packets in {span_s:.3} s, {} of them UDP, in {} flows",
        found.datagrams,
        flows.len()
    )?;
    writeln!(
        out,
        "{counted} counted, {quacks} quACKs in {bytes} bytes; {packet_ns:.0} ns per packet here"
    )?;
    for (number, what) in [
        (outcome.ignored, "do not count: a long header, too short, or a duplicate"),
        (found.other_flows, "belong to flows beyond the limit of --flows"),
        (found.fragments, "are fragments, which do not count"),
        (found.malformed, "are malformed"),
        (
            found.cut,
            "are cut before the bytes that count: capture 128 bytes of each (tcpdump -s 128)",
        ),
        (found.merged, "were merged by the capturing machine, and count as one each"),
    ] {
        if number > 0 {
            writeln!(out, "{number} {what}")?;
        }
    }
    for (name, number) in &found.encapsulated {
        writeln!(out, "{number} are inside {name}, which is not read, and do not count")?;
    }
    if outcome.truncated {
        writeln!(out, "the file ends within a packet")?;
    }
    let shown = flows.len().min(SHOWN);
    if shown > 0 {
        let headings = ["source", "destination", "counted", "quACKs", "first", "last"];
        write!(out, "\n{}", table(&headings, "llrrll", flows.iter().take(SHOWN).map(row)))?;
    }
    if flows.len() > shown {
        writeln!(out, "and {} more: --json shows all", flows.len() - shown)?;
    }
    Ok(())
}

fn row(flow: &Flow) -> Vec<String> {
    let identifier = |id: Option<u32>| id.map_or("-".to_owned(), |id| format!("{id:08x}"));
    vec![
        flow.source.clone(),
        flow.destination.clone(),
        flow.counted.to_string(),
        flow.quacks.to_string(),
        identifier(flow.first),
        identifier(flow.last),
    ]
}

/// A line on standard error, if that is a terminal.
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

    fn show(&mut self, packets: u64) {
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
