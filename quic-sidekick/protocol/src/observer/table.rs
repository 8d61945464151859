//! The sessions of an observer, indexed by flow, number and peer, and ordered by deadline.

use super::clients::Clients;
use super::deadlines::Deadlines;
use super::flow_counter::FlowCounter;
use super::keeping::{Keeping, REQUEST_BURST, REQUEST_INTERVAL, REQUESTS_OF_SOURCE};
use super::limiter::{Occupancy, site};
use super::ordering::{Ordering, Release};
use super::pool::Pool;
use super::session::{Agreement, Session};
use crate::identify::Flow;
use crate::wire::SessionNumber;
use foldhash::quality::FixedState;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

/// A hash map for lookups per packet. The observer draws the hash's seed at random, so that an
/// attacker cannot choose colliding flows. Nothing depends on the order of its entries.
type Map<K, V> = HashMap<K, V, FixedState>;

/// A flow as a key: its addresses as IPv6, so that comparing and hashing it takes five words.
#[derive(Clone, Copy, Debug, Default, Eq)]
pub(super) struct Key([u64; 5]);

impl PartialEq for Key {
    /// Compares words, because comparing arrays would call the C library twice per packet.
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).fold(0, |different, (ours, theirs)| different | (ours ^ theirs))
            == 0
    }
}

impl Key {
    #[inline]
    pub(super) fn of(flow: &Flow) -> Self {
        let words = |ip: IpAddr| {
            let bits = match ip {
                IpAddr::V4(ip) => 0xffff_0000_0000 | u128::from(u32::from(ip)),
                IpAddr::V6(ip) => u128::from(ip),
            };
            // The two 64-bit halves.
            let [high, low] = [bits >> 64, bits & u128::from(u64::MAX)]
                .map(|half| u64::try_from(half).unwrap_or(0));
            (high, low)
        };
        let (source, destination) = (words(flow.source.ip()), words(flow.destination.ip()));
        let ports = u64::from(flow.source.port()) << 16 | u64::from(flow.destination.port());
        Self([source.0, source.1, destination.0, destination.1, ports])
    }
}

impl Hash for Key {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        for word in self.0 {
            state.write_u64(word);
        }
    }
}

fn is_half_open(
    by_number: &Map<SessionNumber, usize>,
    slots: &[Option<Slot>],
    number: SessionNumber,
) -> bool {
    let slot = by_number.get(&number).and_then(|index| slots.get(*index)?.as_ref());
    slot.is_some_and(|slot| !slot.session.confirmed)
}

#[derive(Debug)]
pub(super) struct Table {
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    by_flow: Map<Key, usize>,
    by_number: Map<SessionNumber, usize>,
    /// By the sender's address and number, to recognise a repeated HELLO.
    by_peer: Map<(SocketAddr, SessionNumber), usize>,
    /// By the [`site`] of the flow's source.
    sources: Map<IpAddr, Source>,
    /// The number of unconfirmed sessions with a proven path, by flow.
    awaited: Map<Key, usize>,
    /// Sessions begun so far.
    begun: u64,
    /// Sessions in the order of their beginning, including all that are not confirmed.
    half_open: VecDeque<SessionNumber>,
    /// Sessions that are not confirmed.
    unconfirmed: usize,
    /// Exactly one deadline per session.
    deadlines: Deadlines,
    /// The memory of all copies, and the clients whose sessions keep some.
    pub(super) pool: Pool,
    pub(super) clients: Clients,
    /// Names of held datagrams that leave now.
    pub(super) released: VecDeque<Release>,
}

/// Drops a session's copies. Returns false if it keeps none.
fn stop_keeping(session: &mut Session, pool: &mut Pool, clients: &mut Clients) -> bool {
    let Some(mut keeping) = session.keeping.take() else { return false };
    keeping.copies.clear(pool);
    clients.remove(session.agreed.flow.source.ip());
    if clients.sessions() == 0 {
        pool.release();
    }
    true
}

#[derive(Debug, Default)]
struct Source {
    sessions: usize,
    /// The requests for copies that were answered.
    requests: Occupancy,
    /// The indices of the sessions whose sender proved only its address, by age; the oldest first.
    unproven: BTreeMap<u64, usize>,
}

/// A session and its place in the order. A packet needs only the first fields.
#[derive(Debug)]
#[repr(C, align(64))]
struct Slot {
    /// The session's flow.
    flow: Key,
    session: Session,
    expires: Instant,
    /// The number of sessions begun before it.
    age: u64,
}

