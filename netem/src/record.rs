//! The record of one run, as `--json` prints it.

use std::ops::Add;

pub use audio::report::{Percentiles, Quacks};
use audio::{ListenerReport, TalkerReport};
use serde::{Deserialize, Serialize};
use sidekick_protocol::wire::Poll;
use sidekick_proxy::{Summary, Trace};

use crate::path::PathCounters;
use crate::relay::SegmentCounters;
use crate::scenario::{FlowKind, Scenario, Split, Tunnel};
use crate::units::mbit_s;

/// The congestion controller of `h3-upload-server` and of `quinn-client`: quinn's CUBIC, without
/// rollback.
pub(crate) const QUINN_CC: &str = "quinn-cubic";

/// UDP and IPv4, in bytes.
pub(crate) const HEADERS: u64 = 8 + 20;

/// What happened to the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Packets {
    /// Packets that the data sender sent.
    pub sent: u64,
    /// The retransmissions among them. `None` if the data sender does not report them, as the real
    /// server of downloads.
    pub retransmitted: Option<u64>,
    /// Packets in the data's direction that the near segment dropped for any cause. As in all
    /// counts of links, the packets of all flows count.
    #[serde(default)]
    pub lost_near: u64,
    /// Packets in the data's direction that the middle segment dropped, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_middle: Option<u64>,
    /// Packets in the data's direction that the far segment dropped for any cause.
    #[serde(default)]
    pub lost_far: u64,
    /// Packets that the helped end declared lost because of a quACK, although they were not lost.
    pub spurious: u64,
    /// Losses that the helped end detected by quACKs: of the data's packets, or of the client's own
    /// in a download.
    pub lost_early: u64,
    /// Losses that the sender detected by the receiver's acknowledgements. `None` if it does not
    /// report them, as for `retransmitted`.
    pub lost_end_to_end: Option<u64>,
    /// How often the data sender's probe timeout expired. `None` with real programs, which do not
    /// report it, and for calls, which have none.
    pub probe_timeouts: Option<u64>,
}

/// The additional figures of an audio flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Audio {
    /// Time in the de-jitter buffer.
    pub dejitter_ms: Percentiles,
    /// Packets that arrived too late to be played, or never.
    pub late: u64,
    /// Packets that were played.
    pub played: u64,
    /// Bytes of the packets that were sent for the first time, with UDP and IPv4 headers.
    #[serde(default)]
    pub media_bytes: u64,
    /// Bytes of the help, with UDP and IPv4 headers: quACKs, polls, and packets sent again because
    /// of quACKs. With real programs, quACKs that did not arrive do not count.
    #[serde(default)]
    pub help_bytes: u64,
}

impl Audio {
    /// The bytes of the help, in percent of the media's bytes.
    pub fn help_percent(&self) -> f64 {
        100.0 * self.help_bytes as f64 / self.media_bytes.max(1) as f64
    }
}

/// The additional figures of a flow whose receiver uses help, by itself or by an agent in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Repeats {
    /// Ranges of datagrams that the receiver requested from the proxy, with repeated requests.
    pub repeats_requested: u64,
    /// Copies that arrived.
    pub repeats_received: u64,
    /// Gaps in the packet numbers that were filled after a request, or copies that an agent
    /// delivered in order.
    pub repaired_near: u64,
    /// How long the receiver held acknowledgements, or an agent each datagram, in milliseconds.
    pub held_ms: HeldMs,
    /// Datagrams with parity that arrived at the receiver.
    #[serde(default)]
    pub parity_received: u64,
    /// Datagrams that parity rebuilt.
    #[serde(default)]
    pub parity_rebuilt: u64,
    /// Bytes of copies, parity and lists, in percent of the bytes that the connection received, or
    /// with an agent, of those that passed the far segment.
    #[serde(default)]
    pub near_overhead_percent: f64,
}

/// Percentiles of the time that acknowledgements or datagrams were held, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeldMs {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

/// The work of an agent on the sender's host, from its own summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentRecord {
    /// Flows that a proxy reported to the agent.
    pub flows_assisted: u64,
    /// Datagrams of these flows.
    pub sent: u64,
    /// Of these, datagrams that were lost before the proxy.
    pub lost: u64,
    /// Datagrams that the agent sent again.
    pub resent: u64,
    /// Bytes of the datagrams sent again.
    pub resent_bytes: u64,
    /// Lost datagrams not sent again, because a queue before the proxy grew.
    pub withheld_congested: u64,
    /// Lost datagrams not sent again, because the proxy was too far away.
    pub withheld_far: u64,
    /// Lost datagrams not sent again, because they were too old or too many.
    pub withheld_late: u64,
    /// Lost datagrams on their way to the host of which it got copies.
    pub delivered: u64,
}

