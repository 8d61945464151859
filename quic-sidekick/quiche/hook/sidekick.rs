//! What the Sidekick hook adds to a [`Connection`]: a log of the packets sent, and early loss.
//!
//! A proxy near the sender tells which datagrams it has seen. To use that, a sender needs two
//! things that quiche does not offer: what each datagram looked like on the wire
//! ([`Connection::sidekick_drain`]), and a way to say that a packet is lost before the receiver's
//! acknowledgements can say so ([`Connection::sidekick_early_lost`]).
//!
//! Besides, it can carry datagrams that are not QUIC on the connection's own path, to find a proxy
//! there ([`Connection::sidekick_send_side_channel`], [`Connection::sidekick_drain_side_channel`]).
//!
//! And it can send a datagram once more as it was ([`Connection::sidekick_resend`]), take a proxy's
//! word for room in the window ([`Connection::sidekick_received`]), acknowledge seldom
//! ([`Connection::sidekick_acknowledge`]) and ask others to
//! ([`Connection::sidekick_ask_for_acks`]).
//!
//! All is off until [`Connection::sidekick_log`], [`Connection::sidekick_acknowledge`],
//! [`Connection::sidekick_ask_for_acks`], [`Connection::sidekick_whole_packets`],
//! [`Connection::sidekick_repeat_handshake`] or [`with_repeated_handshakes`] is called; without any of
//! these a connection behaves as quiche does, but for a hang of quiche 0.30.0 that is mended (see
//! the table of insertions): there, a stream blocks all others when what it was to resend is
//! acknowledged before it could.
//!
//! Order of calls: send until quiche has no more to send, drain the log, later declare losses, then
//! send again, since the lost frames wait to be resent. Every call takes the time as an argument;
//! none reads a clock.
#![warn(missing_docs, missing_debug_implementations, unreachable_pub, unused_qualifications)]
#![warn(clippy::all, clippy::cast_possible_truncation, clippy::expect_used, clippy::unwrap_used)]

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::recovery::{Recovery, RecoveryOps};
use crate::{BufFactory, Connection};

mod acks;
mod again;
mod side_channel;
mod frequency;
#[cfg(feature = "qlog")]
mod qlog;
mod reports;

pub use again::with_repeated_handshakes;
pub(crate) use side_channel::answered_connection;
pub(crate) use reports::{EarlyLosses, Report};

/// How many leading bytes of a datagram the log keeps.
pub const HEAD_LEN: usize = 32;

/// A datagram that begins with a 1-RTT packet, as it was handed to the event loop.
///
/// A 1-RTT packet behind a long header in the same datagram is not logged: what a proxy sees of
/// that datagram is the long header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentPacket {
    /// The path it was sent on, as [`Connection::sidekick_early_lost`] wants it.
    pub path_id: usize,
    /// Its packet number, in the Application space.
    pub packet_number: u64,
    /// Its length in bytes, without UDP and IP headers.
    pub size: usize,
    /// When it was made. An event loop that paces asks `Connection::get_next_release_time` before,
    /// so it is then sent.
    pub time_sent: Instant,
    /// The leading bytes of the ciphertext, followed by zeros when `size` is smaller.
    pub head: [u8; HEAD_LEN],
    /// The address it is sent from.
    pub local_addr: SocketAddr,
    /// The address it is sent to.
    pub peer_addr: SocketAddr,
    /// Whether its path was the active one; a packet of another path probes it.
    pub active_path: bool,
    /// It was sent before, and `sidekick_resend` has sent it again.
    pub again: bool,
    /// All of it, if the log keeps that ([`Connection::sidekick_keep_datagrams`]) and it was sent
    /// for the first time.
    pub datagram: Vec<u8>,
}

/// How the congestion controller learns of an early loss, once the receiver has confirmed it: it
/// has acknowledged later packets, as many or as much later as loss detection waits for. A proxy's
/// word alone moves no controller, but for [`Connection::sidekick_received`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reaction {
    /// As of any loss.
    Loss,
    /// As of any loss, which is one of congestion: to BBR2 the packet stays in flight until the
    /// loss is confirmed, as it does without a proxy. What a queue before the proxy has dropped
    /// makes room for nothing. To the other controllers it is a [`Loss`](Self::Loss).
    Congestion,
    /// As of a loss on the segment between the sender and the proxy. `cubic-rfc9438` scales its
    /// reaction by it; to the other controllers it is a [`Loss`](Self::Loss).
    NearLoss {
        /// Round-trip time of the near segment divided by that of the whole path, in (0, 1]. Values
        /// above 1 count as 1; anything else outside the range makes the loss a
        /// [`Loss`](Self::Loss).
        ratio: f64,
    },
    /// Not at all: BBR2 forgets that it sent the packets. The controllers that keep no model
    /// of the path (Reno and both CUBICs) take it for a [`Loss`](Self::Loss).
    Neutered,
}

