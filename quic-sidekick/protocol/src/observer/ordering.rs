//! Puts the datagrams of a flow in the order in which its sender sent them, and rebuilds those that
//! the near segment lost from its sender's parity (SPEC.md, section 6.10).
//!
//! The caller holds the datagrams, and releases them as [`Observer::poll_release`] says.

use super::Observer;
use super::input::HandleError;
use super::table::Key;
use crate::gate::{Gate, GateCounters, Hold};
use crate::identify::{Flow, Payload};
use crate::in_order::steps::Steps;
use crate::wire::{Part, SentList, SentSymbol, SessionNumber};
use sidekick_parity::{Decoder, Origin, identifier};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The latest list is in force for this time.
const IN_FORCE: Duration = Duration::from_secs(1);

/// The most sessions of an observer whose lost datagrams are rebuilt at a time. Each takes up to
/// [`Decoder::memory_bytes`], half a megabyte.
const MAX_REBUILDING: usize = 128;

/// So many datagrams leave at once after a hold, as those of a new connection do (RFC 9002, section
/// 7.2). A short queue behind the proxy drops longer bursts.
const BURST: u32 = 10;

/// Repair symbols and parts of them for each datagram that arrives, and the most that are saved up.
/// An honest sender sends one or two, and each takes up to a hundred multiplications of a datagram.
const PAID: u32 = 4;
const MOST_PAID: u32 = 256;
/// So many listed datagrams without a repair symbol show that the sender sends none.
const WITHOUT_PARITY: u64 = 128;

/// A datagram that leaves now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Release {
    /// One that the caller holds under this name.
    Held(u64),
    /// One that the near segment lost: rebuilt from its sender's parity, or relayed by the sender's
    /// second link.
    Made {
        /// The datagram's addresses.
        flow: Flow,
        /// The traffic class with which it leaves: DSCP and ECN.
        class: u8,
        /// Its payload.
        payload: Vec<u8>,
    },
}

/// What a repair symbol lacks.
#[derive(Debug)]
struct Half {
    number: u16,
    first: u32,
    count: u8,
    part: Part,
    bytes: Vec<u8>,
}

/// The equations of a session.
#[derive(Debug)]
struct Rebuilding {
    decoder: Decoder,
    half: Option<Half>,
    /// As many exist as sessions rebuild datagrams.
    _place: Arc<()>,
}

impl Rebuilding {
    /// Takes a repair symbol, or a part of one.
    fn on_symbol(&mut self, sent: &SentSymbol<'_>) {
        let SentSymbol { number, first, count, part, symbol } = *sent;
        if part == Part::Whole {
            // One that says nothing new is no error.
            let _ = self.decoder.repair(number, first, count, symbol);
            return;
        }
        let fits = |half: &Half| {
            (half.number, half.first, half.count) == (number, first, count) && half.part != part
        };
        let Some(half) = self.half.take().filter(fits) else {
            self.half = Some(Half { number, first, count, part, bytes: symbol.to_vec() });
            return;
        };
        // One of a length that none has is an error, and changes nothing.
        let _ = self.decoder.repair(number, first, count, &part.join(symbol, &half.bytes));
    }
}

/// The order of a session's flow.
#[derive(Debug)]
pub(super) struct Ordering {
    gate: Gate<Release>,
    /// What left the gate.
    steps: Steps<Release>,
    rebuilding: Option<Box<Rebuilding>>,
    /// How many more messages with parity are taken.
    paid: u32,
    /// The sender sends parity, of which nothing can be rebuilt. So nothing waits.
    is_useless: bool,
    /// A listed datagram has waited.
    has_begun: bool,
    until: Instant,
    /// What the observer's counters know.
    counted: GateCounters,
}

impl Ordering {
    fn new(hold: Hold, until: Instant) -> Self {
        Self {
            gate: Gate::new(hold),
            steps: Steps::with_bursts(BURST),
            rebuilding: None,
            paid: MOST_PAID,
            is_useless: false,
            has_begun: false,
            until,
            counted: GateCounters::default(),
        }
    }

    /// Prepares for parity, if the session may have datagrams rebuilt and there is a place.
    fn expect_parity(&mut self, rebuilds: bool, places: &Arc<()>) {
        if rebuilds && self.rebuilding.is_none() && Arc::strong_count(places) <= MAX_REBUILDING {
            let (decoder, half, _place) = (Decoder::new(), None, Arc::clone(places));
            self.rebuilding = Some(Box::new(Rebuilding { decoder, half, _place }));
        }
    }

    /// When a datagram is due, or the end of the order.
    pub(super) fn due(&self) -> Instant {
        let due = self.gate.poll_timeout().into_iter().chain(self.steps.poll_timeout());
        due.fold(self.until, Instant::min)
    }

    /// Passes what was rebuilt to the gate. Returns how many datagrams it lacked.
    fn rebuild(&mut self, flow: &Flow, now: Instant) -> u64 {
        let mut lacked = 0;
        let Some(rebuilding) = &mut self.rebuilding else { return lacked };
        while let Some(rebuilt) = rebuilding.decoder.rebuilt() {
            if let Some(identifier) = identifier(rebuilt) {
                let datagram = Release::Made { flow: *flow, class: 0, payload: rebuilt.to_vec() };
                lacked += u64::from(self.gate.on_copy(identifier, datagram, now).is_none());
            }
        }
        lacked
    }

    /// Moves what may leave to `released`. The repair of a gap comes by itself.
    fn release(&mut self, now: Instant, released: &mut VecDeque<Release>) {
        while self.gate.poll_gap().is_some() || self.gate.poll_closed().is_some() {}
        while let Some(delivery) = self.gate.poll_delivery() {
            self.steps.push(delivery, now);
        }
        self.steps.on_timeout(now);
        released.extend(self.steps.ready.drain(..).map(|delivery| delivery.datagram));
    }

