//! The common part of both programs' reports: the connection, and a proxy's help.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use indicatif::HumanBytes;
use quic_sidekick::tune::Tuned;
use quic_sidekick::{
    Assistance, NearLoss, PublicKey, Reason, ReceiveState, Received, Selection, SenderStats, Status,
};
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::{Value, json};

use crate::discover::Found;
use crate::event_loop::Counters;
use crate::exchange::Content;
use crate::options::Plan;
use crate::words::{gaps, losses, say};

/// The mode, and the help, of a program without the plugin.
const OFF: &str = "off";

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

/// The report on a file that was uploaded or downloaded.
#[derive(Debug, serde::Serialize)]
pub struct Transfer {
    file: String,
    url: String,
    bytes: u64,
    /// From the first packet of the connection to the end of the transfer, in seconds.
    time_s: f64,
    /// Application bits per microsecond, that is Mbit/s.
    goodput_mbit_s: f64,
    sha256: String,
    /// The server's hash. `null` if a server of a download sent none.
    server_sha256: Option<String>,
    #[serde(flatten)]
    common: Common,
}

impl Transfer {
    /// The report on `file`, whose `content` has the server's hash beside it.
    #[must_use]
    pub fn new(
        plan: &Plan,
        measured: &Measured,
        file: String,
        content: &Content,
        server_sha256: Option<&str>,
    ) -> Self {
        let time_s = measured.time.as_secs_f64();
        let goodput = content.bytes as f64 * 8.0 / time_s / 1e6;
        Self {
            file,
            url: plan.target.url(),
            bytes: content.bytes,
            time_s,
            goodput_mbit_s: if time_s > 0.0 { goodput } else { 0.0 },
            sha256: content.sha256.clone(),
            server_sha256: server_sha256.map(str::to_owned),
            common: Common::new(plan, measured),
        }
    }

    /// Shows a finished upload, as the plan demands.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn show_upload(&self, plan: &Plan) -> anyhow::Result<()> {
        let way = format!("{} -> {}", self.file, self.url);
        show(plan, self, &self.summary(&way, &format!("congestion control {}", self.common.cc), ""))
    }

    /// Shows a finished download, as the plan demands.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn show_download(&self, plan: &Plan) -> anyhow::Result<()> {
        let way = format!("{} -> {}", self.url, self.file);
        let received = format!("{} packets received", self.common.quic.received);
        let check = match &self.server_sha256 {
            Some(_) => ", as the server announced",
            None => ", the server announced none",
        };
        show(plan, self, &self.summary(&way, &received, check))
    }

    fn summary(&self, way: &str, traffic: &str, check: &str) -> String {
        let Self { time_s, goodput_mbit_s, sha256, common, .. } = self;
        format!(
            "{way}\n  {} in {time_s:.2} s, {goodput_mbit_s:.2} Mbit/s, {traffic}\n{}{}  sha256 \
             {sha256}{check}\n",
            HumanBytes(self.bytes),
            common.packets(),
            common.help(),
        )
    }
}

/// The fields of the JSON objects of all programs, which docs/examples.md explains.
#[derive(Debug)]
pub struct Common {
    cc: &'static str,
    mode: String,
    assistance: String,
    /// That of a plugin without a proxy, if the plan has no mode.
    status: Status,
    quic: Counters,
    server: SocketAddr,
    found: Found,
    tuned: Option<Tuned>,
}

impl Serialize for Common {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { status, quic, .. } = self;
        let (stats, received) = (&status.stats, &status.received);
        let [p50, p99, max] = received.held.map(milliseconds);
        let tune =
            self.tuned.map(|tuned| tuned.choices().map(|c| c.to_string()).collect::<Vec<_>>());
        let mut map = serializer.serialize_map(None)?;
        let mut add = |name: &'static str, value: Value| map.serialize_entry(name, &value);
        add("cc", self.cc.into())?;
        add("mode", self.mode.as_str().into())?;
        add("chosen", status.chosen.map(|chosen| chosen.to_string()).into())?;
        add("assisted", (status.assistance == Assistance::Assisted).into())?;
        add("assistance", self.assistance.as_str().into())?;
        add("proxy", status.proxy.map(|proxy| named(proxy, status.choice)).into())?;
        let packets = json!({
            "sent": quic.sent,
            "received": quic.received,
            "retransmitted": quic.retransmitted,
            "lost_end_to_end": quic.lost,
            "lost_early": stats.early_lost,
            "spurious": stats.spurious,
            "relayed": status.relayed,
        });
        add("packets", packets)?;
        let quacks = json!({
            "received": stats.quacks_received,
            "bytes": stats.quack_bytes,
            "undecodable": stats.undecodable,
            "epochs": stats.epochs,
            "polls": stats.polls,
            "malformed": stats.malformed,
        });
        add("quacks", quacks)?;
        add("receiving", self.receiving().into())?;
        add("repeats_requested", stats.repeats_requested.into())?;
        add("repeats_received", stats.repeats_received.into())?;
        add("repaired_near", received.filled.into())?;
        add("left_to_server", received.congestion.into())?;
        add("held_ms", json!({ "p50": p50, "p99": p99, "max": max }))?;
        add("parity_received", stats.parity_received.into())?;
        add("parity_rebuilt", received.rebuilt.into())?;
        add("near_overhead_percent", self.overhead_percent().into())?;
        add("socket_errors", quic.socket_errors.into())?;
        add("near_rtt_ms", status.near_rtt.map(milliseconds).into())?;
        let received_loss = shares(received.near_loss);
        let losses = json!({ "sent": shares(status.near_loss), "received": received_loss });
        add("near_loss", losses)?;
        add("rtt_ms", milliseconds(quic.rtt).into())?;
        add("server", self.server.to_string().into())?;
        add("found", self.found.name().into())?;
        add("tune", tune.into())?;
        map.end()
    }
}

