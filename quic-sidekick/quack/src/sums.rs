//! The sums themselves: what a proxy keeps for a flow, what a quACK carries, and what a sender
//! keeps over its log.

use crate::error::{MoreReceivedThanSent, PartsError};
use crate::identifier::Identifier;
use crate::threshold::ThresholdError;
use crate::vector::InstructionSet;
use crate::vector::narrow::WIDEST;
use alloc::{vec, vec::Vec};
use core::fmt;
use core::hash::{Hash, Hasher};
use core::mem;

/// So many packets that come one by one wait for each other. A batch of them costs a fifth of what
/// they cost alone, and the packet itself then touches two cache lines instead of all the sums;
/// more would gain little.
const PENDING: usize = 64;

/// Power sums of 32-bit identifiers: what the protocol speaks of.
pub type PowerSums = PowerSumsOf<u32>;

/// How many packets were seen, and the sums of the 1st to `t`-th powers of their identifiers.
///
/// Two of these over the same packets are equal whatever the order of the packets. All operations
/// are exact modulo the identifiers' [`MODULUS`](Identifier::MODULUS) and on the wrapping count, so
/// a flow may go on for ever.
///
/// ```
/// # use sidekick_quack::PowerSums;
/// let mut sums = PowerSums::new(3)?;
/// sums.insert(2);
/// sums.insert(5);
/// assert_eq!(sums.count(), 2);
/// assert!(sums.sums().eq([2 + 5, 4 + 25, 8 + 125]));
/// # Ok::<(), sidekick_quack::ThresholdError>(())
/// ```
pub struct PowerSumsOf<I: Identifier> {
    set: InstructionSet,
    /// 1 to [`MAX_THRESHOLD`](crate::MAX_THRESHOLD).
    threshold: usize,
    count: u32,
    /// At most so many elements were added to a sum since all were reduced.
    unsettled: u32,
    /// Packets that were inserted and are counted, but wait in `pending` to go into the sums
    /// together.
    waiting: usize,
    pending: [I; PENDING],
    /// The `k`-th power sum stands at index `k - 1`. There are more than the threshold, so that
    /// whole vectors fit; those past it mean nothing.
    sums: Vec<I::Lazy>,
}

impl<I: Identifier> PowerSumsOf<I> {
    /// Sums over no packets, with room to tell apart `threshold` missing ones.
    ///
    /// # Errors
    /// [`ThresholdError`] unless `threshold` is 1 to [`MAX_THRESHOLD`](crate::MAX_THRESHOLD).
    pub fn new(threshold: usize) -> Result<Self, ThresholdError> {
        ThresholdError::check(threshold)?;
        Ok(Self::empty(threshold))
    }

    /// Sums that came in a message: `count` packets (modulo 2³²) and one sum for each power from 1
    /// upward.
    ///
    /// # Errors
    /// [`PartsError`] if there are not 1 to [`MAX_THRESHOLD`](crate::MAX_THRESHOLD)
    /// sums, or one is not below the
    /// [`MODULUS`](Identifier::MODULUS).
    pub fn from_parts(count: u32, sums: &[I]) -> Result<Self, PartsError> {
        let mut result = Self::default();
        result.assign_parts(count, sums)?;
        Ok(result)
    }

    /// Like [`from_parts`](Self::from_parts), into an existing value whose memory is used again. It
    /// allocates only if it has never held so many sums. On an error `self` is as it was.
    ///
    /// # Errors
    /// As [`from_parts`](Self::from_parts).
    pub fn assign_parts(&mut self, count: u32, sums: &[I]) -> Result<(), PartsError> {
        PartsError::check(sums)?;
        self.count = count;
        self.threshold = sums.len();
        self.unsettled = 1;
        self.waiting = 0;
        self.sums.clear();
        self.sums.reserve(sums.len().next_multiple_of(WIDEST));
        self.sums.extend(sums.iter().map(|sum| sum.lazy()));
        self.sums.resize(sums.len().next_multiple_of(WIDEST), I::Lazy::default());
        Ok(())
    }

    /// The same sums, kept with other instructions.
    #[must_use]
    pub fn with_instruction_set(mut self, set: InstructionSet) -> Self {
        self.set = set;
        self
    }

    /// How many sums there are: 1 to [`MAX_THRESHOLD`](crate::MAX_THRESHOLD).
    pub fn threshold(&self) -> usize {
        self.threshold
    }

