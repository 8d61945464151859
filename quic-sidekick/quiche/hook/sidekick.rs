//! The Sidekick hook's additions to a [`Connection`]: a log of the packets sent, and early loss.
//!
//! A proxy near the sender reports which datagrams it saw. To use its reports, a sender needs two
//! features that quiche does not offer: the bytes of each datagram on the wire
//! ([`Connection::sidekick_logged`]), and a way to declare a packet lost before the receiver's
//! acknowledgements show the loss ([`Connection::sidekick_early_lost`]).
//!
//! The hook can also carry datagrams that are not QUIC on the connection's own path, to find a
//! proxy there ([`Connection::sidekick_send_side_channel`],
//! [`Connection::sidekick_drain_side_channel`]).
//!
//! It can send a datagram again unchanged ([`Connection::sidekick_resend`]), and release congestion
//! window for packets that a proxy has ([`Connection::sidekick_received`]). It can acknowledge less
//! often ([`Connection::sidekick_acknowledge`]), and ask the peer to
//! ([`Connection::sidekick_ask_for_acks`]).
//!
//! For what a client receives, it can report gaps in the packet numbers, hold acknowledgements back
//! until a gap is closed, and take a proxy's copies ([`Connection::sidekick_report_gaps`]).
//!
//! Everything is off until the application calls [`Connection::sidekick_log`],
//! [`Connection::sidekick_acknowledge`], [`Connection::sidekick_ask_for_acks`],
//! [`Connection::sidekick_whole_packets`], [`Connection::sidekick_repeat_handshake`],
//! [`Connection::sidekick_report_gaps`], [`with_repeated_handshakes`] or [`with_initial_rtt`].
//! Without these calls a connection behaves like quiche's, except for the fix of a hang of quiche
//! 0.30.0 (see the table of insertions). In quiche, a stream blocks all others when the data that
//! it must resend is acknowledged first.
//!
//! Order of calls: send until quiche has no more to send, then read and empty the log. Later
//! declare losses, then send again, because the lost frames wait to be resent. Every call takes the
//! time as an argument; none reads a clock.
#![warn(missing_docs, missing_debug_implementations, unreachable_pub, unused_qualifications)]
#![warn(clippy::all, clippy::cast_possible_truncation, clippy::expect_used, clippy::unwrap_used)]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::recovery::{Recovery, RecoveryOps};
use crate::{BufFactory, Connection};

mod acks;
mod again;
mod arrivals;
mod side_channel;
mod frequency;
mod gaps;
mod initial_rtt;
mod late;
mod log;
#[cfg(feature = "qlog")]
mod qlog;
mod receive;
mod reports;
mod window;

pub use again::with_repeated_handshakes;
pub use gaps::{Gap, GapEnd, GapEvent};
pub use initial_rtt::with_initial_rtt;
pub(crate) use initial_rtt::with_own_initial_rtt;
pub use log::{SentPacket, HEAD_LEN};
pub use receive::{Arrived, Hold};
pub(crate) use side_channel::answered_connection;
pub(crate) use reports::{EarlyLosses, Report};
pub(crate) use window::WideWindow;

/// How the congestion controller reacts to an early loss, once the receiver confirmed it. It
/// confirms a loss by acknowledging later packets, as many or as much later as loss detection
/// requires. A proxy's report alone affects no controller, except by
/// [`Connection::sidekick_received`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reaction {
    /// As to any loss.
    Loss,
    /// As to a loss from congestion. For BBR2 the packet stays in flight until the loss is
    /// confirmed, as without a proxy. So a packet that a queue before the proxy dropped makes no
    /// room. For the other controllers it is a [`Loss`](Self::Loss).
    Congestion,
    /// As to a loss on the segment between the sender and the proxy. `cubic-rfc9438` scales its
    /// reaction by the ratio. For the other controllers it is a [`Loss`](Self::Loss).
    NearLoss {
        /// The near segment's round-trip time divided by that of the whole path, in (0, 1]. Values
        /// above 1 count as 1; any other value outside the range makes the loss a
        /// [`Loss`](Self::Loss).
        ratio: f64,
    },
    /// Not at all: BBR2 forgets that it sent the packets. For the controllers without a model of
    /// the path (Reno and both CUBICs) it is a [`Loss`](Self::Loss).
    Neutered,
}

