//! Fewer acknowledgements.
//!
//! quiche acknowledges with the next datagram that it is asked for. A receiver whose sender learns
//! from a proxy what has passed can wait: each acknowledgement is a packet on a path that may be
//! slow, metered or half duplex.

use std::time::{Duration, Instant};

use crate::packet::Epoch;
use crate::{BufFactory, Connection};

/// When a receiver acknowledges, and what waits for it.
#[derive(Debug, Default)]
pub(super) struct Acks {
    /// After so many packets; 0 and 1 are quiche's own way.
    packets: u64,
    delay: Duration,
    waiting: u64,
    due: Option<Instant>,
    /// One is due, and nothing was sent since: what comes in must not defer it again.
    owed: bool,
}

impl Acks {
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    fn owe(&mut self) {
        (self.waiting, self.due, self.owed) = (0, None, true);
    }
}

impl<F: BufFactory> Connection<F> {
    /// Acknowledges 1-RTT packets after so many of them, or so long after the first, whichever
    /// comes sooner. With 0 or 1 packet each is acknowledged as soon as anything is sent, as quiche
    /// does it.
    ///
    /// The delay is at most the one that the handshake has announced (`Config::set_max_ack_delay`,
    /// 25 ms unless set), for the sender reckons with it (RFC 9000, section 13.2.1). Gaps wait,
    /// too: a sender without help finds losses later by as much, and one whose window is clocked by
    /// acknowledgements sends in bursts. So this is for receivers whose senders have a proxy.
    pub fn sidekick_acknowledge(&mut self, packets: u64, delay: Duration) {
        let announced = Duration::from_millis(self.local_transport_params.max_ack_delay);
        self.sidekick.acks.packets = packets;
        self.sidekick.acks.delay = delay.min(announced);
    }

    /// A packet was received and noted: its acknowledgement waits if it may.
    pub(crate) fn sidekick_defer_ack(&mut self, epoch: Epoch, now: Instant) {
        let space = &mut self.pkt_num_spaces[epoch];
        let acks = &mut self.sidekick.acks;
        if epoch != Epoch::Application || acks.packets <= 1 || !self.handshake_completed || !space.ack_elicited {
            return;
        }
        acks.waiting += 1;
        let due = *acks.due.get_or_insert(now + acks.delay);
        if acks.waiting >= acks.packets || due <= now {
            acks.owe();
        } else if !acks.owed {
            space.ack_elicited = false;
        }
    }

    /// Has the next `send` acknowledge what has waited long enough.
    pub(super) fn sidekick_acks_due(&mut self, now: Instant) {
        if self.sidekick.acks.due.is_some_and(|due| due <= now) {
            self.sidekick.acks.owe();
            self.pkt_num_spaces[Epoch::Application].ack_elicited = true;
        }
    }

    /// A datagram was made; quiche has put what it owed into it, if there was room.
    pub(super) fn sidekick_acks_sent(&mut self) {
        self.sidekick.acks.owed &= self.pkt_num_spaces[Epoch::Application].ack_elicited;
    }
}

#[cfg(test)]
mod tests;
