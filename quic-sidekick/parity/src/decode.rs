//! The client's side.

mod equations;
mod outcome;
mod positions;
mod ring;
mod waiting;

#[cfg(test)]
mod tests;

pub use outcome::{Between, Counters, Counts, ListError, Origin, RepairError};

use crate::vector::{InstructionSet, Term};
use crate::{
    LENGTH_LEN, MAX_SYMBOL_LEN, MAX_WINDOW, MIN_DATAGRAM_LEN, coefficient, column, identifier,
};
use core::fmt;
use equations::{Equations, Rank};
use positions::{Columns, Covered, Positions, REMEMBERED, columns, each, only};
use ring::Ring;
use waiting::{Queue, Window};

/// A position is judged when it is that far behind the newest.
const JUDGED: u32 = 64;

/// Rebuilds datagrams that were lost after the proxy.
///
/// It remembers the latest 256 datagrams of the flow, the latest 128 positions, and 64 equations.
/// Pass it the datagrams that [arrive](Self::arrived), the [lists](Self::list), and each [repair
/// symbol](Self::repair), in any order. After each call take the [rebuilt](Self::rebuilt)
/// datagrams.
///
/// # Work
/// A repair symbol takes at most [`MAX_WINDOW`] + 64 row operations: one for each known datagram in
/// its window, one for each stored equation that contains a missing datagram of it, and one for
/// each equation that then changes. If none of its positions is missing, it takes none. A datagram
/// that arrives takes at most 65, and only if a list named it before. A list takes none, but for
/// the repair symbols that waited for it, 4 at most.
///
/// An identifier at several positions stands for one datagram. When that arrives, each further
/// position that missed it takes 65 row operations more.
pub struct Decoder {
    set: InstructionSet,
    ring: Ring,
    positions: Positions,
    equations: Equations,
    waiting: Queue,
    /// Columns of datagrams that were rebuilt, and not yet taken.
    rebuilt: Columns,
    counters: Counters,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder")
            .field("set", &self.set)
            .field("counts", &self.counts())
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}

impl Decoder {
    /// A decoder for one flow, with the [best](InstructionSet::best) instructions of this machine.
    /// Allocates little: its [memory](Self::memory_bytes) grows with the flow.
    #[must_use]
    pub fn new() -> Self {
        let set = InstructionSet::best();
        Self {
            set,
            ring: Ring::new(),
            positions: Positions::new(),
            equations: Equations::new(set),
            waiting: Queue::new(),
            rebuilt: 0,
            counters: Counters::default(),
        }
    }

    /// Uses other instructions.
    #[must_use]
    pub fn with_instruction_set(mut self, set: InstructionSet) -> Self {
        self.set = set;
        self.equations.set_instruction_set(set);
        self
    }

    /// The most memory of a decoder in bytes, about half a megabyte. It has that after 256
    /// datagrams and 64 equations at once, and allocates nothing from then on.
    #[must_use]
    pub const fn memory_bytes() -> usize {
        size_of::<Self>() + Ring::BYTES + Equations::BYTES + Queue::BYTES
    }

    /// Forgets everything, for another flow or another numbering. It allocates nothing.
    pub fn clear(&mut self) {
        self.ring.clear();
        self.positions = Positions::new();
        self.equations.clear();
        self.equations.operations = 0;
        self.waiting.clear();
        self.rebuilt = 0;
        self.counters = Counters::default();
    }

    /// A datagram of the flow arrived. Duplicates do no harm.
    ///
    /// Ignores a datagram that the proxy does not number, because of its length.
    pub fn arrived(&mut self, datagram: &[u8], origin: Origin) {
        let Some(identifier) = identifier(datagram) else { return };
        let original = origin == Origin::Original;
        let sequence = self.ring.push(datagram, identifier, original);
        self.learn(identifier, sequence, original);
        self.collect();
    }