impl<F: BufFactory> Connection<F> {
    /// Delays 1-RTT packets until the congestion window has room for a whole one. quiche fills the
    /// rest of a window with a tiny packet instead. Off by default. With nothing in flight a packet
    /// is sent in any case.
    ///
    /// A loss-based controller then sends a quarter fewer packets, and receives fewer
    /// acknowledgements. The rest of a window stays empty until the next acknowledgement.
    pub fn sidekick_whole_packets(&mut self, whole: bool) {
        self.sidekick.whole_packets = whole;
    }

    /// Declares packets of the Application space lost, so that the next `send` resends their
    /// frames. Returns the number of packets declared lost.
    ///
    /// `path_id` is that of the packet in the log. The call skips numbers that were never sent on
    /// that path, are acknowledged or already lost, and path MTU probes, whose loss is an answer.
    /// It also skips packets while 4096 await the receiver's confirmation. The packets leave the
    /// flight. If one is acknowledged after all, it returns to the flight first, and then counts
    /// like any other packet. The connection's `Stats::lost` remains the count of losses detected
    /// end to end; `PathStats::lost` includes early losses once confirmed.
    pub fn sidekick_early_lost(
        &mut self,
        path_id: usize,
        packet_numbers: &[u64],
        reaction: Reaction,
        now: Instant,
    ) -> usize {
        let handshake_status = self.handshake_status();
        let Ok(path) = self.paths.get_mut(path_id) else { return 0 };
        let declared = match &mut path.recovery {
            Recovery::Legacy(recovery) => {
                recovery.sidekick_early_lost(packet_numbers, reaction, handshake_status, now)
            }
            Recovery::GCongestion(recovery) => {
                recovery.sidekick_early_lost(packet_numbers, reaction, handshake_status, now)
            }
        };
        if declared > 0 {
            // The application's send capacity depends on the bytes in flight.
            self.update_tx_cap();
            #[cfg(feature = "qlog")]
            self.sidekick_qlog_metrics(path_id, now);
        }
        declared
    }

    /// Releases the congestion window of packets of the Application space that a proxy received.
    /// They leave the flight, except one byte each, and the window grows as if they were
    /// acknowledged. Returns the number of them that were outstanding.
    ///
    /// quiche keeps the data until the receiver acknowledges it. It detects losses behind the proxy
    /// as before, and measures the round-trip time by acknowledgements alone. The remaining byte
    /// keeps the probe timeout running. When a packet waits for its acknowledgement longer than two
    /// probe timeouts, the proxy's reports release no more window until the acknowledgement
    /// arrives. So the data sent to a silent receiver stays bounded. `Stats::acked_bytes`,
    /// `lost_bytes` and the delivery rate count only the byte.
    ///
    /// Use it only for a path whose bottleneck lies before the proxy: nothing limits the data in
    /// flight behind it. BBR2, which measures by acknowledgements, ignores it.
    pub fn sidekick_received(&mut self, path_id: usize, packet_numbers: &[u64], now: Instant) -> usize {
        let Ok(path) = self.paths.get_mut(path_id) else { return 0 };
        let received = match &mut path.recovery {
            Recovery::Legacy(recovery) => recovery.sidekick_received(packet_numbers, now),
            Recovery::GCongestion(_) => 0,
        };
        if received > 0 {
            self.update_tx_cap();
        }
        received
    }

    /// The number of packets declared lost early on the connection's present paths.
    pub fn sidekick_early_lost_count(&self) -> u64 {
        self.early_losses().map(|losses| losses.declared).sum()
    }

    /// Whether a packet of the Application space was declared lost early and may still be
    /// acknowledged. The hook keeps the 1024 highest confirmed numbers of each path, and all
    /// unconfirmed ones.
    pub fn sidekick_is_early_lost(&self, path_id: usize, packet_number: u64) -> bool {
        let Ok(path) = self.paths.get(path_id) else { return false };
        early_losses(&path.recovery).awaits(packet_number)
    }

