//! Early loss for the controllers of the legacy stack (Reno and both CUBICs).
//!
//! A packet declared lost early is treated like any lost packet: it is marked, its frames are
//! queued for retransmission, and it leaves the flight. The controller learns of it when the
//! receiver confirms the loss. Until then the record stays, because the packet may be acknowledged
//! after all.
#![warn(missing_docs, missing_debug_implementations, unreachable_pub, unused_qualifications)]
#![warn(clippy::all, clippy::cast_possible_truncation, clippy::expect_used, clippy::unwrap_used)]

use std::time::{Duration, Instant};

use super::{Acked, LegacyRecovery, RecoveryEpoch};
use crate::packet::Epoch;
use crate::ranges::RangeSet;
use crate::recovery::congestion::CongestionControlOps;
use crate::recovery::{HandshakeStatus, RecoveryOps, Sent, GRANULARITY, MAX_PTO_PROBES_COUNT};
use crate::sidekick::{EarlyLosses, Reaction, Report};
use crate::CongestionControlAlgorithm;

/// The bytes that stay in flight of a packet that a proxy has.
const RESIDUE: usize = 1;

/// Packets that were in flight.
#[derive(Default)]
struct Loss {
    packets: usize,
    bytes: usize,
}

/// Confirmed losses, grouped for the controller.
struct Event {
    reaction: Reaction,
    at: Instant,
    bytes: usize,
    largest: Sent,
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
        let window = self.congestion.congestion_window;
        let epoch = &mut self.epochs[Epoch::Application];
        let mut loss = Loss::default();
        let declared = packet_numbers
            .iter()
            .filter(|&&number| epoch.lose_early(number, reaction, now, window, &mut loss))
            .count();
        if declared == 0 {
            return 0;
        }
        self.bytes_in_flight.saturating_subtract(loss.bytes, now);

