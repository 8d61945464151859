//! Datagrams that go out once more, byte for byte as they were.
//!
//! *Re-injection*: a 1-RTT packet that was lost before the proxy is sent again with the same
//! ciphertext. To the receiver it is the packet, a little late; quiche's congestion control never
//! hears of a loss. Only its loss detection is held back for that packet, for as long as the second
//! attempt may take ([`Connection::sidekick_resend`]).
//!
//! *The handshake*: a lost first flight costs a second, for nobody knows the round-trip time yet
//! (RFC 9002, section 6.2.2). A client can send each datagram of its handshake again a few
//! milliseconds later, and twice more ([`Connection::sidekick_repeat_handshake`],
//! [`with_repeated_handshakes`]). What arrives twice is dropped by the packet number; a server that
//! answers first flights with Retry answers each copy.
//!
//! Either is encrypted once and sent as often as needed, which is what a network may do to any
//! datagram (RFC 9000, section 21.9): nothing about it is new to a receiver.

use std::cell::Cell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::recovery::Recovery;
use crate::{BufFactory, Connection, SendInfo, MIN_CLIENT_INITIAL_LEN};

/// Datagrams that wait to be sent again; what finds no room is not.
const MAX_WAITING: usize = 256;
/// Datagrams of a handshake that are kept; a client has two or three.
const MAX_FLIGHT: usize = 8;
/// How long after a handshake datagram was sent it is sent again, if nothing says that it arrived.
const REPEATS: [Duration; 3] = [Duration::from_millis(5), Duration::from_millis(20), Duration::from_millis(80)];

/// Types of packets with a long header (RFC 9000, section 17.2).
const INITIAL: u8 = 0;
const HANDSHAKE: u8 = 2;

/// The type of the packet that comes first in a datagram, if its header is a long one.
fn long_type(datagram: &[u8]) -> Option<u8> {
    datagram.first().filter(|first| **first & 0x80 != 0).map(|first| first >> 4 & 3)
}

thread_local! {
    /// Whether a client that this thread creates now repeats its handshake.
    static REPEAT_HANDSHAKES: Cell<bool> = const { Cell::new(false) };
}

/// Calls `create`; the clients that it creates on this thread repeat the datagrams of their
/// handshake, as [`Connection::sidekick_repeat_handshake`] asks of one. For event loops that show
/// the application no connection before its handshake is over, such as tokio-quiche's.
pub fn with_repeated_handshakes<R>(create: impl FnOnce() -> R) -> R {
    /// Restores what was set before, also when `create` panics.
    struct Restore(bool);

    impl Drop for Restore {
        fn drop(&mut self) {
            REPEAT_HANDSHAKES.set(self.0);
        }
    }

    let _restore = Restore(REPEAT_HANDSHAKES.replace(true));
    create()
}

/// A datagram of the handshake.
#[derive(Debug)]
struct Flight {
    datagram: Vec<u8>,
    path_id: usize,
    /// Nothing had come from the server before.
    first: bool,
    sent: Instant,
    repeats: usize,
}

impl Flight {
    fn is_initial(&self) -> bool {
        long_type(&self.datagram) == Some(INITIAL)
    }

    fn due(&self) -> Option<Instant> {
        REPEATS.get(self.repeats).map(|after| self.sent + *after)
    }
}

/// What is sent again.
#[derive(Debug)]
pub(super) struct Again {
    waiting: VecDeque<Waiting>,
    repeat_handshake: bool,
    flight: Vec<Flight>,
}

#[derive(Debug)]
struct Waiting {
    path_id: usize,
    datagram: Vec<u8>,
    /// Of a 1-RTT packet.
    packet_number: Option<u64>,
}

impl Default for Again {
    fn default() -> Self {
        let repeat_handshake = REPEAT_HANDSHAKES.get();
        Self { waiting: VecDeque::new(), repeat_handshake, flight: Vec::new() }
    }
}

impl Again {
    /// When the next repetition of the handshake is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.flight.iter().filter_map(Flight::due).min()
    }
}

impl<F: BufFactory> Connection<F> {
    /// Has a client send the datagrams of its handshake again after 5, 20 and 80 ms, as long as
    /// nothing says that they arrived: the first flight until the server is heard, acknowledgements
    /// of an incomplete answer until it is complete (a server that hears nothing doubles the time
    /// until it sends its answer again), the rest until the server confirms the handshake. Call it
    /// before the first `send`. A server never repeats: until it knows the client's address it may
    /// not (RFC 9000, section 8.1).
    pub fn sidekick_repeat_handshake(&mut self, repeat: bool) {
        self.sidekick.again.repeat_handshake = repeat;
        if !repeat {
            self.sidekick.again.flight.clear();
        }
    }

