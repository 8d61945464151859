//! The output: progress on standard error, the summary or the JSON object at the end.

use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use quic_sidekick::{Assistance, Reason, Status};
use serde::Serialize;

use crate::cli::Plan;
use crate::discover::Found;
use crate::text::misleads;
use crate::upload::Outcome;

/// Prints an error as one sentence on standard error.
pub(crate) fn complain(error: &anyhow::Error) {
    eprintln!("h3-upload: {}", harmless(&format!("{error:#}")));
}

/// `text` without the characters that control a terminal, because the server may have sent parts of
/// it.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().filter(|&c| !misleads(c)).collect()
}

/// Shows the progress of the upload.
pub(crate) struct Progress(Kind);

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

const LINE_EVERY: u64 = 100 * 1024 * 1024;

impl Progress {
    /// `total` is the file's length in bytes, if known.
    pub(crate) fn new(plan: &Plan, total: Option<u64>) -> Self {
        if plan.quiet {
            return Self(Kind::Silent);
        }
        if !std::io::stderr().is_terminal() {
            return Self(Kind::Lines { total, printed: AtomicU64::new(0) });
        }
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
        Self(Kind::Bar(bar))
    }

    pub(crate) fn is_silent(&self) -> bool {
        matches!(self.0, Kind::Silent)
    }

    /// `early` is the number of losses found early; `None` without the plugin.
    pub(crate) fn show(&self, bytes: u64, early: Option<u64>) {
        match &self.0 {
            Kind::Silent => {}
            Kind::Bar(bar) => {
                if let Some(early) = early {
                    bar.set_message(losses(early));
                }
                bar.set_position(bytes);
            }
            Kind::Lines { total, printed } => {
                let step = step(bytes, *total);
                if step > printed.swap(step, Ordering::Relaxed) {
                    let early = early.map(|n| format!(", {}", losses(n))).unwrap_or_default();
                    match total {
                        Some(_) => {
                            eprintln!("h3-upload: {}0 % ({}){early}", step, HumanBytes(bytes));
                        }
                        None => eprintln!("h3-upload: {}{early}", HumanBytes(bytes)),
                    }
                }
            }
        }
    }

    /// Removes the bar, before the summary.
    pub(crate) fn finish(&self, bytes: u64) {
        if let Kind::Bar(bar) = &self.0 {
            bar.set_position(bytes);
            bar.finish_and_clear();
        }
    }
}

/// Tenths of a known length, or steps of an unknown one. The summary reports the last tenth.
fn step(bytes: u64, total: Option<u64>) -> u64 {
    match total {
        Some(0) => 0,
        Some(total) => (u128::from(bytes) * 10 / u128::from(total)).min(9) as u64,
        None => bytes / LINE_EVERY,
    }
}

fn losses(early: u64) -> String {
    match early {
        1 => "1 loss found early".to_owned(),
        n => format!("{n} losses found early"),
    }
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    file: String,
    url: String,
    bytes: u64,
    time_s: f64,
    goodput_mbit_s: f64,
    sha256: &'a str,
    server_sha256: &'a str,
    cc: &'a str,
    mode: String,
    /// The latest choice of mode auto, and why.
    chosen: Option<String>,
    assisted: bool,
    assistance: String,
    /// The latest proxy.
    proxy: Option<Proxy>,
    packets: Packets,
    quacks: Quacks,
    /// Errors that the network reported at the plugin's socket. tokio-quiche does not report those
    /// at the connection's own.
    socket_errors: u64,
    near_rtt_ms: Option<f64>,
    rtt_ms: f64,
    server: SocketAddr,
    /// How the server was found: `https-record` or `address`.
    found: &'static str,
}

#[derive(Debug, Serialize)]
struct Packets {
    sent: usize,
    received: usize,
    retransmitted: usize,
    lost_end_to_end: usize,
    lost_early: u64,
    spurious: u64,
}

#[derive(Debug, Serialize)]
struct Quacks {
    received: u64,
    bytes: u64,
    undecodable: u64,
    epochs: u64,
    polls: u64,
    malformed: u64,
}

