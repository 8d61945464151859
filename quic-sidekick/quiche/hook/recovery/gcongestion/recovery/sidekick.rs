//! Early loss for the controllers of the gcongestion stack (BBR2).
//!
//! The packet leaves the flight at once, unless the loss is congestion. When the receiver confirms
//! the loss, BBR2 learns of it as of any loss, or the packet is neutered. Then the bandwidth
//! sampler forgets it, so that a loss on the near segment neither lowers BBR2's bounds nor ends its
//! search for bandwidth. Until then the record stays, because the packet may be acknowledged after
//! all.
#![warn(missing_docs, missing_debug_implementations, unreachable_pub, unused_qualifications)]
#![warn(clippy::all, clippy::cast_possible_truncation, clippy::expect_used, clippy::unwrap_used)]

use std::time::{Duration, Instant};

use super::{GRecovery, Lost, RecoveryEpoch, SentPacket, SentStatus};
use crate::packet::Epoch;
use crate::ranges::RangeSet;
use crate::recovery::{HandshakeStatus, RecoveryOps, MAX_PTO_PROBES_COUNT};
use crate::sidekick::{EarlyLosses, Reaction, Report};

/// Packets that were in flight.
#[derive(Default)]
struct Loss {
    packets: usize,
    bytes: usize,
}

/// Whether a packet leaves the flight before the receiver confirms its loss. BBR2 sends as much as
/// the flight has room for. If the loss is congestion, it must have no more room than without a
/// proxy.
fn leaves_at_once(reaction: Reaction) -> bool {
    reaction != Reaction::Congestion
}

impl GRecovery {
    /// Declares packets of the Application space lost; see `Connection::sidekick_early_lost`.
    pub(crate) fn sidekick_early_lost(
        &mut self,
        packet_numbers: &[u64],
        reaction: Reaction,
        handshake_status: HandshakeStatus,
        now: Instant,
    ) -> usize {
        let window = self.cwnd();
        let epoch = &mut self.epochs[Epoch::Application];
        let mut lost = Loss::default();
        let declared = packet_numbers
            .iter()
            .filter(|&&number| epoch.lose_early(number, reaction, now, window, &mut lost))
            .count();
        if declared == 0 {
            return 0;
        }
        if leaves_at_once(reaction) {
            self.bytes_in_flight.saturating_subtract(lost.bytes, now);
        }
        if reaction == Reaction::Neutered {
            self.pacer.sidekick_make_up(lost.packets);
        }

        let loss_delay = self.rtt_stats.loss_delay(self.loss_thresh.time_thresh());
        let epoch = &mut self.epochs[Epoch::Application];
        epoch.correct_loss_time(loss_delay);
        // A probe known to be lost need not wait for room in the window (RFC 9002, section 7.5), or
        // for the next timeout, which is twice as long.
        if self.pto_count > 0 {
            epoch.loss_probes = epoch.loss_probes.max(lost.packets.min(MAX_PTO_PROBES_COUNT));
        }
        self.set_loss_detection_timer(handshake_status, now);
        declared
    }

    /// Suspends the loss detection of a packet of the Application space that is sent again, and,
    /// unless it goes `elsewhere`, releases it at once; see `Connection::sidekick_resend`. Returns
    /// false if it is not outstanding, or too many are held.
    pub(crate) fn sidekick_hold(&mut self, number: u64, elsewhere: bool, now: Instant) -> bool {
        let delay = self.rtt_stats.loss_delay(self.loss_thresh.time_thresh()) + self.rtt_stats.max_ack_delay;
        let epoch = &mut self.epochs[Epoch::Application];
        let sent = epoch.sent_packets.binary_search_by_key(&number, |packet| packet.pkt_num);
        let outstanding = sent.ok().and_then(|index| epoch.sent_packets.get(index)).is_some_and(|packet| {
            matches!(packet.status, SentStatus::Sent { is_pmtud_probe: false, .. })
        });
        let held = outstanding && epoch.sidekick.may_hold(number);
        if held {
            let last = epoch.sent_packets.back().map_or(number, |last| last.pkt_num);
            epoch.sidekick.hold(number, last, elsewhere, now, now + delay);
            if !elsewhere {
                self.pacer.sidekick_make_up(1);
            }
        }
        held
    }

    /// Records that a packet was sent again.
    pub(crate) fn sidekick_resent(&mut self) {
        self.pacer.sidekick_repaired();
    }

    /// The early losses of the Application space.
    pub(crate) fn sidekick_losses(&self) -> &EarlyLosses {
        &self.epochs[Epoch::Application].sidekick
    }