impl Table {
    /// A table with room for `sessions`, so that no insertion reallocates, and for copies of
    /// `keep_bytes`.
    pub(super) fn new(sessions: usize, keep_bytes: usize, seed: u64) -> Self {
        let state = || FixedState::with_seed(seed);
        let mut table = Self {
            slots: Vec::new(),
            free: Vec::new(),
            by_flow: Map::with_hasher(state()),
            by_number: Map::with_hasher(state()),
            by_peer: Map::with_hasher(state()),
            sources: Map::with_hasher(state()),
            awaited: Map::with_hasher(state()),
            begun: 0,
            half_open: VecDeque::new(),
            unconfirmed: 0,
            deadlines: Deadlines::default(),
            pool: Pool::new(keep_bytes),
            clients: Clients::default(),
            released: VecDeque::new(),
        };
        table.make_room(sessions);
        table
    }

    /// Makes room for `sessions` in total.
    pub(super) fn make_room(&mut self, sessions: usize) {
        let more = sessions.saturating_sub(self.len());
        self.slots.reserve_exact(sessions.saturating_sub(self.slots.len()));
        self.free.reserve_exact(sessions.saturating_sub(self.free.len()));
        self.by_flow.reserve(more);
        self.by_number.reserve(more);
        self.by_peer.reserve(more);
        self.sources.reserve(more);
        // See `insert`.
        self.half_open.reserve((2 * sessions.max(64) + 1).saturating_sub(self.half_open.len()));
        self.deadlines.make_room(sessions);
    }

    pub(super) fn len(&self) -> usize {
        self.deadlines.len()
    }

    pub(super) fn of_source(&self, source: IpAddr) -> usize {
        self.sources.get(&site(source)).map_or(0, |source| source.sessions)
    }

    /// Whether a session of this source has a sender that proved only its address.
    pub(super) fn has_unproven(&self, source: IpAddr) -> bool {
        self.sources.get(&site(source)).is_some_and(|source| !source.unproven.is_empty())
    }

    /// Ends a session of this source whose sender proved only its address: the oldest unconfirmed
    /// one, or else the oldest.
    pub(super) fn evict_unproven(&mut self, source: IpAddr) {
        let Some(Source { unproven, .. }) = self.sources.get(&site(source)) else { return };
        let mut places = unproven.values();
        let silent = places
            .clone()
            .find(|place| self.get(**place).is_some_and(|session| !session.confirmed));
        if let Some(&place) = silent.or_else(|| places.next()) {
            self.remove(place);
        }
    }

    /// The index of the session that counts a flow.
    #[inline]
    pub(super) fn find(&self, flow: &Key) -> Option<usize> {
        self.by_flow.get(flow).copied()
    }

    #[inline]
    /// The session at this index, if it counts this flow.
    pub(super) fn counting(&mut self, index: usize, flow: &Key) -> Option<&mut Session> {
        let slot = self.slots.get_mut(index)?.as_mut()?;
        (slot.flow == *flow && slot.session.confirmed).then_some(&mut slot.session)
    }

    pub(super) fn by_peer(&self, peer: SocketAddr, number: SessionNumber) -> Option<usize> {
        self.by_peer.get(&(peer, number)).copied()
    }

    /// The session with this number, and its index.
    pub(super) fn by_number(&mut self, number: SessionNumber) -> Option<(usize, &mut Session)> {
        let index = *self.by_number.get(&number)?;
        Some((index, &mut self.slots.get_mut(index)?.as_mut()?.session))
    }

