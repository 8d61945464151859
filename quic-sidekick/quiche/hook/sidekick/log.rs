//! The log of sent packets, and the latest datagrams, which can be sent again.
//!
//! Each datagram is copied once, into a buffer that an earlier one leaves. So a packet allocates
//! nothing.

use std::net::SocketAddr;
use std::time::Instant;

use crate::{BufFactory, Connection};

/// The number of leading bytes of a datagram that the log keeps.
pub const HEAD_LEN: usize = 32;
/// The most bytes of datagrams that are kept. A datagram is kept only if datagrams of its length in
/// all places would fit.
const MAX_BYTES: usize = 1 << 20;

/// A full log drops the oldest packet, and this part of all others.
const DROPPED_PART: usize = 8;

/// A datagram that begins with a 1-RTT packet, as the event loop received it.
///
/// The log omits a 1-RTT packet behind a long header in the same datagram: a proxy sees only the
/// long header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentPacket {
    /// The path that it was sent on, for [`Connection::sidekick_early_lost`].
    pub path_id: usize,
    /// Its packet number, in the Application space.
    pub packet_number: u64,
    /// Its length in bytes, without UDP and IP headers.
    pub size: usize,
    /// When quiche made it. A pacing event loop calls `Connection::get_next_release_time` before,
    /// so this is also when it was sent.
    pub time_sent: Instant,
    /// The leading bytes of the ciphertext, padded with zeros if `size` is smaller.
    pub head: [u8; HEAD_LEN],
    /// Whether its path was active. A packet on another path is a probe of that path.
    pub active_path: bool,
    /// Whether `sidekick_resend` sent it again.
    pub again: bool,
}

/// The packets sent since the application emptied the log.
#[derive(Debug, Default)]
pub(super) struct Log {
    packets: Vec<SentPacket>,
    capacity: usize,
    dropped: u64,
    kept: Kept,
}

impl Log {
    /// Whether packets are logged.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.capacity > 0
    }

    #[inline]
    fn push(&mut self, packet: SentPacket) {
        if self.packets.len() >= self.capacity {
            self.make_room();
        }
        self.packets.push(packet);
    }

    /// Drops the oldest packets, some at a time: the others move.
    #[cold]
    fn make_room(&mut self) {
        let oldest = self.packets.drain(..1 + self.capacity / DROPPED_PART);
        self.dropped += oldest.len() as u64;
    }
}

/// The datagrams of the latest packet numbers.
#[derive(Debug, Default)]
struct Kept {
    /// The place of a packet is its number modulo their count.
    places: Vec<Place>,
    /// Longer datagrams are not kept.
    longest: usize,
}

#[derive(Clone, Debug, Default)]
struct Place {
    /// The path and the packet number. Not valid while the datagram is empty.
    path_id: usize,
    packet_number: u64,
    time_sent: Option<Instant>,
    datagram: Vec<u8>,
}

impl Kept {
    fn place(&self, packet_number: u64) -> Option<usize> {
        // Its quotient is at most the number of places.
        usize::try_from(packet_number.checked_rem(self.places.len() as u64)?).ok()
    }

    #[inline]
    fn push(&mut self, path_id: usize, packet_number: u64, datagram: &[u8], now: Instant) {
        let place = self.place(packet_number).and_then(|place| self.places.get_mut(place));
        let Some(place) = place else { return };
        (place.path_id, place.packet_number, place.time_sent) = (path_id, packet_number, Some(now));
        place.datagram.clear();
        if datagram.len() <= self.longest {
            place.datagram.extend_from_slice(datagram);
        }
    }

    fn get(&self, path_id: usize, packet_number: u64) -> Option<&Place> {
        let place = self.places.get(self.place(packet_number)?)?;
        let found = (place.path_id, place.packet_number) == (path_id, packet_number);
        Some(place).filter(|place| found && !place.datagram.is_empty())
    }
}