/// A proxy, and why the sender selected it among several.
fn named((address, key): (SocketAddr, PublicKey), choice: Option<Selection>) -> Value {
    let choice = choice.map(|choice| choice.to_string());
    json!({ "address": address, "key": key.to_string(), "choice": choice })
}

/// The share of packets that is lost at the present load, and that of the losses that is
/// congestion.
fn shares(loss: NearLoss) -> Value {
    let percent = |share: f32| (1e3 * f64::from(share)).round() / 10.0;
    json!({
        "lost_percent": percent(loss.rate),
        "congestion_percent": percent(loss.congestion),
    })
}

/// The report of a plugin that has found no proxy.
pub(crate) fn without_proxy() -> Status {
    Status {
        assistance: Assistance::Seeking,
        stats: SenderStats::default(),
        proxy: None,
        choice: None,
        near_rtt: None,
        chosen: None,
        near_loss: NearLoss::default(),
        received: Received {
            state: ReceiveState::Off,
            gaps: 0,
            filled: 0,
            rebuilt: 0,
            congestion: 0,
            near_loss: NearLoss::default(),
            held: [Duration::ZERO; 3],
        },
        relayed: 0,
        other_controller: None,
    }
}

impl Common {
    /// The report of a transfer.
    #[must_use]
    pub fn new(plan: &Plan, measured: &Measured) -> Self {
        let status = measured.counters.sidekick;
        Self {
            cc: plan.cc.name(),
            mode: plan.mode(),
            assistance: status.map_or_else(|| OFF.to_owned(), |status| help(plan, &status)),
            status: status.unwrap_or_else(without_proxy),
            quic: measured.counters,
            server: measured.server,
            found: measured.found,
            tuned: measured.tuned,
        }
    }

    /// Whether the proxy repairs what this program receives, and if not, why.
    fn receiving(&self) -> String {
        match self.status.received.state {
            ReceiveState::Off => OFF.to_owned(),
            state => state.to_string(),
        }
    }

    /// Bytes of copies and parity, in percent of the bytes that the connection received.
    fn overhead_percent(&self) -> f64 {
        100.0 * self.status.stats.added_bytes as f64 / self.quic.received_bytes.max(1) as f64
    }

    /// The line about the program's own packets.
    #[must_use]
    pub fn packets(&self) -> String {
        let Counters { sent, retransmitted, lost, .. } = self.quic;
        format!(
            "  {sent} packets sent, {retransmitted} with data sent again; {lost} losses found end \
             to end\n"
        )
    }

    /// The lines about the server's and the proxy's addresses, and the help.
    #[must_use]
    pub fn help(&self) -> String {
        let Self { status, mode, .. } = self;
        let mut text = String::new();
        if self.found == Found::HttpsRecord {
            text += &format!("  server {}, found through its HTTPS record\n", self.server);
        }
        if mode == OFF {
            return text;
        }
        if let Some((address, key)) = &status.proxy {
            let choice = status.choice.map(|why| format!("; {why}")).unwrap_or_default();
            text += &format!("  proxy {address}, public key {key}{choice}\n");
        }
        text += &format!("  sidekick {mode}: {}", self.assistance);
        // Without a proxy's quACKs the plugin did nothing to report.
        if status.stats.quacks_received > 0 {
            if let Some(chosen) = &status.chosen {
                text += &format!("; {chosen}");
            }
            let _ = write!(
                text,
                "\n  {}, {} of them wrongly; {} quACKs ({}), {} undecodable",
                losses(status.stats.early_lost),
                status.stats.spurious,
                status.stats.quacks_received,
                HumanBytes(status.stats.quack_bytes),
                status.stats.undecodable,
            );
            text += &self.repairs();
            if status.relayed > 0 {
                let _ =
                    write!(text, "\n  {} packets sent again by the second uplink", status.relayed);
            }
        }
        text += &format!("\n  round trip {}", readable(self.quic.rtt));
        // Not a share: both are measured, at different times, and the near one can be the longer.
        if let Some(near) = status.near_rtt {
            text += &format!("; to the proxy and back {}", readable(near));
        }
        text.push('\n');
        text
    }

