//! The packets that quACKs have reported, and their sums.

use super::MODULUS;
use crate::wire::Words;
use sidekick_quack::PowerSums;

/// The most settled packets whose identifiers the sender keeps. They occupy 7.5 KiB, and the sums
/// of both kinds 1.2 KiB.
const RECENT: usize = 1920;
/// At this number, the sender requests all sums from the proxy. The answer can arrive before the
/// rest fills up.
const ENOUGH: usize = RECENT / 4 * 3;

/// Sums over the settled packets. Most quACKs need only the count and the first sum. The others are
/// computed when a quACK needs them, and each packet is added at most once.
///
/// Often the sender need not compute them: after a quACK decodes, the settled packets are those
/// that the proxy counts, so the sender can adopt its sums.
///
/// - *Mistakes.* The adopted sums are those of the settled packets if the quACK decoded correctly.
///   A set of other packets passes for them with a probability of 2⁻³² (see
///   [`Reconciler::is_whole`](super::Reconciler::is_whole)), whether or not the sender adopts.
/// - *Lies.* A false sum makes a later quACK not decode, or decode to other packets. The proxy can
///   cause either without a false sum, because it writes the later quACK, too.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// The number of packets, modulo 2^32.
    pub(super) count: u32,
    /// The first sum.
    pub(super) first: u64,
    /// The sums that an ordinary quACK has.
    ordinary: Lagging,
    /// All sums that the proxy keeps, if they are more. They cost most, and only bursts of losses
    /// need them.
    all: Option<Lagging>,
    /// The identifiers of the latest packets, at most [`RECENT`].
    recent: Vec<u32>,
    /// The sender has requested all sums since `recent` was last empty.
    pub(super) is_asked: bool,
    /// A quACK lacked packets since then. Such a flow will need the sums, so the sender computes
    /// them, which spares the near segment the POLL and the answer.
    pub(super) had_losses: bool,
}

/// Sums that lack the latest packets.
#[derive(Debug, Default)]
struct Lagging {
    sums: PowerSums,
    /// The number of recent packets that the sums include.
    included: usize,
}

impl Lagging {
    fn new(sums: u8) -> Self {
        Self { sums: PowerSums::new(usize::from(sums)).unwrap_or_default(), included: 0 }
    }

    /// The sums over all packets, of which `recent` are the latest.
    fn complete(&mut self, recent: &[u32]) -> &PowerSums {
        self.sums.insert_many(recent.get(self.included..).unwrap_or_default());
        self.included = recent.len();
        &self.sums
    }

    fn adopt(&mut self, count: u32, sums: &[u32]) {
        let sums = sums.get(..self.sums.threshold()).unwrap_or(sums);
        // The caller has validated them.
        let _ = self.sums.assign_parts(count, sums);
        self.included = 0;
    }
}

impl Settled {
    /// No packets. An ordinary quACK has `ordinary` sums, and the proxy keeps `all`.
    pub(super) fn new(ordinary: u8, all: u8) -> Self {
        let ordinary_sums = Lagging::new(ordinary);
        let all = (all > ordinary).then(|| Lagging::new(all));
        Self { ordinary: ordinary_sums, all, ..Self::default() }
    }

    pub(super) fn clear(&mut self) {
        (self.count, self.first) = (0, 0);
        self.on_complete();
        for lagging in [Some(&mut self.ordinary), self.all.as_mut()].into_iter().flatten() {
            lagging.sums.clear();
            lagging.included = 0;
        }
    }

    pub(super) fn insert(&mut self, identifier: u32) {
        self.push(identifier);
        self.first = (self.first + u64::from(identifier)) % MODULUS;
    }

    /// Adds packets. The caller updates `first`.
    pub(super) fn extend(&mut self, identifiers: impl ExactSizeIterator<Item = u32>) {
        let room = self.recent.capacity() - self.recent.len();
        match u32::try_from(identifiers.len()) {
            Ok(more) if identifiers.len() <= room => {
                self.count = self.count.wrapping_add(more);
                self.recent.extend(identifiers);
            }
            _ => identifiers.for_each(|identifier| self.push(identifier)),
        }
    }

    fn push(&mut self, identifier: u32) {
        if self.recent.len() >= RECENT {
            self.complete_all();
        }
        if self.recent.capacity() == 0 {
            self.recent.reserve_exact(RECENT);
        }
        self.recent.push(identifier);
        self.count = self.count.wrapping_add(1);
    }

    /// Adds the recent packets to all sums, because the proxy's sums did not arrive.
    fn complete_all(&mut self) {
        for lagging in [Some(&mut self.ordinary), self.all.as_mut()].into_iter().flatten() {
            lagging.complete(&self.recent);
            lagging.included = 0;
        }
        self.on_complete();
    }

    /// Forgets the identifiers, because all sums include them.
    fn on_complete(&mut self) {
        self.recent.clear();
        (self.is_asked, self.had_losses) = (false, false);
    }