/// The head of a datagram that is shorter. Few are, and the others are copied faster alone.
#[cold]
#[inline(never)]
fn padded(datagram: &[u8]) -> [u8; HEAD_LEN] {
    let mut head = [0; HEAD_LEN];
    head.iter_mut().zip(datagram).for_each(|(to, from)| *to = *from);
    head
}

impl<F: BufFactory> Connection<F> {
    /// Starts the log of sent packets, or stops it when `capacity` is 0. Both empty it, and forget
    /// the datagrams that are kept.
    ///
    /// The log keeps at most `capacity` packets between two calls of
    /// [`sidekick_clear_log`](Self::sidekick_clear_log). Past that it drops the oldest, a few at a
    /// time. [`sidekick_dropped`](Self::sidekick_dropped) counts them.
    pub fn sidekick_log(&mut self, capacity: usize) {
        let dropped = self.sidekick.log.dropped;
        self.sidekick.log = Log { capacity, dropped, ..Log::default() };
    }

    /// Keeps the datagrams of the latest `packets` packet numbers, while packets are logged, so
    /// that [`sidekick_resend`](Self::sidekick_resend) can send them again. At first it keeps none.
    /// It forgets those that it kept before.
    ///
    /// They take at most 1 MiB: a datagram that is longer than this divided by `packets` is not
    /// kept. Datagrams of probes of other paths are not kept, either.
    pub fn sidekick_keep_datagrams(&mut self, packets: usize) {
        let longest = MAX_BYTES.checked_div(packets).unwrap_or(0);
        self.sidekick.log.kept = Kept { places: vec![Place::default(); packets], longest };
    }

    /// A packet's datagram, and when it was first sent; `None` if it is not kept.
    pub fn sidekick_kept(&self, path_id: usize, packet_number: u64) -> Option<(&[u8], Instant)> {
        let place = self.sidekick.log.kept.get(path_id, packet_number)?;
        Some((&place.datagram, place.time_sent?))
    }

    /// The packets in the log, in order of sending. Read them in place: moving a packet costs more
    /// than a sender's work with most packets.
    #[inline]
    pub fn sidekick_logged(&self) -> &[SentPacket] {
        &self.sidekick.log.packets
    }

    /// Empties the log, for the packets of the next rounds.
    #[inline]
    pub fn sidekick_clear_log(&mut self) {
        self.sidekick.log.packets.clear();
    }

    /// The number of packets that the log dropped since the connection began.
    pub fn sidekick_dropped(&self) -> u64 {
        self.sidekick.log.dropped
    }

    /// The local and the peer's address of a path. They never change.
    pub fn sidekick_path(&self, path_id: usize) -> Option<(SocketAddr, SocketAddr)> {
        let path = self.paths.get(path_id).ok()?;
        Some((path.local_addr(), path.peer_addr()))
    }

    /// Logs the datagram that was just made. The number of its packet is the last one assigned.
    #[inline(never)]
    pub(super) fn sidekick_log_sent(&mut self, path_id: usize, datagram: &[u8], now: Instant) {
        let packet_number = self.next_pkt_num.saturating_sub(1);
        let active_path = self.sidekick_log_datagram(path_id, packet_number, datagram, false, now);
        if active_path {
            self.sidekick.log.kept.push(path_id, packet_number, datagram, now);
        }
    }

    /// Logs a datagram. Returns whether its path is active, if the log is on.
    #[inline]
    pub(super) fn sidekick_log_datagram(
        &mut self,
        path_id: usize,
        packet_number: u64,
        datagram: &[u8],
        again: bool,
        now: Instant,
    ) -> bool {
        let log = &mut self.sidekick.log;
        let Ok(path) = self.paths.get(path_id) else { return false };
        if !log.is_on() {
            return false;
        }
        let active_path = path.active();
        let head = datagram.first_chunk().copied().unwrap_or_else(|| padded(datagram));
        let (size, time_sent) = (datagram.len(), now);
        log.push(SentPacket { path_id, packet_number, size, time_sent, head, active_path, again });
        active_path
    }
}
