//! The common part of both programs' reports: the connection, and a proxy's help.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use indicatif::HumanBytes;
use quic_sidekick::tune::Tuned;
use quic_sidekick::{Assistance, NearLoss, Reason, ReceiveState, Status};
use serde::Serialize;

use crate::discover::Found;
use crate::event_loop::Counters;
use crate::options::Plan;
use crate::words::{gaps, losses, say};

/// The measurements of a transfer's connection and of the plugin.
#[derive(Debug)]
pub struct Measured {
    /// From the first packet of the connection to the end of the transfer.
    pub(crate) time: Duration,
    pub(crate) counters: Counters,
    pub(crate) server: SocketAddr,
    pub(crate) found: Found,
    /// `None` with `--tune off`.
    pub(crate) tuned: Option<Tuned>,
}

/// The speed of a transfer.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Speed {
    /// Bytes of the file.
    pub bytes: u64,
    /// From the first packet of the connection to the end of the transfer, in seconds.
    pub time_s: f64,
    /// Application bits per microsecond, that is Mbit/s.
    pub goodput_mbit_s: f64,
}

impl Speed {
    /// The speed of a transfer of `bytes`.
    #[must_use]
    pub fn of(bytes: u64, measured: &Measured) -> Self {
        let time_s = measured.time.as_secs_f64();
        let goodput = bytes as f64 * 8.0 / time_s / 1e6;
        Self { bytes, time_s, goodput_mbit_s: if time_s > 0.0 { goodput } else { 0.0 } }
    }
}

/// The fields of the JSON objects of both programs.
#[derive(Debug, Serialize)]
pub struct Common {
    cc: &'static str,
    mode: String,
    /// The latest choice of mode auto, and why.
    chosen: Option<String>,
    assisted: bool,
    assistance: String,
    /// The latest proxy.
    proxy: Option<Proxy>,
    packets: Packets,
    quacks: Quacks,
    /// Whether the proxy repairs what this program receives, and if not, why.
    receiving: String,
    #[serde(flatten)]
    repeats: Repeats,
    /// Errors that the network reported at the plugin's socket.
    socket_errors: u64,
    near_rtt_ms: Option<f64>,
    /// How packets are lost before the proxy.
    near_loss: NearLosses,
    rtt_ms: f64,
    server: SocketAddr,
    /// How the server was found: `https-record` or `address`.
    found: &'static str,
    /// The chosen settings, a sentence each; `null` with `--tune off`.
    tune: Option<Vec<String>>,
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

/// The help for what the program receives.
#[derive(Debug, Serialize)]
struct Repeats {
    /// Ranges of datagrams that were requested of the proxy, with repetitions.
    repeats_requested: u64,
    /// Copies that arrived.
    repeats_received: u64,
    /// Gaps in the packet numbers that were filled after a request.
    repaired_near: u64,
    /// Gaps that were left to the server, because their losses are congestion.
    left_to_server: u64,
    /// How long acknowledgements waited.
    held_ms: Held,
    /// Datagrams with parity that arrived.
    parity_received: u64,
    /// Datagrams that parity rebuilt.
    parity_rebuilt: u64,
    /// Bytes of copies and parity, in percent of the bytes that the connection received.
    near_overhead_percent: f64,
}

#[derive(Debug, Serialize)]
struct Held {
    p50: f64,
    p99: f64,
    max: f64,
}

/// How the near segment loses packets, by direction.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct NearLosses {
    sent: Losses,
    received: Losses,
}

/// The share of packets that is lost at the present load, and that of the losses that is
/// congestion.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Losses {
    lost_percent: f64,
    congestion_percent: f64,
}

