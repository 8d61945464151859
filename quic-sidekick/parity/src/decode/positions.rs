//! The state of the latest positions, from the lists.

use super::{Counts, JUDGED, ListError};
use crate::{COLUMNS, column};

/// A set of columns, and so of positions within the latest [`COLUMNS`].
pub(super) type Columns = u128;

/// The latest positions that are remembered: one for each column.
pub(super) const REMEMBERED: u32 = Columns::BITS;

pub(super) struct Positions {
    /// The newest position of any list.
    newest: Option<u32>,
    /// Where the newest repair symbol begins.
    front: Option<u32>,
    identifiers: [u32; COLUMNS],
    /// The ring's sequence numbers of the datagrams that are known.
    sequences: [u64; COLUMNS],
    listed: Columns,
    /// Listed, and its datagram neither arrived nor was rebuilt.
    missing: Columns,
    /// Listed, and its datagram did not arrive as an original.
    lost: Columns,
    counts: Counts,
    /// The last position that was judged was lost.
    run: bool,
}

/// The columns of some consecutive positions.
pub(super) fn columns(first: u32, count: u32) -> Columns {
    let count = count.min(REMEMBERED);
    let ones = Columns::MAX.checked_shr(REMEMBERED - count).unwrap_or(0);
    ones.rotate_left(first % REMEMBERED)
}

#[inline]
pub(super) fn only(position: u32) -> Columns {
    1 << column(position)
}

/// How the positions of a repair symbol stand to the lists.
pub(super) enum Covered {
    /// Some were forgotten.
    Old,
    /// Some are not listed yet.
    Unlisted,
    /// All are listed.
    Listed(Columns),
}