/// The second flow of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompetitorRecord {
    /// Its congestion controller.
    pub cc: String,
    /// Its goodput while both flows lasted.
    pub goodput_mbit_s: f64,
    /// The first flow's goodput in the same time.
    pub beside_mbit_s: f64,
    /// Jain's fairness index of the two flows: 0.5 if one flow has everything, 1 if both are equal.
    pub jain: f64,
}

/// Bytes that the proxy would have sent for the packets of this run, for each way to report them.
/// Each way has as many messages as there were quACKs. Only their payloads count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QuackStyles {
    /// Messages.
    pub messages: u64,
    /// Packets that they report.
    pub packets: u64,
    /// Power sums, which the proxy sent.
    pub power_sums: u64,
    /// Every identifier since the previous message.
    pub echo_every: u64,
    /// The identifiers of the last round trip of an empty path, in every message. No window could
    /// be smaller.
    pub echo_window: u64,
    /// A hash of all identifiers and their count.
    pub hash_of_all: u64,
}

/// How often the faults of a scenario's events occurred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FaultCounts {
    /// quACKs that were lost as they left the proxy.
    pub quacks_lost: u64,
    /// quACKs that were sent twice.
    pub quacks_duplicated: u64,
    /// quACKs that the next one overtook.
    pub quacks_reordered: u64,
    /// quACKs that were damaged.
    pub quacks_corrupted: u64,
    /// quACKs that were late.
    pub quacks_delayed: u64,
    /// quACKs with garbage: since the previous quACK, the proxy counted a packet by a random
    /// identifier.
    pub quacks_falsified: u64,
    /// Packets that the proxy forwarded without counting them.
    pub packets_not_seen: u64,
    /// Packets that the proxy counted, although no host sent them.
    pub packets_invented: u64,
    /// Restarts of the proxy's program.
    pub proxy_restarts: u64,
    /// Times that the NAT forgot its mappings.
    pub nat_rebindings: u64,
    /// Packets that the NAT dropped because it had forgotten their mapping.
    pub nat_drops: u64,
    /// Times that a segment changed its delay or its rate.
    pub path_changes: u64,
    /// Copies whose bytes the proxy changed.
    pub copies_falsified: u64,
    /// Datagrams to clients whose sessions keep copies, of which the proxy kept no copy.
    pub copies_withheld: u64,
    /// Copies of datagrams that did not pass at that time.
    pub copies_invented: u64,
    /// Copies that were lost as they left the proxy.
    pub repeats_lost: u64,
    /// Messages to the proxy that were lost as they reached it.
    pub messages_lost: u64,
    /// Migrations of the client to another port.
    pub migrations: u64,
}

impl Add for FaultCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        // The code names each count, so the compiler reports a missing one.
        Self {
            quacks_lost: self.quacks_lost + other.quacks_lost,
            quacks_duplicated: self.quacks_duplicated + other.quacks_duplicated,
            quacks_reordered: self.quacks_reordered + other.quacks_reordered,
            quacks_corrupted: self.quacks_corrupted + other.quacks_corrupted,
            quacks_delayed: self.quacks_delayed + other.quacks_delayed,
            quacks_falsified: self.quacks_falsified + other.quacks_falsified,
            packets_not_seen: self.packets_not_seen + other.packets_not_seen,
            packets_invented: self.packets_invented + other.packets_invented,
            proxy_restarts: self.proxy_restarts + other.proxy_restarts,
            nat_rebindings: self.nat_rebindings + other.nat_rebindings,
            nat_drops: self.nat_drops + other.nat_drops,
            path_changes: self.path_changes + other.path_changes,
            copies_falsified: self.copies_falsified + other.copies_falsified,
            copies_withheld: self.copies_withheld + other.copies_withheld,
            copies_invented: self.copies_invented + other.copies_invented,
            repeats_lost: self.repeats_lost + other.repeats_lost,
            messages_lost: self.messages_lost + other.messages_lost,
            migrations: self.migrations + other.migrations,
        }
    }
}