    /// The first sums over all settled packets: at least `least` of them, or all.
    pub(super) fn sums(&mut self, least: usize) -> &PowerSums {
        let Self { ordinary, all, recent, .. } = self;
        match all {
            Some(all) if least > ordinary.sums.threshold() => all.complete(recent),
            _ => ordinary.complete(recent),
        }
    }

    /// Whether the sender should request all sums now.
    pub(super) fn is_due(&self) -> bool {
        let is_spared = self.is_asked || self.had_losses;
        !is_spared && self.recent.len() >= ENOUGH && self.all.is_some()
    }

    /// Adopts the sums of a quACK that just decoded, if it has all. `scratch` holds them.
    pub(super) fn adopt(&mut self, count: u32, sums: Words<'_>, scratch: &mut Vec<u32>) {
        let Some(all) = &mut self.all else { return };
        let wanted = all.sums.threshold();
        if !self.is_asked || sums.len() < wanted || count != self.count {
            return;
        }
        scratch.clear();
        sums.first(wanted).append_to(scratch);
        let first = scratch.first().copied().map(u64::from);
        if sidekick_quack::PartsError::check(scratch).is_err() || first != Some(self.first) {
            return;
        }
        all.adopt(count, scratch);
        self.ordinary.adopt(count, scratch);
        self.on_complete();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identifiers(count: u32) -> impl Iterator<Item = u32> {
        (1..=count).map(|n| n.wrapping_mul(0x9e37_79b1))
    }

    fn sums_of(threshold: usize, count: u32) -> PowerSums {
        let mut sums = PowerSums::new(threshold).unwrap();
        identifiers(count).for_each(|identifier| sums.insert(identifier));
        sums
    }

    fn settled(count: u32) -> Settled {
        let mut settled = Settled::new(3, 12);
        identifiers(count).for_each(|identifier| settled.insert(identifier));
        settled
    }

    #[test]
    fn the_sums_are_those_of_all_packets() {
        for count in [0, 1, 1919, 1920, 1921, 5000] {
            for order in [[3, 12], [12, 3]] {
                let mut settled = settled(count);
                let mut batches = Settled::new(3, 12);
                let all: Vec<u32> = identifiers(count).collect();
                all.chunks(130).for_each(|batch| batches.extend(batch.iter().copied()));
                assert_eq!(batches.count, count);
                for least in order {
                    assert_eq!(*batches.sums(least), sums_of(least, count), "{count}, {least}");
                    assert_eq!(*settled.sums(least), sums_of(least, count), "{count}, {least}");
                }
                settled.insert(7);
                let mut more = sums_of(12, count);
                more.insert(7);
                assert_eq!(*settled.sums(12), more, "{count}");
                assert_eq!(settled.first, u64::from(more.sums().next().unwrap()));
                assert!(settled.recent.capacity() <= RECENT);
                assert!(batches.recent.capacity() <= RECENT);
            }
        }
    }

    #[test]
    fn all_sums_are_due_when_the_identifiers_fill_up_and_only_once() {
        assert!(!settled(1439).is_due());
        let mut due = settled(1440);
        assert!(due.is_due());
        due.had_losses = true;
        assert!(!due.is_due());
        (due.is_asked, due.had_losses) = (true, false);
        assert!(!due.is_due());
        // Without an answer, they are due again when the identifiers fill up the next time.
        (0..480).for_each(|identifier| due.insert(identifier));
        assert!(!due.is_due());
        (0..1440).for_each(|identifier| due.insert(identifier));
        assert!(due.is_due());
        let mut few = Settled::new(12, 12);
        identifiers(1500).for_each(|identifier| few.insert(identifier));
        assert!(!few.is_due(), "an ordinary quACK has all sums");
    }

    #[test]
    fn the_sender_adopts_the_proxys_sums() {
        let mut settled = settled(1500);
        let sums: Vec<u32> = sums_of(12, 1500).sums().collect();
        let mut scratch = Vec::new();
        let mut adopt = |settled: &mut Settled, count, sums: &[u32]| {
            settled.adopt(count, Words::new(sums), &mut scratch);
            settled.recent.is_empty()
        };
        assert!(!adopt(&mut settled, 1500, &sums), "the sender has not asked");
        settled.is_asked = true;
        assert!(!adopt(&mut settled, 1500, &sums[..11]), "too few");
        assert!(!adopt(&mut settled, 1499, &sums), "other packets");
        let mut invalid = sums.clone();
        invalid[11] = u32::MAX;
        assert!(!adopt(&mut settled, 1500, &invalid));
        let mut others = sums.clone();
        others[0] ^= 1;
        assert!(!adopt(&mut settled, 1500, &others));
        assert!(adopt(&mut settled, 1500, &sums));
        assert!(!settled.is_asked && !settled.is_due());
        for least in [3, 12] {
            assert_eq!(*settled.sums(least), sums_of(least, 1500));
        }
        settled.insert(7);
        assert_eq!(settled.sums(12).count(), 1501);
    }
}