    /// Lets all that waits leave.
    pub(super) fn open(mut self, now: Instant, released: &mut VecDeque<Release>) {
        self.rebuilding = None;
        self.gate.open(now);
        self.release(now, released);
        self.steps.release(usize::MAX, now);
        released.extend(self.steps.ready.drain(..).map(|delivery| delivery.datagram));
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
        self.settle_order(index, now, |Ordering { gate, rebuilding, paid, .. }| {
            match identifier {
                Some(identifier) => drop(gate.on_arrival(identifier, Release::Held(name), now)),
                None => gate.pass(Release::Held(name)),
            }
            if let Some(rebuilding) = rebuilding {
                rebuilding.decoder.arrived(payload, Origin::Original);
                *paid = MOST_PAID.min(*paid + PAID);
            }
        });
        true
    }

    /// The next datagram that leaves.
    pub fn poll_release(&mut self) -> Option<Release> {
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
        let rebuilds = session.may_rebuild();
        let ordering = session.ordering.get_or_insert_with(|| {
            let mut ordering = Ordering::new(hold, until);
            // Parity covers the first datagrams, too.
            ordering.expect_parity(rebuilds, &self.rebuilding);
            Box::new(ordering)
        });
        ordering.until = until;
        let identifiers = list.identifiers;
        self.stats.lists += 1;
        // A contradiction shows that the sender counts anew.
        self.settle_order(index, now, |ordering| {
            let hold = if ordering.is_useless { Hold::default() } else { hold };
            let Ordering { gate, rebuilding, has_begun, .. } = ordering;
            if gate.hold() != hold {
                gate.set_hold(hold, now);
            }
            *has_begun = *has_begun || gate.pass_before_first(identifiers.iter());
            if gate.on_list(list.first, identifiers.iter(), now).is_err() {
                gate.open(now);
                *has_begun = gate.pass_before_first(identifiers.iter());
                rebuilding.iter_mut().for_each(|it| it.decoder.clear());
            }
            if let Some(it) = rebuilding
                && identifiers.iter().next().is_some()
            {
                // The gate has judged the list, and an old one says nothing new.
                let _ = it.decoder.list(list.first, identifiers.iter());
                let counts = it.decoder.counts();
                if counts.symbols == 0 && counts.listed >= WITHOUT_PARITY {
                    *rebuilding = None;
                }
            }
        });
        Ok(())
    }

    /// Handles parity of what the sender sent.
    pub(super) fn on_symbol(
        &mut self,
        number: SessionNumber,
        symbol: &SentSymbol<'_>,
        now: Instant,
    ) -> Result<(), HandleError> {
        let (index, session) = self.table.by_number(number).ok_or(HandleError::UnknownSession)?;
        let rebuilds = session.may_rebuild();
        let Some(ordering) = session.ordering.as_mut() else { return Ok(()) };
        ordering.expect_parity(rebuilds, &self.rebuilding);
        self.stats.symbols += 1;
        self.settle_order(index, now, |Ordering { gate, rebuilding, paid, is_useless, .. }| {
            *is_useless = rebuilding.is_none();
            if *is_useless {
                gate.set_hold(Hold::default(), now);
            }
            if let (Some(rebuilding), Some(left)) = (rebuilding, paid.checked_sub(1)) {
                *paid = left;
                rebuilding.on_symbol(symbol);
            }
        });
        Ok(())
    }

    /// Returns a copy of a datagram that was lost, if it may leave at once. Otherwise it leaves in
    /// its place in the session's order.
    pub(super) fn release_copy(
        &mut self,
        index: usize,
        identifier: u32,
        copy: Release,
        now: Instant,
    ) -> Option<Release> {
        let mut waits = Some(copy);
        self.settle_order(index, now, |ordering| {
            let Ordering { gate, rebuilding, .. } = ordering;
            if let (Some(it), Some(Release::Made { payload, .. })) = (rebuilding, &waits) {
                it.decoder.arrived(payload, Origin::Copy);
            }
            waits = waits.take().and_then(|copy| gate.on_copy(identifier, copy, now));
            if waits.is_some() {
                // A list that names it later must not take it for missing.
                gate.note_passed(identifier);
            }
        });
        waits
    }

    /// Serves the timers of a session's order. Returns whether one was due.
    pub(super) fn on_order_timeout(&mut self, index: usize, now: Instant) -> bool {
        let Some(session) = self.table.get_mut(index) else { return false };
        let Some(ordering) = session.ordering.take_if(|it| it.until <= now) else {
            let due = session.ordering.as_ref().is_some_and(|it| it.due() <= now);
            if due {
                self.settle_order(index, now, |ordering| ordering.gate.on_timeout(now));
            }
            return due;
        };
        ordering.open(now, &mut self.table.released);
        self.table.reschedule_at(index);
        true
    }

    /// Completes an input of a session's order.
    fn settle_order(&mut self, index: usize, now: Instant, input: impl FnOnce(&mut Ordering)) {
        let Some((flow, ordering, released)) = self.table.ordering_of(index) else { return };
        input(ordering);
        self.stats.rebuilt += ordering.rebuild(flow, now);
        ordering.release(now, released);
        let counters = ordering.gate.counters();
        let before = std::mem::replace(&mut ordering.counted, counters);
        self.stats.order_missing += counters.missing - before.missing;
        self.stats.order_given_up += counters.given_up - before.given_up;
        self.table.reschedule_at(index);
    }
}
