//! Reconciliation of a quACK with the history (SPEC.md, section 7.2).

mod settled;

use super::history::{Entry, History};
use super::last_quack::{LastQuack, Outcome};
use crate::wire::Quack;
use settled::Settled;
use sidekick_quack::{
    DecodeError, Decoder, Fate, Identifier, MAX_THRESHOLD, PartsError, PowerSums,
};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Reordering may have placed this many packets after a quACK's last packet among those that it
/// counts. The same holds for packets before an epoch's first.
const REORDERING: usize = 8;
/// The most multiplications (candidates times sums) of further attempts to decode a quACK.
const BUDGET: usize = 1 << 19;
/// At least this many packets after the epoch's first may have overtaken it, and passed the proxy
/// before the epoch began. There may be more if the sender sent them soon enough after it.
const MIN_UNCERTAIN: usize = 3;
/// How long the proxy may still report a packet sent around an epoch's beginning.
const UNCERTAIN_TIME: Duration = Duration::from_millis(250);

/// The modulus of identifiers and sums.
const MODULUS: u64 = <u32 as Identifier>::MODULUS as u64;

/// The loaded quACK, whose sums are valid. Usually its count and first sum suffice, and the sender
/// does not use the other sums.
#[derive(Debug, Default)]
struct Loaded {
    count: u32,
    sums: Vec<u32>,
}

impl Loaded {
    fn first(&self) -> u64 {
        self.sums.first().map_or(0, |first| u64::from(*first))
    }
}

#[derive(Debug)]
pub(super) struct Reconciler {
    loaded: Loaded,
    /// The loaded quACK as power sums. [`Reconciler::find_candidates`] assigns it.
    quack: PowerSums,
    /// The epoch's packets that quACKs have reported.
    settled: Settled,
    /// The sums over `settled` and the candidates, and over the missing ones of them.
    sent: PowerSums,
    missing: PowerSums,
    decoder: Decoder,
    candidates: Vec<u32>,
    fates: Vec<Fate>,
    /// When the packets were sent that were declared lost and that quACKs reported later, since
    /// [`Reconciler::take_turned_up`].
    turned_up: Vec<Instant>,
    /// The work of all attempts: candidates times sums.
    #[cfg(test)]
    pub(super) work: usize,
    /// The sums of both sides begin with the same packet.
    aligned: bool,
    /// When the first quACK of this epoch that counts no packet arrived. No packet sent later can
    /// have passed the proxy before the epoch began.
    counting_since: Option<Instant>,
    /// Until the epoch's first quACK decodes: the number of pending packets that may have passed
    /// the proxy before the epoch began. The first `lead` of them precede the epoch's first packet,
    /// which may have overtaken them.
    uncertain: usize,
    lead: usize,
}

impl Default for Reconciler {
    fn default() -> Self {
        Self {
            loaded: Loaded::default(),
            quack: PowerSums::default(),
            settled: Settled::default(),
            sent: PowerSums::default(),
            missing: PowerSums::default(),
            decoder: Decoder::new(MAX_THRESHOLD),
            candidates: Vec::new(),
            fates: Vec::new(),
            turned_up: Vec::new(),
            #[cfg(test)]
            work: 0,
            aligned: false,
            counting_since: None,
            uncertain: 0,
            lead: 0,
        }
    }
}

/// The bounds for reconciling a quACK.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// The identifier of the epoch's first packet.
    pub(super) first: u32,
    /// The identifier of the last packet that the proxy counted.
    pub(super) last: u32,
    /// How long the proxy may still report a packet that was declared lost.
    pub(super) grace: Duration,
    /// The longest time by which one packet may overtake another.
    pub(super) overtaking: Duration,
}

/// A range of pending packets with which a quACK decodes.
struct Candidates {
    range: Range<usize>,
    /// The number of them that are missing.
    missing: usize,
}

impl Reconciler {
    /// Begins an epoch, of which the proxy keeps `kept_sums` sums. An ordinary quACK has
    /// `threshold` of them.
    pub(super) fn begin(&mut self, threshold: u8, kept_sums: u8) {
        self.settled = Settled::new(threshold, kept_sums);
        self.aligned = false;
        self.counting_since = None;
        (self.uncertain, self.lead) = (0, 0);
    }

    /// Records that a quACK of this epoch arrived at `now` and counts no packet. The proxy counts
    /// later packets.
    pub(super) fn on_empty(&mut self, now: Instant) {
        self.counting_since.get_or_insert(now);
    }

    /// Whether a packet sent at `sent` cannot have passed the proxy before the epoch began.
    fn is_in_epoch(&self, sent: Instant) -> bool {
        self.counting_since.is_some_and(|since| sent > since)
    }