impl<F: BufFactory> Connection<F> {
    /// Starts the log of sent packets, or stops it when `capacity` is 0. Both empty it.
    ///
    /// At most `capacity` packets are kept between two calls of
    /// [`sidekick_drain`](Self::sidekick_drain). Past that the oldest are dropped, and counted by
    /// [`sidekick_dropped`](Self::sidekick_dropped).
    pub fn sidekick_log(&mut self, capacity: usize) {
        self.sidekick.capacity = capacity;
        self.sidekick.log = VecDeque::new();
    }

    /// Waits with 1-RTT packets until the congestion window has room for a whole one, rather than
    /// to fill what is left of it with a tiny one, as quiche does; off unless asked for. With
    /// nothing in flight a packet goes in any case.
    ///
    /// A loss-based controller's packets are fewer by a quarter then, and so are their
    /// acknowledgements. The rest of a window stays empty for as long as it takes the next
    /// acknowledgement to come.
    pub fn sidekick_whole_packets(&mut self, whole: bool) {
        self.sidekick.whole_packets = whole;
    }

    /// Has the log keep datagrams as a whole.
    pub fn sidekick_keep_datagrams(&mut self, keep: bool) {
        self.sidekick.keep_datagrams = keep;
    }

    /// Takes the packets sent since the last call out of the log, in the order in which they were
    /// sent.
    pub fn sidekick_drain(&mut self) -> impl Iterator<Item = SentPacket> + '_ {
        self.sidekick.log.drain(..)
    }

    /// How many packets the log had to drop, since the connection began.
    pub fn sidekick_dropped(&self) -> u64 {
        self.sidekick.dropped
    }

    /// Declares packets of the Application space lost, and has their frames resent by the next
    /// `send`. Returns how many packets were declared.
    ///
    /// `path_id` is the one that the log gave with the packet. Numbers that were never sent on that
    /// path, that are acknowledged or already lost, and path MTU probes (whose loss is an answer)
    /// are skipped, and so are those past 4096 on which the receiver's word is still to come. The
    /// packets leave the flight; one that is acknowledged after all comes back into it before, and
    /// is then a packet like any other. The connection's count of lost packets, `Stats::lost`,
    /// remains that of the losses found end to end; `PathStats::lost` counts these too, once
    /// confirmed.
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
            // What the application may write depends on the bytes in flight.
            self.update_tx_cap();
            #[cfg(feature = "qlog")]
            self.sidekick_qlog_metrics(path_id, now);
        }
        declared
    }

    /// Lets go of the window that packets of the Application space take up, since a proxy has
    /// received them: they leave the flight, all but a byte each, and the window grows as if they
    /// were acknowledged. Returns how many were outstanding.
    ///
    /// The data is kept until the receiver acknowledges it; losses behind the proxy are found as
    /// ever, and the round-trip time is measured by acknowledgements alone. The byte keeps the
    /// probe timeout running; and when a packet has waited for its acknowledgement for two of them,
    /// the proxy's word counts no more until it has one, so that what a silent receiver is sent
    /// remains bounded. To `Stats::acked_bytes`, `lost_bytes` and the delivery rate only the byte
    /// counts. Only for a path whose bottleneck lies before the proxy: nothing limits what is on
    /// its way behind it. BBR2, which measures by acknowledgements, does not heed it.
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

    /// How many packets were declared lost early on the connection's present paths.
    pub fn sidekick_early_lost_count(&self) -> u64 {
        self.early_losses().map(|losses| losses.declared).sum()
    }

    /// Whether a packet of the Application space was declared lost early and may still be
    /// acknowledged. Of each path the 1024 highest of such numbers are known, and all that the
    /// receiver has not confirmed.
    pub fn sidekick_is_early_lost(&self, path_id: usize, packet_number: u64) -> bool {
        let Ok(path) = self.paths.get(path_id) else { return false };
        early_losses(&path.recovery).awaits(packet_number)
    }

    /// How many packets declared lost early were acknowledged by the receiver after all, on the
    /// connection's present paths. Their frames have been resent in vain.
    pub fn sidekick_spurious(&self) -> u64 {
        self.early_losses().map(|losses| losses.spurious).sum()
    }

    /// How many reports the receiver has refuted, on the connection's present paths: it
    /// acknowledged the packet in its turn, before it acknowledged what was sent later. Reordering
    /// does not count. A growing number means that the reports are wrong.
    pub fn sidekick_refuted(&self) -> u64 {
        self.early_losses().map(|losses| losses.refuted).sum()
    }

    /// How many packets were sent again as they were without a sign of which attempt has arrived,
    /// on the connection's present paths, such as when the receiver acknowledges many packets at
    /// once.
    pub fn sidekick_undecided(&self) -> u64 {
        self.early_losses().map(|losses| losses.undecided).sum()
    }

    /// The smoothed end-to-end round-trip time of a path, once it was measured.
    pub fn sidekick_rtt(&self, path_id: usize) -> Option<Duration> {
        let recovery = &self.paths.get(path_id).ok()?.recovery;
        recovery.min_rtt().map(|_| recovery.rtt())
    }

    /// The active path, as the log names it, with its local and its peer's address.
    pub fn sidekick_active_path(&self) -> Option<(usize, SocketAddr, SocketAddr)> {
        let path_id = self.paths.get_active_path_id().ok()?;
        let path = self.paths.get(path_id).ok()?;
        Some((path_id, path.local_addr(), path.peer_addr()))
    }

    /// The name of the active path's congestion controller, as `Config::set_cc_algorithm_name`
    /// takes it.
    pub fn sidekick_congestion_control(&self) -> Option<&'static str> {
        match &self.paths.get_active().ok()?.recovery {
            Recovery::Legacy(recovery) => recovery.sidekick_congestion_control(),
            Recovery::GCongestion(_) => Some("bbr2_gcongestion"),
        }
    }

    fn early_losses(&self) -> impl Iterator<Item = &EarlyLosses> {
        self.paths.iter().map(|(_, path)| early_losses(&path.recovery))
    }

    /// Notes the datagram that was just encrypted. The packet number of a 1-RTT packet is the last
    /// one given out.
    pub(crate) fn sidekick_record(&mut self, path_id: usize, datagram: &[u8], now: Instant) {
        self.sidekick_acks_sent();
        // The header form is not protected (RFC 9001, section 5.4.1).
        if datagram.first().is_some_and(|first| first & 0x80 != 0) {
            self.sidekick_keep_flight(path_id, datagram, now);
        } else {
            self.sidekick.frequency.sent(now);
            if let Some(packet_number) = self.next_pkt_num.checked_sub(1).filter(|_| self.sidekick.capacity > 0) {
                self.sidekick_log_datagram(path_id, packet_number, datagram, false, now);
            }
        }
    }

    /// Does what [`State::due`] has called for.
    pub(crate) fn sidekick_on_timeout(&mut self, now: Instant) {
        self.sidekick_repeat(now);
        self.sidekick_acks_due(now);
    }

    fn sidekick_log_datagram(
        &mut self,
        path_id: usize,
        packet_number: u64,
        datagram: &[u8],
        again: bool,
        now: Instant,
    ) {
        if self.sidekick.capacity == 0 {
            return;
        }
        let Ok(path) = self.paths.get(path_id) else { return };
        let mut head = [0; HEAD_LEN];
        head.iter_mut().zip(datagram).for_each(|(to, from)| *to = *from);
        let keep = self.sidekick.keep_datagrams && !again;
        self.sidekick.push(SentPacket {
            path_id,
            packet_number,
            size: datagram.len(),
            time_sent: now,
            head,
            local_addr: path.local_addr(),
            peer_addr: path.peer_addr(),
            active_path: path.active(),
            again,
            datagram: if keep { datagram.to_vec() } else { Vec::new() },
        });
    }
}

