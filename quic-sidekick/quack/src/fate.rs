//! The fates of packets, and the workspace in which the decoder finds them.

use crate::field::Field;
use crate::threshold::MAX_THRESHOLD;
use alloc::vec::Vec;

/// What a quACK says about one packet of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It was seen.
    Received,
    /// It was not seen.
    Missing,
    /// Of several packets with this identifier some were seen and some were not, and the sums
    /// cannot tell which.
    Ambiguous,
}

/// What Newton's identities are worked out in.
#[derive(Debug)]
pub struct Identities<I: Field> {
    /// What the identities come to so far, for each power. The vectors keep theirs elsewhere.
    pub(crate) totals: Vec<I::Wide>,
    /// The polynomial whose roots are the missing identifiers, less its leading 1, highest power
    /// first.
    pub(crate) polynomial: Vec<I>,
}

impl<I: Field> Identities<I> {
    pub(crate) fn with_degree(degree: usize) -> Self {
        Self { totals: Vec::with_capacity(MAX_THRESHOLD), polynomial: Vec::with_capacity(degree) }
    }
}

/// The packets of the log that are roots, as they are come upon.
#[derive(Debug)]
pub struct Found<I> {
    /// How many.
    count: usize,
    /// Their elements, as many of them as may be missing.
    elements: Vec<I>,
    limit: usize,
}

impl<I: Field> Found<I> {
    /// No root yet, and room for `limit`.
    pub(crate) fn with_limit(limit: usize) -> Self {
        Self { count: 0, elements: Vec::with_capacity(limit), limit }
    }

    /// Marks one.
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

    /// Whether they are so many, no two of them alike.
    pub(crate) fn are_distinct(&self, count: usize) -> bool {
        let Self { count: found, elements, .. } = self;
        let repeats = |(i, element)| elements.iter().take(i).any(|earlier| earlier == element);
        *found == count && elements.len() == count && !elements.iter().enumerate().any(repeats)
    }
}
