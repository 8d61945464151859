//! The agent's totals and flows, for the operator.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use sidekick_protocol::{GateCounters, SenderStats};

use crate::counters::counters;
use crate::monitor::subject::InterfaceReport;

counters! {
    /// Totals since the agent started.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct Totals {
        captured: always "captured", "sidekick_agent_packets_captured_total",
            "Leaving UDP datagrams captured, of any flow.";
        captured_bytes: hidden "", "sidekick_agent_captured_bytes_total",
            "Bytes of these datagrams.";
        seen_twice: "seen on two interfaces", "sidekick_agent_packets_seen_twice_total",
            "Of these, datagrams ignored because their flow's own interface shows them, too.";
        arrived: hidden "", "sidekick_agent_packets_arrived_total",
            "Arriving UDP datagrams captured.";
        flows: always "flows", "sidekick_agent_flows_opened_total",
            "Flows that had enough packets to be helped.";
        flows_refused: "flows refused", "sidekick_agent_flows_refused_total",
            "Flows not helped because the agent had as many as it may.";
        forgotten: "flows forgotten", "sidekick_agent_flows_forgotten_total",
            "Flows forgotten before they had enough packets to be helped, because there were \
             too many.";
        left: "flows that may not bear it", "sidekick_agent_flows_left_total",
            "Flows not helped because their programs may not bear it: their packets are not \
             encrypted, and the operator does not name them, or markers would be errors to \
             them.";
        flows_assisted: always "assisted", "sidekick_agent_flows_assisted_total",
            "Flows that a proxy reported at least once.";
        sent: always "sent", "sidekick_agent_packets_sent_total",
            "Datagrams of these flows.";
        lost: always "lost", "sidekick_agent_packets_lost_total",
            "Losses of these before the proxy. The loss of a datagram that was sent again \
             counts, too.";
        turned_up: "turned up", "sidekick_agent_losses_turned_up_total",
            "Of all sent datagrams, those that counted as lost and that the proxy reported \
             later: they were overtaken.";
        resent: always "resent", "sidekick_agent_packets_resent_total",
            "Datagrams sent again.";
        resent_bytes: hidden "", "sidekick_agent_resent_bytes_total",
            "Bytes of the datagrams sent again.";
        relayed: "relayed", "sidekick_agent_packets_relayed_total",
            "Datagrams sent again by the second uplink.";
        second_uplink_bytes: hidden "", "sidekick_agent_second_uplink_bytes_total",
            "Bytes of messages sent by the second uplink.";
        withheld_congested: "in a growing queue", "sidekick_agent_resends_withheld_congested_total",
            "Lost datagrams not sent again, because a queue grew before the proxy.";
        withheld_far: "too far", "sidekick_agent_resends_withheld_far_total",
            "Lost datagrams not sent again, because the proxy is too far away for this flow, or \
             its near RTT is not measured yet.";
        withheld_late: "too late", "sidekick_agent_resends_withheld_late_total",
            "Lost datagrams not sent again, because they were too old or too many.";
        missed: "missed", "sidekick_agent_arrivals_missed_total",
            "Datagrams that were missing among those that arrived, by the numbers that flows show, \
             or by a proxy's lists.";
        copies_withheld: "missed by congestion", "sidekick_agent_copies_withheld_total",
            "Of those with numbers, datagrams of which no copy was requested, because their loss \
             is congestion.";
        copies_requested: hidden "", "sidekick_agent_copies_requested_total",
            "Copies requested of proxies, in ranges.";
        copies_received: hidden "", "sidekick_agent_copies_received_total",
            "Copies that proxies sent.";
        delivered: "delivered", "sidekick_agent_copies_delivered_total",
            "Copies handed to this host, because it lacked them.";
        in_order: "in order", "sidekick_agent_copies_in_order_total",
            "Of these, copies before which all that follows them waited.";
        given_up: "given up", "sidekick_agent_arrivals_given_up_total",
            "Missing datagrams for which those behind them wait no longer.";
        help_bytes: hidden "", "sidekick_agent_help_received_bytes_total",
            "Bytes of copies and lists that proxies sent.";
        queue_unread: "too many for the queue", "sidekick_agent_queue_unread_total",
            "Packets that passed the queue without order, because too many waited.";
        quacks: hidden "", "sidekick_agent_quacks_processed_total",
            "quACKs processed.";
        markers: hidden "", "sidekick_agent_markers_sent_total",
            "Markers sent.";
        messages: hidden "", "sidekick_agent_messages_sent_total",
            "Messages to proxies sent, and their bytes without UDP and IP headers.";
        message_bytes: hidden "", "sidekick_agent_messages_sent_bytes_total",
            "Bytes of these messages.";
        malformed: "messages malformed", "sidekick_agent_messages_malformed_total",
            "Datagrams at the agent's port, and answers on a flow's path, that were no message \
             of a proxy of its flows.";
        malformed_frames: "frames malformed", "sidekick_agent_frames_malformed_total",
            "Captured frames with headers that contradict themselves.";
        fragments: "fragments", "sidekick_agent_fragments_captured_total",
            "Captured IP fragments of UDP datagrams, which get no help.";
        merged_split: "merged frames split", "sidekick_agent_merged_frames_split_total",
            "Merged frames that the agent split into their datagrams.";
        merged_unsplit: "merged frames not split", "sidekick_agent_merged_frames_unsplit_total",
            "Merged frames that this kernel cannot describe.";
        capture_drops: "dropped by the kernel", "sidekick_agent_packets_dropped_total",
            "Packets that the kernel had no room for.";
        unsent: "unsent", "sidekick_agent_packets_unsent_total",
            "Packets that the system did not accept, or that were too many at once.";
    }
}