    /// Loads at most `most` sums of a quACK.
    pub(super) fn load(&mut self, quack: &Quack<'_>, most: usize) -> Result<(), PartsError> {
        self.loaded.count = quack.count;
        self.loaded.sums.clear();
        quack.sums.first(most).append_to(&mut self.loaded.sums);
        PartsError::check(&self.loaded.sums)
    }

    /// Reconciles the loaded quACK with the history. Appends to `received` the tags of the packets
    /// that it is the first to report. On any outcome but `Decoded` the history keeps its packets,
    /// except those from before the epoch's first.
    pub(super) fn reconcile(
        &mut self,
        history: &mut History,
        window: &Window,
        received: &mut Vec<u64>,
        now: Instant,
    ) -> Outcome {
        if !self.aligned && !self.align(history, window.first, window.overtaking) {
            return Outcome::Misaligned;
        }
        // If the last packet is not pending, an earlier quACK reported it. Then this one can newly
        // report only suspects.
        let last = history.pending.iter().rposition(|entry| entry.identifier == window.last);
        let known = last.map_or(0, |last| last + 1).max(history.suspects);
        if self.is_whole(history, known) {
            return self.settle_whole(history, known, last, received);
        }
        let found = match self.find_candidates(history, known) {
            Ok(found) => found,
            Err(outcome) => return outcome,
        };
        if !self.settle_ambiguous(found.missing) {
            return Outcome::Misaligned;
        }
        self.settled.had_losses |= found.missing > 0;
        let uncertain_until = now + window.grace.max(UNCERTAIN_TIME);
        self.settle(history, found.range, last, uncertain_until, received, now)
    }

    /// Finds the range of pending packets with which the quACK decodes. `known` of them were sent
    /// before a packet that the proxy reported.
    fn find_candidates(&mut self, history: &History, known: usize) -> Result<Candidates, Outcome> {
        // Loading checked the sums.
        if self.quack.assign_parts(self.loaded.count, &self.loaded.sums).is_err() {
            return Err(Outcome::Misaligned);
        }
        let range = self.lead..known;
        match self.decode(history, range.clone(), false) {
            Ok(missing) => return Ok(Candidates { range, missing }),
            Err(DecodeError::TooManyMissing { missing, .. }) => {
                return Err(Outcome::TooMany { missing });
            }
            Err(_) => {}
        }
        let furthest = (known + REORDERING).min(history.pending.len());
        let mut budget = BUDGET;
        // The proxy counted a packet outside the plain range: one declared lost, one that overtook
        // the last, or, in an epoch's first quACK, one that the first overtook.
        for declared_lost in [true, false] {
            for begin in (0..=self.lead).rev() {
                for end in known..=furthest {
                    match self.decode(history, begin..end, declared_lost) {
                        Ok(missing) => return Ok(Candidates { range: begin..end, missing }),
                        // The counts alone decide these cases, at no cost.
                        Err(
                            DecodeError::MoreReceivedThanSent | DecodeError::TooManyMissing { .. },
                        ) => {}
                        Err(_) => {
                            let work = self.candidates.len() * self.quack.threshold();
                            budget = budget.saturating_sub(work);
                        }
                    }
                    if budget == 0 {
                        return Err(Outcome::Misaligned);
                    }
                }
            }
        }
        Err(Outcome::Misaligned)
    }

    /// Whether the quACK counts exactly the first `known` pending packets, as most quACKs do. It
    /// compares only the count and the first sum, because the other sums cost more than all other
    /// work. A set of as many other packets passes with a probability of 2⁻³².
    fn is_whole(&mut self, history: &History, known: usize) -> bool {
        let as_many = u32::try_from(known)
            .is_ok_and(|known| self.settled.count.wrapping_add(known) == self.loaded.count);
        if !as_many || self.lead > 0 || self.uncertain > 0 {
            return false;
        }
        #[cfg(test)]
        {
            self.work += known;
        }
        let sum: u64 =
            history.pending.iter().take(known).map(|entry| u64::from(entry.identifier)).sum();
        (self.settled.first + sum) % MODULUS == self.loaded.first()
    }

    /// Removes the first `known` packets from the history: all arrived. [`Self::is_whole`] has
    /// compared the first sum.
    fn settle_whole(
        &mut self,
        history: &mut History,
        known: usize,
        last: Option<usize>,
        received: &mut Vec<u64>,
    ) -> Outcome {
        let last_sent =
            last.and_then(|last| history.pending.get(last)).map(|entry| entry.time_sent);
        let arrived = || history.pending.iter().take(known);
        received.extend(arrived().map(|entry| entry.tag));
        self.settled.extend(arrived().map(|entry| entry.identifier));
        self.settled.first = self.loaded.first();
        history.pending.drain(..known);
        history.suspects = 0;
        Outcome::Decoded { last_sent }
    }

