//! Datagrams that are sent again, byte for byte.
//!
//! *Re-injection*: a 1-RTT packet that was lost before the proxy is sent again with the same
//! ciphertext. The receiver sees the same packet, a little later. quiche's congestion control never
//! learns of the loss. Only the loss detection of that packet waits, for as long as the second
//! attempt may take ([`Connection::sidekick_resend`]).
//!
//! *The handshake*: a lost first flight costs a second, because the round-trip time is still
//! unknown (RFC 9002, section 6.2.2). A client can send each datagram of its handshake again a few
//! milliseconds later, and twice more ([`Connection::sidekick_repeat_handshake`],
//! [`with_repeated_handshakes`]). It sends its Finished twice before the first 1-RTT packets. The
//! receiver drops a second copy by its packet number. A server that answers first flights with
//! Retry answers each copy.
//!
//! Either is encrypted once and sent several times. A network may do the same to any datagram (RFC
//! 9000, section 21.9), so a receiver must handle it.

use std::cell::Cell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::recovery::Recovery;
use crate::{BufFactory, Connection, SendInfo, MIN_CLIENT_INITIAL_LEN};

/// The most datagrams that wait to be sent again. Further ones are dropped.
const MAX_WAITING: usize = 256;
/// The most datagrams of a handshake that are kept. A client has two or three.
const MAX_FLIGHT: usize = 8;
/// The delays after which a handshake datagram is sent again, unless something shows that it
/// arrived.
const REPEATS: [Duration; 3] = [Duration::from_millis(5), Duration::from_millis(20), Duration::from_millis(80)];

/// Types of packets with a long header (RFC 9000, section 17.2).
const INITIAL: u8 = 0;
const HANDSHAKE: u8 = 2;

/// The type of the first packet in a datagram, if it has a long header.
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
    /// Restores the earlier value, also when `create` panics.
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
    /// Sent before anything arrived from the server.
    first: bool,
    /// Sent when the server's answer was complete. So it has the client's Finished, perhaps behind
    /// an Initial packet (RFC 9000, section 12.2).
    last: bool,
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

    fn repetition(&self) -> Waiting {
        let mut datagram = self.datagram.clone();
        if self.is_initial() && datagram.len() < MIN_CLIENT_INITIAL_LEN {
            // The padding was added after the record (RFC 9000, section 14.1).
            datagram.resize(MIN_CLIENT_INITIAL_LEN, 0);
        }
        Waiting { path_id: self.path_id, datagram, packet_number: None }
    }
}

/// The datagrams that are sent again.
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
    /// The packet number of a 1-RTT packet.
    packet_number: Option<u64>,
}

impl Default for Again {
    fn default() -> Self {
        let repeat_handshake = REPEAT_HANDSHAKES.get();
        Self { waiting: VecDeque::new(), repeat_handshake, flight: Vec::new() }
    }
}

impl Again {
    /// Whether a datagram waits to be sent again.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// When the next repetition of the handshake is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.flight.iter().filter_map(Flight::due).min()
    }
}

impl<F: BufFactory> Connection<F> {
    /// Makes a client send the datagrams of its handshake again after 5, 20 and 80 ms, unless
    /// something shows that they arrived. It repeats the first flight until the server answers,
    /// acknowledgements of an incomplete answer until that is complete, and the rest until the
    /// server confirms the handshake. It repeats the Finished at once instead of after 5 ms, ahead
    /// of the first 1-RTT packets. (A server without an acknowledgement doubles the time before it
    /// retransmits its answer.) Call it before the first `send`. A server never repeats: before it
    /// knows the client's address it must not (RFC 9000, section 8.1).
    pub fn sidekick_repeat_handshake(&mut self, repeat: bool) {
        self.sidekick.again.repeat_handshake = repeat;
        if !repeat {
            self.sidekick.again.flight.clear();
        }
    }

    /// Makes the next call of `send` return the datagram of a 1-RTT packet again. Returns false if
    /// it is not kept ([`sidekick_keep_datagrams`](Self::sidekick_keep_datagrams)), if the packet
    /// is acknowledged or was declared lost, or if there is no room.
    ///
    /// For as long as loss detection would take for a packet sent now, neither later
    /// acknowledgements nor time make this packet a loss. That includes the peer's `max_ack_delay`,
    /// because the packet fills a gap. It stays in flight.
    pub fn sidekick_resend(&mut self, path_id: usize, packet_number: u64, now: Instant) -> bool {
        self.sidekick_forget_left_paths();
        let Some((datagram, _)) = self.sidekick_kept(path_id, packet_number) else { return false };
        let datagram = datagram.to_vec();
        let full = self.sidekick.again.waiting.len() >= MAX_WAITING;
        let Ok(path) = self.paths.get(path_id) else { return false };
        // RFC 9000, section 8.1 limits the bytes that a server sends before it knows the client's
        // address.
        if full || !path.active() || (self.is_server && !path.verified_peer_address) {
            return false;
        }
        let held = self.sidekick_hold_loss(path_id, packet_number, false, now);
        if held {
            let waiting = Waiting { path_id, datagram, packet_number: Some(packet_number) };
            self.sidekick.again.waiting.push_back(waiting);
        }
        held
    }

