//! Early loss for the controllers of the legacy stack (Reno and both CUBICs).
//!
//! A packet declared lost early goes the way of any lost packet: it is marked, its frames move to the retransmission
//! queue, it leaves the flight, and the controller hears of it. The record stays until the stock code drains it.
#![warn(missing_docs, missing_debug_implementations, unreachable_pub, unused_qualifications)]
#![warn(clippy::all, clippy::cast_possible_truncation, clippy::expect_used, clippy::unwrap_used)]

use std::time::{Duration, Instant};

use super::{Acked, LegacyRecovery, RecoveryEpoch};
use crate::packet::Epoch;
use crate::ranges::RangeSet;
use crate::recovery::congestion::CongestionControlOps;
use crate::recovery::{HandshakeStatus, RecoveryOps, Sent, GRANULARITY, MAX_PTO_PROBES_COUNT};
use crate::sidekick::{EarlyLosses, Reaction};
use crate::CongestionControlAlgorithm;

/// What stays in flight of a packet that a proxy has, in bytes.
const RESIDUE: usize = 1;

/// The packets of one report that were in flight, as the controller wants to hear of them.
#[derive(Default)]
struct Loss {
    packets: usize,
    bytes: usize,
    largest: Option<Sent>,
}

impl LegacyRecovery {
    /// Declares packets of the Application space lost; see `Connection::sidekick_early_lost`.
    pub(crate) fn sidekick_early_lost(
        &mut self,
        packet_numbers: &[u64],
        reaction: Reaction,
        handshake_status: HandshakeStatus,
        now: Instant,
    ) -> usize {
        let epoch = &mut self.epochs[Epoch::Application];
        let mut loss = Loss::default();
        let declared =
            packet_numbers.iter().filter(|&&number| epoch.lose_early(number, now, &mut loss)).count();
        if declared == 0 {
            return 0;
        }
        if let Some(largest) = loss.largest {
            self.react(&largest, loss.bytes, reaction, now);
            self.bytes_in_flight.saturating_subtract(loss.bytes, now);
        }
        // Stock CUBIC takes an episode for spurious that lost few packets by this count.
        self.congestion.lost_count += declared;

        let loss_delay = self.rtt_stats.loss_delay(self.time_thresh);
        let epoch = &mut self.epochs[Epoch::Application];
        epoch.correct_loss_time(loss_delay);
        // A probe that is known to be lost need not wait for the next timeout, which comes twice as late, or for room in the
        // window (RFC 9002, section 7.5).
        if self.pto_count > 0 {
            epoch.loss_probes = epoch.loss_probes.max(loss.packets.min(MAX_PTO_PROBES_COUNT));
        }
        self.set_loss_detection_timer(handshake_status, now);
        declared
    }

    /// Lets go of the window of packets that a proxy has; see `Connection::sidekick_received`.
    pub(crate) fn sidekick_received(&mut self, packet_numbers: &[u64], now: Instant) -> usize {
        let patience = 2 * self.pto() + self.rtt_stats.max_ack_delay;
        let outstanding = |packet: &Sent| packet.time_acked.is_none() && packet.time_lost.is_none();
        let oldest = self.epochs[Epoch::Application].sent_packets.iter().find(|packet| outstanding(packet));
        if oldest.is_some_and(|packet| packet.time_sent + patience < now) {
            return 0;
        }
        let Self { epochs, newly_acked, rtt_stats, .. } = self;
        let epoch = &mut epochs[Epoch::Application];
        newly_acked.clear();
        for number in packet_numbers {
            let found = epoch.sent_packets.binary_search_by_key(number, |packet| packet.pkt_num);
            let Some(packet) = found.ok().and_then(|index| epoch.sent_packets.get_mut(index)) else { continue };
            if !outstanding(packet) || !packet.in_flight || packet.is_pmtud_probe || packet.size <= RESIDUE {
                continue;
            }
            newly_acked.push(Acked {
                pkt_num: packet.pkt_num,
                time_sent: packet.time_sent,
                size: packet.size - RESIDUE,
                rtt: rtt_stats.latest_rtt,
                delivered: packet.delivered,
                delivered_time: packet.delivered_time,
                first_sent_time: packet.first_sent_time,
                is_app_limited: packet.is_app_limited,
            });
            packet.size = RESIDUE;
        }
        let received = newly_acked.len();
        if received > 0 {
            let bytes = newly_acked.iter().map(|packet| packet.size).sum();
            let in_flight = self.bytes_in_flight.get();
            // The controller alone: what is measured of the path is measured by acknowledgements.
            (self.congestion.cc_ops.on_packets_acked)(
                &mut self.congestion,
                in_flight,
                &mut self.newly_acked,
                now,
                &self.rtt_stats,
            );
            self.bytes_in_flight.saturating_subtract(bytes, now);
        }
        received
    }