    /// The loaded quACK before it is reconciled.
    pub(super) fn loaded(&self) -> LastQuack {
        let Loaded { count, sums } = &self.loaded;
        LastQuack::new(*count, sums.len(), self.settled_count())
    }

    /// Adopts the sums of `quack`, which just decoded, if the sender requested all sums.
    pub(super) fn adopt(&mut self, quack: &Quack<'_>) {
        self.settled.adopt(quack.count, quack.sums, &mut self.loaded.sums);
    }

    /// Whether the sender should request all sums, so that it need not compute them. After true,
    /// returns false until the sender has adopted or computed them.
    pub(super) fn take_due(&mut self) -> bool {
        let due = self.settled.is_due();
        self.settled.is_asked |= due;
        due
    }

    /// Whether the sender waits for all sums.
    pub(super) fn awaits_all_sums(&self) -> bool {
        self.settled.is_asked
    }

    /// Moves to `out` when the packets were sent that were declared lost, and that quACKs reported
    /// since the last call. Returns their number.
    pub(super) fn take_turned_up(&mut self, out: &mut Vec<Instant>) -> u64 {
        let count = u64::try_from(self.turned_up.len()).unwrap_or(u64::MAX);
        out.append(&mut self.turned_up);
        count
    }

    /// The number of the epoch's packets that quACKs have reported, modulo 2^32.
    pub(super) fn settled_count(&self) -> u32 {
        self.settled.count
    }

    /// The settled count, once the epoch's first packet is known.
    pub(super) fn aligned_count(&self) -> Option<u32> {
        self.aligned.then(|| self.settled_count())
    }

    /// The number of pending packets that precede the epoch's first.
    pub(super) fn lead(&self) -> usize {
        self.lead
    }

    /// Records that the history dropped its oldest pending packet.
    pub(super) fn forget_oldest(&mut self) {
        self.lead = self.lead.saturating_sub(1);
        self.uncertain = self.uncertain.saturating_sub(1);
    }

    /// Finds the epoch's first packet. A few before it stay for now, because the first may have
    /// overtaken them.
    fn align(&mut self, history: &mut History, first: u32, overtaking: Duration) -> bool {
        let Some(start) = history.pending.iter().position(|entry| entry.identifier == first) else {
            return false;
        };
        // Packets sent after an empty quACK belong to the epoch, even before the first one that the
        // proxy counted.
        let in_epoch = history.pending.partition_point(|entry| !self.is_in_epoch(entry.time_sent));
        let begin = start.min(in_epoch);
        self.lead = begin.min(REORDERING);
        let soon = |from: Instant| {
            history
                .pending
                .iter()
                .skip(start + 1)
                .take_while(move |entry| entry.time_sent <= from + overtaking)
        };
        let after = history.pending.get(start).map_or(0, |first| soon(first.time_sent).count());
        let before_the_epoch = in_epoch - begin;
        self.uncertain = self.lead + before_the_epoch.min(1 + after.max(MIN_UNCERTAIN));
        history.pending.drain(..begin - self.lead);
        self.settled.clear();
        self.aligned = true;
        true
    }

    /// Decodes the quACK with a range of pending packets, and those declared lost if requested.
    /// Returns the number of missing ones; `fates` holds the fate of each.
    fn decode(
        &mut self,
        history: &History,
        range: Range<usize>,
        declared_lost: bool,
    ) -> Result<usize, DecodeError> {
        self.candidates.clear();
        let Range { start, end } = range;
        let pending = history.pending.iter().take(end).skip(start);
        self.candidates.extend(pending.map(|entry| entry.identifier));
        if declared_lost {
            let turned_up = history.declared_lost.iter();
            self.candidates.extend(turned_up.map(|declared| declared.entry.identifier));
        }
        // The counts determine the number of missing packets; most failing attempts end here.
        let candidates = u32::try_from(self.candidates.len()).unwrap_or(u32::MAX);
        let missing = self.settled.count.wrapping_add(candidates).wrapping_sub(self.quack.count());
        if missing > candidates {
            return Err(DecodeError::MoreReceivedThanSent);
        }
        if missing > u32::try_from(self.quack.threshold()).unwrap_or(u32::MAX) {
            return Err(DecodeError::TooManyMissing { missing, threshold: self.quack.threshold() });
        }
        #[cfg(test)]
        {
            self.work += self.candidates.len() * self.quack.threshold();
        }
        let settled = self.settled.sums(self.quack.threshold());
        self.sent.clone_from(settled);
        debug_assert_eq!(Some(self.settled.first), self.sent.sums().next().map(u64::from));
        // Skip the sums that the quACK does not carry.
        let _ = self.sent.truncate(self.quack.threshold());
        self.sent.insert_many(&self.candidates);
        self.sent.difference_into(&self.quack, &mut self.missing)?;
        self.decoder.decode(&self.missing, &self.candidates, &mut self.fates)
    }

