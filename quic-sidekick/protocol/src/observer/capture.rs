//! Counting of captured packets (SPEC.md, section 6.3).

use super::flow_counter::Count;
use super::input::{Observed, Seen};
use super::table::Key;
use super::{Observer, answers};
use crate::identify::{Flow, Payload};
use crate::wire::ParseError;
use crate::wire::discovery::{Answer, Marker};
use std::hint::black_box;
use std::time::Instant;

/// Datagrams whose sessions are prefetched together.
const BATCH: usize = 32;

/// A captured datagram's session and identifier, looked up before it is counted.
#[derive(Clone, Copy, Default)]
struct Place {
    key: Key,
    /// The table index of its flow's session.
    index: Option<usize>,
    /// The identifier by which that session counts it.
    identifier: Option<u32>,
}

impl Observer {
    /// Observes a captured UDP datagram of any flow.
    ///
    /// `interface` is the caller's number for the capturing interface. An epoch counts only packets
    /// of the interface that captures its flow first, so a packet that two interfaces capture
    /// counts once.
    pub fn observe(
        &mut self,
        flow: &Flow,
        interface: u32,
        payload: Payload<'_>,
        now: Instant,
    ) -> Observed {
        let mut observed = Observed::NoSession;
        self.observe_all(&[Seen { flow: *flow, payload }], interface, now, |_, what| {
            observed = what;
        });
        observed
    }

    /// Observes a batch of captured datagrams of any flows, in order. The result is that of
    /// [`Observer::observe`] for each, but it is faster with many sessions, because their memory is
    /// prefetched together. The observer calls `after` after each datagram, so that a quACK that
    /// falls due leaves before the next datagram counts.
    pub fn observe_all(
        &mut self,
        seen: &[Seen<'_>],
        interface: u32,
        now: Instant,
        mut after: impl FnMut(&mut Self, Observed),
    ) {
        for seen in seen.chunks(BATCH) {
            // The memory accesses of different packets overlap within each step.
            let mut places = [Place::default(); BATCH];
            for (place, seen) in places.iter_mut().zip(seen) {
                place.key = Key::of(&seen.flow);
                place.index = self.table.find(&place.key);
            }
            let sessions = places.iter().filter_map(|place| self.table.get(place.index?));
            black_box(sessions.fold(0, |all, session| all ^ session.counter.touch()));
            for (place, seen) in places.iter_mut().zip(seen) {
                let Some(session) = place.index.and_then(|index| self.table.get(index)) else {
                    continue;
                };
                place.identifier = session.counter.identifier(seen.payload);
            }
            let repeats = places.iter().filter_map(|place| {
                let session = self.table.get(place.index?)?;
                Some(session.counter.touch_duplicates(place.identifier?))
            });
            black_box(repeats.fold(0, |all, place| all ^ place));
            for (place, seen) in places.iter().zip(seen) {
                let observed = self.count(place, seen, interface, now);
                after(self, observed);
            }
        }
    }

    #[inline]
    fn count(&mut self, place: &Place, seen: &Seen<'_>, interface: u32, now: Instant) -> Observed {
        let Seen { flow, payload } = seen;
        if answers::may_be_ours(*payload) {
            match Marker::parse(payload.head()) {
                Ok(marker) => {
                    self.answer_marker(&marker, flow, interface, now);
                    return Observed::Marker;
                }
                Err(ParseError::Version(_)) if Marker::is_one(payload.head()) => {
                    self.stats.markers_other_version += 1;
                }
                Err(_) => {}
            }
            // Another proxy's answer to the sender of the opposite flow.
            if Answer::is_one(payload.head()) {
                return Observed::Ignored;
            }
        }
        // A call of `after` may have ended the session since.
        let found =
            place.index.and_then(|index| Some((index, self.table.counting(index, &place.key)?)));
        let Some((index, session)) = found else { return Observed::NoSession };
        let moves = session.counter.moves_to(interface);
        let begun = session.counter.lacks_packets(interface, now).then(|| session.begin_unasked());
        let counted = place
            .identifier
            .map(|identifier| session.counter.count(identifier, payload.len(), interface, now));
        if counted.is_none() {
            session.counter.note_uncounted(*payload, interface);
        }
        if let Some(number) = begun {
            if moves {
                self.table.forget_copies(number);
            }
            self.announce_epoch(number);
        }
        match counted {
            None | Some(Count::Not) => {
                self.stats.ignored += 1;
                return Observed::Ignored;
            }
            Some(Count::Silently) => {}
            Some(Count::WithDeadline) => self.table.reschedule_at(index),
            Some(Count::WithReport) => {
                if let Some(number) = self.table.get(index).map(|session| session.agreed.number) {
                    self.report(number, 0, 0, now);
                }
            }
        }
        self.stats.counted += 1;
        Observed::Counted
    }
}
