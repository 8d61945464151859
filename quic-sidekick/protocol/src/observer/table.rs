//! The sessions of an observer, found by flow and by peer, ordered by deadline.

use super::session::Session;
use crate::Flow;
use crate::wire::SessionId;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

#[derive(Debug, Default)]
pub(super) struct Table {
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    by_flow: HashMap<Flow, usize>,
    by_peer: HashMap<(SocketAddr, SessionId), usize>,
    sources: HashMap<IpAddr, usize>,
    /// Exactly one deadline a session.
    deadlines: BTreeSet<(Instant, usize)>,
}

#[derive(Debug)]
struct Slot {
    session: Session,
    expires: Instant,
    /// This session's entry in `deadlines`.
    deadline: Instant,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.by_peer.len()
    }

    pub(super) fn of_source(&self, source: IpAddr) -> usize {
        self.sources.get(&source).copied().unwrap_or(0)
    }

    pub(super) fn by_flow(&mut self, flow: &Flow) -> Option<(usize, &mut Session)> {
        let index = *self.by_flow.get(flow)?;
        Some((index, &mut self.slots.get_mut(index)?.as_mut()?.session))
    }

    pub(super) fn by_peer(&self, peer: SocketAddr, id: SessionId) -> Option<usize> {
        self.by_peer.get(&(peer, id)).copied()
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Session> {
        Some(&mut self.slots.get_mut(index)?.as_mut()?.session)
    }

    pub(super) fn insert(&mut self, session: Session, expires: Instant) -> usize {
        let index = self.free.pop().unwrap_or(self.slots.len());
        self.by_peer.insert((session.peer, session.id), index);
        *self.sources.entry(session.peer.ip()).or_insert(0) += 1;
        self.deadlines.insert((expires, index));
        let slot = Some(Slot { session, expires, deadline: expires });
        match self.slots.get_mut(index) {
            Some(free) => *free = slot,
            None => self.slots.push(slot),
        }
        index
    }

    /// From now on the flow's packets count for this session. A session that counted them before loses them: its
    /// sender's program was started again, or somebody else at its address claims the flow (SPEC.md, section 9).
    pub(super) fn confirm(&mut self, index: usize) {
        let Some(slot) = self.slots.get_mut(index).and_then(Option::as_mut) else { return };
        if !slot.session.confirmed {
            slot.session.confirmed = true;
            self.by_flow.insert(slot.session.flow, index);
        }
    }

    pub(super) fn remove(&mut self, index: usize) -> Option<Session> {
        let slot = self.slots.get_mut(index)?.take()?;
        self.free.push(index);
        self.deadlines.remove(&(slot.deadline, index));
        self.by_peer.remove(&(slot.session.peer, slot.session.id));
        if let Entry::Occupied(owner) = self.by_flow.entry(slot.session.flow)
            && *owner.get() == index
        {
            owner.remove();
        }
        if let Entry::Occupied(mut sessions) = self.sources.entry(slot.session.peer.ip()) {
            *sessions.get_mut() -= 1;
            if *sessions.get() == 0 {
                sessions.remove();
            }
        }
        Some(slot.session)
    }

    /// Takes up the session's present deadlines.
    pub(super) fn reschedule(&mut self, index: usize) {
        let Some(slot) = self.slots.get_mut(index).and_then(Option::as_mut) else { return };
        let deadline = slot.session.quack_due.map_or(slot.expires, |due| due.min(slot.expires));
        if deadline != slot.deadline {
            self.deadlines.remove(&(slot.deadline, index));
            self.deadlines.insert((deadline, index));
            slot.deadline = deadline;
        }
    }

    pub(super) fn expire_at(&mut self, index: usize, expires: Instant) {
        if let Some(slot) = self.slots.get_mut(index).and_then(Option::as_mut) {
            slot.expires = expires;
        }
        self.reschedule(index);
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// A session whose deadline has come.
    pub(super) fn due(&self, now: Instant) -> Option<usize> {
        self.deadlines.first().filter(|(at, _)| *at <= now).map(|(_, index)| *index)
    }

    /// Empties the table and gives the confirmed sessions' peers.
    pub(super) fn drain_confirmed(&mut self) -> Vec<(SocketAddr, SessionId)> {
        let indices: Vec<usize> = (0..self.slots.len()).collect();
        indices
            .into_iter()
            .filter_map(|index| self.remove(index))
            .filter(|session| session.confirmed)
            .map(|session| (session.peer, session.id))
            .collect()
    }

    /// Panics unless every index says the same about every session.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let live = || self.slots.iter().enumerate().filter_map(|(index, slot)| Some((index, slot.as_ref()?)));
        assert_eq!(live().count(), self.by_peer.len());
        assert_eq!(live().count(), self.deadlines.len());
        assert_eq!(self.slots.len(), live().count() + self.free.len());
        assert_eq!(self.sources.values().sum::<usize>(), live().count());
        for (index, Slot { session, expires, deadline }) in live() {
            assert_eq!(self.by_peer.get(&(session.peer, session.id)), Some(&index));
            assert!(self.deadlines.contains(&(*deadline, index)) && deadline <= expires);
            assert!(session.quack_due.is_none_or(|due| *deadline <= due), "a quACK would be late");
            let same = live().filter(|(_, other)| other.session.peer.ip() == session.peer.ip()).count();
            assert_eq!(self.of_source(session.peer.ip()), same);
        }
        for (flow, index) in &self.by_flow {
            let session = self.slots[*index].as_ref().map(|slot| &slot.session);
            assert!(session.is_some_and(|session| session.confirmed && session.flow == *flow));
        }
    }
}
