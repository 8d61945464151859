//! The record of an audio call, from the reports of its two ends.

use audio::{ListenerReport, TalkerReport};
use sidekick_protocol::wire::Poll;

use super::{Audio, Packets, QuackStyles, Quacks, Repeats, RunRecord};
use crate::path::PathCounters;
use crate::scenario::Scenario;
use crate::units::mbit_s;

/// UDP and IPv4, in bytes.
pub(crate) const HEADERS: u64 = 8 + 20;

impl RunRecord {
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
