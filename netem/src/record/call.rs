//! The record of an audio call, from what its two ends tell.

use audio::report::{DejitterMs, Quacks as CallQuacks};
use audio::{ListenerReport, TalkerReport};

use super::{Audio, Packets, Percentiles, Quacks, RunRecord};
use crate::path::PathCounters;
use crate::scenario::Scenario;

impl RunRecord {
    /// The record of a call over a path made by `backend`.
    pub fn of_call(
        scenario: &Scenario,
        backend: &str,
        seed: u64,
        talker: TalkerReport,
        listener: &ListenerReport,
        links: PathCounters,
    ) -> Self {
        let DejitterMs { p50, p90, p95, p99, p999, max } = listener.dejitter_ms;
        let CallQuacks { received, bytes, undecodable, epochs, polls } = talker.quacks;
        let packets = talker.packets;
        let played_bytes = listener.played.saturating_mul(scenario.flow.frame_bytes.into());
        Self {
            scenario: scenario.name.clone(),
            backend: backend.to_owned(),
            seed,
            flow: scenario.flow.kind.name().to_owned(),
            mode: scenario.sidekick.mode.name().to_owned(),
            // There is none: the rate is constant.
            cc: "none".to_owned(),
            bytes: played_bytes,
            time_s: talker.time_s,
            goodput_mbit_s: if talker.time_s > 0.0 {
                played_bytes as f64 * 8e-6 / talker.time_s
            } else {
                0.0
            },
            packets: Packets {
                sent: packets.sent,
                retransmitted: packets.retransmitted_nack + packets.retransmitted_quack,
                lost_near: links.near.to_receiver.link.lost(),
                lost_far: links.far.to_receiver.link.lost(),
                spurious: packets.spurious,
                lost_early: packets.retransmitted_quack,
                lost_end_to_end: packets.retransmitted_nack,
            },
            quacks: Quacks { received, bytes, undecodable, epochs, polls },
            ack_packets: links.far.to_sender.link.packets,
            assisted: talker.assisted,
            assistance: talker.assistance,
            near_rtt_ms: talker.near_rtt_ms,
            rtt_ms: talker.rtt_ms.or(listener.rtt_ms),
            audio: Some(Audio {
                dejitter_ms: Percentiles { p50, p90, p95, p99, p999, max },
                late: listener.late,
                played: listener.played,
            }),
            links,
            ..Self::default()
        }
    }
}
