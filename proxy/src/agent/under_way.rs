//! Repairs and markers that the agent sent, until a capture shows them on the wire.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use sidekick_protocol::Position;

/// Most repairs that are under way. Further ones would only wait in the same local queue.
const MOST: usize = 256;
/// Repairs and markers that the agent remembers after a capture showed them: another interface may
/// show them again.
const SEEN: usize = 16;
const MARKERS: usize = 4;

/// The end of a payload, which differs in each encrypted packet, or a hash of the whole; and its
/// length.
type Looks = (u64, usize);

/// A repair that no capture has shown on the wire.
#[derive(Clone, Copy, Debug)]
struct Repair {
    looks: Looks,
    tag: u64,
    sent: Instant,
}

/// The repairs and markers of a flow that the agent sent.
#[derive(Debug)]
pub(super) struct UnderWay {
    /// What tells packets apart.
    position: Position,
    repairs: VecDeque<Repair>,
    /// The latest repairs that a capture has shown.
    seen: VecDeque<Looks>,
    /// The latest markers, the last one first.
    markers: [Vec<u8>; MARKERS],
}

impl UnderWay {
    pub(super) fn new(position: Position) -> Self {
        let (repairs, seen) = (VecDeque::new(), VecDeque::new());
        Self { position, repairs, seen, markers: Default::default() }
    }

    fn looks(&self, payload: &[u8]) -> Looks {
        let end = payload.last_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        // Datagrams that are padded behind their packets end alike.
        let end = end.filter(|end| self.position != Position::Whole && *end != 0);
        let whole = || Position::Whole.of_copy(payload).map(u64::from);
        (end.or_else(whole).unwrap_or_default(), payload.len())
    }

    /// Whether there is room for another repair. `age`: how long one is remembered.
    pub(super) fn has_room(&mut self, age: Duration, now: Instant) -> bool {
        // The system may have dropped them.
        while self.repairs.front().is_some_and(|repair| repair.sent + age <= now) {
            self.repairs.pop_front();
        }
        self.repairs.len() < MOST
    }

    /// Notes a repair that is about to be sent.
    pub(super) fn push_repair(&mut self, tag: u64, payload: &[u8], now: Instant) {
        self.repairs.push_back(Repair { looks: self.looks(payload), tag, sent: now });
    }

    /// Whether a payload looks like a repair that is under way, or was seen just now.
    pub(super) fn is_repair(&self, payload: &[u8]) -> bool {
        self.place(payload).is_some() || self.seen.contains(&self.looks(payload))
    }

    /// Removes the first repair with this payload, which was seen on the wire, and returns its tag.
    pub(super) fn take_repair(&mut self, payload: &[u8]) -> Option<u64> {
        let place = self.place(payload)?;
        let Repair { looks, tag, .. } = self.repairs.remove(place)?;
        self.seen.truncate(SEEN - 1);
        self.seen.push_front(looks);
        Some(tag)
    }

    fn place(&self, payload: &[u8]) -> Option<usize> {
        if self.repairs.is_empty() {
            return None;
        }
        let looks = self.looks(payload);
        self.repairs.iter().position(|repair| repair.looks == looks)
    }

    /// Notes a marker that is about to be sent.
    pub(super) fn push_marker(&mut self, marker: &[u8]) {
        self.markers.rotate_right(1);
        if let Some(place) = self.markers.first_mut() {
            place.clear();
            place.extend_from_slice(marker);
        }
    }

    /// Whether a payload is one of the latest markers.
    pub(super) fn is_marker(&self, payload: &[u8]) -> bool {
        self.markers.iter().any(|marker| marker == payload)
    }

    /// Tells packets apart in another way from now on, and forgets all repairs.
    pub(super) fn set_position(&mut self, position: Position) {
        self.position = position;
        self.clear_repairs();
    }

    pub(super) fn clear_repairs(&mut self) {
        self.repairs.clear();
        self.seen.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::clock;

    const AGE: Duration = Duration::from_millis(200);

    #[test]
    fn a_repair_is_taken_once_for_each_time_that_it_was_sent() {
        let (mut sent, now) = (UnderWay::new(Position::End), clock());
        assert!(sent.has_room(AGE, now));
        sent.push_repair(7, b"the first one", now);
        sent.push_repair(9, b"the second one", now);
        sent.push_repair(8, b"the first one", now);
        assert!(sent.is_repair(b"the first one") && !sent.is_repair(b"a first one"));
        assert_eq!(sent.take_repair(b"xthe first one"), None, "longer");
        assert_eq!(sent.take_repair(b"the first one"), Some(7));
        assert_eq!(sent.take_repair(b"the first one"), Some(8));
        assert_eq!(sent.take_repair(b"the first one"), None);
        assert!(sent.is_repair(b"the first one"), "another interface shows it later");
        sent.clear_repairs();
        assert_eq!(sent.take_repair(b"the second one"), None);
    }

    #[test]
    fn packets_that_end_alike_are_no_repairs_of_each_other() {
        for (position, is_mistaken) in [(Position::End, true), (Position::Whole, false)] {
            let (mut sent, now) = (UnderWay::new(position), clock());
            sent.push_repair(7, b"1, silence, silence", now);
            assert_eq!(sent.is_repair(b"2, silence, silence"), is_mistaken);
            assert!(sent.is_repair(b"1, silence, silence"));
        }
    }

    #[test]
    fn repairs_that_never_left_are_forgotten() {
        let (mut sent, now) = (UnderWay::new(Position::End), clock());
        for tag in 0..1000_u64 {
            if sent.has_room(AGE, now) {
                sent.push_repair(tag, &tag.to_be_bytes(), now);
            }
        }
        assert!(!sent.has_room(AGE, now) && sent.repairs.len() == MOST);
        assert!(sent.is_repair(&0_u64.to_be_bytes()));
        assert!(sent.has_room(AGE, now + AGE));
        assert!(!sent.is_repair(&0_u64.to_be_bytes()));
    }

    #[test]
    fn the_latest_markers_are_known() {
        let mut sent = UnderWay::new(Position::End);
        for number in 0..9_u8 {
            sent.push_marker(&[number; 128]);
        }
        let known: Vec<u8> = (0..9).filter(|number| sent.is_marker(&[*number; 128])).collect();
        assert_eq!(known, [5, 6, 7, 8]);
    }
}
