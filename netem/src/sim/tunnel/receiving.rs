//! The receiving half of an end of a tunnel. It delivers and acknowledges packets.

use std::collections::BTreeMap;
use std::time::Instant;

use super::wire::Block;
use super::{ACK_DELAY, ACK_PACKETS, REORDER_DELAY, REORDER_PACKETS};
use crate::sim::packet::Packet;

/// The most packets that a block acknowledges.
const BLOCK_PACKETS: usize = 1024;

/// The order in which packets are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// As they arrive.
    Any,
    /// As they were sent, except for those that arrive too late.
    Kept,
}

#[derive(Debug)]
pub(super) struct Receiving {
    order: Order,
    /// All packets before this one have arrived, or are given up.
    next: u32,
    /// Whether each packet from `next` on has arrived, up to the last that did.
    received: Vec<bool>,
    newest: u32,
    /// The number of packets since the last block, and the time at which the next one is due.
    unacknowledged: u32,
    block_at: Option<Instant>,
    /// In order: the next packet to deliver, and the packets that wait for it, with their arrival
    /// times.
    next_out: u32,
    waiting: BTreeMap<u32, (Packet, Instant)>,
    delivered: Vec<Packet>,
}

impl Receiving {
    pub(super) fn new(order: Order) -> Self {
        Self {
            order,
            next: 0,
            received: Vec::new(),
            newest: 0,
            unacknowledged: 0,
            block_at: None,
            next_out: 0,
            waiting: BTreeMap::new(),
            delivered: Vec::new(),
        }
    }

    pub(super) fn receive(&mut self, number: u32, transmission: u32, packet: Packet, now: Instant) {
        self.newest = self.newest.max(transmission);
        self.unacknowledged += 1;
        self.block_at.get_or_insert(now + ACK_DELAY);
        if !self.is_new(number) {
            return;
        }
        match self.order {
            Order::Any => self.delivered.push(packet),
            // A packet that arrives too late is out of order, but the tunnel still delivers it.
            Order::Kept if number < self.next_out => self.delivered.push(packet),
            Order::Kept => {
                self.waiting.insert(number, (packet, now));
                while self.waiting.len() > REORDER_PACKETS {
                    self.skip();
                }
                self.release();
            }
        }
    }

    /// Notes that a packet arrived. Returns whether it is new.
    fn is_new(&mut self, number: u32) -> bool {
        let Some(offset) = number.checked_sub(self.next) else { return false };
        let Ok(offset) = usize::try_from(offset) else { return false };
        if self.received.len() <= offset {
            self.received.resize(offset + 1, false);
        }
        let Some(received) = self.received.get_mut(offset) else { return false };
        let is_new = !std::mem::replace(received, true);
        let excess = self.received.len().saturating_sub(BLOCK_PACKETS);
        let whole = self.received.iter().skip(excess).take_while(|received| **received).count();
        self.received.drain(..excess + whole);
        self.next = self.next.wrapping_add(u32::try_from(excess + whole).unwrap_or(u32::MAX));
        is_new
    }

    /// Gives up the packets before the first waiting one.
    fn skip(&mut self) {
        if let Some(&first) = self.waiting.keys().next() {
            self.next_out = first;
            self.release();
        }
    }

    /// Delivers the packets that are next in order.
    fn release(&mut self) {
        while let Some((packet, _)) = self.waiting.remove(&self.next_out) {
            self.delivered.push(packet);
            self.next_out = self.next_out.wrapping_add(1);
        }
    }

    /// The block acknowledgement that is due, if one is.
    pub(super) fn poll_block(&mut self, now: Instant) -> Option<Block> {
        let at = self.block_at?;
        if at > now && self.unacknowledged < ACK_PACKETS {
            return None;
        }
        (self.block_at, self.unacknowledged) = (None, 0);
        Some(Block { newest: self.newest, next: self.next, received: self.received.clone() })
    }

    pub(super) fn delivered(&mut self) -> impl Iterator<Item = Packet> {
        self.delivered.drain(..)
    }

    /// When the longest wait ends. The packet that waits longest may not be the next in order.
    fn release_at(&self) -> Option<Instant> {
        self.waiting.values().map(|&(_, since)| since + REORDER_DELAY).min()
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        [self.block_at, self.release_at()].into_iter().flatten().min()
    }

    pub(super) fn on_timeout(&mut self, now: Instant) {
        while self.release_at().is_some_and(|at| at <= now) {
            self.skip();
        }
    }
}