    /// Removes the packets whose fate is known from the history.
    fn settle(
        &mut self,
        history: &mut History,
        range: Range<usize>,
        last: Option<usize>,
        uncertain_until: Instant,
        received: &mut Vec<u64>,
        now: Instant,
    ) -> Outcome {
        let Range { start, end } = range;
        let fates = &self.fates;
        let fate = |index: usize| {
            index.checked_sub(start).filter(|_| index < end).and_then(|i| fates.get(i))
        };
        let seen = |index: usize| fate(index) == Some(&Fate::Received);
        let last_sent = last
            .filter(|last| seen(*last))
            .and_then(|last| history.pending.get(last))
            .map(|e| e.time_sent);
        let newest = (start..end).rev().find(|index| seen(*index));

        // From the newest to the oldest: count the later packets that this quACK reports.
        let mut later = 0;
        for (index, entry) in history.pending.iter_mut().enumerate().take(end).rev() {
            if seen(index) {
                later += 1;
            } else if later > 0 {
                entry.later_seen = entry.later_seen.saturating_add(later);
                entry.later_seen_at.get_or_insert(now);
            }
        }

        let known = history.suspects;
        let suspects = newest.map_or(known, |newest| known.max(newest + 1));
        let settled = &mut self.settled;
        let declared_lost = &mut history.declared_lost;
        let mut index = end.saturating_sub(start);
        let turned_up = &mut self.turned_up;
        declared_lost.retain(|declared| {
            // Unless these are candidates, `fates` ends with the range.
            let fate = fates.get(index);
            if declared.counts_as_lost && fate == Some(&Fate::Received) {
                turned_up.push(declared.entry.time_sent);
            }
            let keep = keep(fate, &declared.entry, settled);
            index += 1;
            keep
        });
        // Packets after the candidates may still be in flight.
        let uncertain = self.uncertain.min(end);
        self.uncertain -= uncertain;
        self.lead = self.lead.saturating_sub(end);
        let mut index = 0;
        let mut remaining = 0;
        history.pending.retain(|entry| {
            if fate(index) == Some(&Fate::Received) {
                received.push(entry.tag);
            }
            let mut keep = keep(fate(index), entry, settled);
            if keep && index < uncertain {
                // It may have passed before the epoch, so it is not declared lost. The proxy may
                // yet report it.
                History::keep_lost(declared_lost, *entry, uncertain_until, false);
                keep = false;
            }
            remaining += usize::from(keep && index < suspects);
            index += 1;
            keep
        });
        history.suspects = remaining;
        Outcome::Decoded { last_sent }
    }

    /// Settles packets that share an identifier, if some of them are missing. Of k such packets j <
    /// k are missing, and the sums do not identify which, so none is declared lost. All k leave the
    /// history, and the identifier is settled k - j times. Returns false if this applies to several
    /// identifiers.
    fn settle_ambiguous(&mut self, missing: usize) -> bool {
        let mut ambiguous = self
            .candidates
            .iter()
            .zip(&self.fates)
            .filter(|(_, fate)| **fate == Fate::Ambiguous)
            .map(|(id, _)| *id);
        let Some(identifier) = ambiguous.next() else { return true };
        if ambiguous.any(|other| other != identifier) {
            return false;
        }
        let of = |wanted: Fate| self.fates.iter().filter(|fate| **fate == wanted).count();
        let arrived = (of(Fate::Ambiguous) + of(Fate::Missing)).saturating_sub(missing);
        for _ in 0..arrived {
            self.settled.insert(identifier);
        }
        true
    }
}

/// Whether an entry with this fate stays in the history. A received one is added to `settled`.
fn keep(fate: Option<&Fate>, entry: &Entry, settled: &mut Settled) -> bool {
    match fate {
        Some(Fate::Received) => {
            settled.insert(entry.identifier);
            false
        }
        Some(Fate::Ambiguous) => false,
        Some(Fate::Missing) | None => true,
    }
}

#[cfg(test)]
mod tests;