    /// The line about what the program received; empty if the mode does not help it.
    fn repairs(&self) -> String {
        if !receives(&self.status) {
            return String::new();
        }
        let Received { filled, rebuilt, congestion, held, .. } = self.status.received;
        let copies = self.status.stats.repeats_received;
        let mut text = format!("\n  received: {}", gaps(filled));
        if copies + rebuilt > 0 {
            let [p50, p99, max] = held.map(milliseconds);
            let _ = write!(
                text,
                " by {copies} copies and {rebuilt} rebuilt datagrams, for {:.1} % more bytes; \
                 acknowledgements waited {p50:.1} ms (median), {p99:.1} ms (99 %), {max:.1} ms at \
                 most",
                self.overhead_percent(),
            );
        }
        if congestion > 0 {
            let _ = write!(text, "; {congestion} were congestion, and left to the server");
        }
        text + "; at the end, " + &self.receiving()
    }
}

/// Whether the mode asks for help with what the program receives.
fn receives(status: &Status) -> bool {
    status.received.state != ReceiveState::Off
}

/// Whether a proxy helps, as a sentence. Beside the status it uses the user's options: the proxy's
/// name, and its key.
fn help(plan: &Plan, status: &Status) -> String {
    let asked = plan.assistance.as_ref();
    let proxy = asked.and_then(|asked| asked.proxy.as_ref()).map(ToString::to_string);
    let proxy = proxy.unwrap_or_else(|| "a proxy on the path".to_owned());
    let is_pinned = asked.is_some_and(|asked| asked.by.is_pinned());
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
fn readable(time: Duration) -> String {
    match milliseconds(time) {
        short if short < 1.0 => format!("{:.0} us", short * 1e3),
        ms => format!("{ms:.1} ms"),
    }
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
    use quic_sidekick::{Chosen, Mode, Why};

    fn common(quacks_received: u64, state: ReceiveState, repeats_received: u64) -> Common {
        let none = without_proxy();
        let ms = Duration::from_millis;
        let received = Received {
            state,
            filled: repeats_received,
            held: [ms(3), ms(5), ms(7)],
            ..none.received
        };
        let added_bytes = 25;
        let stats = SenderStats {
            quacks_received,
            repeats_received,
            added_bytes,
            ..SenderStats::default()
        };
        let chosen = Some(Chosen { mode: Mode::Reinject, why: Why::RandomLoss });
        Common {
            cc: "bbr2",
            mode: "auto".to_owned(),
            assistance: "the sentence".to_owned(),
            status: Status { stats, chosen, received, ..none },
            quic: Counters { rtt: ms(50), received_bytes: 10_000, ..Counters::default() },
            server: ([192, 0, 2, 1], 443).into(),
            found: Found::Address,
            tuned: None,
        }
    }

    #[test]
    fn without_a_proxy_the_summary_omits_repairs() {
        let alone = common(0, ReceiveState::NotKept, 0).help();
        assert_eq!(alone, "  sidekick auto: the sentence\n  round trip 50.0 ms\n");
        let mut helped = common(3, ReceiveState::Off, 0);
        let said = helped.help();
        assert!(said.contains("the sentence; reinject: ") && said.contains("3 quACKs"), "{said}");
        assert!(!said.contains("received:"), "{said}");
        helped.quic.rtt = Duration::from_nanos(123_400);
        helped.status.near_rtt = Some(Duration::from_micros(200));
        let local = helped.help();
        assert!(local.contains("  round trip 123 us; to the proxy and back 200 us\n"), "{local}");
    }

    #[test]
    fn help_for_what_is_received_has_its_line() {
        let text = common(3, ReceiveState::TooFar, 2).help();
        let line = "\n  received: 2 gaps repaired near by 2 copies and 0 rebuilt datagrams, for 0.2 % \
                    more bytes; acknowledgements waited 3.0 ms (median), 5.0 ms (99 %), 7.0 ms at \
                    most; at the end, the proxy is too far away";
        assert!(text.contains(line), "{text}");
        let text = common(3, ReceiveState::NotKept, 0).help();
        assert!(text.contains("received: 0 gaps repaired near; at the end, no proxy keeps copies"));
    }
}
