//! Delivers the datagrams of a flow in the order in which they passed the proxy (SPEC.md, section
//! 7.13).
//!
//! The near segment loses some, and a copy of a lost one arrives behind later ones. A transport
//! that takes three later packets for a proof of loss then repairs and slows down for nothing. So
//! the gate holds what follows a gap until the copy is here, as a link layer with retransmission
//! does. It knows the order from the lists that the proxy sends.
//!
//! The gate fails open. Each datagram that arrives is delivered once, in order of arrival unless a
//! list says otherwise, and no later than [`Hold::longest`] allows, whatever lists and copies say.

use sidekick_parity::MAX_WINDOW;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The most positions from the oldest that waits to the newest that is listed.
const MAX_POSITIONS: usize = 1024;
/// The most datagrams that wait for a list.
const MAX_WAITING: usize = 512;
/// So many of the latest datagrams that left without a list are remembered, and as many of those
/// that the gate gave up.
const REMEMBERED: usize = 256;

/// How long the gate holds datagrams. With zeros it only watches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hold {
    /// How long those behind a gap wait for its copies.
    pub gap: Duration,
    /// How long a datagram waits for a list that names it.
    pub list: Duration,
}

impl Hold {
    /// The longest time that a datagram waits.
    #[must_use]
    pub fn longest(self) -> Duration {
        self.gap + self.list
    }
}

/// Datagrams that passed the proxy one after another, and did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedGap {
    /// The gate's number for it, in ascending order.
    pub number: u64,
    /// The position of the first one.
    pub first: u32,
    /// How many there are.
    pub datagrams: u32,
    /// The identifier of a datagram before them, the latest that is known.
    pub after: Option<u32>,
    /// That of the last of them.
    pub last: u32,
    /// When what follows them no longer waits.
    pub until: Instant,
}

/// A datagram that may leave now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery<T> {
    /// The caller's name for it.
    pub datagram: T,
    /// How long it waited.
    pub waited: Duration,
}

/// Why a list changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListRejected {
    /// It has more identifiers than a message can carry.
    #[error("the list is longer than a message")]
    TooLong,
    /// It names another datagram than an earlier list at the same position.
    #[error("an earlier list names another datagram at position {0}")]
    Contradiction(u32),
}

/// What became of datagrams so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateCounters {
    /// Datagrams that passed the proxy and had not arrived when a list named them.
    pub missing: u64,
    /// Copies that were delivered in order.
    pub in_order: u64,
    /// Copies that were delivered behind later datagrams.
    pub late: u64,
    /// Missing datagrams for which the gate did not wait any longer.
    pub given_up: u64,
}

#[derive(Debug)]
struct Held<T> {
    datagram: T,
    since: Instant,
}

#[derive(Debug)]
enum Place<T> {
    /// It passed the proxy and did not arrive. The number is that of the gap.
    Missing(u64),
    Held(Held<T>),
    /// It was delivered before a list named it, or no list names it.
    Passed,
}

#[derive(Debug)]
struct Slot<T> {
    /// `None` if no list names it.
    identifier: Option<u32>,
    place: Place<T>,
}

/// A datagram that no list has named yet.
#[derive(Debug)]
struct Unlisted<T> {
    identifier: u32,
    held: Held<T>,
}

#[derive(Debug)]
struct OpenGap {
    number: u64,
    until: Instant,
    missing: u32,
}