/// The data sender's window at one time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WindowSample {
    /// The time since the beginning of the run.
    pub time_s: f64,
    /// Congestion window, in bytes.
    pub window_bytes: u64,
    /// Bytes that the receiver's application has read so far.
    pub delivered_bytes: u64,
}

/// The record of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The scenario's name.
    pub scenario: String,
    /// What emulated the links: `sim`, `user` or `tc`.
    pub backend: String,
    /// The seed of losses and of generated files.
    pub seed: u64,
    /// Changes to the scenario's settings, as `--set` takes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<String>,
    /// The kind of the flow.
    pub flow: String,
    /// The Sidekick mode. It is `split` if a proxy terminated the connection, and `split twice` if
    /// two did. It is `tunnel` or `tunnel in order` if the near segment had a tunnel.
    pub mode: String,
    /// The data sender's congestion controller; `quinn-cubic` is that of the real server of
    /// downloads, and of `quinn-client`.
    pub cc: String,
    /// Bytes that arrived at the receiver's application.
    pub bytes: u64,
    /// The time from the first packet to the server's answer, or to the end of the time limit.
    pub time_s: f64,
    /// `bytes` divided by `time_s`.
    pub goodput_mbit_s: f64,
    /// What happened to the packets.
    pub packets: Packets,
    /// The quACKs of the proxy.
    pub quacks: Quacks,
    /// Packets that the receiver of the data sent, in all flows. Nearly all are acknowledgements.
    pub ack_packets: u64,
    /// Whether the sender had help from the proxy at the end.
    pub assisted: bool,
    /// The state of that help, in a sentence.
    pub assistance: String,
    /// The round trip time between sender and proxy, as the sender measured it.
    pub near_rtt_ms: Option<f64>,
    /// The round trip time between sender and receiver, as the sender measured it.
    pub rtt_ms: Option<f64>,
    /// For a flow of requests, the time from the first packet to the first byte of each answer, in
    /// milliseconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first_byte_ms: Vec<f64>,
    /// For a flow of messages, how much longer than the quickest message each took. The time runs
    /// from when a message is due until the receiver's application has read it and all earlier
    /// ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_of_line_ms: Option<Percentiles>,
    /// For a flow whose receiver uses help.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<Repeats>,
    /// For an audio flow.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub audio: Option<Audio>,
    /// The work of an agent, if one ran beside real programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentRecord>,
    /// What the agent measured of the near segment, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Summary>,
    /// What it recorded.
    #[serde(skip)]
    pub trace: Option<Trace>,
    /// The second flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub competitor: Option<CompetitorRecord>,
    /// The proxy's bytes for each way to report packets. Only backend `sim` records them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quack_styles: Option<QuackStyles>,
    /// The faults of the scenario's events, if it has any. Only backend `sim` records them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faults: Option<FaultCounts>,
    /// The window over time, if `flow.sample_ms` is set. Only backend `sim` records it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub window: Vec<WindowSample>,
    /// The SHA-256 of the file that arrived, which equals that of the sent file. Empty if the flow
    /// has no file.
    pub sha256: String,
    /// Counts of all links.
    pub links: PathCounters,
}

impl RunRecord {
    /// Adds the work of an agent beside plain connections, if there was one, and what it recorded.
    pub fn add_agent(&mut self, agent: Option<AgentRecord>, trace: Option<Trace>) {
        let Some(agent) = agent else { return };
        self.assisted = agent.flows_assisted > 0;
        self.assistance = match self.assisted {
            true => "assisted by the proxy, by way of an agent".to_owned(),
            false => "the agent found no proxy".to_owned(),
        };
        self.agent = Some(agent);
        self.measured = trace.as_ref().map(Trace::summary);
        self.trace = trace;
    }

    /// Whether the data flowed from the receiver of the path to its sender.
    pub fn is_download(&self) -> bool {
        let kinds = [FlowKind::Download, FlowKind::Requests, FlowKind::Page, FlowKind::Listen];
        kinds.iter().any(|kind| kind.name() == self.flow)
    }

