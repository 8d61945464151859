//! The near segment, and a second one beside it if the sender has two uplinks.

use std::time::Instant;

use super::chain::{Node, Outbox, Side};
use super::packet::Packet;
use super::wire::Wire;
use crate::topology::SENDER_SECOND;

pub(super) struct Near {
    pub(super) first: Wire,
    pub(super) second: Option<Wire>,
    /// Packets of flows take the two segments in turn.
    alternates: bool,
    /// Of these packets, those of each direction.
    passed: [u64; 2],
}

impl Near {
    pub(super) fn new(first: Wire, second: Option<Wire>, alternates: bool) -> Self {
        Self { first, second, alternates, passed: [0; 2] }
    }
}

impl Node for Near {
    fn receive(&mut self, from: Side, packet: Packet, now: Instant, out: &mut Outbox) {
        let Some(second) = &mut self.second else {
            return self.first.receive(from, packet, now, out);
        };
        let mut takes_second =
            packet.source.ip() == SENDER_SECOND || packet.destination.ip() == SENDER_SECOND;
        if self.alternates && !takes_second {
            let [right, left] = &mut self.passed;
            let passed = if from == Side::Left { right } else { left };
            *passed += 1;
            takes_second = *passed % 2 == 0;
        }
        let wire = if takes_second { second } else { &mut self.first };
        wire.receive(from, packet, now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let second = self.second.as_ref().and_then(Wire::poll_timeout);
        self.first.poll_timeout().into_iter().chain(second).min()
    }

    fn on_timeout(&mut self, now: Instant, out: &mut Outbox) {
        self.first.on_timeout(now, out);
        self.second.iter_mut().for_each(|wire| wire.on_timeout(now, out));
    }
}