    /// How many packets were inserted, less those removed, modulo 2³².
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The sums, that of the first powers first. Each is below the
    /// [`MODULUS`](Identifier::MODULUS).
    ///
    /// The first few alone are the sums of a smaller threshold: what goes into a quACK smaller than
    /// what is kept. It is faster after [`write_sums`](Self::write_sums).
    pub fn sums(&self) -> impl ExactSizeIterator<Item = I> + '_ {
        let bases = self.pending.map(I::element);
        let mut powers = bases;
        self.lazy().iter().map(move |&sum| {
            let mut sum = sum;
            for (power, base) in powers.iter_mut().zip(bases).take(self.waiting) {
                I::put(&mut sum, *power);
                *power = I::mul(*power, base);
            }
            I::settle(sum)
        })
    }

    /// Writes the first sums, as many as `out` has room for, and says how many. It changes nothing
    /// that shows.
    pub fn write_sums(&mut self, out: &mut [I]) -> usize {
        self.flush();
        let written = out.len().min(self.threshold);
        for (out, &sum) in out.iter_mut().zip(self.lazy()) {
            *out = I::settle(sum);
        }
        written
    }

    /// Adds one packet. Never allocates. On most calls it only notes the identifier; once in a
    /// while, and when the sums are wanted, the noted ones go into the sums together, which takes
    /// time proportional to the threshold.
    #[inline]
    pub fn insert(&mut self, identifier: I) {
        self.count = self.count.wrapping_add(1);
        if let Some(slot) = self.pending.get_mut(self.waiting) {
            *slot = identifier;
            self.waiting += 1;
        }
        if self.waiting == PENDING {
            self.flush();
        }
    }

    /// Adds packets: the same as inserting each, and faster if there are many. Never allocates.
    #[allow(clippy::cast_possible_truncation, reason = "the count is kept modulo 2³²")]
    pub fn insert_many(&mut self, identifiers: &[I]) {
        self.count = self.count.wrapping_add(identifiers.len() as u32);
        if identifiers.len() >= PENDING {
            return self.combine::<false>(identifiers);
        }
        let room = PENDING - self.waiting;
        let (now, later) = identifiers.split_at_checked(room).unwrap_or((identifiers, &[]));
        self.wait(now);
        if self.waiting == PENDING {
            self.flush();
        }
        self.wait(later);
    }

    /// Takes one packet out again, for instance when a sender forgets it. The exact opposite of
    /// [`insert`](Self::insert): removing what was never inserted makes the count and sums those of
    /// a packet that is owed, and inserting it later settles that. It does not wait as inserted
    /// packets do, and costs three to five times as much.
    pub fn remove(&mut self, identifier: I) {
        self.remove_many(&[identifier]);
    }

    /// Takes packets out: the same as removing each, and faster if there are eight or more. Never
    /// allocates.
    #[allow(clippy::cast_possible_truncation, reason = "the count is kept modulo 2³²")]
    pub fn remove_many(&mut self, identifiers: &[I]) {
        self.count = self.count.wrapping_sub(identifiers.len() as u32);
        self.combine::<true>(identifiers);
    }

    /// Forgets all packets; the threshold stays.
    pub fn clear(&mut self) {
        self.count = 0;
        self.unsettled = 0;
        self.waiting = 0;
        self.sums.fill(I::Lazy::default());
    }

    /// Keeps the first `threshold` sums only, or all if there are no more. What remains is what
    /// would have been there had the smaller threshold been chosen from the start.
    ///
    /// # Errors
    /// [`ThresholdError`] unless `threshold` is 1 to [`MAX_THRESHOLD`](crate::MAX_THRESHOLD); nothing
    /// changes then.
    pub fn truncate(&mut self, threshold: usize) -> Result<(), ThresholdError> {
        ThresholdError::check(threshold)?;
        self.keep(threshold);
        Ok(())
    }

    /// The sums over what `self` (sent) holds and `other` (received) does not, with the smaller
    /// threshold of the two.
    ///
    /// It allocates its result; see [`difference_into`](Self::difference_into).
    ///
    /// # Errors
    /// [`MoreReceivedThanSent`] if the counts cannot be such a pair.
    pub fn difference(&self, other: &Self) -> Result<Self, MoreReceivedThanSent> {
        MoreReceivedThanSent::check(self.count.wrapping_sub(other.count))?;
        let mut difference = self.clone();
        difference.subtract(other);
        Ok(difference)
    }

    /// Like [`difference`](Self::difference), into an existing value whose memory is used again. It
    /// allocates only if `result` has never held as many sums as `self` has. On an error `result`
    /// is as it was.
    ///
    /// # Errors
    /// As [`difference`](Self::difference).
    pub fn difference_into(
        &self,
        other: &Self,
        result: &mut Self,
    ) -> Result<(), MoreReceivedThanSent> {
        MoreReceivedThanSent::check(self.count.wrapping_sub(other.count))?;
        result.clone_from(self);
        result.subtract(other);
        Ok(())
    }

    /// Takes everything in `other` out of `self`, and keeps the smaller threshold of the two. Never
    /// allocates.
    ///
    /// The count wraps: whether more was taken out than there was,
    /// [`Decoder::decode`](crate::Decoder::decode) tells.
    pub fn subtract(&mut self, other: &Self) {
        self.count = self.count.wrapping_sub(other.count);
        self.keep(other.threshold);
        // Whoever subtracts is about to read.
        self.flush();
        self.make_room(1);
        for (sum, &other) in self.sums.iter_mut().zip(other.lazy()) {
            I::take(sum, I::settle(other));
        }
        self.combine::<true>(other.pending.get(..other.waiting).unwrap_or_default());
    }

    /// Puts the packets that wait into the sums. Not inlined, to keep [`insert`](Self::insert)
    /// small.
    #[inline(never)]
    fn flush(&mut self) {
        let (pending, waiting) = (self.pending, mem::take(&mut self.waiting));
        self.combine::<false>(pending.get(..waiting).unwrap_or_default());
    }

    /// Adds packets to the sums, or takes them out; the count is the caller's.
    fn combine<const TAKE: bool>(&mut self, identifiers: &[I]) {
        // Few enough at a time that the kernel's doubles stay exact: 2¹⁹ elements below 2³¹, and
        // what is converted from them below 2⁵¹.
        for portion in identifiers.chunks(1 << 19) {
            self.make_room(u32::try_from(portion.len()).unwrap_or(u32::MAX));
            I::insert_many::<TAKE>(self.set, &mut self.sums, self.threshold, portion);
        }
    }

    /// Overwrites `out` with the sums.
    pub(crate) fn copy_sums(&self, out: &mut Vec<I>) {
        out.clear();
        if self.waiting == 0 {
            out.extend(self.lazy().iter().map(|&sum| I::settle(sum)));
        } else {
            out.extend(self.sums());
        }
    }

    /// Lets a few packets wait for the next batch.
    fn wait(&mut self, identifiers: &[I]) {
        for (slot, &identifier) in self.pending.iter_mut().skip(self.waiting).zip(identifiers) {
            *slot = identifier;
        }
        self.waiting += identifiers.len();
    }

    /// Sums over no packets, of a threshold in range.
    fn empty(threshold: usize) -> Self {
        Self {
            set: InstructionSet::best(),
            threshold,
            count: 0,
            unsettled: 0,
            waiting: 0,
            pending: [I::ZERO; PENDING],
            sums: vec![I::Lazy::default(); threshold.next_multiple_of(WIDEST)],
        }
    }

    fn lazy(&self) -> &[I::Lazy] {
        self.sums.get(..self.threshold).unwrap_or(&self.sums)
    }

    fn keep(&mut self, threshold: usize) {
        self.threshold = threshold.min(self.threshold);
        self.sums.truncate(self.threshold.next_multiple_of(WIDEST));
    }

    /// Reduces all sums if so many elements more would be too many for one.
    #[inline]
    fn make_room(&mut self, elements: u32) {
        match self.unsettled.checked_add(elements) {
            Some(unsettled) if unsettled <= I::PATIENCE => self.unsettled = unsettled,
            _ => {
                for sum in &mut self.sums {
                    *sum = I::settle(*sum).lazy();
                }
                self.unsettled = elements.saturating_add(1);
            }
        }
    }
}

