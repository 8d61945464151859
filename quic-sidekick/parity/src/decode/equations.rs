//! The repair symbols that still contain missing datagrams: a matrix in reduced row-echelon form.
//!
//! A row has its *pivot* at the oldest position that it contains, and no other row contains that,
//! so a row that contains one position only is a rebuilt datagram. When a position is forgotten, at
//! most one row contains it, since it is older than all others.

use super::positions::{Columns, each};
use super::ring::ROOM;
use crate::vector::{InstructionSet, Term};
use crate::{COLUMNS, field};

/// Rows that are stored.
pub(super) const ROWS: usize = 64;

/// The coefficients of all columns, then the symbol, so that one pass adds both.
#[repr(align(64))]
struct Row {
    bytes: [u8; COLUMNS + ROOM],
    /// Beyond these, all bytes are 0.
    used: usize,
    /// The column of the oldest position.
    pivot: usize,
}

impl Row {
    fn new() -> Box<Self> {
        Box::new(Self { bytes: [0; COLUMNS + ROOM], used: COLUMNS, pivot: 0 })
    }

    fn clear(&mut self) {
        self.bytes.iter_mut().take(self.used).for_each(|byte| *byte = 0);
        self.used = COLUMNS;
    }

    fn used(&self) -> &[u8] {
        self.bytes.get(..self.used).unwrap_or_default()
    }

    fn symbol(&self) -> &[u8] {
        self.used().get(COLUMNS..).unwrap_or_default()
    }

    fn coefficients(&self) -> &[u8] {
        self.bytes.get(..COLUMNS).unwrap_or_default()
    }

    /// Adds products of symbols.
    fn add<'a>(&mut self, set: InstructionSet, terms: impl Iterator<Item = Term<'a>>) -> u64 {
        let Self { bytes, used, .. } = self;
        let Some(symbol) = bytes.get_mut(COLUMNS..) else { return 0 };
        let mut operations = 0;
        set.add(
            symbol,
            terms.inspect(|term| {
                *used = (*used).max(COLUMNS + term.bytes.len());
                operations += 1;
            }),
        );
        operations
    }

    /// Adds products of rows.
    fn add_rows<'a>(
        &mut self,
        set: InstructionSet,
        rows: impl Iterator<Item = (u8, &'a Row)>,
    ) -> u64 {
        let Self { bytes, used, .. } = self;
        let mut operations = 0;
        let terms = rows.map(|(coefficient, row)| {
            *used = (*used).max(row.used);
            operations += 1;
            Term { coefficient, bytes: row.used() }
        });
        set.add(bytes, terms);
        operations
    }
}

/// The effect of a repair symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rank {
    /// One equation more.
    More,
    /// Nothing: it follows from the others.
    Same,
    /// It contradicts the others, so one of them is wrong.
    Contradiction,
}

pub(super) struct Equations {
    set: InstructionSet,
    /// As many as were needed so far.
    #[allow(clippy::vec_box, reason = "rows change places without their bytes")]
    rows: Vec<Box<Row>>,
    /// The rows in use, by bits.
    live: u64,
    /// Those that changed since [`Equations::solved`] looked at them.
    changed: u64,
    /// The row to insert.
    work: Box<Row>,
    /// Where the row to insert gets its pivot of 1. It takes the place of an unused row.
    spare: Box<Row>,
    /// Row operations so far.
    pub(super) operations: u64,
}

impl Equations {
    pub(super) const BYTES: usize = (ROWS + 2) * size_of::<Row>();

    pub(super) fn new(set: InstructionSet) -> Self {
        Self {
            set,
            rows: Vec::new(),
            live: 0,
            changed: 0,
            work: Row::new(),
            spare: Row::new(),
            operations: 0,
        }
    }

    pub(super) fn set_instruction_set(&mut self, set: InstructionSet) {
        self.set = set;
    }

    pub(super) fn clear(&mut self) {
        (self.live, self.changed) = (0, 0);
    }