    /// The part of the record that follows from the scenario, and from the counts of `backend`'s
    /// links.
    pub fn of(scenario: &Scenario, backend: &str, seed: u64, links: PathCounters) -> Self {
        let PathCounters { near, middle, far, .. } = links;
        let kind = scenario.flow.kind;
        let down = kind.is_download();
        let lost = |segment: SegmentCounters| {
            if down { segment.to_sender.link.lost() } else { segment.to_receiver.link.lost() }
        };
        // The link that carries the acknowledgements of the data.
        let acks = if down { near.to_receiver } else { far.to_sender };
        let mode = match (scenario.flow.split, scenario.flow.tunnel) {
            (Split::Near, _) => "split",
            (Split::Both, _) => "split twice",
            (Split::Off, Tunnel::Unordered) => "tunnel",
            (Split::Off, Tunnel::Ordered) => "tunnel in order",
            (Split::Off, Tunnel::Off) => scenario.sidekick.mode.name(),
        };
        let cc = match kind {
            // The rate is constant.
            FlowKind::Audio | FlowKind::Listen => "none",
            // `flow.cc` cannot change the controller of the real server.
            _ if kind.is_download() && backend != "sim" => QUINN_CC,
            _ => scenario.congestion_control().name(),
        };
        Self {
            scenario: scenario.name.clone(),
            backend: backend.to_owned(),
            seed,
            flow: kind.name().to_owned(),
            mode: mode.to_owned(),
            cc: cc.to_owned(),
            packets: Packets {
                lost_near: lost(near),
                lost_middle: middle.map(lost),
                lost_far: lost(far),
                ..Packets::default()
            },
            ack_packets: acks.link.packets,
            links,
            ..Self::default()
        }
    }

    /// The record of a call over a path made by `backend`.
    pub fn of_call(
        scenario: &Scenario,
        backend: &str,
        seed: u64,
        talker: TalkerReport,
        listener: &ListenerReport,
        links: PathCounters,
        quack_styles: Option<QuackStyles>,
    ) -> Self {
        let Quacks { received, bytes, polls, .. } = talker.quacks;
        let packets = talker.packets;
        let (quacks, quack_bytes) =
            quack_styles.map_or((received, bytes), |styles| (styles.messages, styles.power_sums));
        let each = talker.bytes.checked_div(packets.sent).unwrap_or(0) + HEADERS;
        let again = packets.retransmitted_nack + packets.retransmitted_quack;
        let polls_bytes = polls * (Poll::SEALED_LEN as u64 + HEADERS);
        let played_bytes = listener.played.saturating_mul(scenario.flow.frame_bytes.into());
        let base = Self::of(scenario, backend, seed, links);
        let repeats = listener.parity.as_ref().map(|parity| Repeats {
            parity_received: parity.received,
            parity_rebuilt: parity.rebuilt,
            near_overhead_percent: 100.0 * parity.bytes as f64 / parity.flow_bytes.max(1) as f64,
            ..Repeats::default()
        });
        let (assisted, assistance, near_rtt_ms) = match &listener.parity {
            Some(parity) => (parity.received > 0, parity.assistance.clone(), parity.near_rtt_ms),
            None => (talker.assisted, talker.assistance, talker.near_rtt_ms),
        };
        Self {
            bytes: played_bytes,
            time_s: talker.time_s,
            goodput_mbit_s: mbit_s(played_bytes, talker.time_s),
            packets: Packets {
                sent: packets.sent,
                retransmitted: Some(again),
                spurious: packets.spurious,
                lost_early: packets.retransmitted_quack,
                lost_end_to_end: Some(packets.retransmitted_nack),
                ..base.packets
            },
            quacks: talker.quacks,
            assisted,
            assistance,
            near_rtt_ms,
            repeats,
            rtt_ms: talker.rtt_ms.or(listener.rtt_ms),
            audio: Some(Audio {
                dejitter_ms: listener.dejitter_ms,
                late: listener.late,
                played: listener.played,
                media_bytes: packets.sent.saturating_sub(again) * each,
                help_bytes: quack_bytes
                    + quacks * HEADERS
                    + polls_bytes
                    + packets.retransmitted_quack * each,
            }),
            quack_styles,
            ..base
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_names_the_controller_that_sent_the_data() {
        let cc = |name: &str, backend: &str| {
            let scenario = Scenario::with(name, &["flow.cc=cubic-rfc9438"]).unwrap();
            RunRecord::of(&scenario, backend, 1, PathCounters::default()).cc
        };
        for backend in ["sim", "user", "tc"] {
            assert_eq!(cc("upload-paper", backend), "cubic-rfc9438");
        }
        assert_eq!(cc("download-paper", "sim"), "cubic-rfc9438");
        assert_eq!(cc("download-paper", "user"), "quinn-cubic");
        assert_eq!(cc("download-paper", "tc"), "quinn-cubic");
    }
}
