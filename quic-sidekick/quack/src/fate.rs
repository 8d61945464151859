//! The fates of packets, and the workspace in which the decoder finds them.

use crate::error::MAX_THRESHOLD;
use crate::field::Field;
use alloc::vec::Vec;

/// The fate of one packet of the log, as a quACK shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// The receiving side saw it.
    Received,
    /// The receiving side did not see it.
    Missing,
    /// Some of several packets with this identifier were seen and some were not, and the sums
    /// cannot show which.
    Ambiguous,
}

/// The workspace of Newton's identities.
#[derive(Debug)]
pub struct Identities<I: Field> {
    /// The partial totals of the identities, for each power. The vector code keeps its own.
    pub(crate) totals: Vec<I::Wide>,
    /// The polynomial whose roots are the missing identifiers, without its leading 1, highest power
    /// first.
    pub(crate) polynomial: Vec<I>,
}

impl<I: Field> Identities<I> {
    pub(crate) fn with_degree(degree: usize) -> Self {
        Self { totals: Vec::with_capacity(MAX_THRESHOLD), polynomial: Vec::with_capacity(degree) }
    }
}

/// The packets of the log whose identifiers are roots, found so far.
#[derive(Debug)]
pub struct Found<I> {
    /// Their number.
    count: usize,
    /// Their elements, at most `limit`.
    elements: Vec<I>,
    limit: usize,
}

impl<I: Field> Found<I> {
    /// No root yet, and room for `limit`.
    pub(crate) fn with_limit(limit: usize) -> Self {
        Self { count: 0, elements: Vec::with_capacity(limit), limit }
    }

    /// Marks a packet as missing.
    #[inline]
    pub(crate) fn mark(&mut self, identifier: I, fate: &mut Fate) {
        *fate = Fate::Missing;
        self.count += 1;
        if self.elements.len() < self.limit {
            self.elements.push(identifier.element());
        }
    }

    pub(crate) fn clear(&mut self) {
        self.count = 0;
        self.elements.clear();
    }

    /// Whether there are exactly `count`, all distinct.
    pub(crate) fn are_distinct(&self, count: usize) -> bool {
        let Self { count: found, elements, .. } = self;
        let repeats = |(i, element)| elements.iter().take(i).any(|earlier| earlier == element);
        *found == count && elements.len() == count && !elements.iter().enumerate().any(repeats)
    }
}