    /// A list: the identifiers of datagrams that passed the proxy, at consecutive positions from
    /// `first`. Returns how many of the positions are new.
    ///
    /// A list that is ahead of the others makes the decoder forget positions that are then 128 or
    /// more behind, with the equations that need them.
    ///
    /// # Errors
    /// [`ListError`]. Nothing is changed then.
    pub fn list(
        &mut self,
        first: u32,
        identifiers: impl IntoIterator<Item = u32>,
    ) -> Result<usize, ListError> {
        let (mut list, mut count) = ([0; MAX_WINDOW], 0);
        for identifier in identifiers {
            *list.get_mut(count).ok_or(ListError::TooLong)? = identifier;
            count += 1;
        }
        let list = list.get(..count).unwrap_or_default();
        self.positions.check(first, list)?;
        let Some(last) = positions::positions(first).take(count).last() else { return Ok(0) };
        let forgotten = self.positions.advance(last);
        self.equations.forget(forgotten);
        let mut new = 0;
        for (position, &identifier) in positions::positions(first).zip(list) {
            if self.positions.is_new(position) {
                self.rebuilt &= !only(position);
                let found = self.ring.find(identifier);
                self.positions.list(position, identifier, found);
                new += 1;
            }
        }
        self.retry();
        Ok(new)
    }

    /// A repair symbol: its number, its encoding window of `count` positions from `first`, and its
    /// bytes.
    ///
    /// If some of its positions are not listed yet, it waits for a list. The latest four do.
    ///
    /// # Errors
    /// [`RepairError`]. Nothing is changed then.
    pub fn repair(
        &mut self,
        number: u16,
        first: u32,
        count: u8,
        symbol: &[u8],
    ) -> Result<(), RepairError> {
        if count == 0 || usize::from(count) > MAX_WINDOW {
            return Err(RepairError::Count { count });
        }
        if !(LENGTH_LEN + MIN_DATAGRAM_LEN..=MAX_SYMBOL_LEN).contains(&symbol.len()) {
            return Err(RepairError::Length { len: symbol.len() });
        }
        self.counters.repairs += 1;
        let window = Window { number, first, count: count.into() };
        match self.positions.covered(first, window.count) {
            Covered::Old => self.counters.useless += 1,
            Covered::Unlisted if self.positions.is_far_ahead(first) => self.counters.useless += 1,
            Covered::Unlisted => {
                self.counters.useless += u64::from(self.waiting.push(window, symbol));
            }
            Covered::Listed(covered) => {
                self.positions.note_front(first);
                insert(
                    &self.ring,
                    &self.positions,
                    &mut self.equations,
                    &mut self.counters,
                    (window, covered, symbol),
                );
                self.collect();
            }
        }
        Ok(())
    }

    /// The next datagram that was rebuilt, each once, the oldest first. It counts as arrived.
    ///
    /// Take them until there is none, after each call. They are forgotten with their positions, or
    /// when 256 datagrams have followed.
    #[inline]
    pub fn rebuilt(&mut self) -> Option<&[u8]> {
        // Usually nothing is.
        if self.rebuilt == 0 { None } else { self.oldest_rebuilt() }
    }

    fn oldest_rebuilt(&mut self) -> Option<&[u8]> {
        let oldest = self.positions.oldest();
        while self.rebuilt != 0 {
            let age = self.rebuilt.rotate_right(oldest % REMEMBERED).trailing_zeros();
            let column = column(oldest.wrapping_add(age));
            self.rebuilt &= !(1 << column);
            let sequence = self.positions.sequence(column);
            if self.ring.datagram(sequence).is_some() {
                return self.ring.datagram(sequence);
            }
        }
        None
    }

    /// The missing datagrams between two that arrived, given by their identifiers. `after` is
    /// exclusive; without it, everything from the oldest position in a list counts. `before` is
    /// exclusive, too.
    ///
    /// ```
    /// use sidekick_parity::{Between, Decoder, Origin};
    ///
    /// let mut decoder = Decoder::new();
    /// decoder.arrived(&[0, 0, 0, 1], Origin::Original);
    /// decoder.arrived(&[0, 0, 0, 3], Origin::Original);
    /// assert_eq!(decoder.missing(Some(1), 3), Between::Unlisted);
    /// decoder.list(9, [1, 2, 3])?;
    /// let one = Between::Missing { count: 1, hopeless: false };
    /// assert_eq!(decoder.missing(Some(1), 3), one);
    /// # Ok::<(), sidekick_parity::ListError>(())
    /// ```
    #[must_use]
    pub fn missing(&self, after: Option<u32>, before: u32) -> Between {
        let Some(between) = self.positions.between(after, before) else { return Between::Unlisted };
        self.outlook(between & self.positions.missing())
    }

    /// What is missing of so many datagrams at consecutive positions from `first` on.
    #[must_use]
    pub fn missing_at(&self, first: u32, count: u32) -> Between {
        let count = count.min(REMEMBERED);
        match self.positions.covered(first, count) {
            Covered::Listed(columns) => self.outlook(columns & self.positions.missing()),
            Covered::Old | Covered::Unlisted => Between::Unlisted,
        }
    }

