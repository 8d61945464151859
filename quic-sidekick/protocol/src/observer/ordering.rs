//! Puts the datagrams of a flow in the order in which its sender sent them (SPEC.md, section 6.10).
//!
//! The caller holds the datagrams, and releases them as [`Observer::poll_release`] says.

use super::Observer;
use super::input::HandleError;
use super::table::Key;
use crate::gate::{Gate, GateCounters, Hold};
use crate::identify::{Flow, Payload};
use crate::wire::{SentList, SessionNumber};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The latest list is in force for this time.
const IN_FORCE: Duration = Duration::from_secs(1);

/// The order of a session's flow.
#[derive(Debug)]
pub(super) struct Ordering {
    gate: Gate<u64>,
    until: Instant,
    /// What the observer's counters know.
    counted: GateCounters,
}

impl Ordering {
    fn new(hold: Hold, until: Instant) -> Self {
        Self { gate: Gate::new(hold), until, counted: GateCounters::default() }
    }

    /// When a datagram is due, or the end of the order.
    pub(super) fn due(&self) -> Instant {
        self.gate.poll_timeout().map_or(self.until, |due| due.min(self.until))
    }

    /// Moves what may leave to `released`. The repair of a gap comes by itself.
    fn release(&mut self, released: &mut VecDeque<u64>) {
        while self.gate.poll_gap().is_some() || self.gate.poll_closed().is_some() {}
        while let Some(delivery) = self.gate.poll_delivery() {
            released.push_back(delivery.datagram);
        }
    }

    /// Lets all that waits leave.
    pub(super) fn open(mut self, now: Instant, released: &mut VecDeque<u64>) {
        self.gate.open(now);
        self.release(released);
    }
}

impl Observer {
    /// Takes a datagram that the caller holds, and that it has passed to [`Observer::observe`].
    /// `name` is the caller's for it. Returns false if the datagram may leave at once, and
    /// otherwise releases it by [`Observer::poll_release`].
    pub fn hold(&mut self, name: u64, flow: &Flow, payload: &[u8], now: Instant) -> bool {
        let key = Key::of(flow);
        let Some(index) = self.table.find(&key) else { return false };
        let Some(session) = self.table.counting(index, &key) else { return false };
        let identifier = session.counter.identifier(Payload::whole(payload));
        if session.ordering.is_none() {
            return false;
        }
        self.settle_order(index, |gate| match identifier {
            Some(identifier) => drop(gate.on_arrival(identifier, name, now)),
            None => gate.pass(name),
        });
        true
    }

    /// The next datagram that leaves, by its name.
    pub fn poll_release(&mut self) -> Option<u64> {
        self.table.released.pop_front()
    }

    /// Handles a list of what the sender sent.
    pub(super) fn on_list(
        &mut self,
        number: SessionNumber,
        list: SentList<'_>,
        now: Instant,
    ) -> Result<(), HandleError> {
        let orders = self.config.orders;
        let (index, session) = self.table.by_number(number).ok_or(HandleError::UnknownSession)?;
        if !orders {
            return Ok(());
        }
        let us = |us: u16| Duration::from_micros(us.into());
        let hold = Hold { gap: us(list.gap_us), list: us(list.wait_us) };
        let until = now + IN_FORCE;
        session.ordering.get_or_insert_with(|| Box::new(Ordering::new(hold, until))).until = until;
        let identifiers = list.identifiers;
        self.stats.lists += 1;
        // A contradiction shows that the sender counts anew.
        self.settle_order(index, |gate| {
            if gate.hold() != hold {
                gate.set_hold(hold, now);
            }
            if gate.on_list(list.first, identifiers.iter(), now).is_err() {
                gate.open(now);
            }
        });
        Ok(())
    }

    /// Serves the timers of a session's order. Returns whether one was due.
    pub(super) fn on_order_timeout(&mut self, index: usize, now: Instant) -> bool {
        let Some(session) = self.table.get_mut(index) else { return false };
        let Some(ordering) = session.ordering.take_if(|it| it.until <= now) else {
            let due = session.ordering.as_ref().is_some_and(|it| it.due() <= now);
            if due {
                self.settle_order(index, |gate| gate.on_timeout(now));
            }
            return due;
        };
        ordering.open(now, &mut self.table.released);
        self.table.reschedule_at(index);
        true
    }

    /// Completes an input of a session's order.
    fn settle_order(&mut self, index: usize, input: impl FnOnce(&mut Gate<u64>)) {
        let Some((ordering, released)) = self.table.ordering_of(index) else { return };
        input(&mut ordering.gate);
        ordering.release(released);
        let counters = ordering.gate.counters();
        let before = std::mem::replace(&mut ordering.counted, counters);
        self.stats.order_missing += counters.missing - before.missing;
        self.stats.order_given_up += counters.given_up - before.given_up;
        self.table.reschedule_at(index);
    }
}