    /// Has the next call of `send` give out a datagram of a 1-RTT packet once more: `datagram` as
    /// the log had it under this path and packet number. False if there is no need, since the
    /// packet is acknowledged or was declared lost, or no room.
    ///
    /// Until a loss would be noticed had the packet been sent now for the first time, neither
    /// packets acknowledged after it nor time make it a loss. The peer may take its time to
    /// acknowledge (`max_ack_delay`), since the packet fills a gap. It stays in flight.
    pub fn sidekick_resend(
        &mut self,
        path_id: usize,
        packet_number: u64,
        datagram: &[u8],
        now: Instant,
    ) -> bool {
        self.sidekick_forget_left_paths();
        let full = self.sidekick.again.waiting.len() >= MAX_WAITING;
        let Ok(path) = self.paths.get_mut(path_id) else { return false };
        // RFC 9000, section 8.1: until a server knows the client's address, its packets are
        // counted.
        if full || !path.active() || (self.is_server && !path.verified_peer_address) {
            return false;
        }
        let held = match &mut path.recovery {
            Recovery::Legacy(recovery) => recovery.sidekick_hold(packet_number, now),
            Recovery::GCongestion(recovery) => recovery.sidekick_hold(packet_number, now),
        };
        if held {
            let datagram = datagram.to_vec();
            let waiting = Waiting { path_id, datagram, packet_number: Some(packet_number) };
            self.sidekick.again.waiting.push_back(waiting);
        }
        held
    }

    /// How many packets on the connection's present paths were sent again in vain: they were
    /// acknowledged too soon for the second attempt to be the one that arrived, or before packets
    /// that were sent earlier than that.
    pub fn sidekick_needless(&self) -> u64 {
        self.early_losses().map(|losses| losses.needless).sum()
    }

    /// Keeps a datagram that begins with a long header for its repetitions. Early data and probes
    /// are not repeated.
    pub(super) fn sidekick_keep_flight(&mut self, path_id: usize, datagram: &[u8], now: Instant) {
        let heard = self.sidekick_heard_of_server();
        let again = &mut self.sidekick.again;
        let repeated = matches!(long_type(datagram), Some(INITIAL | HANDSHAKE));
        let probe = !heard && again.flight.first().is_some_and(|first| now >= first.sent + REPEATS[2]);
        if again.repeat_handshake && repeated && !probe && !self.is_server && again.flight.len() < MAX_FLIGHT {
            let datagram = datagram.to_vec();
            again.flight.push(Flight { datagram, path_id, first: !heard, sent: now, repeats: 0 });
        }
    }

    /// Whether anything has come from the server that answers a first flight: Retry and Version
    /// Negotiation do, too, but quiche does not count them.
    fn sidekick_heard_of_server(&self) -> bool {
        self.recv_count > 0 || self.did_retry || self.did_version_negotiation
    }

    /// Drops what waits for a path that the connection has left: its datagrams would link one with
    /// the other.
    fn sidekick_forget_left_paths(&mut self) {
        let paths = &self.paths;
        let active = |path_id| paths.get(path_id).is_ok_and(|path| path.active());
        self.sidekick.again.waiting.retain(|next| active(next.path_id));
    }

    /// Puts the repetitions that are due where the next `send` takes them from.
    pub(super) fn sidekick_repeat(&mut self, now: Instant) {
        if self.sidekick.again.flight.is_empty() {
            return;
        }
        let (confirmed, heard) = (self.handshake_confirmed, self.sidekick_heard_of_server());
        let answered = self.is_established();
        let Again { waiting, flight, .. } = &mut self.sidekick.again;
        flight.retain_mut(|sent| {
            // What the server has, or has no more use for, is not repeated.
            let settled = (heard && sent.first) || (answered && sent.is_initial());
            if confirmed || settled || sent.due().is_none() {
                return false;
            }
            if sent.due().is_some_and(|due| due <= now) && waiting.len() < MAX_WAITING {
                sent.repeats += 1;
                let mut datagram = sent.datagram.clone();
                if sent.is_initial() && datagram.len() < MIN_CLIENT_INITIAL_LEN {
                    // The padding was added behind the record (RFC 9000, section 14.1).
                    datagram.resize(MIN_CLIENT_INITIAL_LEN, 0);
                }
                waiting.push_back(Waiting { path_id: sent.path_id, datagram, packet_number: None });
            }
            true
        });
    }

    /// Writes the next datagram that goes out again on this path.
    pub(super) fn sidekick_send_again(
        &mut self,
        path_id: usize,
        out: &mut [u8],
        now: Instant,
    ) -> Option<(usize, SendInfo)> {
        if self.sidekick.again.waiting.is_empty() {
            return None;
        }
        self.sidekick_forget_left_paths();
        // One that does not fit must not hold up the others.
        let fits = |next: &Waiting| next.path_id == path_id && next.datagram.len() <= out.len();
        let next = self.sidekick.again.waiting.iter().position(fits)?;
        let len = self.sidekick.again.waiting.get(next)?.datagram.len();
        let room = out.get_mut(..len)?;
        let Waiting { datagram, packet_number, .. } = self.sidekick.again.waiting.remove(next)?;
        room.copy_from_slice(&datagram);
        let path = self.paths.get_mut(path_id).ok()?;
        if let (Recovery::GCongestion(recovery), Some(_)) = (&mut path.recovery, packet_number) {
            recovery.sidekick_resent();
        }
        let info = SendInfo { from: path.local_addr(), to: path.peer_addr(), at: now };
        if let Some(packet_number) = packet_number {
            self.sidekick_log_datagram(path_id, packet_number, &datagram, true, now);
        }
        Some((len, info))
    }
}
