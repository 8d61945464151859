//! Deadlines by index: a binary heap that tracks the position of each entry.
//!
//! An entry moves for every timed quACK. No operation allocates, once there is room.

use std::time::Instant;

/// The position of an index without a deadline.
const NOWHERE: usize = usize::MAX;

/// Deadlines, at most one for each index.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    /// A binary heap; the earliest deadline is first.
    heap: Vec<(Instant, usize)>,
    /// The position of each index in the heap.
    places: Vec<usize>,
}

impl Deadlines {
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Makes room for the indices below `indices`.
    pub(super) fn make_room(&mut self, indices: usize) {
        self.heap.reserve_exact(indices.saturating_sub(self.heap.len()));
        self.places.reserve_exact(indices.saturating_sub(self.places.len()));
    }

    /// The earliest deadline and its index.
    pub(super) fn first(&self) -> Option<(Instant, usize)> {
        self.heap.first().copied()
    }

    /// Sets the deadline of an index, in place of its last.
    pub(super) fn set(&mut self, index: usize, at: Instant) {
        if self.places.len() <= index {
            self.places.resize(index + 1, NOWHERE);
        }
        let place = self.places.get(index).copied().unwrap_or(NOWHERE);
        let place = match self.heap.get_mut(place) {
            Some(entry) if entry.0 == at => return,
            Some(entry) => {
                entry.0 = at;
                place
            }
            None => {
                self.heap.push((at, index));
                self.put(self.heap.len() - 1);
                self.heap.len() - 1
            }
        };
        self.settle(place);
    }

    /// Removes an index's deadline.
    pub(super) fn remove(&mut self, index: usize) {
        let Some(place) = self.places.get_mut(index) else { return };
        let place = std::mem::replace(place, NOWHERE);
        if place < self.heap.len() {
            self.heap.swap_remove(place);
            if place < self.heap.len() {
                self.put(place);
                self.settle(place);
            }
        }
    }

    /// Records `place` as the position of the entry there.
    fn put(&mut self, place: usize) {
        if let Some(&(_, index)) = self.heap.get(place)
            && let Some(known) = self.places.get_mut(index)
        {
            *known = place;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.put(a);
        self.put(b);
    }

    fn is_before(&self, a: usize, b: usize) -> bool {
        matches!((self.heap.get(a), self.heap.get(b)), (Some(a), Some(b)) if a.0 < b.0)
    }

    /// Moves the entry at `place` up or down to its place in the heap.
    fn settle(&mut self, mut place: usize) {
        while place > 0 && self.is_before(place, (place - 1) / 2) {
            self.swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
        loop {
            let mut earliest = place;
            for child in [2 * place + 1, 2 * place + 2] {
                if self.is_before(child, earliest) {
                    earliest = child;
                }
            }
            if earliest == place {
                return;
            }
            self.swap(place, earliest);
            place = earliest;
        }
    }

    #[cfg(test)]
    pub(super) fn of(&self, index: usize) -> Option<Instant> {
        let place = self.places.get(index).filter(|place| **place != NOWHERE)?;
        self.heap.get(*place).map(|(at, _)| *at)
    }

    /// Panics unless it is a heap, and all recorded positions are right.
    #[cfg(test)]
    pub(super) fn check(&self) {
        for (place, (at, index)) in self.heap.iter().enumerate() {
            assert_eq!(self.places[*index], place);
            assert!(place == 0 || self.heap[(place - 1) / 2].0 <= *at);
        }
        assert_eq!(self.places.iter().filter(|place| **place != NOWHERE).count(), self.heap.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::time::Duration;

    proptest! {
        #[test]
        #[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
        fn the_earliest_is_first(
            steps in prop::collection::vec((0usize..12, prop::option::of(0u64..40)), 1..200),
        ) {
            let start = Instant::now();
            let (mut deadlines, mut oracle) = (Deadlines::default(), BTreeMap::new());
            for (index, at) in steps {
                match at.map(|at| start + Duration::from_secs(at)) {
                    Some(at) => {
                        deadlines.set(index, at);
                        oracle.insert(index, at);
                    }
                    None => {
                        deadlines.remove(index);
                        oracle.remove(&index);
                    }
                }
                deadlines.check();
                prop_assert_eq!(deadlines.len(), oracle.len());
                let earliest = deadlines.first().map(|(at, _)| at);
                prop_assert_eq!(earliest, oracle.values().min().copied());
                let agrees = |index| deadlines.of(index) == oracle.get(&index).copied();
                prop_assert!((0..12).all(agrees));
                if let Some((at, index)) = deadlines.first() {
                    prop_assert_eq!(oracle.get(&index), Some(&at));
                }
            }
        }
    }
}