/// Holds and orders the datagrams of one flow. `T` is the caller's name for a datagram.
///
/// Pass it all that [arrives](Self::on_arrival), the proxy's [lists](Self::on_list) and
/// [copies](Self::on_copy). After each call, and after [`on_timeout`](Self::on_timeout), take the
/// [deliveries](Self::poll_delivery), request the [gaps](Self::poll_gap), and forget those that
/// [closed](Self::poll_closed).
///
/// ```
/// use sidekick_protocol::{Gate, Hold};
/// use std::time::{Duration, Instant};
///
/// let (ms, now) = (Duration::from_millis, Instant::now());
/// let mut gate = Gate::new(Hold { gap: ms(12), list: ms(3) });
/// gate.on_arrival(1, "first", now);
/// gate.on_arrival(3, "third", now);
/// gate.on_list(700, [1, 2, 3], now)?;
/// assert_eq!(gate.poll_delivery().map(|it| it.datagram), Some("first"));
/// assert_eq!(gate.poll_delivery(), None);
///
/// let gap = gate.poll_gap().unwrap();
/// assert_eq!((gap.after, gap.last), (Some(1), 2));
/// assert_eq!(gate.on_copy(2, "second", now + ms(2)), None);
/// let rest: Vec<_> = std::iter::from_fn(|| gate.poll_delivery()).collect();
/// assert_eq!(rest.iter().map(|it| it.datagram).collect::<Vec<_>>(), ["second", "third"]);
/// assert_eq!(rest[1].waited, ms(2));
/// # Ok::<(), sidekick_protocol::ListRejected>(())
/// ```
#[derive(Debug)]
pub struct Gate<T> {
    hold: Hold,
    /// From the position `first` on.
    slots: VecDeque<Slot<T>>,
    /// `None` before the first list.
    first: Option<u32>,
    /// The identifier of the datagram before `first`.
    before_first: Option<u32>,
    gaps: VecDeque<OpenGap>,
    latest_gap: u64,
    /// In order of arrival.
    unlisted: VecDeque<Unlisted<T>>,
    /// Identifiers of datagrams that left without a list.
    left: VecDeque<u32>,
    /// Identifiers of missing datagrams for which the gate does not wait.
    given_up: VecDeque<u32>,
    deliveries: VecDeque<Delivery<T>>,
    found: VecDeque<ListedGap>,
    closed: VecDeque<u64>,
    counters: GateCounters,
}

impl<T> Gate<T> {
    /// A gate for a flow whose latest datagram passed the proxy unseen.
    #[must_use]
    pub fn new(hold: Hold) -> Self {
        Self {
            hold,
            slots: VecDeque::new(),
            first: None,
            before_first: None,
            gaps: VecDeque::new(),
            latest_gap: 0,
            unlisted: VecDeque::new(),
            left: VecDeque::new(),
            given_up: VecDeque::new(),
            deliveries: VecDeque::new(),
            found: VecDeque::new(),
            closed: VecDeque::new(),
            counters: GateCounters::default(),
        }
    }

    /// What became of datagrams so far.
    #[must_use]
    pub fn counters(&self) -> GateCounters {
        self.counters
    }