    /// As [`sidekick_resend`](Self::sidekick_resend), for a datagram that goes again by another
    /// link to the same receiver, and not by `send`. It may overtake what was sent before.
    pub fn sidekick_sends_elsewhere(&mut self, path_id: usize, packet_number: u64, now: Instant) -> bool {
        self.sidekick_hold_loss(path_id, packet_number, true, now)
    }

    fn sidekick_hold_loss(
        &mut self,
        path_id: usize,
        packet_number: u64,
        elsewhere: bool,
        now: Instant,
    ) -> bool {
        let Ok(path) = self.paths.get_mut(path_id) else { return false };
        match &mut path.recovery {
            Recovery::Legacy(recovery) => recovery.sidekick_hold(packet_number, elsewhere, now),
            Recovery::GCongestion(recovery) => recovery.sidekick_hold(packet_number, elsewhere, now),
        }
    }

    /// The number of packets on the connection's present paths that were sent again needlessly.
    /// Their acknowledgement came too soon for the second attempt, or before that of packets sent
    /// earlier than that attempt.
    pub fn sidekick_needless(&self) -> u64 {
        self.early_losses().map(|losses| losses.needless).sum()
    }

    /// Keeps a datagram that begins with a long header, to repeat it. Early data and probes are not
    /// repeated.
    #[cold]
    pub(super) fn sidekick_keep_flight(&mut self, path_id: usize, datagram: &[u8], now: Instant) {
        let (heard, answered) = (self.sidekick_heard_of_server(), self.is_established());
        let again = &mut self.sidekick.again;
        let repeated = matches!(long_type(datagram), Some(INITIAL | HANDSHAKE));
        let probe = !heard && again.flight.first().is_some_and(|first| now >= first.sent + REPEATS[2]);
        if again.repeat_handshake && repeated && !probe && !self.is_server && again.flight.len() < MAX_FLIGHT {
            let datagram = datagram.to_vec();
            let (first, last) = (!heard, answered);
            // The first repetition of the Finished leaves at once. Without the Finished, the server
            // drops the requests behind it: it has no keys for them. The proxy has counted them, so
            // no quACK reports them lost. Only a probe timeout would resend them.
            let at_once = last && again.waiting.len() < MAX_WAITING;
            let repeats = usize::from(at_once);
            let flight = Flight { datagram, path_id, first, last, sent: now, repeats };
            if at_once {
                again.waiting.push_back(flight.repetition());
            }
            again.flight.push(flight);
        }
    }

    /// Whether anything arrived from the server in answer to a first flight. Retry and Version
    /// Negotiation would count, but quiche does not count them.
    fn sidekick_heard_of_server(&self) -> bool {
        self.recv_count > 0 || self.did_retry || self.did_version_negotiation
    }

    /// Drops datagrams that wait for a path that the connection left: on another path they would
    /// link the two.
    fn sidekick_forget_left_paths(&mut self) {
        let paths = &self.paths;
        let active = |path_id| paths.get(path_id).is_ok_and(|path| path.active());
        self.sidekick.again.waiting.retain(|next| active(next.path_id));
    }

    /// Queues the repetitions that are due for the next `send`.
    pub(super) fn sidekick_repeat(&mut self, now: Instant) {
        if self.sidekick.again.flight.is_empty() {
            return;
        }
        let (confirmed, heard) = (self.handshake_confirmed, self.sidekick_heard_of_server());
        let answered = self.is_established();
        let Again { waiting, flight, .. } = &mut self.sidekick.again;
        flight.retain_mut(|sent| {
            // Do not repeat datagrams that the server has or no longer needs.
            let settled = (heard && sent.first) || (answered && !sent.last);
            if confirmed || settled || sent.due().is_none() {
                return false;
            }
            if sent.due().is_some_and(|due| due <= now) && waiting.len() < MAX_WAITING {
                sent.repeats += 1;
                waiting.push_back(sent.repetition());
            }
            true
        });
    }

    /// Writes the next datagram to send again on this path.
    pub(super) fn sidekick_send_again(
        &mut self,
        path_id: usize,
        out: &mut [u8],
        now: Instant,
    ) -> Option<(usize, SendInfo)> {
        self.sidekick_forget_left_paths();
        // A datagram that does not fit must not block the others.
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
