//! The reports of both ends. The programs print them as JSON objects, and the lab reads them.

use crate::quality::Quality;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The report of a [`crate::Talker`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TalkerReport {
    /// Its use of quACKs: `off` or `reinject`.
    pub mode: String,
    /// The time from the first packet to the end of the stream, in seconds.
    pub time_s: f64,
    /// The bytes of media datagrams sent, including repetitions, without UDP and IP headers.
    pub bytes: u64,
    /// Whether the listener confirmed that the stream is complete.
    pub acknowledged: bool,
    /// How the stream ended.
    pub ending: Ending,
    /// Whether a proxy was helping at the end.
    pub assisted: bool,
    /// A sentence about that help; `off` if none was requested.
    pub assistance: String,
    /// Counts of packets.
    pub packets: TalkerPackets,
    /// The proxy's reports.
    pub quacks: Quacks,
    /// The near RTT in milliseconds, once measured.
    pub near_rtt_ms: Option<f64>,
    /// The round-trip time to the listener in milliseconds, once measured.
    pub rtt_ms: Option<f64>,
    /// Errors that the network reported at the program's sockets, mostly by ICMP. They end nothing,
    /// because anyone can forge them.
    #[serde(default)]
    pub socket_errors: u64,
}

/// How a stream ended, for the talker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ending {
    /// It continues.
    Talking,
    /// The listener answered a BYE.
    Confirmed,
    /// The listener sent a BYE first.
    #[serde(rename = "hung up")]
    HungUp,
    /// The listener stopped sending.
    Silent,
    /// No BYE was answered.
    Unanswered,
}

/// Counts of media datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TalkerPackets {
    /// Packets sent, including repetitions.
    pub sent: u64,
    /// Packets retransmitted because of a NACK.
    pub retransmitted_nack: u64,
    /// Packets re-injected because of a quACK.
    pub retransmitted_quack: u64,
    /// Packets repaired although they had arrived, according to the listener.
    pub spurious: u64,
    /// NACKs that were ignored because the packet was sent again less than a round trip before.
    pub nacks_ignored: u64,
    /// NACKs for packets that are not kept.
    pub nacks_unknown: u64,
    /// Datagrams from the listener's address that were rejected.
    pub rejected: u64,
}

/// Counts of the proxy's reports, and of the sender's polls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quacks {
    /// quACKs that arrived.
    pub received: u64,
    /// Their bytes, without UDP and IP headers.
    pub bytes: u64,
    /// Those that did not decode.
    pub undecodable: u64,
    /// Epochs begun.
    pub epochs: u64,
    /// Polls sent.
    pub polls: u64,
}

/// The report of a [`crate::Listener`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListenerReport {
    /// Whether the talker stated the number of packets, and each was played or given up.
    pub complete: bool,
    /// Packets played in order.
    pub played: u64,
    /// Packets skipped, because they did not arrive within the playout limit.
    pub late: u64,
    /// The de-jitter delay of the packets played: from a packet's arrival until every earlier one
    /// arrived or was given up.
    pub dejitter_ms: Percentiles,
    /// Counts of datagrams.
    pub packets: ListenerPackets,
    /// Counts of requests.
    pub nacks: Nacks,
    /// The round-trip time to the talker in milliseconds, once measured.
    pub rtt_ms: Option<f64>,
    /// The estimated quality; `None` before the round-trip time is measured, and for random bytes.
    pub quality: Option<Quality>,
    /// Packets that were concealed, if the program plays.
    pub concealed: Option<u64>,
    /// Parity from a proxy; `None` if none was requested.
    #[serde(default)]
    pub parity: Option<ParityReport>,
    /// Errors that the network reported at the program's socket, mostly by ICMP. They end nothing,
    /// because anyone can forge them.
    #[serde(default)]
    pub socket_errors: u64,
}

/// The effect of parity for a listener.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParityReport {
    /// Datagrams with parity that arrived.
    pub received: u64,
    /// Datagrams of the talker that parity rebuilt, media and reports.
    pub rebuilt: u64,
    /// The bytes of the parity that arrived, without UDP and IP headers.
    pub bytes: u64,
    /// The bytes of the talker's datagrams that arrived, without UDP and IP headers.
    pub flow_bytes: u64,
    /// A sentence about the proxy's help.
    pub assistance: String,
    /// The round-trip time to the proxy in milliseconds, once measured.
    pub near_rtt_ms: Option<f64>,
}

/// Percentiles of the time that packets or messages waited, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// The median.
    pub p50: f64,
    /// 90 % waited no longer.
    pub p90: f64,
    /// 95 % waited no longer.
    pub p95: f64,
    /// 99 % waited no longer.
    pub p99: f64,
    /// 99.9 % waited no longer.
    pub p999: f64,
    /// The longest wait.
    pub max: f64,
}

impl Percentiles {
    /// Those of a distribution in microseconds.
    #[must_use]
    pub fn of(waits_us: &Histogram<u64>) -> Self {
        let at = |quantile| waits_us.value_at_quantile(quantile) as f64 / 1e3;
        Self {
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max: waits_us.max() as f64 / 1e3,
        }
    }
}

/// Counts of datagrams that arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerPackets {
    /// Media datagrams of the stream.
    pub received: u64,
    /// Of these, packets that had already arrived.
    pub duplicates: u64,
    /// Of these, packets that arrived after they were skipped.
    pub too_late: u64,
    /// Of the duplicates, those equal in every byte. SRTP's replay protection rejects them.
    pub replayed: u64,
    /// Datagrams that are malformed, forged, of another stream, or too far from the others.
    pub rejected: u64,
    /// Of these, those with a wrong authentication tag.
    pub forged: u64,
}

/// Counts of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nacks {
    /// Feedback datagrams that name a missing packet.
    pub datagrams: u64,
    /// NACKs for single packets.
    pub packets: u64,
}