impl Totals {
    /// Adds the counters of a flow's sender.
    pub(super) fn add(&mut self, stats: SenderStats) {
        self.quacks += stats.quacks_received;
        self.turned_up += stats.turned_up;
        self.copies_requested += stats.repeats_requested;
        self.copies_received += stats.repeats_received;
        self.help_bytes += stats.added_bytes;
        self.malformed += stats.malformed + stats.other_version + stats.forged;
    }

    /// Adds the counters of a flow's gate.
    pub(super) fn add_order(&mut self, counters: GateCounters) {
        self.missed += counters.missing;
        self.in_order += counters.in_order;
        self.given_up += counters.given_up;
    }
}

/// A flow that has enough packets to be helped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowReport {
    /// The flow's source, as packets on the interface show it.
    pub source: SocketAddr,
    /// Its destination.
    pub destination: SocketAddr,
    /// The interface by which it leaves.
    pub interface: String,
    /// What its packets look like: `QUIC`, `RTP`, `WireGuard`, `SRT`, `RIST`, `mosh`, `OpenVPN`,
    /// `encrypted`, `MPEG-TS` or `UDP`.
    pub kind: String,
    /// Whether what leaves is helped now, and if not, why.
    pub state: String,
    /// Whether what arrives is helped now, and if not, why.
    pub arrivals: String,
    /// Whether a proxy reports it now.
    pub assisted: bool,
    /// The proxy's address, if there is one.
    pub proxy: Option<SocketAddr>,
    /// That proxy's public key, as `sidekick-proxy status` shows it.
    pub proxy_key: Option<String>,
    /// The near segment's round-trip time in milliseconds, once measured.
    pub near_rtt_ms: Option<f64>,
    /// The longest near round-trip time in milliseconds with which a repair is in time.
    pub near_rtt_most_ms: Option<f64>,
    /// The whole path's round-trip time in milliseconds, if the flow showed it.
    pub rtt_ms: Option<f64>,
    /// Datagrams since help began.
    pub sent: u64,
    /// Losses of these before the proxy, also of those sent again.
    pub lost: u64,
    /// Datagrams sent again.
    pub resent: u64,
    /// Numbers that were missing among the datagrams that arrived, if they show numbers.
    pub missed: u64,
    /// Copies of these that were handed to this host.
    pub delivered: u64,
    /// Seconds since the last packet.
    pub last_packet_ago: f64,
}

/// What arrives in order: how long packets waited since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OrderReport {
    /// Why nothing waits although `in-order` is set, if so.
    pub fault: Option<String>,
    /// Packets that wait now.
    pub waiting: usize,
    /// Packets of these flows.
    pub arrived: u64,
    /// Of these, packets that waited.
    pub held: u64,
    /// Half of those that waited did so for at most this many milliseconds.
    pub held_p50_ms: Option<f64>,
    /// The same for 99 of 100.
    pub held_p99_ms: Option<f64>,
    /// How long all together waited, in seconds.
    pub held_s: f64,
}

/// The second uplink, if the operator names one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecondUplinkReport {
    /// Its interface.
    pub interface: String,
    /// Whether there is such an interface.
    pub is_there: bool,
    /// Flows whose proxy can be reached by it now.
    pub flows: usize,
    /// Of these, flows that it carries, because the first uplink is silent.
    pub carried: usize,
    /// Bytes of flows that it may still carry.
    pub carry_left: u64,
}

/// An agent's report at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The TUN device by which this host gets copies of datagrams that were lost on their way to
    /// it, if there is one.
    pub tun: Option<String>,
    /// The operator wants no such device.
    pub tun_off: bool,
    /// What arrives in order, if the operator wants that.
    pub order: Option<OrderReport>,
    /// The second uplink, if there is to be one.
    pub second_uplink: Option<SecondUplinkReport>,
    /// Totals since the start.
    pub totals: Totals,
    /// Most flows that are helped at once.
    pub flows_max: usize,
    /// Most bytes of copies of leaving packets.
    pub memory_max: u64,
    /// Flows that have enough packets to be helped now.
    pub flows_open: usize,
    /// Of these, flows that a proxy reports.
    pub flows_assisted: usize,
    /// Bytes of copies of leaving packets.
    pub memory_bytes: u64,
    /// All configured interfaces.
    pub interfaces: Vec<InterfaceReport>,
    /// The busiest flows, as many as were requested, in descending order.
    pub flows: Vec<FlowReport>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_without_zeros() {
        let quiet = Totals { captured: 9, flows: 1, resent: 2, ..Totals::default() };
        let expected = "captured 9, flows 1, assisted 0, sent 0, lost 0, resent 2";
        assert_eq!(quiet.to_string(), expected);
        let busy = Totals { withheld_far: 4, unsent: 3, ..quiet };
        assert_eq!(busy.to_string(), format!("{expected}, too far 4, unsent 3"));
    }
}
