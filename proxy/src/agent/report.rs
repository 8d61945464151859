//! The agent's totals and flows, for the operator.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use sidekick_protocol::SenderStats;

use crate::monitor::interface::InterfaceReport;

/// Totals since the agent started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Leaving UDP datagrams captured, of any flow.
    pub captured: u64,
    /// Bytes of these datagrams.
    pub captured_bytes: u64,
    /// Of these, datagrams ignored because their flow's own interface shows them, too.
    pub seen_twice: u64,
    /// Arriving UDP datagrams captured.
    pub arrived: u64,
    /// Flows that had enough packets to be helped.
    pub flows: u64,
    /// Flows not helped because the agent had as many as it may.
    pub flows_refused: u64,
    /// Flows forgotten before they had enough packets to be helped, because there were too many.
    pub forgotten: u64,
    /// Flows not helped because their programs may not bear it: their packets are not encrypted,
    /// and the operator does not name them, or markers would be errors to them.
    pub left: u64,
    /// Flows that a proxy reported at least once.
    pub flows_assisted: u64,
    /// Datagrams of these flows.
    pub sent: u64,
    /// Losses of these before the proxy. The loss of a datagram that was sent again counts, too.
    pub lost: u64,
    /// Of all sent datagrams, those that counted as lost and that the proxy reported later: they
    /// were overtaken.
    pub turned_up: u64,
    /// Datagrams sent again.
    pub resent: u64,
    /// Bytes of the datagrams sent again.
    pub resent_bytes: u64,
    /// Lost datagrams not sent again, because a queue grew before the proxy.
    pub withheld_congested: u64,
    /// Lost datagrams not sent again, because the proxy is too far away for this flow, or its near
    /// RTT is not measured yet.
    pub withheld_far: u64,
    /// Lost datagrams not sent again, because they were too old or too many.
    pub withheld_late: u64,
    /// Numbers that were missing among arriving datagrams, of flows that show their numbers.
    pub missed: u64,
    /// Of these, numbers of which no copy was requested, because their loss is congestion.
    pub copies_withheld: u64,
    /// Copies requested of proxies, in ranges.
    pub copies_requested: u64,
    /// Copies that proxies sent.
    pub copies_received: u64,
    /// Copies handed to this host, because it lacked them.
    pub delivered: u64,
    /// quACKs processed.
    pub quacks: u64,
    /// Markers sent.
    pub markers: u64,
    /// Messages to proxies sent, and their bytes without UDP and IP headers.
    pub messages: u64,
    /// Bytes of these messages.
    pub message_bytes: u64,
    /// Datagrams at the agent's port, and answers on a flow's path, that were no message of a proxy
    /// of its flows.
    pub malformed: u64,
    /// Captured frames with headers that contradict themselves.
    pub malformed_frames: u64,
    /// Captured IP fragments of UDP datagrams, which get no help.
    pub fragments: u64,
    /// Merged frames that the agent split into their datagrams.
    pub merged_split: u64,
    /// Merged frames that this kernel cannot describe.
    pub merged_unsplit: u64,
    /// Packets that the kernel had no room for.
    pub capture_drops: u64,
    /// Packets that the system did not accept, or that were too many at once.
    pub unsent: u64,
}

impl Totals {
    /// Adds the counters of a flow's sender.
    pub(super) fn add(&mut self, stats: SenderStats) {
        self.quacks += stats.quacks_received;
        self.turned_up += stats.turned_up;
        self.copies_requested += stats.repeats_requested;
        self.copies_received += stats.repeats_received;
        self.malformed += stats.malformed + stats.other_version + stats.forged;
    }
}

impl fmt::Display for Totals {
    /// The main totals, then the others that are not 0.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "captured {}, flows {}, assisted {}, sent {}, lost {}, resent {}",
            self.captured, self.flows, self.flows_assisted, self.sent, self.lost, self.resent
        )?;
        for (what, number) in [
            ("turned up", self.turned_up),
            ("missed", self.missed),
            ("missed by congestion", self.copies_withheld),
            ("delivered", self.delivered),
            ("too far", self.withheld_far),
            ("too late", self.withheld_late),
            ("in a growing queue", self.withheld_congested),
            ("seen on two interfaces", self.seen_twice),
            ("flows refused", self.flows_refused),
            ("flows that may not bear it", self.left),
            ("flows forgotten", self.forgotten),
            ("messages malformed", self.malformed),
            ("frames malformed", self.malformed_frames),
            ("fragments", self.fragments),
            ("merged frames split", self.merged_split),
            ("merged frames not split", self.merged_unsplit),
            ("dropped by the kernel", self.capture_drops),
            ("unsent", self.unsent),
        ] {
            if number != 0 {
                write!(f, ", {what} {number}")?;
            }
        }
        Ok(())
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

/// An agent's report at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The TUN device by which this host gets copies of datagrams that were lost on their way to
    /// it, if there is one.
    pub tun: Option<String>,
    /// The operator wants no such device.
    pub tun_off: bool,
    /// Totals since the start.
    pub totals: Totals,
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