impl Positions {
    pub(super) fn new() -> Self {
        Self {
            newest: None,
            front: None,
            identifiers: [0; COLUMNS],
            sequences: [0; COLUMNS],
            listed: 0,
            missing: 0,
            lost: 0,
            counts: Counts::default(),
            run: false,
        }
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    pub(super) fn missing(&self) -> Columns {
        self.missing
    }

    /// The oldest position that is remembered.
    pub(super) fn oldest(&self) -> u32 {
        self.newest.unwrap_or(0).wrapping_sub(REMEMBERED - 1)
    }

    /// By how much a position is older than the newest. `None` if it is newer.
    fn age(&self, position: u32) -> Option<u32> {
        self.newest.map(|newest| newest.wrapping_sub(position)).filter(|age| *age < 1 << 31)
    }

    /// Checks a list before anything changes.
    pub(super) fn check(&self, first: u32, identifiers: &[u32]) -> Result<(), ListError> {
        let mut old = !identifiers.is_empty();
        for (position, &identifier) in positions(first).zip(identifiers) {
            let age = self.age(position);
            if age.is_some_and(|age| age >= REMEMBERED) {
                continue;
            }
            let differs = age.is_some() && self.identifiers[column(position)] != identifier;
            if differs && self.listed & only(position) != 0 {
                return Err(ListError::Contradiction { position });
            }
            old = false;
        }
        if old { Err(ListError::Old) } else { Ok(()) }
    }

    /// Notes where a repair symbol begins.
    pub(super) fn note_front(&mut self, first: u32) {
        if self.front.is_none_or(|front| first.wrapping_sub(front) < 1 << 31) {
            self.front = Some(first);
        }
    }

    /// Makes `last` the newest position, if it is newer. Returns the columns of missing positions
    /// that were forgotten for that.
    pub(super) fn advance(&mut self, last: u32) -> Columns {
        let Some(newest) = self.newest else {
            self.newest = Some(last);
            return 0;
        };
        let by = last.wrapping_sub(newest);
        if by >= 1 << 31 {
            return 0;
        }
        let next = newest.wrapping_add(1);
        // Those between were never listed.
        self.judge(next.wrapping_sub(JUDGED), by.min(JUDGED));
        self.run &= by <= JUDGED;
        // After that many nothing is remembered.
        let reused = columns(next, by.min(REMEMBERED));
        let forgotten = self.missing & reused;
        self.listed &= !reused;
        self.missing &= !reused;
        self.lost &= !reused;
        self.newest = Some(last);
        forgotten
    }

    /// Judges some positions that leave the latest ones.
    fn judge(&mut self, first: u32, count: u32) {
        let these = columns(first, count);
        self.counts.judged += u64::from((self.listed & these).count_ones());
        if self.lost & these == 0 {
            self.run &= count == 0;
            return;
        }
        for position in positions(first).take(count as usize) {
            let lost = self.lost & only(position) != 0;
            self.counts.lost += u64::from(lost);
            self.counts.runs += u64::from(lost && !self.run);
            self.run = lost;
        }
    }

    /// Whether a position is remembered and not listed.
    pub(super) fn is_new(&self, position: u32) -> bool {
        let remembered = self.age(position).is_some_and(|age| age < REMEMBERED);
        remembered && self.listed & only(position) == 0
    }

    /// Lists a new position. `found` is its datagram's sequence number, and whether it arrived as
    /// an original.
    pub(super) fn list(&mut self, position: u32, identifier: u32, found: Option<(u64, bool)>) {
        let this = only(position);
        self.listed |= this;
        self.identifiers[column(position)] = identifier;
        match found {
            Some((sequence, _)) => self.sequences[column(position)] = sequence,
            None => self.missing |= this,
        }
        if !found.is_some_and(|(_, original)| original) {
            self.lost |= this;
            self.counts.absent += 1;
        }
        self.counts.listed += 1;
    }

    /// Notes a datagram that arrived or was rebuilt. Returns the columns of the positions that
    /// missed it.
    #[inline]
    pub(super) fn learn(&mut self, identifier: u32, sequence: u64, original: bool) -> Columns {
        // Most datagrams arrive before a list names them.
        if self.lost == 0 { 0 } else { self.learn_lost(identifier, sequence, original) }
    }

    fn learn_lost(&mut self, identifier: u32, sequence: u64, original: bool) -> Columns {
        let mut filled = 0;
        // A missing datagram also counts as lost, until it arrives.
        for column in each(self.lost) {
            if self.identifiers[column] != identifier {
                continue;
            }
            // A rebuilt or copied datagram remains, since a stranger may send the identifier again.
            if self.missing >> column & 1 == 1 {
                self.sequences[column] = sequence;
                filled |= 1 << column;
            }
            if original {
                self.lost &= !(1 << column);
            }
        }
        self.missing &= !filled;
        filled
    }

    pub(super) fn covered(&self, first: u32, count: u32) -> Covered {
        if self.age(first).is_some_and(|age| age >= REMEMBERED) {
            return Covered::Old;
        }
        let (these, last) = (columns(first, count), first.wrapping_add(count).wrapping_sub(1));
        if self.age(last).is_none() || self.age(first).is_none() || these & !self.listed != 0 {
            return Covered::Unlisted;
        }
        Covered::Listed(these)
    }

    /// The sequence number of a known position's datagram.
    pub(super) fn sequence(&self, column: usize) -> u64 {
        self.sequences[column]
    }

    /// The identifier of a listed position.
    pub(super) fn identifier(&self, column: usize) -> u32 {
        self.identifiers[column]
    }

    /// The newest listed position of an identifier.
    fn find(&self, identifier: u32) -> Option<u32> {
        let newest = self.newest?;
        (0..REMEMBERED).map(|age| newest.wrapping_sub(age)).find(|&position| {
            self.identifiers[column(position)] == identifier && self.listed & only(position) != 0
        })
    }

    /// The columns between two identifiers. `None` if not all of them are listed.
    pub(super) fn between(&self, after: Option<u32>, before: u32) -> Option<Columns> {
        let before = self.find(before)?;
        let first = match after {
            Some(identifier) => self.find(identifier)?.wrapping_add(1),
            None => {
                let mut remembered = positions(self.oldest()).take(COLUMNS);
                remembered.find(|&position| self.listed & only(position) != 0)?
            }
        };
        // They passed the proxy the other way round.
        let count = Some(before.wrapping_sub(first)).filter(|count| *count < 1 << 31).unwrap_or(0);
        let between = columns(first, count);
        (between & !self.listed == 0).then_some(between)
    }

    /// Whether a position is so far ahead that no list can soon name it beside the present ones.
    pub(super) fn is_far_ahead(&self, position: u32) -> bool {
        let ahead = |newest: u32| (REMEMBERED..1 << 31).contains(&position.wrapping_sub(newest));
        self.newest.is_some_and(ahead)
    }

    /// The columns of positions that the newest repair symbol no longer contains.
    pub(super) fn behind_front(&self) -> Columns {
        let front = self.front.unwrap_or(self.oldest());
        // One that begins before the oldest position has left none behind.
        let behind = front.wrapping_sub(self.oldest());
        columns(self.oldest(), if behind < 1 << 31 { behind } else { 0 })
    }
}

/// The positions from one on.
pub(super) fn positions(first: u32) -> impl Iterator<Item = u32> {
    (0..).map(move |offset| first.wrapping_add(offset))
}

/// The columns of a set.
pub(super) fn each(mut set: Columns) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let column = set.trailing_zeros() as usize;
        set &= set.checked_sub(1)?;
        Some(column)
    })
}