        let loss_delay = self.rtt_stats.loss_delay(self.time_thresh);
        let epoch = &mut self.epochs[Epoch::Application];
        epoch.correct_loss_time(loss_delay);
        // A probe known to be lost need not wait for room in the window (RFC 9002, section 7.5), or
        // for the next timeout, which is twice as long.
        if self.pto_count > 0 {
            epoch.loss_probes = epoch.loss_probes.max(loss.packets.min(MAX_PTO_PROBES_COUNT));
        }
        self.set_loss_detection_timer(handshake_status, now);
        declared
    }

    /// Releases the window of packets that a proxy has; see `Connection::sidekick_received`.
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
            // Only the controller learns of it: acknowledgements alone measure the path.
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

    /// Suspends the loss detection of a packet of the Application space that is sent again; see
    /// `Connection::sidekick_resend`. Returns false if it is not outstanding, or too many are held.
    pub(crate) fn sidekick_hold(&mut self, number: u64, elsewhere: bool, now: Instant) -> bool {
        let rtt = &self.rtt_stats;
        let delay = rtt.latest_rtt.max(rtt.rtt()).mul_f64(self.time_thresh) + rtt.max_ack_delay;
        let epoch = &mut self.epochs[Epoch::Application];
        let sent = epoch.sent_packets.binary_search_by_key(&number, |packet| packet.pkt_num);
        let outstanding = sent.ok().and_then(|index| epoch.sent_packets.get(index)).is_some_and(|packet| {
            packet.time_acked.is_none() && packet.time_lost.is_none() && !packet.is_pmtud_probe
        });
        let held = outstanding && epoch.sidekick.may_hold(number);
        if held {
            let last = epoch.sent_packets.back().map_or(number, |last| last.pkt_num);
            epoch.sidekick.hold(number, last, elsewhere, now, now + delay.max(GRANULARITY));
        }
        held
    }

    /// Resets the back-off of the probe timeout, as an acknowledgement does.
    #[cfg(test)]
    pub(crate) fn sidekick_end_backoff(&mut self) {
        self.pto_count = 0;
    }

    /// Shrinks the window below the flight, as a reaction to losses does.
    #[cfg(test)]
    pub(crate) fn sidekick_shrink_window(&mut self) {
        self.congestion.congestion_window = self.bytes_in_flight.get() / 2;
    }

    /// The early losses of the Application space.
    pub(crate) fn sidekick_losses(&self) -> &EarlyLosses {
        &self.epochs[Epoch::Application].sidekick
    }

    /// The controller's name, as for applications.
    pub(crate) fn sidekick_congestion_control(&self) -> Option<&'static str> {
        let controllers = [
            ("reno", CongestionControlAlgorithm::Reno),
            ("cubic", CongestionControlAlgorithm::CUBIC),
            ("cubic-rfc9438", CongestionControlAlgorithm::CubicRfc9438),
            ("hybla", CongestionControlAlgorithm::Hybla),
        ];
        let ours = |algorithm: CongestionControlAlgorithm| {
            std::ptr::eq(self.congestion.cc_ops, <&CongestionControlOps>::from(algorithm))
        };
        controllers.into_iter().find(|(_, algorithm)| ours(*algorithm)).map(|(name, _)| name)
    }

    /// Reports losses to the controller, in the order of quiche's own loss detection.
    fn react(&mut self, event: &Event) {
        let Event { reaction, at, bytes, largest } = event;
        let congestion = &mut self.congestion;
        if !congestion.in_congestion_recovery(largest.time_sent) {
            (congestion.cc_ops.checkpoint)(congestion);
        }
        let near_ratio = match reaction {
            Reaction::NearLoss { ratio } => Some(*ratio),
            Reaction::Loss | Reaction::Congestion | Reaction::Neutered => None,
        };
        congestion.cubic_rfc9438_state.set_near_ratio(near_ratio);
        let bytes_in_flight = self.bytes_in_flight.get();
        (congestion.cc_ops.congestion_event)(congestion, bytes_in_flight, *bytes, largest, *at);
        congestion.cubic_rfc9438_state.set_near_ratio(None);
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

    /// Reports the losses that the receiver confirmed to the controller. Runs where quiche's code
    /// does so for the losses that it just detected end to end.
    pub(super) fn sidekick_confirm(&mut self, epoch: Epoch, now: Instant) {
        // This runs for each ACK frame, and a connection without a proxy has no reports.
        if !self.epochs[epoch].sidekick.has_open() {
            return;
        }
        let delay = self.rtt_stats.latest_rtt.max(self.rtt_stats.rtt()).mul_f64(self.time_thresh);
        let sent_before = now.checked_sub(delay.max(GRANULARITY));
        let RecoveryEpoch { sidekick, sent_packets, largest_acked_packet, .. } = &mut self.epochs[epoch];
        let confirmed = sidekick.take_confirmed(*largest_acked_packet, Some(self.pkt_thresh), sent_before);
        let mut events: Vec<Event> = Vec::new();
        for (number, report) in &confirmed {
            let index = sent_packets.binary_search_by_key(number, |packet| packet.pkt_num);
            let packet = index.ok().and_then(|index| sent_packets.get(index));
            let Some(packet) = packet.filter(|packet| packet.in_flight && packet.size > 0) else { continue };
            let largest = packet.clone();
            // The near window answers as of the time of the proxy's report.
            let at = if matches!(report.reaction, Reaction::NearLoss { .. }) { report.reported } else { now };
            match events.last_mut().filter(|event| event.at == at && event.reaction == report.reaction) {
                Some(event) => (event.bytes, event.largest) = (event.bytes + largest.size, largest),
                None => {
                    let (reaction, bytes) = (report.reaction, largest.size);
                    events.push(Event { reaction, at, bytes, largest });
                }
            }
        }
        events.iter().for_each(|event| self.react(event));
        // quiche's CUBIC considers an episode with few lost packets, by this count, spurious.
        self.congestion.lost_count += confirmed.len();
    }

    /// Restores a packet that was declared lost and is now acknowledged: it arrived.
    ///
    /// quiche's code would treat it as reordering and wait longer for every later loss, but a wrong
    /// report is no evidence of reordering on the path. If the receiver had confirmed the loss, the
    /// reduction of the window is undone as quiche's code would.
    fn take_back(&mut self, ranges: &RangeSet, epoch: Epoch, now: Instant) {
        let RecoveryEpoch { sidekick, sent_packets, in_flight_count, .. } = &mut self.epochs[epoch];
        let mut undo = false;
        for (number, report) in sidekick.take_acknowledged(ranges) {
            let index = sent_packets.binary_search_by_key(&number, |packet| packet.pkt_num);
            let packet = index.ok().and_then(|index| sent_packets.get_mut(index));
            match (report, packet) {
                (Some(report), Some(packet)) => {
                    packet.time_lost = None;
                    packet.frames = report.frames;
                    if packet.in_flight {
                        *in_flight_count += 1;
                        self.bytes_in_flight.add(packet.size, now);
                    }
                }
                (None, Some(packet)) => {
                    undo |= packet.in_flight;
                    packet.time_acked = Some(now);
                }
                (_, None) => {}
            }
        }
        if undo {
            (self.congestion.cc_ops.rollback)(&mut self.congestion);
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
        let packet = &mut self.sent_packets[index];
        let settled = packet.time_acked.is_some() || packet.time_lost.is_some() || packet.is_pmtud_probe;
        if settled || !self.sidekick.has_room(packet.size, window) {
            return false;
        }
        packet.time_lost = Some(now);
        self.lost_frames_ack.extend(packet.frames.iter().cloned());
        if packet.in_flight {
            self.in_flight_count = self.in_flight_count.saturating_sub(1);
            loss.packets += 1;
            loss.bytes += packet.size;
        }
        let report = Report {
            reaction,
            reported: now,
            time_sent: packet.time_sent,
            size: packet.size,
            in_flight: packet.in_flight,
            ack_eliciting: packet.ack_eliciting,
            has_data: packet.has_data,
            frames: std::mem::take(&mut packet.frames),
        };
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
        self.loss_time = self
            .sent_packets
            .iter()
            .take_while(|packet| packet.pkt_num <= largest_acked)
            .find(|packet| packet.time_acked.is_none() && packet.time_lost.is_none())
            .map(|packet| packet.time_sent + loss_delay.max(GRANULARITY));
    }
}