impl Losses {
    fn of(loss: NearLoss) -> Self {
        let percent = |share: f32| (1e3 * f64::from(share)).round() / 10.0;
        Self { lost_percent: percent(loss.rate), congestion_percent: percent(loss.congestion) }
    }
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

/// Whether the mode asks for help with what the program receives.
fn receives(status: &Status) -> bool {
    status.received.state != ReceiveState::Off
}

impl Common {
    /// The report of a transfer.
    #[must_use]
    pub fn new(plan: &Plan, measured: &Measured) -> Self {
        let status = measured.counters.sidekick;
        let stats = status.map(|status| status.stats).unwrap_or_default();
        let quic = &measured.counters;
        let [p50, p99, max] =
            status.map(|status| status.received.held).unwrap_or_default().map(milliseconds);
        Self {
            cc: plan.cc.name(),
            mode: plan.mode(),
            chosen: status.and_then(|status| status.chosen).map(|chosen| chosen.to_string()),
            assisted: status.is_some_and(|status| status.assistance == Assistance::Assisted),
            assistance: status.map_or_else(|| "off".to_owned(), |status| help(plan, &status)),
            proxy: status.and_then(Proxy::of),
            packets: Packets {
                sent: quic.sent,
                received: quic.received,
                retransmitted: quic.retransmitted,
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
            receiving: status
                .filter(receives)
                .map_or_else(|| "off".to_owned(), |status| status.received.state.to_string()),
            repeats: Repeats {
                repeats_requested: stats.repeats_requested,
                repeats_received: stats.repeats_received,
                repaired_near: status.map_or(0, |status| status.received.filled),
                left_to_server: status.map_or(0, |status| status.received.congestion),
                held_ms: Held { p50, p99, max },
                parity_received: stats.parity_received,
                parity_rebuilt: status.map_or(0, |status| status.received.rebuilt),
                near_overhead_percent: percent(stats.added_bytes, quic.received_bytes),
            },
            socket_errors: quic.socket_errors,
            near_rtt_ms: status.and_then(|status| status.near_rtt).map(milliseconds),
            near_loss: NearLosses {
                sent: Losses::of(status.map(|status| status.near_loss).unwrap_or_default()),
                received: status
                    .map(|status| Losses::of(status.received.near_loss))
                    .unwrap_or_default(),
            },
            rtt_ms: milliseconds(quic.rtt),
            server: measured.server,
            found: measured.found.name(),
            tune: measured
                .tuned
                .map(|tuned| tuned.choices().map(|choice| choice.to_string()).collect()),
        }
    }

    /// The congestion controller's name.
    #[must_use]
    pub fn cc(&self) -> &str {
        self.cc
    }

    /// The line about the program's own packets.
    #[must_use]
    pub fn packets(&self) -> String {
        let Packets { sent, retransmitted, lost_end_to_end, .. } = self.packets;
        format!(
            "  {sent} packets sent, {retransmitted} with data sent again; {lost_end_to_end} losses \
             found end to end\n"
        )
    }

    /// The number of packets that the connection received.
    #[must_use]
    pub fn packets_received(&self) -> usize {
        self.packets.received
    }

    /// The lines about the server's and the proxy's addresses, and the help.
    #[must_use]
    pub fn help(&self) -> String {
        let mut text = String::new();
        if self.found == Found::HttpsRecord.name() {
            text += &format!("  server {}, found through its HTTPS record\n", self.server);
        }
        if self.mode == "off" {
            return text;
        }
        if let Some(proxy) = &self.proxy {
            let choice = proxy.choice.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
            text += &format!("  proxy {}, public key {}{choice}\n", proxy.address, proxy.key);
        }
        text += &format!("  sidekick {}: {}", self.mode, self.assistance);
        // Without a proxy's quACKs the plugin did nothing to report.
        if self.quacks.received > 0 {
            if let Some(chosen) = &self.chosen {
                text += &format!("; {chosen}");
            }
            let _ = write!(
                text,
                "\n  {}, {} of them wrongly; {} quACKs ({}), {} undecodable",
                losses(self.packets.lost_early),
                self.packets.spurious,
                self.quacks.received,
                HumanBytes(self.quacks.bytes),
                self.quacks.undecodable,
            );
            text += &self.repairs();
        }
        text += &format!("\n  round trip {}", readable(self.rtt_ms));
        // Not a share: both are measured, at different times, and the near one can be the longer.
        if let Some(near) = self.near_rtt_ms {
            text += &format!("; to the proxy and back {}", readable(near));
        }
        text.push('\n');
        text
    }

    /// The line about what the program received; empty if the mode does not help it.
    fn repairs(&self) -> String {
        if self.receiving == "off" {
            return String::new();
        }
        let Repeats { repeats_received, repaired_near, parity_rebuilt, held_ms, .. } =
            &self.repeats;
        let mut text = format!("\n  received: {}", gaps(*repaired_near));
        if repeats_received + parity_rebuilt > 0 {
            let Held { p50, p99, max } = held_ms;
            let _ = write!(
                text,
                " by {repeats_received} copies and {parity_rebuilt} rebuilt datagrams, for \
                 {:.1} % more bytes; acknowledgements waited {p50:.1} ms (median), {p99:.1} ms \
                 (99 %), {max:.1} ms at most",
                self.repeats.near_overhead_percent,
            );
        }
        if self.repeats.left_to_server > 0 {
            let left = self.repeats.left_to_server;
            let _ = write!(text, "; {left} were congestion, and left to the server");
        }
        text + "; at the end, " + &self.receiving
    }
}

/// Whether a proxy helps, as a sentence. Beside the status it uses the user's options: the proxy's
/// name, and its key.
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

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The remark beside the progress: losses and gaps that the proxy's help repaired.
#[must_use]
pub fn remark(status: Option<Status>) -> String {
    match status {
        None => String::new(),
        Some(status) if receives(&status) => gaps(status.received.filled),
        Some(status) => losses(status.stats.early_lost),
    }
}

/// Shows a finished transfer, as the plan demands: `report` as JSON, or the `summary`.
///
/// # Errors
/// Standard output cannot be written.
pub fn show(plan: &Plan, report: &impl Serialize, summary: &str) -> anyhow::Result<()> {
    if plan.json {
        let mut line = serde_json::to_vec(report).context("cannot write the report")?;
        line.push(b'\n');
        std::io::stdout().write_all(&line).context("cannot write the report to standard output")?;
    } else if !plan.quiet {
        say(summary.trim_end());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn common(quacks: u64, receiving: &str, repeats: u64) -> Common {
        Common {
            cc: "bbr2",
            mode: "auto".to_owned(),
            chosen: Some("reinject: packets are lost before the proxy".to_owned()),
            assisted: quacks > 0,
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
                received: quacks,
                bytes: 0,
                undecodable: 0,
                epochs: 0,
                polls: 0,
                malformed: 0,
            },
            receiving: receiving.to_owned(),
            repeats: Repeats {
                repeats_requested: repeats,
                repeats_received: repeats,
                repaired_near: repeats,
                left_to_server: 0,
                held_ms: Held { p50: 3.0, p99: 5.0, max: 7.0 },
                parity_received: 0,
                parity_rebuilt: 0,
                near_overhead_percent: 0.25,
            },
            socket_errors: 0,
            near_rtt_ms: None,
            near_loss: NearLosses::default(),
            rtt_ms: 50.0,
            server: ([192, 0, 2, 1], 443).into(),
            found: "address",
            tune: None,
        }
    }

    #[test]
    fn without_a_proxy_the_summary_omits_repairs() {
        let alone = common(0, "no proxy keeps copies", 0).help();
        assert_eq!(alone, "  sidekick auto: the sentence\n  round trip 50.0 ms\n");
        let helped = common(3, "off", 0).help();
        assert!(helped.contains("the sentence; reinject: packets") && helped.contains("3 quACKs"));
        assert!(!helped.contains("received:"), "{helped}");
        let local = Common { rtt_ms: 0.1234, near_rtt_ms: Some(0.2), ..common(3, "off", 0) }.help();
        assert!(local.contains("  round trip 123 us; to the proxy and back 200 us\n"), "{local}");
    }

    #[test]
    fn help_for_what_is_received_has_its_line() {
        let text = common(3, "the proxy is too far away", 2).help();
        let line = "\n  received: 2 gaps repaired near by 2 copies and 0 rebuilt datagrams, for 0.2 % \
                    more bytes; acknowledgements waited 3.0 ms (median), 5.0 ms (99 %), 7.0 ms at \
                    most; at the end, the proxy is too far away\n";
        assert!(text.contains(line), "{text}");
        let text = common(3, "no proxy keeps copies", 0).help();
        assert!(text.contains("received: 0 gaps repaired near; at the end, no proxy keeps copies"));
    }
}
