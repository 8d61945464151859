//! The faults of quACKs that leave the proxy.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::{Chance, Schedule, in_force};
use crate::link::Frame;
use crate::record::FaultCounts;
use crate::scenario::Fault;
use crate::sim::packet::Packet;

/// The longest time that a quACK waits until another one overtakes it.
const LONGEST_HOLD: Duration = Duration::from_millis(100);

/// The exit of the proxy for quACKs. Its other messages do not pass here, so only links decide
/// their fate.
#[derive(Debug)]
pub(in crate::sim) struct Egress {
    schedule: Schedule,
    loss: Chance,
    corrupt: Chance,
    place: Chance,
    duplicate: Chance,
    reorder: Chance,
    /// A quACK that waits until the next one overtakes it, and the end of its wait.
    held: Option<(Instant, Packet)>,
    /// Delayed quACKs by the time at which they leave, and then by their order.
    late: BTreeMap<(Instant, u64), Packet>,
    number: u64,
    pub(in crate::sim) counts: FaultCounts,
}

impl Egress {
    /// The egress of a run with these faults, which draws from streams 0 to 4 of the faults.
    pub(in crate::sim) fn new(schedule: Schedule, seed: u64) -> Self {
        let chance = |number| Chance::new(seed, number);
        Self {
            schedule,
            loss: chance(0),
            corrupt: chance(1),
            place: chance(2),
            duplicate: chance(3),
            reorder: chance(4),
            held: None,
            late: BTreeMap::new(),
            number: 0,
            counts: FaultCounts::default(),
        }
    }

    /// Handles a quACK that the proxy sends. Passes every packet that leaves now to `leave`.
    pub(in crate::sim) fn push(
        &mut self,
        mut packet: Packet,
        now: Instant,
        leave: &mut impl FnMut(Packet),
    ) {
        let schedule = &self.schedule;
        let lost = self.loss.strikes(in_force!(schedule, now, Fault::QuackLoss));
        let corrupt = self.corrupt.strikes(in_force!(schedule, now, Fault::QuackCorrupt));
        let twice = self.duplicate.strikes(in_force!(schedule, now, Fault::QuackDuplicate));
        let overtaken = self.reorder.strikes(in_force!(schedule, now, Fault::QuackReorder));
        let place = self.place.next();
        if lost {
            self.counts.quacks_lost += 1;
            return;
        }
        if corrupt {
            self.counts.quacks_corrupted += 1;
            // This models damage in a host's memory, which no checksum protects and the seal
            // detects. The bit does not depend on the contents, because identifiers are ciphertext,
            // and differ between runs with one seed.
            packet.corrupt(place);
            packet.damaged = false;
        }
        if twice {
            self.counts.quacks_duplicated += 1;
            self.send(packet.clone(), now, leave);
        }
        match self.held.take() {
            None if overtaken => self.held = Some((now + LONGEST_HOLD, packet)),
            held => {
                self.send(packet, now, leave);
                if let Some((_, held)) = held {
                    self.counts.quacks_reordered += 1;
                    self.send(held, now, leave);
                }
            }
        }
    }

    fn send(&mut self, packet: Packet, now: Instant, leave: &mut impl FnMut(Packet)) {
        match in_force!(self.schedule, now, Fault::QuackDelay) {
            None => leave(packet),
            Some(delay) => {
                self.counts.quacks_delayed += 1;
                self.late.insert((now + delay, self.number), packet);
                self.number += 1;
            }
        }
    }

    /// When to call [`Egress::on_timeout`].
    pub(in crate::sim) fn poll_timeout(&self) -> Option<Instant> {
        let held = self.held.as_ref().map(|(until, _)| *until);
        self.late.keys().next().map(|&(at, _)| at).into_iter().chain(held).min()
    }

    /// Sends the packets whose wait is over.
    pub(in crate::sim) fn on_timeout(&mut self, now: Instant, leave: &mut impl FnMut(Packet)) {
        if self.held.as_ref().is_some_and(|(until, _)| *until <= now)
            && let Some((_, packet)) = self.held.take()
        {
            self.send(packet, now, leave);
        }
        while let Some(next) = self.late.first_entry().filter(|next| next.key().0 <= now) {
            leave(next.remove());
        }
    }
}

#[cfg(test)]
mod tests;