    /// Holds the loss detection of a packet of the Application space that goes out again; see
    /// `Connection::sidekick_resend`. False if it is not outstanding.
    pub(crate) fn sidekick_hold(&mut self, number: u64, now: Instant) -> bool {
        let rtt = &self.rtt_stats;
        let delay = rtt.latest_rtt.max(rtt.rtt()).mul_f64(self.time_thresh) + rtt.max_ack_delay;
        let epoch = &mut self.epochs[Epoch::Application];
        let sent = epoch.sent_packets.binary_search_by_key(&number, |packet| packet.pkt_num);
        let outstanding = sent.ok().and_then(|index| epoch.sent_packets.get(index)).is_some_and(|packet| {
            packet.time_acked.is_none() && packet.time_lost.is_none() && !packet.is_pmtud_probe
        });
        if outstanding {
            epoch.sidekick.hold(number, now, now + delay.max(GRANULARITY));
        }
        outstanding
    }

    /// Ends the back-off of the probe timeout, as an acknowledgement does.
    #[cfg(test)]
    pub(crate) fn sidekick_end_backoff(&mut self) {
        self.pto_count = 0;
    }

    /// The early losses of the Application space.
    pub(crate) fn sidekick_losses(&self) -> &EarlyLosses {
        &self.epochs[Epoch::Application].sidekick
    }

    /// The controller's name, as applications choose it.
    pub(crate) fn sidekick_congestion_control(&self) -> Option<&'static str> {
        let controllers = [
            ("reno", CongestionControlAlgorithm::Reno),
            ("cubic", CongestionControlAlgorithm::CUBIC),
            ("cubic-rfc9438", CongestionControlAlgorithm::CubicRfc9438),
        ];
        let ours = |algorithm: CongestionControlAlgorithm| {
            std::ptr::eq(self.congestion.cc_ops, <&CongestionControlOps>::from(algorithm))
        };
        controllers.into_iter().find(|(_, algorithm)| ours(*algorithm)).map(|(name, _)| name)
    }

    /// Tells the controller, in the order in which the stock loss detection does.
    fn react(&mut self, largest: &Sent, bytes: usize, reaction: Reaction, now: Instant) {
        let congestion = &mut self.congestion;
        if !congestion.in_congestion_recovery(largest.time_sent) {
            (congestion.cc_ops.checkpoint)(congestion);
        }
        let near_ratio = match reaction {
            Reaction::NearLoss { ratio } => Some(ratio),
            Reaction::Loss | Reaction::Neutered => None,
        };
        congestion.cubic_rfc9438_state.set_near_ratio(near_ratio);
        let bytes_in_flight = self.bytes_in_flight.get();
        (congestion.cc_ops.congestion_event)(congestion, bytes_in_flight, bytes, largest, now);
        congestion.cubic_rfc9438_state.set_near_ratio(None);
    }

    /// Closes the early losses that an ACK frame proves wrong. Runs before the frame is applied.
    ///
    /// The stock code would take them for reordering and wait longer for every loss from then on; a wrong report says
    /// nothing about the order on the path. The reduction of the window is undone as the stock code would.
    pub(super) fn sidekick_on_ack(&mut self, ranges: &RangeSet, epoch: Epoch, now: Instant) {
        let min_rtt = self.min_rtt();
        let RecoveryEpoch { sidekick, sent_packets, .. } = &mut self.epochs[epoch];
        sidekick.release(ranges, min_rtt, now);
        let mut undo = false;
        sidekick.take_acknowledged(ranges, |number, in_flight| {
            undo |= in_flight;
            if let Ok(index) = sent_packets.binary_search_by_key(&number, |packet| packet.pkt_num) {
                sent_packets[index].time_acked = Some(now);
            }
        });
        if undo {
            (self.congestion.cc_ops.rollback)(&mut self.congestion);
        }
    }
}

impl RecoveryEpoch {
    /// Marks one packet lost. Returns whether it was there to lose.
    fn lose_early(&mut self, number: u64, now: Instant, loss: &mut Loss) -> bool {
        let Ok(index) = self.sent_packets.binary_search_by_key(&number, |packet| packet.pkt_num) else {
            return false;
        };
        let packet = &mut self.sent_packets[index];
        if packet.time_acked.is_some() || packet.time_lost.is_some() || packet.is_pmtud_probe {
            return false;
        }
        packet.time_lost = Some(now);
        self.lost_frames_ack.extend(packet.frames.drain(..));
        if packet.in_flight {
            self.in_flight_count = self.in_flight_count.saturating_sub(1);
            loss.packets += 1;
            loss.bytes += packet.size;
            let larger = loss.largest.as_ref().is_none_or(|largest| largest.pkt_num < number);
            if packet.size > 0 && larger {
                loss.largest = Some(packet.clone());
            }
        }
        self.sidekick.declare(number, packet.in_flight);
        true
    }

    /// Recomputes when the next packet is to be declared lost by time, as the packet it was set for may be gone.
    fn correct_loss_time(&mut self, loss_delay: Duration) {
        if self.loss_time.is_none() {
            return;
        }
        let largest_acked = self.largest_acked_packet.unwrap_or(0);
        self.loss_time = self
            .sent_packets
            .iter()
            .take_while(|packet| packet.pkt_num <= largest_acked)
            .find(|packet| packet.time_acked.is_none() && packet.time_lost.is_none())
            .map(|packet| packet.time_sent + loss_delay.max(GRANULARITY));
    }
}
