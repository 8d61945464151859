//! Power sums: the proxy's state for a flow, the contents of a quACK, and the sender's state over
//! its log.

use crate::error::{MoreReceivedThanSent, PartsError, ThresholdError};
use crate::field::Identifier;
use crate::vector::InstructionSet;
use crate::vector::narrow::WIDEST;
use alloc::{vec, vec::Vec};
use core::hash::{Hash, Hasher};
use core::{fmt, mem};

/// The number of packets that are buffered. A batch of them costs a fifth of single insertions,
/// because a buffered packet touches two cache lines instead of all sums. A larger buffer would
/// gain little.
const PENDING: usize = 64;

/// Power sums of 32-bit identifiers, as the protocol uses.
pub type PowerSums = PowerSumsOf<u32>;

/// The number of packets, and the sums of the 1st to `t`-th powers of their identifiers.
///
/// Sums over the same packets are equal, whatever the order. All operations are exact modulo the
/// identifiers' [`MODULUS`](Identifier::MODULUS) and on the wrapping count, so a flow may last
/// forever.
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
    /// The most elements that were added to a sum since the last reduction.
    unsettled: u32,
    /// The number of packets in `pending`, which are counted but not yet in the sums.
    waiting: usize,
    pending: [I; PENDING],
    /// The `k`-th power sum at index `k - 1`. Padding fills the last vector; its values are
    /// unspecified.
    sums: Vec<I::Lazy>,
}

impl<I: Identifier> PowerSumsOf<I> {
    /// Sums over no packets, which can identify `threshold` missing ones.
    ///
    /// # Errors
    /// [`ThresholdError`] unless `threshold` is 1 to [`MAX_THRESHOLD`](crate::MAX_THRESHOLD).
    pub fn new(threshold: usize) -> Result<Self, ThresholdError> {
        ThresholdError::check(threshold)?;
        Ok(Self::empty(threshold))
    }

    /// Sums from a message: `count` packets (modulo 2³²) and one sum for each power from 1 upward.
    ///
    /// # Errors
    /// [`PartsError`] if there are not 1 to [`MAX_THRESHOLD`](crate::MAX_THRESHOLD) sums, or one is
    /// not below the
    /// [`MODULUS`](Identifier::MODULUS).
    pub fn from_parts(count: u32, sums: &[I]) -> Result<Self, PartsError> {
        let mut result = Self::default();
        result.assign_parts(count, sums)?;
        Ok(result)
    }

    /// As [`from_parts`](Self::from_parts), into an existing value, whose memory is reused: it
    /// allocates only if the value never held that many sums. On an error `self` is unchanged.
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

    /// The same sums with other instructions.
    #[must_use]
    pub fn with_instruction_set(mut self, set: InstructionSet) -> Self {
        self.set = set;
        self
    }

    /// The number of sums, 1 to [`MAX_THRESHOLD`](crate::MAX_THRESHOLD).
    pub fn threshold(&self) -> usize {
        self.threshold
    }