    /// The number of packets declared lost early that the receiver acknowledged after all, on the
    /// connection's present paths. Their frames were resent needlessly.
    pub fn sidekick_spurious(&self) -> u64 {
        self.early_losses().map(|losses| losses.spurious).sum()
    }

    /// The number of reports that the receiver refuted, on the connection's present paths: it
    /// acknowledged the packet in its turn, before it acknowledged later ones. Reordering does not
    /// count. A growing number means that the reports are wrong.
    pub fn sidekick_refuted(&self) -> u64 {
        self.early_losses().map(|losses| losses.refuted).sum()
    }

    /// The number of packets that were sent again unchanged and acknowledged without showing which
    /// attempt arrived, on the connection's present paths. That happens if the receiver
    /// acknowledges many packets at once.
    pub fn sidekick_undecided(&self) -> u64 {
        self.early_losses().map(|losses| losses.undecided).sum()
    }

    /// The smoothed end-to-end round-trip time of a path, once measured.
    pub fn sidekick_rtt(&self, path_id: usize) -> Option<Duration> {
        let recovery = &self.paths.get(path_id).ok()?.recovery;
        recovery.min_rtt().map(|_| recovery.rtt())
    }

    /// The active path's identifier in the log, with its local and its peer's address.
    pub fn sidekick_active_path(&self) -> Option<(usize, SocketAddr, SocketAddr)> {
        let path_id = self.paths.get_active_path_id().ok()?;
        let path = self.paths.get(path_id).ok()?;
        Some((path_id, path.local_addr(), path.peer_addr()))
    }

    /// The name of the active path's congestion controller, as for `Config::set_cc_algorithm_name`.
    pub fn sidekick_congestion_control(&self) -> Option<&'static str> {
        match &self.paths.get_active().ok()?.recovery {
            Recovery::Legacy(recovery) => recovery.sidekick_congestion_control(),
            Recovery::GCongestion(_) => Some("bbr2_gcongestion"),
        }
    }

    fn early_losses(&self) -> impl Iterator<Item = &EarlyLosses> {
        self.paths.iter().map(|(_, path)| early_losses(&path.recovery))
    }

    /// Logs the datagram that was just encrypted. The number of its 1-RTT packet is the last one
    /// assigned.
    #[inline(always)]
    pub(crate) fn sidekick_record(&mut self, path_id: usize, datagram: &[u8], now: Instant) {
        self.sidekick_acks_sent();
        // The header form is not protected (RFC 9001, section 5.4.1).
        if datagram.first().is_some_and(|first| first & 0x80 != 0) {
            self.sidekick_keep_flight(path_id, datagram, now);
        } else {
            self.sidekick.frequency.sent(now);
            if self.sidekick.log.is_on() {
                self.sidekick_log_sent(path_id, datagram, now);
            }
        }
    }

    /// Performs the actions that [`State::due`] announced.
    pub(crate) fn sidekick_on_timeout(&mut self, now: Instant) {
        self.sidekick_repeat(now);
        self.sidekick_acks_due(now);
        self.sidekick_receive_due(now);
    }
}

fn early_losses(recovery: &Recovery) -> &EarlyLosses {
    match recovery {
        Recovery::Legacy(recovery) => recovery.sidekick_losses(),
        Recovery::GCongestion(recovery) => recovery.sidekick_losses(),
    }
}

/// The hook's state of a connection.
#[derive(Debug, Default)]
pub(crate) struct State {
    log: log::Log,
    side_channel: side_channel::SideChannel,
    again: again::Again,
    acks: acks::Acks,
    whole_packets: bool,
    frequency: frequency::Frequency,
    receive: receive::Receive,
}

impl State {
    /// When a repetition of the handshake, an acknowledgement, or the end of a gap is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        [self.again.due(), self.acks.due(), self.receive.due()].into_iter().flatten().min()
    }

    /// The part of the window that a packet of at most `left` bytes may use.
    #[inline]
    pub(crate) fn room(&self, available: usize, left: usize, in_flight: impl FnOnce() -> usize) -> usize {
        // This runs for every packet, and few connections ask for it.
        let wait = self.whole_packets && available < left && in_flight() > 0;
        if wait {
            0
        } else {
            available
        }
    }
}

#[cfg(test)]
mod tests;