/// A proxy.
#[derive(Debug, Serialize)]
struct Proxy {
    address: SocketAddr,
    key: String,
    /// Why the sender selected it among several.
    choice: Option<String>,
}

impl Proxy {
    fn of(status: Status) -> Option<Self> {
        let (address, key) = status.proxy?;
        let choice = status.choice.map(|choice| choice.to_string());
        Some(Self { address, key: key.to_string(), choice })
    }
}

impl<'a> Report<'a> {
    fn new(plan: &Plan, outcome: &'a Outcome) -> Self {
        let status = outcome.sidekick;
        let stats = status.map(|status| status.stats).unwrap_or_default();
        let quic = &outcome.packets.stats;
        let rtt = outcome.packets.path_stats.as_ref().map(|path| path.rtt);
        Self {
            file: plan.file.display().to_string(),
            url: plan.target.url(),
            bytes: outcome.sent.bytes,
            time_s: outcome.time.as_secs_f64(),
            goodput_mbit_s: outcome.goodput(),
            sha256: &outcome.sent.sha256,
            server_sha256: &outcome.receipt.sha256,
            cc: plan.cc.name(),
            mode: plan.mode(),
            chosen: status.and_then(|status| status.chosen).map(|chosen| chosen.to_string()),
            assisted: status.is_some_and(|status| status.assistance == Assistance::Assisted),
            assistance: status.map_or_else(|| "off".to_owned(), |status| help(plan, &status)),
            proxy: status.and_then(Proxy::of),
            packets: Packets {
                sent: quic.sent,
                received: quic.recv,
                retransmitted: quic.retrans,
                lost_end_to_end: quic.lost,
                lost_early: stats.early_lost,
                spurious: stats.spurious,
            },
            quacks: Quacks {
                received: stats.quacks_received,
                bytes: stats.quack_bytes,
                undecodable: stats.undecodable,
                epochs: stats.epochs,
                polls: stats.polls,
                malformed: stats.malformed,
            },
            socket_errors: outcome.socket_errors,
            near_rtt_ms: status.and_then(|status| status.near_rtt).map(milliseconds),
            rtt_ms: rtt.map(milliseconds).unwrap_or_default(),
            server: outcome.server,
            found: outcome.found.name(),
        }
    }
}

/// Whether a proxy helps, as a sentence. Beside the status it uses what the user asked for: the
/// proxy's name, and its key.
fn help(plan: &Plan, status: &Status) -> String {
    let asked = plan.assistance.as_ref();
    let proxy = asked.and_then(|asked| asked.proxy.as_ref()).map(ToString::to_string);
    let proxy = proxy.unwrap_or_else(|| "a proxy on the path".to_owned());
    let is_pinned = asked.is_some_and(|asked| asked.config.key.is_some());
    let other_key = if is_pinned { ", or its key is not that of --proxy-key" } else { "" };
    match status.assistance {
        // The proxy accepted, but reported nothing before the end.
        Assistance::Seeking if status.stats.epochs > 0 => status.assistance.to_string(),
        Assistance::Seeking => format!("no answer yet from {proxy}{other_key}"),
        Assistance::Unassisted(Reason::NoAnswer) => {
            format!("unassisted: no answer from {proxy}{other_key}")
        }
        _ => status.assistance.to_string(),
    }
}

