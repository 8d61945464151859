//! The sending half of an end of a tunnel. It tracks packets in flight and sends lost ones again.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::wire::{Block, Message};
use super::{ACK_DELAY, MOST_RESENDS};
use crate::sim::packet::Packet;

/// The assumed round trip time before the first measurement.
const FIRST_ROUND_TRIP: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct Sent {
    packet: Packet,
    /// The number of its last transmission, and the time of that.
    transmission: u32,
    at: Instant,
    resends: u8,
}

#[derive(Debug, Default)]
pub(super) struct Sending {
    under_way: BTreeMap<u32, Sent>,
    next_number: u32,
    next_transmission: u32,
    due: VecDeque<u32>,
    /// The smoothed round trip time (RFC 9002, section 5.3). It includes the delay of the other
    /// end's acknowledgements.
    round_trip: Option<Duration>,
    last_sent: Option<Instant>,
}

impl Sending {
    /// The message with a packet's first transmission.
    pub(super) fn send(&mut self, packet: Packet, now: Instant) -> Message {
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        let message = self.message(number, packet.clone(), now);
        let Message::Data { transmission, .. } = message else { return message };
        self.under_way.insert(number, Sent { packet, transmission, at: now, resends: 0 });
        message
    }

    fn message(&mut self, number: u32, packet: Packet, now: Instant) -> Message {
        let transmission = self.next_transmission;
        self.next_transmission = transmission.wrapping_add(1);
        self.last_sent = Some(now);
        Message::Data { number, transmission, packet }
    }

    /// Handles a block. Since the segment keeps packets in order, a packet is lost if it was sent
    /// before the newest received transmission and the block does not acknowledge it.
    pub(super) fn acknowledge(&mut self, block: &Block, now: Instant) {
        let newest = self.under_way.values().find(|sent| sent.transmission == block.newest);
        if let Some(sent) = newest {
            let sample = now - sent.at;
            let smooth = |before: Duration| (before * 7 + sample) / 8;
            self.round_trip = Some(self.round_trip.map_or(sample, smooth));
        }
        self.under_way = self.under_way.split_off(&block.next);
        let received = (block.next..).zip(&block.received).filter(|(_, received)| **received);
        for (number, _) in received {
            self.under_way.remove(&number);
        }
        let lost = self.under_way.iter().filter(|(_, sent)| sent.transmission < block.newest);
        let lost: Vec<u32> = lost.map(|(&number, _)| number).collect();
        for number in lost {
            self.lose(number);
        }
    }

    /// Schedules a lost packet for another transmission, if it has any left.
    fn lose(&mut self, number: u32) {
        let Some(sent) = self.under_way.get_mut(&number) else { return };
        if sent.resends == MOST_RESENDS {
            self.under_way.remove(&number);
        } else {
            self.due.push_back(number);
        }
    }

    pub(super) fn poll_resend(&mut self, now: Instant) -> Option<Message> {
        loop {
            let number = self.due.pop_front()?;
            let Some(packet) = self.under_way.get(&number).map(|sent| sent.packet.clone()) else {
                continue;
            };
            let message = self.message(number, packet, now);
            if let (Message::Data { transmission, .. }, Some(sent)) =
                (&message, self.under_way.get_mut(&number))
            {
                (sent.transmission, sent.at) = (*transmission, now);
                sent.resends += 1;
            }
            return Some(message);
        }
    }

    /// When to declare the last packets in flight lost. No later packet can show their loss.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let patience = 2 * self.round_trip.unwrap_or(FIRST_ROUND_TRIP) + ACK_DELAY;
        let last = self.last_sent.filter(|_| !self.under_way.is_empty())?;
        Some(last + patience)
    }

    pub(super) fn on_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_some_and(|at| at <= now)
            && let Some(&number) = self.under_way.keys().next()
        {
            // One is enough, because its acknowledgement covers the others.
            self.lose(number);
            self.last_sent = Some(now);
        }
    }
}
