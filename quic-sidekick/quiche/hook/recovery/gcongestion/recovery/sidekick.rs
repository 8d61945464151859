//! Early loss for the controllers of the gcongestion stack (BBR2).
//!
//! Either as any loss, or neutered: the packet leaves the flight and the bandwidth sampler forgets it, so that a loss
//! on the near segment neither lowers BBR2's bounds nor ends its search for bandwidth.
#![warn(missing_docs, missing_debug_implementations, unreachable_pub, unused_qualifications)]
#![warn(clippy::all, clippy::cast_possible_truncation, clippy::expect_used, clippy::unwrap_used)]

use std::time::{Duration, Instant};

use super::{GRecovery, Lost, RecoveryEpoch, SentPacket, SentStatus};
use crate::packet::Epoch;
use crate::ranges::RangeSet;
use crate::recovery::{HandshakeStatus, RecoveryOps, MAX_PTO_PROBES_COUNT};
use crate::sidekick::{EarlyLosses, Reaction};

impl GRecovery {
    /// Declares packets of the Application space lost; see `Connection::sidekick_early_lost`.
    pub(crate) fn sidekick_early_lost(
        &mut self,
        packet_numbers: &[u64],
        reaction: Reaction,
        handshake_status: HandshakeStatus,
        now: Instant,
    ) -> usize {
        let epoch = &mut self.epochs[Epoch::Application];
        let lost = &mut self.lost_reuse;
        lost.clear();
        let declared = packet_numbers.iter().filter(|&&number| epoch.lose_early(number, lost)).count();
        if declared == 0 {
            return 0;
        }
        let prior_in_flight = self.bytes_in_flight.get();
        let in_flight = lost.len();
        let lost_bytes = lost.iter().map(|packet| packet.bytes_lost).sum();
        self.bytes_in_flight.saturating_subtract(lost_bytes, now);
        match reaction {
            Reaction::Neutered => {
                lost.iter().for_each(|packet| self.pacer.on_packet_neutered(packet.packet_number));
                self.pacer.sidekick_make_up(lost.len());
            }
            Reaction::Loss | Reaction::NearLoss { .. } if lost.is_empty() => {}
            Reaction::Loss | Reaction::NearLoss { .. } => {
                // The sampler wants them in order: the last one stands for the report.
                lost.sort_unstable_by_key(|packet| packet.packet_number);
                self.pacer.on_congestion_event(
                    false,
                    prior_in_flight,
                    self.bytes_in_flight.get(),
                    now,
                    &[],
                    &self.lost_reuse,
                    self.epochs[Epoch::Application].least_unacked(),
                    &self.rtt_stats,
                    &mut self.recovery_stats,
                );
            }
        }
        self.lost_count += declared;

        let loss_delay = self.rtt_stats.loss_delay(self.loss_thresh.time_thresh());
        let epoch = &mut self.epochs[Epoch::Application];
        epoch.correct_loss_time(loss_delay);
        // A probe that is known to be lost need not wait for the next timeout, which comes twice as late, or for room in the
        // window (RFC 9002, section 7.5).
        if self.pto_count > 0 {
            epoch.loss_probes = epoch.loss_probes.max(in_flight.min(MAX_PTO_PROBES_COUNT));
        }
        self.set_loss_detection_timer(handshake_status, now);
        declared
    }

    /// Holds the loss detection of a packet of the Application space that goes out again, and lets it go at once; see
    /// `Connection::sidekick_resend`. False if it is not outstanding.
    pub(crate) fn sidekick_hold(&mut self, number: u64, now: Instant) -> bool {
        let delay = self.rtt_stats.loss_delay(self.loss_thresh.time_thresh()) + self.rtt_stats.max_ack_delay;
        let epoch = &mut self.epochs[Epoch::Application];
        let sent = epoch.sent_packets.binary_search_by_key(&number, |packet| packet.pkt_num);
        let outstanding = sent.ok().and_then(|index| epoch.sent_packets.get(index)).is_some_and(|packet| {
            matches!(packet.status, SentStatus::Sent { is_pmtud_probe: false, .. })
        });
        if outstanding {
            epoch.sidekick.hold(number, now, now + delay);
            self.pacer.sidekick_make_up(1);
        }
        outstanding
    }

    /// A packet has gone out again.
    pub(crate) fn sidekick_resent(&mut self) {
        self.pacer.sidekick_repaired();
    }

    /// The early losses of the Application space.
    pub(crate) fn sidekick_losses(&self) -> &EarlyLosses {
        &self.epochs[Epoch::Application].sidekick
    }

    /// Closes the early losses that an ACK frame proves wrong. Runs before the frame is applied.
    ///
    /// The stock code would take them for reordering and wait longer for every loss from then on; a wrong report says
    /// nothing about the order on the path.
    pub(super) fn sidekick_on_ack(&mut self, ranges: &RangeSet, epoch: Epoch, now: Instant) {
        let min_rtt = self.min_rtt();
        let RecoveryEpoch { sidekick, sent_packets, .. } = &mut self.epochs[epoch];
        sidekick.release(ranges, min_rtt, now);
        sidekick.take_acknowledged(ranges, |number, _| {
            if let Ok(index) = sent_packets.binary_search_by_key(&number, |packet| packet.pkt_num) {
                sent_packets[index].status.ack();
            }
        });
    }
}

impl RecoveryEpoch {
    /// Marks one packet lost, and adds it to `lost` if it was in flight. Returns whether it was there to lose.
    fn lose_early(&mut self, number: u64, lost: &mut Vec<Lost>) -> bool {
        let Ok(index) = self.sent_packets.binary_search_by_key(&number, |packet| packet.pkt_num) else {
            return false;
        };
        let status = &mut self.sent_packets[index].status;
        if matches!(status, SentStatus::Sent { is_pmtud_probe: true, .. }) {
            return false;
        }
        let SentStatus::Sent { in_flight, sent_bytes, frames, .. } = status.lose() else { return false };
        self.lost_frames_ack.extend(frames);
        if in_flight {
            self.pkts_in_flight = self.pkts_in_flight.saturating_sub(1);
            lost.push(Lost { packet_number: number, bytes_lost: sent_bytes });
        }
        self.sidekick.declare(number, in_flight);
        true
    }

    /// Recomputes when the next packet is to be declared lost by time, as the packet it was set for may be gone.
    fn correct_loss_time(&mut self, loss_delay: Duration) {
        if self.loss_time.is_none() {
            return;
        }
        let largest_acked = self.largest_acked_packet.unwrap_or(0);
        self.loss_time =
            self.sent_packets.iter().take_while(|packet| packet.pkt_num <= largest_acked).find_map(
                |packet| match packet {
                    SentPacket { status: SentStatus::Sent { time_sent, .. }, .. } => {
                        Some(*time_sent + loss_delay)
                    }
                    SentPacket { .. } => None,
                },
            );
    }
}