/// No packets, and the smallest threshold, 1: a buffer to be written by
/// [`assign_parts`](PowerSumsOf::assign_parts) or
/// [`difference_into`](PowerSumsOf::difference_into).
impl<I: Identifier> Default for PowerSumsOf<I> {
    fn default() -> Self {
        Self::empty(1)
    }
}

/// Whether they are sums over the same packets, as far as sums can tell: whatever their
/// instructions.
impl<I: Identifier> PartialEq for PowerSumsOf<I> {
    fn eq(&self, other: &Self) -> bool {
        self.count == other.count && self.sums().eq(other.sums())
    }
}

impl<I: Identifier> Eq for PowerSumsOf<I> {}

impl<I: Identifier> Hash for PowerSumsOf<I> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.count.hash(state);
        self.threshold.hash(state);
        for sum in self.sums() {
            sum.hash(state);
        }
    }
}

impl<I: Identifier> fmt::Debug for PowerSumsOf<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sums: Vec<I> = self.sums().collect();
        f.debug_struct("PowerSumsOf")
            .field("set", &self.set)
            .field("count", &self.count)
            .field("sums", &sums)
            .finish()
    }
}

// By hand, since the derived `clone_from` would throw the old buffer away.
impl<I: Identifier> Clone for PowerSumsOf<I> {
    fn clone(&self) -> Self {
        Self { sums: self.sums.clone(), ..*self }
    }

    fn clone_from(&mut self, source: &Self) {
        let sums = mem::take(&mut self.sums);
        *self = Self { sums, ..*source };
        self.sums.clone_from(&source.sums);
    }
}

#[cfg(test)]
mod tests;