fn early_losses(recovery: &Recovery) -> &EarlyLosses {
    match recovery {
        Recovery::Legacy(recovery) => recovery.sidekick_losses(),
        Recovery::GCongestion(recovery) => recovery.sidekick_losses(),
    }
}

/// What a connection keeps for the hook.
#[derive(Debug, Default)]
pub(crate) struct State {
    log: VecDeque<SentPacket>,
    capacity: usize,
    dropped: u64,
    keep_datagrams: bool,
    side_channel: side_channel::SideChannel,
    again: again::Again,
    acks: acks::Acks,
    whole_packets: bool,
    frequency: frequency::Frequency,
}

impl State {
    /// When a repetition of the handshake, or an acknowledgement, is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        [self.again.due(), self.acks.due()].into_iter().flatten().min()
    }

    /// How much of the window a packet may take that could have `left` bytes.
    pub(crate) fn room(&self, available: usize, left: usize, in_flight: usize) -> usize {
        let wait = self.whole_packets && available < left && in_flight > 0;
        if wait {
            0
        } else {
            available
        }
    }

    fn push(&mut self, packet: SentPacket) {
        if self.log.len() >= self.capacity {
            self.log.pop_front();
            self.dropped += 1;
        }
        self.log.push_back(packet);
    }
}

#[cfg(test)]
mod tests;
