//! Fewer acknowledgements.
//!
//! quiche acknowledges with the next datagram that it sends. A receiver whose sender learns from a
//! proxy which packets passed can wait. Each acknowledgement is a packet on a path that may be
//! slow, metered or half duplex.

use std::time::{Duration, Instant};

use crate::packet::Epoch;
use crate::{BufFactory, Connection};

/// When a receiver acknowledges, and the packets that wait for it.
#[derive(Debug, Default)]
pub(super) struct Acks {
    /// The number of packets to acknowledge at once. 0 and 1 mean quiche's own way.
    packets: u64,
    delay: Duration,
    waiting: u64,
    due: Option<Instant>,
    /// An acknowledgement is due and unsent. Further packets must not defer it.
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
    /// Acknowledges 1-RTT packets after a number of them, or a delay after the first, whichever
    /// comes sooner. With 0 or 1 packets, quiche acknowledges each with the next datagram, as
    /// usual.
    ///
    /// The delay is at most the one announced in the handshake (`Config::set_max_ack_delay`, 25 ms
    /// by default), because the sender relies on it (RFC 9000, section 13.2.1). Acknowledgements of
    /// gaps wait, too: a sender without a proxy detects losses later by as much, and one that is
    /// clocked by acknowledgements sends in bursts. So use it only where the sender has a proxy.
    pub fn sidekick_acknowledge(&mut self, packets: u64, delay: Duration) {
        let announced = Duration::from_millis(self.local_transport_params.max_ack_delay);
        self.sidekick.acks.packets = packets;
        self.sidekick.acks.delay = delay.min(announced);
    }

    /// Lets the acknowledgement of a received packet wait, if allowed.
    #[inline]
    pub(crate) fn sidekick_defer_ack(&mut self, epoch: Epoch, now: Instant) {
        let space = &mut self.pkt_num_spaces[epoch];
        let acks = &mut self.sidekick.acks;
        // This runs for every packet, and few connections ask for it.
        if acks.packets <= 1 || epoch != Epoch::Application || !self.handshake_completed || !space.ack_elicited {
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

    /// Makes the next `send` acknowledge packets that waited long enough.
    pub(super) fn sidekick_acks_due(&mut self, now: Instant) {
        if self.sidekick.acks.due.is_some_and(|due| due <= now) {
            self.sidekick.acks.owe();
            self.pkt_num_spaces[Epoch::Application].ack_elicited = true;
        }
    }

    /// Records that a datagram was made. It includes the acknowledgement that was due, if there was
    /// room.
    pub(super) fn sidekick_acks_sent(&mut self) {
        self.sidekick.acks.owed &= self.pkt_num_spaces[Epoch::Application].ack_elicited;
    }
}

#[cfg(test)]
mod tests;