    /// Inserts a repair symbol: with these coefficients of missing datagrams, and less these terms
    /// of known ones. `oldest` is the column of the oldest position.
    pub(super) fn insert<'a>(
        &mut self,
        symbol: &[u8],
        known: impl Iterator<Item = Term<'a>>,
        missing: impl Iterator<Item = (usize, u8)>,
        oldest: usize,
    ) -> Rank {
        self.work.clear();
        if let Some(place) = self.work.bytes.get_mut(COLUMNS..COLUMNS + symbol.len()) {
            place.copy_from_slice(symbol);
            self.work.used = COLUMNS + symbol.len();
        }
        for (column, coefficient) in missing {
            self.work.bytes[column] = coefficient;
        }
        self.operations += self.work.add(self.set, known);

        // No row contains another's pivot, so none changes what the others are multiplied by.
        let mut coefficients = [0; COLUMNS];
        coefficients.copy_from_slice(self.work.coefficients());
        let rows = live(self.live).filter_map(|index| self.rows.get(index));
        let rows = rows.map(|row| (coefficients[row.pivot], &**row)).filter(|(by, _)| *by != 0);
        self.operations += self.work.add_rows(self.set, rows);
        self.place(oldest)
    }

    /// Inserts the row `work`, which contains no pivot.
    fn place(&mut self, oldest: usize) -> Rank {
        let in_order = |age: usize| (oldest + age) % COLUMNS;
        let Some(pivot) = (0..COLUMNS).map(in_order).find(|&column| self.work.bytes[column] != 0)
        else {
            let zero = self.work.symbol().iter().all(|byte| *byte == 0);
            return if zero { Rank::Same } else { Rank::Contradiction };
        };
        if self.live == u64::MAX {
            let age = |&index: &usize| (self.rows[index].pivot + COLUMNS - oldest) % COLUMNS;
            if let Some(index) = live(self.live).min_by_key(age) {
                self.remove(index);
            }
        }
        let scale = field::invert(self.work.bytes[pivot]);
        self.spare.clear();
        self.spare.pivot = pivot;
        self.operations += self.spare.add_rows(self.set, std::iter::once((scale, &*self.work)));
        for index in live(self.live) {
            let row = &mut self.rows[index];
            let coefficient = row.bytes[pivot];
            if coefficient != 0 {
                let spare = std::iter::once((coefficient, &*self.spare));
                self.operations += row.add_rows(self.set, spare);
                self.changed |= 1 << index;
            }
        }
        let index = self.live.trailing_ones() as usize;
        if index == self.rows.len() && index < ROWS {
            self.rows.push(Row::new());
        }
        if let Some(row) = self.rows.get_mut(index) {
            std::mem::swap(row, &mut self.spare);
            self.live |= 1 << index;
            self.changed |= 1 << index;
        }
        Rank::More
    }

    fn remove(&mut self, index: usize) {
        self.live &= !(1 << index);
        self.changed &= !(1 << index);
    }

    /// Puts the source symbol of a missing datagram, which is now known, into all rows.
    pub(super) fn substitute(&mut self, column: usize, symbol: &[u8], oldest: usize) -> Rank {
        let mut without_pivot = None;
        for index in live(self.live) {
            let row = &mut self.rows[index];
            let coefficient = row.bytes[column];
            if coefficient == 0 {
                continue;
            }
            row.bytes[column] = 0;
            let term = Term { coefficient, bytes: symbol };
            self.operations += row.add(self.set, std::iter::once(term));
            self.changed |= 1 << index;
            if row.pivot == column {
                without_pivot = Some(index);
            }
        }
        let Some(index) = without_pivot else { return Rank::Same };
        self.remove(index);
        std::mem::swap(&mut self.rows[index], &mut self.work);
        self.place(oldest)
    }

    /// Forgets the oldest columns, with the rows that contain them.
    pub(super) fn forget(&mut self, columns: Columns) {
        for index in live(self.live) {
            if columns >> self.rows[index].pivot & 1 == 1 {
                self.remove(index);
            }
        }
    }

    /// Whether a row may contain one position only.
    #[inline]
    pub(super) fn has_changed(&self) -> bool {
        self.changed != 0
    }

    /// Removes a row that contains one position only. Returns its column, and its source symbol.
    pub(super) fn solved(&mut self) -> Option<(usize, &[u8])> {
        while self.changed != 0 {
            let index = self.changed.trailing_zeros() as usize;
            self.changed &= self.changed - 1;
            let row = &self.rows[index];
            if row.coefficients().iter().filter(|byte| **byte != 0).count() == 1 {
                self.remove(index);
                let row = &self.rows[index];
                return Some((row.pivot, row.symbol()));
            }
        }
        None
    }

    /// Whether a row contains one of these columns.
    pub(super) fn contains(&self, columns: Columns) -> bool {
        live(self.live).any(|index| {
            let row = &self.rows[index];
            each(columns).any(|column| row.bytes[column] != 0)
        })
    }
}

/// The indices of a set of rows.
fn live(rows: u64) -> impl Iterator<Item = usize> {
    each(rows.into())
}
