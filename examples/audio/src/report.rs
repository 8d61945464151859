//! What the two ends tell about themselves: the programs print these as JSON objects, and the lab
//! reads them.

use crate::quality::Quality;
use serde::{Deserialize, Serialize};

/// What a [`crate::Talker`] did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TalkerReport {
    /// What it does with quACKs: `off` or `reinject`.
    pub mode: String,
    /// From the first packet to the end of the stream, in seconds.
    pub time_s: f64,
    /// Bytes of media datagrams sent, repetitions among them, with RTP and SRTP, without UDP and IP
    /// headers.
    pub bytes: u64,
    /// Whether the listener has confirmed that the stream is complete.
    pub acknowledged: bool,
    /// How the stream ended: `confirmed` by the listener; it has `hung up` before the end, or was
    /// heard and fell `silent`; or the end went `unanswered`. `talking` while it goes on.
    pub ending: String,
    /// Whether a proxy was helping at the end.
    pub assisted: bool,
    /// A sentence about that help; `off` if none was asked for.
    pub assistance: String,
    /// What happened to the packets.
    pub packets: TalkerPackets,
    /// What the proxy told.
    pub quacks: Quacks,
    /// Round trip to the proxy, in milliseconds, once it was measured.
    pub near_rtt_ms: Option<f64>,
    /// Round trip to the listener, by its reports, in milliseconds, once it was measured.
    pub rtt_ms: Option<f64>,
    /// Errors that the network reported at the program's sockets, by ICMP mostly. They end nothing,
    /// since anyone can forge them.
    #[serde(default)]
    pub socket_errors: u64,
}

/// Counts of media datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TalkerPackets {
    /// Sent, repetitions among them.
    pub sent: u64,
    /// Sent again because of a NACK.
    pub retransmitted_nack: u64,
    /// Sent again because of a quACK.
    pub retransmitted_quack: u64,
    /// Sent again although they had arrived, as far as the listener's feedback tells.
    pub spurious: u64,
    /// NACKs that were not followed because the packet had been sent again less than a round trip
    /// before.
    pub nacks_ignored: u64,
    /// NACKs for packets that are not kept any more, or never were.
    pub nacks_unknown: u64,
    /// Datagrams from the listener's address that SRTP has not let in.
    pub rejected: u64,
}

/// What the proxy told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quacks {
    /// quACKs that arrived.
    pub received: u64,
    /// Their bytes, without UDP and IP headers.
    pub bytes: u64,
    /// Those that could not be decoded.
    pub undecodable: u64,
    /// Times the count began anew.
    pub epochs: u64,
    /// Times the talker asked.
    pub polls: u64,
}

/// What a [`crate::Listener`] heard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListenerReport {
    /// Whether the talker said how many packets there were, and each of them was played or given
    /// up.
    pub complete: bool,
    /// Packets played in their order.
    pub played: u64,
    /// Packets passed over, because they had not come when the playout limit was over.
    pub late: u64,
    /// How long packets waited for those before them.
    pub dejitter_ms: DejitterMs,
    /// What came in.
    pub packets: ListenerPackets,
    /// What was asked for.
    pub nacks: Nacks,
    /// Round trip to the talker, in milliseconds, once it was measured.
    pub rtt_ms: Option<f64>,
    /// What it sounds like, by estimate; `None` before the round trip was measured, and for random
    /// bytes.
    pub quality: Option<Quality>,
    /// Packets in whose place a guess was played, if somebody plays.
    pub concealed: Option<u64>,
    /// Errors that the network reported at the program's socket, by ICMP mostly. They end nothing,
    /// since anyone can forge them.
    #[serde(default)]
    pub socket_errors: u64,
}

/// De-jitter latency: from a packet's arrival until every packet before it has arrived (or was
/// given up), in milliseconds. Of the packets played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DejitterMs {
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

/// Counts of datagrams that arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerPackets {
    /// Media datagrams of the stream.
    pub received: u64,
    /// Of these, packets that were there already.
    pub duplicates: u64,
    /// Of these, packets that came after they had been passed over.
    pub too_late: u64,
    /// Of the duplicates, those that were the same to the last byte: SRTP's replay protection has
    /// kept them out.
    pub replayed: u64,
    /// Datagrams that are none, forged, of another stream, or too far from the others to be
    /// believed.
    pub rejected: u64,
    /// Of these, those whose authentication tag was wrong.
    pub forged: u64,
}

/// Counts of what was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nacks {
    /// Feedback datagrams with a missing packet in them.
    pub datagrams: u64,
    /// NACKs for single packets.
    pub packets: u64,
}