    /// Resolves reports by an ACK frame. Runs before the frame is applied.
    pub(super) fn sidekick_on_ack(&mut self, ranges: &RangeSet, epoch: Epoch, now: Instant) {
        // This runs for each ACK frame, and few have anything to resolve.
        if self.epochs[epoch].sidekick.has_held() {
            let min_rtt = self.min_rtt();
            let known = self.epochs[epoch].largest_acked_packet;
            self.epochs[epoch].sidekick.release(ranges, known, min_rtt, now);
        }
        if self.epochs[epoch].sidekick.has_declared() {
            self.take_back(ranges, epoch, now);
        }
    }

    /// Adds the losses that the receiver confirmed to those just detected end to end, or neuters
    /// the packets. Runs when these have left the flight, before BBR2 learns of them.
    pub(super) fn sidekick_confirm(&mut self, epoch: Epoch, now: Instant) {
        // This runs for each ACK frame, and a connection without a proxy has no reports.
        if !self.epochs[epoch].sidekick.has_open() {
            return;
        }
        let sent_before = now.checked_sub(self.rtt_stats.loss_delay(self.loss_thresh.time_thresh()));
        let packets = self.loss_thresh.pkt_thresh();
        let RecoveryEpoch { sidekick, pkts_in_flight, largest_acked_packet, .. } = &mut self.epochs[epoch];
        let confirmed = sidekick.take_confirmed(*largest_acked_packet, packets, sent_before);
        if confirmed.is_empty() {
            return;
        }
        for (packet_number, report) in confirmed.iter().filter(|(_, report)| report.in_flight) {
            if report.reaction == Reaction::Neutered {
                self.pacer.on_packet_neutered(*packet_number);
                continue;
            }
            self.lost_reuse.push(Lost { packet_number: *packet_number, bytes_lost: report.size });
            if !leaves_at_once(report.reaction) {
                self.bytes_in_flight.saturating_subtract(report.size, now);
                *pkts_in_flight = pkts_in_flight.saturating_sub(1);
            }
        }
        // The sampler requires them in order: the last one represents all.
        self.lost_reuse.sort_unstable_by_key(|packet| packet.packet_number);
        self.lost_count += confirmed.len();
    }

    /// Restores a packet that was declared lost and is now acknowledged: it arrived.
    ///
    /// quiche's code would treat it as reordering and wait longer for every later loss, but a wrong
    /// report is no evidence of reordering on the path.
    fn take_back(&mut self, ranges: &RangeSet, epoch: Epoch, now: Instant) {
        let RecoveryEpoch { sidekick, sent_packets, pkts_in_flight, .. } = &mut self.epochs[epoch];
        for (number, report) in sidekick.take_acknowledged(ranges) {
            let index = sent_packets.binary_search_by_key(&number, |packet| packet.pkt_num);
            let Some(packet) = index.ok().and_then(|index| sent_packets.get_mut(index)) else { continue };
            let Some(report) = report else {
                packet.status.ack();
                continue;
            };
            if report.in_flight && leaves_at_once(report.reaction) {
                *pkts_in_flight += 1;
                self.bytes_in_flight.add(report.size, now);
            }
            packet.status = SentStatus::Sent {
                time_sent: report.time_sent,
                ack_eliciting: report.ack_eliciting,
                in_flight: report.in_flight,
                has_data: report.has_data,
                is_pmtud_probe: false,
                sent_bytes: report.size,
                frames: report.frames,
            };
        }
    }
}

impl RecoveryEpoch {
    /// Marks one packet lost. Returns whether it was outstanding.
    fn lose_early(
        &mut self,
        number: u64,
        reaction: Reaction,
        now: Instant,
        window: usize,
        loss: &mut Loss,
    ) -> bool {
        let Ok(index) = self.sent_packets.binary_search_by_key(&number, |packet| packet.pkt_num) else {
            return false;
        };
        let status = &mut self.sent_packets[index].status;
        let SentStatus::Sent { is_pmtud_probe: false, sent_bytes, .. } = *status else { return false };
        if !self.sidekick.has_room(sent_bytes, window) {
            return false;
        }
        let SentStatus::Sent { time_sent, ack_eliciting, in_flight, has_data, sent_bytes, frames, .. } =
            status.lose()
        else {
            return false;
        };
        self.lost_frames_ack.extend(frames.iter().cloned());
        if in_flight {
            self.pkts_in_flight -= usize::from(leaves_at_once(reaction)).min(self.pkts_in_flight);
            loss.packets += 1;
            loss.bytes += sent_bytes;
        }
        let size = sent_bytes;
        let report =
            Report { reaction, reported: now, time_sent, size, in_flight, ack_eliciting, has_data, frames };
        self.sidekick.declare(number, report);
        true
    }

    /// Recomputes when the next packet is declared lost by time, because the packet that determined
    /// it may be gone.
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