    /// The number of inserted packets less the removed ones, modulo 2³².
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The sums, lowest power first. Each is below the [`MODULUS`](Identifier::MODULUS).
    ///
    /// The first few are the sums of a smaller threshold, so a quACK can carry fewer sums than the
    /// proxy keeps. This is faster after [`write_sums`](Self::write_sums).
    pub fn sums(&self) -> impl ExactSizeIterator<Item = I> + '_ {
        let bases = self.pending.map(I::element);
        let mut powers = bases;
        self.lazy().iter().map(move |&sum| {
            let mut sum = sum;
            for (power, base) in powers.iter_mut().zip(bases).take(self.waiting) {
                I::accumulate(&mut sum, *power);
                *power = I::mul(*power, base);
            }
            I::settle(sum)
        })
    }

    /// Writes as many of the first sums as `out` has room for, and returns their number. It changes
    /// no observable state.
    pub fn write_sums(&mut self, out: &mut [I]) -> usize {
        self.flush();
        let written = out.len().min(self.threshold);
        for (out, &sum) in out.iter_mut().zip(self.lazy()) {
            *out = I::settle(sum);
        }
        written
    }

    /// Adds a packet, without allocating. Most calls only buffer the identifier; a full buffer, or
    /// a read of the sums, adds all buffered ones, in time proportional to the threshold.
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

    /// Adds packets, as inserting each, but faster if there are many. Never allocates.
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

    /// Removes a packet, for instance when a sender drops it from its log. The exact opposite of
    /// [`insert`](Self::insert): the removal of a packet that was never inserted cancels a later
    /// insertion. It is not buffered, and costs three to five times as much.
    pub fn remove(&mut self, identifier: I) {
        self.remove_many(&[identifier]);
    }

    /// Removes packets, as removing each, but faster if there are eight or more. Never allocates.
    #[allow(clippy::cast_possible_truncation, reason = "the count is kept modulo 2³²")]
    pub fn remove_many(&mut self, identifiers: &[I]) {
        self.count = self.count.wrapping_sub(identifiers.len() as u32);
        self.combine::<true>(identifiers);
    }

    /// Removes all packets. The threshold stays.
    pub fn clear(&mut self) {
        self.count = 0;
        self.unsettled = 0;
        self.waiting = 0;
        self.sums.fill(I::Lazy::default());
    }

    /// Keeps only the first `threshold` sums, or all if there are no more. The result equals sums
    /// with the smaller threshold from the start.
    ///
    /// # Errors
    /// [`ThresholdError`] unless `threshold` is 1 to [`MAX_THRESHOLD`](crate::MAX_THRESHOLD);
    /// nothing changes then.
    pub fn truncate(&mut self, threshold: usize) -> Result<(), ThresholdError> {
        ThresholdError::check(threshold)?;
        self.keep(threshold);
        Ok(())
    }

    /// The sums over the packets that `self` (sent) holds and `other` (received) does not, with the
    /// smaller threshold of the two.
    ///
    /// Allocates the result; see [`difference_into`](Self::difference_into).
    ///
    /// # Errors
    /// [`MoreReceivedThanSent`] if `other` counts more packets than `self`.
    pub fn difference(&self, other: &Self) -> Result<Self, MoreReceivedThanSent> {
        MoreReceivedThanSent::check(self.count.wrapping_sub(other.count))?;
        let mut difference = self.clone();
        difference.subtract(other);
        Ok(difference)
    }

    /// As [`difference`](Self::difference), into an existing value, whose memory is reused.
    /// Allocates only if `result` never held as many sums as `self` has. On an error `result` is
    /// unchanged.
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

    /// Removes all packets in `other` from `self`, and keeps the smaller threshold of the two.
    /// Never allocates.
    ///
    /// The count wraps: [`Decoder::decode`](crate::Decoder::decode) detects whether more packets
    /// were removed than inserted.
    pub fn subtract(&mut self, other: &Self) {
        self.count = self.count.wrapping_sub(other.count);
        self.keep(other.threshold);
        // A read usually follows.
        self.flush();
        self.make_room(1);
        for (sum, &other) in self.sums.iter_mut().zip(other.lazy()) {
            I::subtract(sum, I::settle(other));
        }
        self.combine::<true>(other.pending.get(..other.waiting).unwrap_or_default());
    }

    /// Adds the buffered packets to the sums. Not inlined, to keep [`insert`](Self::insert) small.
    #[inline(never)]
    fn flush(&mut self) {
        let (pending, waiting) = (self.pending, mem::take(&mut self.waiting));
        self.combine::<false>(pending.get(..waiting).unwrap_or_default());
    }

    /// Adds packets to the sums, or subtracts them. The caller updates the count.
    fn combine<const TAKE: bool>(&mut self, identifiers: &[I]) {
        // Portions small enough for the kernel's doubles to stay exact: 2¹⁹ elements below 2³¹, and
        // totals below 2⁵¹.
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

    /// Buffers a few packets for the next batch.
    fn wait(&mut self, identifiers: &[I]) {
        for (slot, &identifier) in self.pending.iter_mut().skip(self.waiting).zip(identifiers) {
            *slot = identifier;
        }
        self.waiting += identifiers.len();
    }

    /// Sums over no packets, with a threshold in range.
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

    /// Reduces all sums if `elements` more would overflow one.
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

/// No packets and the smallest threshold, 1: a buffer for
/// [`assign_parts`](PowerSumsOf::assign_parts) or
/// [`difference_into`](PowerSumsOf::difference_into).
impl<I: Identifier> Default for PowerSumsOf<I> {
    fn default() -> Self {
        Self::empty(1)
    }
}

/// Whether both have equal counts and sums, whatever their instructions.
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

// By hand, because the derived `clone_from` would drop the old buffer.
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