    fn outlook(&self, missing: Columns) -> Between {
        if missing == 0 {
            return Between::Nothing;
        }
        let waits = |window: Window| columns(window.first, window.count) & missing != 0;
        let hopeless = missing & !self.positions.behind_front() == 0
            && !self.equations.contains(missing)
            && !self.waiting.windows().any(waits);
        Between::Missing { count: missing.count_ones(), hopeless }
    }

    /// The losses after the proxy.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts { symbols: self.counters.repairs, ..self.positions.counts() }
    }

    /// The outcome of the repair symbols.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters { operations: self.equations.operations, ..self.counters }
    }

    /// Tries the repair symbols that wait for a list.
    fn retry(&mut self) {
        let mut index = 0;
        while let Some(window) = self.waiting.window(index) {
            let covered = match self.positions.covered(window.first, window.count) {
                Covered::Unlisted => {
                    index += 1;
                    continue;
                }
                Covered::Old => None,
                Covered::Listed(covered) => Some(covered),
            };
            let waiting = self.waiting.remove(index);
            if let (Some(covered), Some(waiting)) = (covered, waiting) {
                self.positions.note_front(window.first);
                insert(
                    &self.ring,
                    &self.positions,
                    &mut self.equations,
                    &mut self.counters,
                    (window, covered, waiting.symbol()),
                );
                self.collect();
            } else {
                self.counters.useless += 1;
            }
        }
    }

    /// A datagram is known from now on.
    #[inline]
    fn learn(&mut self, identifier: u32, sequence: u64, original: bool) {
        let filled = self.positions.learn(identifier, sequence, original);
        if filled == 0 {
            return;
        }
        let Some(symbol) = self.ring.symbol(sequence) else { return };
        let oldest = column(self.positions.oldest());
        for column in each(filled) {
            if self.equations.substitute(column, symbol, oldest) == Rank::Contradiction {
                drop_all(&mut self.equations, &mut self.counters);
            }
        }
    }

    /// Takes datagrams out of the equations that determine them.
    #[inline]
    fn collect(&mut self) {
        if self.equations.has_changed() {
            self.collect_solved();
        }
    }

    fn collect_solved(&mut self) {
        while let Some((column, symbol)) = self.equations.solved() {
            let listed = self.positions.identifier(column);
            let Some(datagram) = check(symbol, listed) else {
                drop_all(&mut self.equations, &mut self.counters);
                return;
            };
            let sequence = self.ring.push(datagram, listed, false);
            self.rebuilt |= 1 << column;
            self.counters.rebuilt += 1;
            self.learn(listed, sequence, false);
        }
    }
}

/// Inserts a repair symbol, if it can help.
fn insert(
    ring: &Ring,
    positions: &Positions,
    equations: &mut Equations,
    counters: &mut Counters,
    (window, covered, symbol): (Window, Columns, &[u8]),
) {
    let (missing, oldest) = (covered & positions.missing(), column(positions.oldest()));
    let of_known = |column: usize| ring.symbol(positions.sequence(column));
    if missing == 0 || each(covered & !missing).any(|column| of_known(column).is_none()) {
        counters.useless += 1;
        return;
    }
    // The coefficient depends on the column only.
    let by = |column: usize| coefficient(window.number, u32::try_from(column).unwrap_or(0));
    let known = each(covered & !missing).map(|column| Term {
        coefficient: by(column),
        bytes: of_known(column).unwrap_or_default(),
    });
    let missing = each(missing).map(|column| (column, by(column)));
    match equations.insert(symbol, known, missing, oldest) {
        Rank::More => counters.used += 1,
        Rank::Same => counters.useless += 1,
        Rank::Contradiction => {
            counters.useless += 1;
            drop_all(equations, counters);
        }
    }
}

/// One equation is wrong, and so may all others be.
fn drop_all(equations: &mut Equations, counters: &mut Counters) {
    equations.clear();
    counters.false_parity += 1;
}

/// The datagram of a source symbol, if it is the listed one.
fn check(symbol: &[u8], listed: u32) -> Option<&[u8]> {
    let (length, padded) = symbol.split_first_chunk()?;
    let length = usize::from(u16::from_be_bytes(*length));
    let (datagram, padding) = padded.split_at_checked(length)?;
    // Only a length in range has an identifier.
    let right = identifier(datagram) == Some(listed) && padding.iter().all(|byte| *byte == 0);
    right.then_some(datagram)
}
