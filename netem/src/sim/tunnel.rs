//! A tunnel over the near segment, for comparison: it sends lost packets again, as a link layer
//! does, and knows nothing of the flows in it.
//!
//! Each end encapsulates the packets that its host sends over the segment, and keeps copies. The
//! other end acknowledges in blocks, and what a block does not acknowledge is sent again, up to
//! [`MOST_RESENDS`] times. The receiving end delivers packets as they arrive, or in order.

use std::time::{Duration, Instant};

use super::chain::{Node, Outbox, Side};
use super::packet::Packet;
use crate::scenario::Tunnel;
use crate::topology::{PROXY_NEAR, SENDER};

mod receiving;
mod sending;
mod wire;

use receiving::{Order, Receiving};
use sending::Sending;
use wire::Message;

const MOST_RESENDS: u8 = 7;
/// Packets after which an end acknowledges at once.
const ACK_PACKETS: u32 = 8;
const ACK_DELAY: Duration = Duration::from_millis(2);
/// The most packets that wait for an earlier one.
const REORDER_PACKETS: usize = 32;
/// The longest time that a packet waits for an earlier one.
const REORDER_DELAY: Duration = Duration::from_millis(100);
/// The UDP port of either end.
const PORT: u16 = 9_000;

/// An end of the tunnel: the host at one end of the near segment.
pub(super) struct TunnelEnd {
    /// The side that leads to the near segment.
    outside: Side,
    sending: Sending,
    receiving: Receiving,
    /// Bytes of acknowledgements, and of packets sent again.
    added: u64,
}

impl TunnelEnd {
    /// The end of a tunnel whose near segment is on the side `outside`. `None` without a tunnel.
    pub(super) fn new(tunnel: Tunnel, outside: Side) -> Option<Self> {
        let order = match tunnel {
            Tunnel::Off => return None,
            Tunnel::Unordered => Order::Any,
            Tunnel::Ordered => Order::Kept,
        };
        let (sending, receiving) = (Sending::default(), Receiving::new(order));
        Some(Self { outside, sending, receiving, added: 0 })
    }

    fn inside(&self) -> Side {
        match self.outside {
            Side::Left => Side::Right,
            Side::Right => Side::Left,
        }
    }

    fn send(&self, message: &Message, out: &mut Outbox) {
        let (sender, proxy) = ((SENDER, PORT).into(), (PROXY_NEAR, PORT).into());
        let (source, destination) = match self.outside {
            Side::Right => (sender, proxy),
            Side::Left => (proxy, sender),
        };
        out.push((self.outside, Packet::new(source, destination, &message.encode())));
    }

    /// Sends the messages that are due, and delivers received packets.
    fn settle(&mut self, now: Instant, out: &mut Outbox) {
        while let Some(message) = self.sending.poll_resend(now) {
            self.added += message.encode().len() as u64;
            self.send(&message, out);
        }
        if let Some(block) = self.receiving.poll_block(now) {
            let message = Message::Block(block);
            self.added += message.encode().len() as u64;
            self.send(&message, out);
        }
        let inside = self.inside();
        out.extend(self.receiving.delivered().map(|packet| (inside, packet)));
    }
}

impl Node for TunnelEnd {
    fn receive(&mut self, from: Side, packet: Packet, now: Instant, out: &mut Outbox) {
        if from != self.outside {
            let message = self.sending.send(packet, now);
            self.send(&message, out);
        } else if !packet.damaged {
            match Message::decode(&packet.payload) {
                Some(Message::Data { number, transmission, packet }) => {
                    self.receiving.receive(number, transmission, packet, now);
                }
                Some(Message::Block(block)) => self.sending.acknowledge(&block, now),
                None => {}
            }
        }
        self.settle(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.sending.poll_timeout(), self.receiving.poll_timeout()].into_iter().flatten().min()
    }

    fn on_timeout(&mut self, now: Instant, out: &mut Outbox) {
        self.sending.on_timeout(now);
        self.receiving.on_timeout(now);
        self.settle(now, out);
    }

    fn spoken_bytes(&self) -> u64 {
        self.added
    }
}

#[cfg(test)]
mod tests;