    /// How many datagrams wait now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        let held = |slot: &&Slot<T>| matches!(slot.place, Place::Held(_));
        self.unlisted.len() + self.slots.iter().filter(held).count()
    }

    /// How long datagrams wait now.
    #[must_use]
    pub fn hold(&self) -> Hold {
        self.hold
    }

    /// Holds datagrams for other times from now on. Open gaps keep the earlier of their two ends.
    pub fn set_hold(&mut self, hold: Hold, now: Instant) {
        self.hold = hold;
        for gap in &mut self.gaps {
            gap.until = gap.until.min(now + hold.gap);
        }
        self.release(now);
    }

    /// A datagram arrived from the network. Returns the number of the gap in which it was missing,
    /// if the gate still waited for it.
    pub fn on_arrival(&mut self, identifier: u32, datagram: T, now: Instant) -> Option<u64> {
        let held = Held { datagram, since: now };
        let gap = match self.fill(identifier, held) {
            Ok(gap) => Some(gap),
            Err(held) => {
                if take(&mut self.given_up, identifier) {
                    self.deliver(held, now);
                    return None;
                }
                if self.unlisted.len() >= MAX_WAITING {
                    self.pass_unlisted(now);
                }
                self.unlisted.push_back(Unlisted { identifier, held });
                None
            }
        };
        self.release(now);
        gap
    }

    /// Whether a datagram with this identifier is here, or was lately delivered.
    pub(crate) fn has(&self, identifier: u32) -> bool {
        let is_there = |slot: &Slot<T>| {
            slot.identifier == Some(identifier) && !matches!(slot.place, Place::Missing(_))
        };
        self.left.contains(&identifier)
            || self.unlisted.iter().any(|it| it.identifier == identifier)
            || self.slots.iter().any(is_there)
    }

    /// A copy arrived. Returns it if nothing lacks it.
    pub fn on_copy(&mut self, identifier: u32, datagram: T, now: Instant) -> Option<T> {
        let held = Held { datagram, since: now };
        match self.fill(identifier, held) {
            Ok(_) => self.counters.in_order += 1,
            Err(held) if take(&mut self.given_up, identifier) => {
                self.counters.late += 1;
                self.deliver(held, now);
            }
            Err(held) => return Some(held.datagram),
        }
        self.release(now);
        None
    }

    /// A list arrived: the identifiers of datagrams that passed the proxy, at consecutive positions
    /// modulo 2^32 from `first` on.
    ///
    /// # Errors
    /// [`ListRejected`]; nothing changes then.
    pub fn on_list(
        &mut self,
        first: u32,
        identifiers: impl IntoIterator<Item = u32>,
        now: Instant,
    ) -> Result<(), ListRejected> {
        let (mut list, mut len) = ([0; MAX_WINDOW], 0);
        for identifier in identifiers {
            *list.get_mut(len).ok_or(ListRejected::TooLong)? = identifier;
            len += 1;
        }
        let list = list.get(..len).unwrap_or_default();
        let offset = self.first.map_or(0, |known| first.wrapping_sub(known).cast_signed());
        let is_near = usize::try_from(offset.unsigned_abs()).is_ok_and(|by| by <= MAX_POSITIONS);
        if !is_near {
            // The proxy counts anew, or the list is forged. Nothing waits to find out.
            self.open(now);
        }
        if self.first.is_none() {
            self.first = Some(first);
            self.add(list, now);
        } else {
            let old = usize::try_from(offset.saturating_neg()).unwrap_or(0);
            let ahead = usize::try_from(offset).unwrap_or(0);
            let list = list.get(old..).unwrap_or_default();
            for (at, (slot, identifier)) in self.slots.iter().skip(ahead).zip(list).enumerate() {
                if slot.identifier.is_some_and(|known| known != *identifier) {
                    let position = u32::try_from(ahead + at).unwrap_or(0);
                    let first = self.first.unwrap_or(0);
                    return Err(ListRejected::Contradiction(first.wrapping_add(position)));
                }
            }
            if list.is_empty() {
                return Ok(());
            }
            while self.slots.len() < ahead {
                self.slots.push_back(Slot { identifier: None, place: Place::Passed });
            }
            let known = self.slots.len() - ahead;
            self.add(list.get(known..).unwrap_or_default(), now);
        }
        self.release(now);
        Ok(())
    }

    /// Takes the positions of a list before the first datagram that waits for ones that passed. A
    /// gate in the middle of a flow needs this until one waits, because datagrams passed before it.
    /// Returns whether one waits.
    pub(crate) fn pass_before_first(&mut self, list: impl IntoIterator<Item = u32>) -> bool {
        list.into_iter().take(MAX_WINDOW).any(|identifier| {
            let waits = self.unlisted.iter().any(|it| it.identifier == identifier);
            if !waits {
                remember(&mut self.left, identifier);
            }
            waits
        })
    }

    /// Notes that a datagram was delivered by another way, before a list named it.
    pub(crate) fn note_passed(&mut self, identifier: u32) {
        remember(&mut self.left, identifier);
    }

    /// Delivers a datagram that the proxy does not list.
    pub fn pass(&mut self, datagram: T) {
        self.deliveries.push_back(Delivery { datagram, waited: Duration::ZERO });
    }

    /// Does not wait for a gap any longer: the proxy has no copy, or the loss is congestion. A copy
    /// that arrives later is still delivered.
    pub fn give_up(&mut self, gap: u64, now: Instant) {
        if let Some(gap) = self.gaps.iter_mut().find(|open| open.number == gap) {
            gap.until = now;
        }
        self.release(now);
    }

    /// Delivers all that waits, in order, and forgets the lists.
    pub fn open(&mut self, now: Instant) {
        while !self.slots.is_empty() {
            self.pass_oldest(now);
        }
        while !self.unlisted.is_empty() {
            self.pass_unlisted(now);
        }
        self.closed.extend(self.gaps.drain(..).map(|gap| gap.number));
        (self.first, self.before_first) = (None, None);
        self.given_up.clear();
    }

    /// The next datagram to deliver.
    pub fn poll_delivery(&mut self) -> Option<Delivery<T>> {
        self.deliveries.pop_front()
    }

    /// The next gap to request, each once.
    pub fn poll_gap(&mut self) -> Option<ListedGap> {
        self.found.pop_front()
    }

    /// The next gap that is filled, or that the gate gave up.
    pub fn poll_closed(&mut self) -> Option<u64> {
        self.closed.pop_front()
    }

    /// When [`on_timeout`](Self::on_timeout) is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let gap = self.gaps.front().map(|gap| gap.until);
        gap.into_iter().chain(self.unlisted_until()).min()
    }

    /// Gives up what has waited long enough.
    pub fn on_timeout(&mut self, now: Instant) {
        self.release(now);
    }

    /// Lists new positions behind the others.
    fn add(&mut self, list: &[u32], now: Instant) {
        let known = self.slots.len();
        let mut gap: Option<ListedGap> = None;
        for &identifier in list {
            let place = self.place(identifier, now);
            if let Some(place) = place {
                gap.take().into_iter().for_each(|gap| self.begin(gap));
                self.slots.push_back(Slot { identifier: Some(identifier), place });
                continue;
            }
            let gap = gap.get_or_insert_with(|| {
                self.latest_gap += 1;
                // Where a list was lost, the range begins earlier: some of those may be missing.
                let known = self.slots.iter().rev().find_map(|slot| slot.identifier);
                let after = known.or(self.before_first).or(self.left.back().copied());
                let behind = u32::try_from(self.slots.len()).unwrap_or(0);
                let first = self.first.unwrap_or(0).wrapping_add(behind);
                let (number, until) = (self.latest_gap, now + self.hold.gap);
                ListedGap { number, first, datagrams: 0, after, last: identifier, until }
            });
            gap.datagrams += 1;
            gap.last = identifier;
            self.counters.missing += 1;
            let place = Place::Missing(gap.number);
            self.slots.push_back(Slot { identifier: Some(identifier), place });
        }
        gap.into_iter().for_each(|gap| self.begin(gap));
        // What arrived some time ago has waited for its list already.
        let oldest = self.slots.iter().skip(known).filter_map(|slot| match &slot.place {
            Place::Held(held) => Some(held.since),
            Place::Missing(_) | Place::Passed => None,
        });
        if let Some(oldest) = oldest.min() {
            let until = oldest + self.hold.longest();
            self.gaps.iter_mut().for_each(|gap| gap.until = gap.until.min(until));
        }
        while self.slots.len() > MAX_POSITIONS {
            self.pass_oldest(now);
        }
    }

    /// What is at a position that a list names for the first time; `None` if nothing arrived.
    fn place(&mut self, identifier: u32, now: Instant) -> Option<Place<T>> {
        let Some(at) = self.unlisted.iter().position(|it| it.identifier == identifier) else {
            return take(&mut self.left, identifier).then_some(Place::Passed);
        };
        let arrived = self.unlisted.remove(at)?;
        let is_first = self.slots.is_empty() && self.before_first.is_none();
        if is_first || self.slots.back().is_some_and(|slot| slot.identifier.is_none()) {
            self.place_older(at, now);
        }
        Some(Place::Held(arrived.held))
    }

    /// Places the first datagrams that no list names: they passed the proxy before the first list,
    /// or a list that named them was lost.
    fn place_older(&mut self, mut count: usize, now: Instant) {
        let holes = self.slots.iter_mut().rev().take_while(|slot| slot.identifier.is_none());
        for slot in holes.take(count) {
            count -= 1;
            if let Some(older) = self.unlisted.remove(count) {
                slot.place = Place::Held(older.held);
            }
        }
        (0..count).for_each(|_| self.pass_unlisted(now));
    }

    fn begin(&mut self, gap: ListedGap) {
        let ListedGap { number, datagrams: missing, until, .. } = gap;
        self.gaps.push_back(OpenGap { number, until, missing });
        self.found.push_back(gap);
    }

    /// Puts a datagram in the place where it is missing. Returns the gap's number.
    fn fill(&mut self, identifier: u32, held: Held<T>) -> Result<u64, Held<T>> {
        let lacks = |slot: &&mut Slot<T>| {
            slot.identifier == Some(identifier) && matches!(slot.place, Place::Missing(_))
        };
        let slots = if self.gaps.is_empty() { None } else { Some(&mut self.slots) };
        let Some(slot) = slots.and_then(|slots| slots.iter_mut().find(lacks)) else {
            return Err(held);
        };
        let Place::Missing(gap) = slot.place else { return Err(held) };
        slot.place = Place::Held(held);
        self.shrink(gap);
        Ok(gap)
    }

    /// Notes that one datagram of a gap is missing no longer, or not waited for.
    fn shrink(&mut self, gap: u64) {
        let Some(at) = self.gaps.iter().position(|open| open.number == gap) else { return };
        let Some(open) = self.gaps.get_mut(at) else { return };
        open.missing = open.missing.saturating_sub(1);
        if open.missing == 0 {
            self.gaps.remove(at);
            self.closed.push_back(gap);
        }
    }

    /// Delivers what need not wait.
    fn release(&mut self, now: Instant) {
        while let Some(slot) = self.slots.front() {
            if let Place::Missing(gap) = slot.place
                && self.gaps.iter().any(|open| open.number == gap && now < open.until)
            {
                break;
            }
            self.pass_oldest(now);
        }
        while self.unlisted_until().is_some_and(|until| until <= now) {
            self.pass_unlisted(now);
        }
    }

    /// How long the oldest datagram that no list names waits. Behind a gap it waits for that, too.
    fn unlisted_until(&self) -> Option<Instant> {
        let longest = if self.slots.is_empty() { self.hold.list } else { self.hold.longest() };
        self.unlisted.front().map(|unlisted| unlisted.held.since + longest)
    }

    /// Lets the oldest position pass, whatever is there.
    fn pass_oldest(&mut self, now: Instant) {
        let Some(slot) = self.slots.pop_front() else { return };
        self.first = self.first.map(|first| first.wrapping_add(1));
        self.before_first = slot.identifier.or(self.before_first);
        match slot.place {
            Place::Held(held) => self.deliver(held, now),
            Place::Passed => {}
            Place::Missing(gap) => {
                self.counters.given_up += 1;
                slot.identifier.into_iter().for_each(|it| remember(&mut self.given_up, it));
                self.shrink(gap);
            }
        }
    }

    /// Lets the oldest datagram pass that no list names.
    fn pass_unlisted(&mut self, now: Instant) {
        let Some(unlisted) = self.unlisted.pop_front() else { return };
        remember(&mut self.left, unlisted.identifier);
        self.deliver(unlisted.held, now);
    }

    fn deliver(&mut self, held: Held<T>, now: Instant) {
        let Held { datagram, since, .. } = held;
        self.deliveries
            .push_back(Delivery { datagram, waited: now.saturating_duration_since(since) });
    }
}

/// Remembers an identifier in place of the oldest.
fn remember(identifiers: &mut VecDeque<u32>, identifier: u32) {
    if identifiers.len() >= REMEMBERED {
        identifiers.pop_front();
    }
    identifiers.push_back(identifier);
}

/// Forgets an identifier. Returns whether it was remembered.
fn take(identifiers: &mut VecDeque<u32>, identifier: u32) -> bool {
    let place = identifiers.iter().position(|other| *other == identifier);
    place.is_some_and(|place| identifiers.remove(place).is_some())
}

#[cfg(test)]
mod tests;
