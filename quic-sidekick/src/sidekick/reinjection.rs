//! Sends lost datagrams again, unchanged.

use quiche::{BufFactory, Connection};
use sidekick_protocol::Store;
use std::time::{Duration, Instant};

/// The most bytes of datagrams kept for re-injection. All of the reordering window fit, if they
/// have at most ten kilobytes each.
const STORE_BYTES: usize = 1 << 20;
/// The connection has repaired or abandoned an older datagram.
const STORE_AGE: Duration = Duration::from_secs(2);
/// A datagram is not re-injected behind more later packets than this. quiche's receivers, and
/// others, drop a packet as a duplicate if it arrives behind 128 later ones.
const REORDERING_WINDOW: u64 = 100;
/// The number of the log's latest packets that keep their datagrams. Among those of the reordering
/// window may be as many that are sent again.
pub(super) const LOGGED_DATAGRAMS: usize = 256;

/// The latest datagrams of the connection, with a budget for their re-injection.
#[derive(Debug)]
pub(super) struct Reinjection {
    store: Store,
    /// The highest packet number sent.
    latest: u64,
    /// Scratch of [`Reinjection::resend`], kept to avoid allocation.
    scratch_again: Vec<u64>,
    /// Scratch of [`Reinjection::resend`], kept to avoid allocation.
    scratch_late: Vec<u64>,
}

/// What [`Reinjection::resend`] did with lost packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resent<'a> {
    /// The connection re-injects these.
    pub(super) again: &'a [u64],
    /// These are too far behind, are no longer kept, or exceed the budget.
    pub(super) late: &'a [u64],
}

impl Default for Reinjection {
    fn default() -> Self {
        Self {
            store: Store::new(STORE_BYTES, STORE_AGE),
            latest: 0,
            scratch_again: Vec::new(),
            scratch_late: Vec::new(),
        }
    }
}

impl Reinjection {
    /// Keeps a sent packet's datagram, unless it is empty, until it is too far behind.
    pub(super) fn on_sent(&mut self, packet_number: u64, datagram: Vec<u8>, time_sent: Instant) {
        self.latest = self.latest.max(packet_number);
        self.store.push(packet_number, datagram, time_sent);
        self.store.remove_before(self.latest.saturating_sub(REORDERING_WINDOW));
    }

    /// Drops all datagrams, because the connection left their path.
    pub(super) fn clear(&mut self) {
        self.store.clear();
    }

    /// Passes lost packets to the connection, to re-inject them.
    pub(super) fn resend<F: BufFactory>(
        &mut self,
        conn: &mut Connection<F>,
        path_id: usize,
        lost: &[u64],
        now: Instant,
    ) -> Resent<'_> {
        self.scratch_again.clear();
        self.scratch_late.clear();
        for &packet_number in lost {
            let behind = self.latest.saturating_sub(packet_number) > REORDERING_WINDOW;
            let datagram =
                if behind { None } else { self.store.get_for_resend(packet_number, now) };
            let Some(datagram) = datagram else {
                self.scratch_late.push(packet_number);
                continue;
            };
            let len = datagram.len();
            if conn.sidekick_resend(path_id, packet_number, datagram, now) {
                self.scratch_again.push(packet_number);
            } else {
                self.store.refund(len);
            }
        }
        Resent { again: &self.scratch_again, late: &self.scratch_late }
    }
}
