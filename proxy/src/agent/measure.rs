//! `sidekick-agent measure`: what a link does to the packets of the programs that use it.

use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
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

    /// Print JSON, in the line after `ready`
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
    /// Packets that left and whose fate no report showed.
    unknown: u64,
    /// `capture_drops` among them count as lost.
    #[serde(flatten)]
    totals: Totals,
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
                let file = File::options().append(true).create(true).mode(0o600).open(&path);
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
        let summary = trace.summary();
        if summary.up.packets + summary.down.packets == 0 {
            bail!("{}", nothing(&totals, &config.interfaces));
        }
        if let Some(path) = &out {
            let written = File::create(path).map(BufWriter::new).and_then(|mut out| {
                trace.write(&mut out)?;
                out.flush()
            });
            written.with_context(|| format!("cannot write {}", path.display()))?;
        }
        if json {
            let (interfaces, summary) = (&config.interfaces, &summary);
            let measured = Measured { interfaces, unknown, totals, summary };
            return print(&(serde_json::to_string(&measured)? + "\n"));
        }
        let seconds = summary.seconds;
        let names = config.interfaces.join(", ");
        print(&format!(
            "{names} for {seconds:.0} s, flows: {}\n\n{summary}{}\n{}\n",
            totals.flows_assisted,
            doubts(unknown, totals.capture_drops),
            meaning(&summary, out.as_deref())
        ))
    }
}

/// Why nothing was measured, and what to do.
fn nothing(totals: &Totals, interfaces: &[String]) -> String {
    let names = interfaces.join(", ");
    match *totals {
        Totals { captured: 0, .. } => format!(
            "no UDP packet left by {names}, and TCP does not count: let a call or a video run over \
             it"
        ),
        Totals { flows: 0, captured, .. } => format!(
            "{captured} packets left, but too few of one flow, or unencrypted ones: let a call or \
             a video run, or name its port by --only"
        ),
        Totals { flows, .. } => format!(
            "no proxy reported any of the flows ({flows}): start sidekick-proxy at the other end \
             of the link, let UDP port 5252 pass there, or name it by --proxy"
        ),
    }
}

/// What the figures do not count, or count wrongly.
fn doubts(unknown: u64, drops: u64) -> String {
    let mut text = String::new();
    if unknown > 0 {
        text += &format!(
            "\nFor {unknown} more packets sent, it is unknown whether they arrived. They are not \
             counted.\n"
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
fn meaning(summary: &Summary, trace: Option<&Path>) -> String {
    let is_lossy = |it: &DirectionSummary| it.packets >= FEW && it.loss_percent >= 0.05;
    let said = |what: &str, it: &DirectionSummary| {
        let DirectionSummary { run_packets, run_ms, loss_percent, .. } = *it;
        let runs: u64 = it.runs.iter().map(|run| run.count).sum();
        // Most of the time without packets.
        let is_out = it.outage_ms > 0.5 * run_ms * runs as f64;
        let mut said = match () {
            () if it.packets < FEW => format!("{what}: too few packets to say more."),
            () if !is_lossy(it) => format!("{what} hardly gets lost."),
            () if is_out => format!("{what} stops now and then, which no help can bridge."),
            () if run_packets < 1.5 => format!(
                "{what} gets lost once in {:.0} packets, mostly alone. The agent repairs that best.",
                100.0 / loss_percent
            ),
            () => format!(
                "{what} gets lost {run_packets:.0} packets at a time, for {run_ms:.0} ms. The agent \
                 repairs most of these."
            ),
        };
        if it.outages > 0 {
            said += &format!(" The longest stop took {:.0} ms.", it.longest_outage_ms);
        }
        if it.late_percent >= 0.05 {
            said += &format!(" {:.1} % of it overtakes.", it.late_percent);
        }
        said
    };
    let Summary { up, down, .. } = summary;
    let end = if up.packets.max(down.packets) < FEW {
        "Measure for longer, while a call or a video runs.".to_owned()
    } else if !is_lossy(up) && !is_lossy(down) {
        "There is little to repair between here and the proxy.".to_owned()
    } else if let Some(path) = trace {
        format!("What help would change: sidekick-lab predict {}", path.display())
    } else {
        "To see what help would change, repeat with --trace FILE: sidekick-lab predict FILE"
            .to_owned()
    };
    format!("{}\n{}\n{end}", said("What you send", up), said("What you receive", down))
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
