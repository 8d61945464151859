//! `sidekick-agent measure`: what a link does to the packets of the programs that use it.

use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Serialize;
use sidekick_protocol::PublicKey;

use super::config::{AgentConfig, TunName};
use super::daemon;
use super::filter::Selector;
use super::report::Totals;
use crate::capture::settings::interface_name;
use crate::cli::values::proxy;
use crate::config::LogLevel;
use crate::monitor::listener::MetricsAddress;
use crate::terminal::{print, start_log};
use crate::trace::{DirectionSummary, Summary};

/// The fewest packets of a direction that say something about a link.
const FEW: u64 = 100;

/// What to measure.
#[derive(Args, Clone, Debug)]
pub(super) struct MeasureOptions {
    /// Interface of the lossy link, by which packets leave
    #[arg(
        short,
        long = "interface",
        value_name = "IF",
        value_delimiter = ',',
        required = true,
        value_parser = interface_name
    )]
    interfaces: Vec<String>,

    /// How long, such as 90s or 5m. Ctrl-C ends it earlier
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = time)]
    time: Duration,

    /// Write a trace of the packets to this file, for `sidekick-lab predict`. It has their times,
    /// lengths and fates, but no address, and no byte of any
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Address and UDP port of the proxy [default: search the path of each flow for a proxy]
    #[arg(long, value_name = "ADDR:PORT", value_parser = proxy)]
    proxy: Option<SocketAddr>,

    /// Accept only the proxy with this public key [default: accept any proxy on the path]
    #[arg(long, value_name = "KEY")]
    proxy_key: Option<PublicKey>,

    /// Measure only by these flows: selectors, as those of the agent
    #[arg(long, value_name = "SELECTOR", value_delimiter = ',')]
    only: Vec<Selector>,

    /// Never by these
    #[arg(long, value_name = "SELECTOR", value_delimiter = ',')]
    except: Vec<Selector>,
}

/// A time such as 90s or 5m.
fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = text
        .strip_suffix('m')
        .map_or((text.strip_suffix('s').unwrap_or(text), 1), |minutes| (minutes, 60));
    let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    let seconds = seconds.filter(|seconds| (1..=86_400).contains(seconds));
    let time = seconds.map(Duration::from_secs);
    time.ok_or_else(|| "write seconds or minutes, from 1s to 1440m".to_owned())
}

/// What was measured, as JSON.
#[derive(Serialize)]
struct Measured<'a> {
    interfaces: &'a [String],
    flows: u64,
    flows_reported: u64,
    /// Packets that left and whose fate no report showed.
    unknown: u64,
    /// Packets that the kernel dropped before the agent saw them. They count as lost.
    capture_drops: u64,
    #[serde(flatten)]
    summary: &'a Summary,
}

impl MeasureOptions {
    /// Measures, and prints what it found.
    pub(super) fn run(self) -> Result<()> {
        let _ = start_log(LogLevel::Warn);
        let Self { interfaces, time, trace: file, json, proxy, proxy_key, only, except } = self;
        let out = file
            .map(|path| {
                // A failure after a minute would lose the recording.
                let file = File::options().append(true).create(true).open(&path);
                file.with_context(|| format!("cannot write {}", path.display())).map(|_| path)
            })
            .transpose()?;
        let config = AgentConfig {
            interfaces,
            tun: Some(TunName::Off),
            metrics: Some(MetricsAddress::Off),
            proxy,
            proxy_key,
            only,
            except,
            ..AgentConfig::default()
        };
        let (trace, unknown, totals) = daemon::measure(&config, time, show)?;
        show_end();
        if let Some(path) = out {
            let written = File::create(&path).map(BufWriter::new).and_then(|mut out| {
                trace.write(&mut out)?;
                out.flush()
            });
            written.with_context(|| format!("cannot write {}", path.display()))?;
        }
        let summary = trace.summary();
        if summary.up.packets + summary.down.packets == 0 {
            bail!("{}", nothing(&totals));
        }
        if json {
            let Totals { flows, flows_assisted: flows_reported, capture_drops, .. } = totals;
            let interfaces = &config.interfaces;
            let summary = &summary;
            let measured =
                Measured { interfaces, flows, flows_reported, unknown, capture_drops, summary };
            return print(&(serde_json::to_string(&measured)? + "\n"));
        }
        let seconds = summary.seconds;
        let names = config.interfaces.join(", ");
        print(&format!(
            "{names} for {seconds:.0} s, by {} flows:\n\n{summary}{}\n{}\n",
            totals.flows_assisted,
            doubts(unknown, totals.capture_drops),
            meaning(&summary)
        ))
    }
}