    pub(super) fn get(&self, index: usize) -> Option<&Session> {
        Some(&self.slots.get(index)?.as_ref()?.session)
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Session> {
        Some(&mut self.slots.get_mut(index)?.as_mut()?.session)
    }

    /// An unused session number. It is random, so that an attacker cannot guess it.
    pub(super) fn new_number(&self, mut draw: impl FnMut() -> u32) -> SessionNumber {
        loop {
            let number = SessionNumber(draw());
            // At most 2^20 of 2^32 numbers are in use, so the loop ends soon.
            if !self.by_number.contains_key(&number) {
                return number;
            }
        }
    }

    pub(super) fn insert(&mut self, session: Session, expires: Instant) -> usize {
        let index = self.free.pop().unwrap_or(self.slots.len());
        self.by_peer.insert((session.agreed.peer, session.agreed.peer_number), index);
        self.by_number.insert(session.agreed.number, index);
        if self.half_open.len() > 2 * self.slots.len().max(64) {
            let (by_number, slots) = (&self.by_number, &self.slots);
            self.half_open.retain(|number| is_half_open(by_number, slots, *number));
        }
        self.half_open.push_back(session.agreed.number);
        self.unconfirmed += 1;
        let (flow, age) = (Key::of(&session.agreed.flow), self.begun);
        self.begun += 1;
        let source = self.sources.entry(site(session.agreed.flow.source.ip())).or_default();
        source.sessions += 1;
        if session.agreed.path_proven {
            *self.awaited.entry(flow).or_insert(0) += 1;
        } else {
            source.unproven.insert(age, index);
        }
        self.deadlines.set(index, expires);
        let slot = Some(Slot { flow, session, expires, age });
        match self.slots.get_mut(index) {
            Some(free) => *free = slot,
            None => self.slots.push(slot),
        }
        index
    }

    /// Whether another session holds the flow, or will once confirmed, with a stronger proof than
    /// that of a sender at `peer`. That sender proved the path if `path_proven`, otherwise its
    /// address. A session whose sender receives the reverse flow gives way only to a sender at its
    /// own address and port, which may have lost its state.
    pub(super) fn is_taken(&self, flow: &Key, path_proven: bool, peer: SocketAddr) -> bool {
        let owner = || self.slots.get(*self.by_flow.get(flow)?)?.as_ref();
        let proven = || {
            owner().is_some_and(|Slot { session, .. }| {
                session.agreed.path_proven || session.receives && session.agreed.peer != peer
            })
        };
        !path_proven && (self.awaited.contains_key(flow) || proven())
    }

    /// Removes one unconfirmed session with a proven path from `awaited`.
    fn stop_awaiting(&mut self, flow: Key) {
        if let Entry::Occupied(mut waiting) = self.awaited.entry(flow) {
            *waiting.get_mut() -= 1;
            if *waiting.get() == 0 {
                waiting.remove();
            }
        }
    }

    /// Whether there is an unconfirmed session.
    pub(super) fn has_half_open(&self) -> bool {
        self.unconfirmed > 0
    }

    /// Ends the oldest unconfirmed session.
    pub(super) fn evict_half_open(&mut self) {
        while let Some(number) = self.half_open.pop_front() {
            if is_half_open(&self.by_number, &self.slots, number)
                && let Some(&index) = self.by_number.get(&number)
            {
                self.remove(index);
                return;
            }
        }
    }

    /// Confirms a session: from now on it counts the flow's packets. Another session that counted
    /// them before stops. Either its sender restarted, or another host at its address claims the
    /// flow (SPEC.md, section 9).
    pub(super) fn confirm(&mut self, index: usize) {
        let Some(slot) = self.slots.get_mut(index).and_then(Option::as_mut) else { return };
        if !slot.session.confirmed {
            slot.session.confirmed = true;
            self.unconfirmed -= 1;
            slot.session.agreed.answer = Box::default();
            let (flow, path_proven) = (slot.flow, slot.session.agreed.path_proven);
            let peer = slot.session.agreed.peer;
            if path_proven {
                self.stop_awaiting(flow);
            }
            if !self.is_taken(&flow, path_proven, peer) {
                self.by_flow.insert(flow, index);
            }
        }
    }

    pub(super) fn remove(&mut self, index: usize) -> Option<Session> {
        let mut slot = self.slots.get_mut(index)?.take()?;
        stop_keeping(&mut slot.session, &mut self.pool, &mut self.clients);
        if let Some(ordering) = slot.session.ordering.take() {
            ordering.open(slot.expires, &mut self.released);
        }
        if let Some(second) = slot.session.second.take() {
            self.released.extend(second.open(slot.session.agreed.flow, slot.expires));
        }
        self.free.push(index);
        self.deadlines.remove(index);
        let Agreement { peer, peer_number, number, flow, .. } = slot.session.agreed;
        self.by_number.remove(&number);
        if let Entry::Occupied(owner) = self.by_peer.entry((peer, peer_number))
            && *owner.get() == index
        {
            owner.remove();
        }
        if let Entry::Occupied(owner) = self.by_flow.entry(slot.flow)
            && *owner.get() == index
        {
            owner.remove();
        }
        if let Entry::Occupied(mut source) = self.sources.entry(site(flow.source.ip())) {
            source.get_mut().sessions -= 1;
            source.get_mut().unproven.remove(&slot.age);
            if source.get().sessions == 0 {
                source.remove();
            }
        }
        self.unconfirmed -= usize::from(!slot.session.confirmed);
        if slot.session.agreed.path_proven && !slot.session.confirmed {
            self.stop_awaiting(slot.flow);
        }
        Some(slot.session)
    }

    /// Updates the deadline of the session with this number.
    pub(super) fn reschedule(&mut self, number: SessionNumber) {
        if let Some((index, _)) = self.by_number(number) {
            self.reschedule_at(index);
        }
    }

    pub(super) fn reschedule_at(&mut self, index: usize) {
        let Some(slot) = self.slots.get(index).and_then(Option::as_ref) else { return };
        let quack = slot.session.counter.quack_due;
        let tail = slot.session.keeping.as_ref().and_then(|keeping| keeping.due());
        let order = slot.session.ordering.as_ref().map(|ordering| ordering.due());
        let relayed = slot.session.second.as_ref().and_then(|second| second.due());
        let due = [quack, tail, order, relayed].into_iter().flatten();
        let deadline = due.fold(slot.expires, Instant::min);
        self.deadlines.set(index, deadline);
    }

    /// The flow and the order of the session at this index, and where it puts what leaves.
    pub(super) fn ordering_of(
        &mut self,
        index: usize,
    ) -> Option<(&Flow, &mut Ordering, &mut VecDeque<Release>)> {
        let slot = self.slots.get_mut(index)?.as_mut()?;
        let Session { agreed, ordering, .. } = &mut slot.session;
        Some((&agreed.flow, ordering.as_deref_mut()?, &mut self.released))
    }

    pub(super) fn expire_at(&mut self, index: usize, expires: Instant) {
        if let Some(slot) = self.slots.get_mut(index).and_then(Option::as_mut) {
            slot.expires = expires;
        }
        self.reschedule_at(index);
    }

    /// Begins to keep copies for a confirmed session, if it does not yet. Its sender has proven
    /// that it receives the reverse flow, so the session takes the flow from any other, and no
    /// other sender at its address ends it.
    pub(super) fn begin_keeping(
        &mut self,
        index: usize,
        new: impl FnOnce() -> Keeping,
    ) -> Option<&mut Keeping> {
        let Slot { flow, session, age, .. } = self.slots.get_mut(index)?.as_mut()?;
        let client = session.agreed.flow.source.ip();
        if !std::mem::replace(&mut session.receives, true)
            && let Some(source) = self.sources.get_mut(&site(client))
        {
            source.unproven.remove(age);
        }
        if session.keeping.is_none() {
            self.clients.add(client);
            let mut keeping = new();
            let position = session.agreed.terms.identification.position;
            keeping.copies.set_flow(site(client), position);
            session.keeping = Some(Box::new(keeping));
        }
        if self.by_flow.insert(*flow, index) != Some(index) {
            // Another session counted the packets in between.
            session.counter.missed = true;
        }
        session.keeping.as_deref_mut()
    }

    /// Grants copies to all sessions that wait for them, and returns these sessions.
    pub(super) fn grant(&mut self) -> Vec<SessionNumber> {
        let waits = |session: &mut Session| {
            let keeping = session.keeping.as_mut()?;
            (!std::mem::replace(&mut keeping.granted, true)).then_some(session.agreed.number)
        };
        self.sessions_mut().filter_map(waits).collect()
    }

    /// Applies limits of the memory for copies, of all sessions and of each. Frees what exceeds
    /// them. The sessions give their oldest copies, in turns. Without memory they stop keeping:
    /// returns these sessions.
    pub(super) fn limit_copies(
        &mut self,
        keep_bytes: usize,
        of_session: usize,
    ) -> Vec<SessionNumber> {
        let Self { pool, clients, slots, .. } = self;
        pool.resize(keep_bytes);
        let (mut keep, mut ended) = (Vec::new(), Vec::new());
        for Slot { session, .. } in slots.iter_mut().flatten() {
            if of_session == 0 && stop_keeping(session, pool, clients) {
                ended.push(session.agreed.number);
            } else if let Some(keeping) = &mut session.keeping {
                keeping.copies.resize(of_session, pool);
                keep.push(&mut keeping.copies);
            }
        }
        while !keep.is_empty() {
            keep.retain_mut(|copies| copies.return_excess(pool));
        }
        ended
    }

    /// Whether a request for copies with this many ranges is within the limits of its session and
    /// of its source. If so, it counts.
    pub(super) fn admit_request(&mut self, index: usize, ranges: usize, now: Instant) -> bool {
        let Some(slot) = self.slots.get_mut(index).and_then(Option::as_mut) else { return false };
        let source = self.sources.get_mut(&site(slot.session.agreed.flow.source.ip()));
        let Some(source) = source else { return false };
        let Some(keeping) = slot.session.keeping.as_deref_mut() else {
            // Such sessions of a source share the rate of one.
            let admitted = source.requests.admits(REQUEST_BURST, now);
            if admitted {
                source.requests.charge(REQUEST_INTERVAL, now);
            }
            return admitted;
        };
        let admitted = keeping.requests.admits(REQUEST_BURST, now)
            && source.requests.admits(REQUEST_BURST, now);
        if admitted {
            let cost = keeping.request_cost(ranges);
            keeping.requests.charge(cost, now);
            source.requests.charge(cost / REQUESTS_OF_SOURCE, now);
        }
        admitted
    }

    /// The copies of a session, and the pool.
    pub(super) fn keeping_of(&mut self, index: usize) -> Option<(&mut Keeping, &mut Pool)> {
        let keeping = self.slots.get_mut(index)?.as_mut()?.session.keeping.as_mut()?;
        Some((keeping, &mut self.pool))
    }

    /// The copies and the counter of the session at this index, if it counts this flow, and the
    /// pool.
    pub(super) fn keeping_at(
        &mut self,
        index: usize,
        flow: &Key,
    ) -> Option<(&mut Keeping, &mut FlowCounter, &mut Pool)> {
        let slot = self.slots.get_mut(index)?.as_mut().filter(|slot| slot.flow == *flow)?;
        Some((slot.session.keeping.as_mut()?, &mut slot.session.counter, &mut self.pool))
    }

    /// Forgets the copies of a session, which continues to keep new ones.
    pub(super) fn forget_copies(&mut self, number: SessionNumber) {
        let Some((index, _)) = self.by_number(number) else { return };
        if let Some((keeping, pool)) = self.keeping_of(index) {
            keeping.clear(pool);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| at)
    }

    /// The index of a session that is due.
    pub(super) fn due(&self, now: Instant) -> Option<usize> {
        self.deadlines.first().filter(|(at, _)| *at <= now).map(|(_, index)| index)
    }

    pub(super) fn sessions(&self) -> impl Iterator<Item = &Session> {
        self.slots.iter().flatten().map(|slot| &slot.session)
    }

    pub(super) fn sessions_mut(&mut self) -> impl Iterator<Item = &mut Session> {
        self.slots.iter_mut().flatten().map(|slot| &mut slot.session)
    }

    /// The index of any session.
    pub(super) fn any(&self) -> Option<usize> {
        self.deadlines.first().map(|(_, index)| index)
    }

    /// Panics unless all indices agree.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let live = || {
            self.slots.iter().enumerate().filter_map(|(index, slot)| Some((index, slot.as_ref()?)))
        };
        assert!(self.by_peer.len() <= live().count());
        assert_eq!(self.by_number.len(), live().count());
        assert_eq!(live().count(), self.deadlines.len());
        assert_eq!(self.slots.len(), live().count() + self.free.len());
        assert_eq!(
            self.sources.values().map(|source| source.sessions).sum::<usize>(),
            live().count()
        );
        assert_eq!(self.unconfirmed, live().filter(|(_, slot)| !slot.session.confirmed).count());
        let waits = |session: &Session| session.agreed.path_proven && !session.confirmed;
        let awaited = live().filter(|(_, slot)| waits(&slot.session)).count();
        assert_eq!(self.awaited.values().sum::<usize>(), awaited);
        self.deadlines.check();
        for (index, Slot { flow, session, expires, age }) in live() {
            let listed = &self.sources[&site(session.agreed.flow.source.ip())].unproven;
            let proven = session.agreed.path_proven || session.receives;
            assert_eq!(listed.get(age), (!proven).then_some(&index));
            assert_eq!(*flow, Key::of(&session.agreed.flow));
            let deadline = self.deadlines.of(index).unwrap();
            let key = (session.agreed.peer, session.agreed.peer_number);
            assert!(self.by_peer.contains_key(&key));
            assert_eq!(self.by_number.get(&session.agreed.number), Some(&index));
            assert!(deadline <= *expires);
            assert!(
                session.counter.quack_due.is_none_or(|due| deadline <= due),
                "a quACK would be late"
            );
            let source = |session: &Session| site(session.agreed.flow.source.ip());
            let same =
                live().filter(|(_, other)| source(&other.session) == source(session)).count();
            assert_eq!(self.of_source(source(session)), same);
        }
        for (flow, index) in &self.by_flow {
            let session = self.slots[*index].as_ref().map(|slot| &slot.session);
            assert!(
                session.is_some_and(
                    |session| session.confirmed && Key::of(&session.agreed.flow) == *flow
                )
            );
        }
    }
}