/// A time in a unit that leaves digits before the point: the round trip of a local network has less
/// than a millisecond.
fn readable(ms: f64) -> String {
    if ms < 1.0 { format!("{:.0} us", ms * 1e3) } else { format!("{ms:.1} ms") }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Shows a finished upload, as the plan demands.
pub(crate) fn show(plan: &Plan, outcome: &Outcome) -> anyhow::Result<()> {
    let report = Report::new(plan, outcome);
    if plan.json {
        let mut line = serde_json::to_vec(&report).context("cannot write the report")?;
        line.push(b'\n');
        std::io::stdout().write_all(&line).context("cannot write the report to standard output")?;
    } else if !plan.quiet {
        eprint!("{}", summary(&report));
    }
    Ok(())
}

fn summary(report: &Report<'_>) -> String {
    let Packets { sent, retransmitted, lost_end_to_end, lost_early, spurious, .. } = report.packets;
    let mut text = format!(
        "{} -> {}\n  {} in {:.2} s, {:.2} Mbit/s, congestion control {}\n  {sent} packets sent, \
         {retransmitted} with data sent again; {lost_end_to_end} losses found end to end\n",
        report.file,
        report.url,
        HumanBytes(report.bytes),
        report.time_s,
        report.goodput_mbit_s,
        report.cc,
    );
    if report.found == Found::HttpsRecord.name() {
        text += &format!("  server {}, found through its HTTPS record\n", report.server);
    }
    if report.mode != "off" {
        let proxy = report.proxy.as_ref().map(|proxy| {
            let choice = proxy.choice.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
            format!("  proxy {}, public key {}{choice}\n", proxy.address, proxy.key)
        });
        text += &proxy.unwrap_or_default();
        text += &format!("  sidekick {}: {}", report.mode, report.assistance);
        // Without a proxy's quACKs the plugin did nothing to report.
        if report.quacks.received > 0 {
            if let Some(chosen) = &report.chosen {
                text += &format!("; {chosen}");
            }
            text += &format!(
                "\n  {}, {spurious} of them wrongly; {} quACKs ({}), {} undecodable",
                losses(lost_early),
                report.quacks.received,
                HumanBytes(report.quacks.bytes),
                report.quacks.undecodable,
            );
        }
        text += &format!("\n  round trip {}", readable(report.rtt_ms));
        // Not a share: both are measured, at different times, and the near one can be the longer.
        if let Some(near) = report.near_rtt_ms {
            text += &format!("; to the proxy and back {}", readable(near));
        }
        text.push('\n');
    }
    text + &format!("  sha256 {}\n", report.sha256)
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

    #[test]
    fn a_server_cannot_control_the_terminal() {
        assert_eq!(
            harmless("no\x1b[2J\u{9b}2J such\u{202e} na\u{200b}me\r\n: grüße"),
            "no[2J2J such name: grüße"
        );
    }

    #[test]
    fn one_loss_is_not_losses() {
        assert_eq!(losses(0), "0 losses found early");
        assert_eq!(losses(1), "1 loss found early");
    }

    #[test]
    fn without_a_proxy_the_summary_omits_repairs() {
        let report = |received| Report {
            file: "file".to_owned(),
            url: "https://upload.example/file".to_owned(),
            bytes: 1,
            time_s: 1.0,
            goodput_mbit_s: 1.0,
            sha256: "",
            server_sha256: "",
            cc: "bbr2",
            mode: "auto".to_owned(),
            chosen: Some("reinject: packets are lost before the proxy".to_owned()),
            assisted: received > 0,
            assistance: "the sentence".to_owned(),
            proxy: None,
            packets: Packets {
                sent: 9,
                received: 9,
                retransmitted: 0,
                lost_end_to_end: 0,
                lost_early: 0,
                spurious: 0,
            },
            quacks: Quacks {
                received,
                bytes: 0,
                undecodable: 0,
                epochs: 0,
                polls: 0,
                malformed: 0,
            },
            socket_errors: 0,
            near_rtt_ms: None,
            rtt_ms: 50.0,
            server: ([192, 0, 2, 1], 443).into(),
            found: "address",
        };
        let alone = summary(&report(0));
        assert!(alone.contains("  sidekick auto: the sentence\n  round trip 50.0 ms\n"), "{alone}");
        let helped = summary(&report(3));
        assert!(helped.contains("the sentence; reinject: packets") && helped.contains("3 quACKs"));
        let local = summary(&Report { rtt_ms: 0.1234, near_rtt_ms: Some(0.2), ..report(3) });
        assert!(local.contains("  round trip 123 us; to the proxy and back 200 us\n"), "{local}");
    }
}