/// Why nothing was measured, and what to do.
fn nothing(totals: &Totals) -> String {
    match *totals {
        Totals { captured: 0, .. } => "no packet left by this interface: let a program send over \
                                       it, such as a download by HTTP/3 or a call"
            .to_owned(),
        Totals { flows: 0, captured, .. } => {
            format!("{captured} packets left, but none of a flow that can be measured: see --only")
        }
        Totals { flows, .. } => format!(
            "no proxy reported any of the {flows} flows: start sidekick-proxy at the other end of \
             the link, or name it by --proxy"
        ),
    }
}

/// What the figures do not count, or count wrongly.
fn doubts(unknown: u64, drops: u64) -> String {
    let mut text = String::new();
    if unknown > 0 {
        text += &format!(
            "\nOf {unknown} more that left no report showed whether they arrived, as where many \
             are lost at\nonce.\n"
        );
    }
    if drops > 0 {
        text += &format!(
            "\nThe kernel dropped {drops} before the agent saw them. They count as lost.\n"
        );
    }
    text
}

/// What the figures mean for a person who is no expert.
fn meaning(summary: &Summary) -> String {
    let lossy = |it: &DirectionSummary| it.packets >= FEW && it.loss_percent >= 0.05;
    // Most of the time without packets.
    let is_out = |it: &DirectionSummary| {
        let runs: u64 = it.runs.iter().map(|run| run.count).sum();
        it.outage_ms > 0.5 * it.run_ms * runs as f64
    };
    let [up, down] = [("What leaves", &summary.up), ("What arrives", &summary.down)].map(
        |(what, it)| match it {
            _ if it.packets < FEW => format!("{what}: too few packets to say more."),
            it if is_out(it) => format!(
                "{what} stops now and then, for up to {:.0} ms. Help cannot bridge that.",
                it.longest_outage_ms
            ),
            it if !lossy(it) => format!("{what} hardly gets lost."),
            it if it.run_packets < 1.5 => format!(
                "{what} loses one packet in {:.0}, mostly alone. Help repairs that best.",
                100.0 / it.loss_percent
            ),
            it => format!(
                "{what} loses {:.0} packets at a time, for {:.0} ms. Help repairs most of these.",
                it.run_packets, it.run_ms
            ),
        },
    );
    let end = if summary.up.packets.max(summary.down.packets) < FEW {
        "Measure for longer, while a transfer runs."
    } else if lossy(&summary.up) || lossy(&summary.down) {
        "To see what help would change, record a --trace and run: sidekick-lab predict FILE"
    } else {
        "There is little to repair between here and the proxy."
    };
    format!("{up}\n{down}\n{end}")
}

/// Shows the progress to a person who waits.
fn show(since: Duration, totals: Totals) {
    let mut out = std::io::stderr();
    if out.is_terminal() {
        let (seconds, packets) = (since.as_secs(), totals.sent + totals.arrived);
        let flows = totals.flows_assisted;
        // Nobody else reads it.
        let _ = write!(out, "\r{seconds} s: {packets} packets; a proxy reports {flows} flows ");
    }
}

fn show_end() {
    let mut out = std::io::stderr();
    if out.is_terminal() {
        let _ = writeln!(out);
    }
}
