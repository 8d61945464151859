//! The packets that the proxy has not reported, in the order of sending.

use crate::loss_floor::Lost;
use crate::wire::low;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The most packets in the log. Beyond it, the sender drops the oldest, and a quACK that needs them
/// does not decode.
pub(super) const MAX_PENDING: usize = 8192;
/// The most packets declared lost that the history keeps.
const MAX_DECLARED_LOST: usize = 512;

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) identifier: u32,
    pub(super) tag: u64,
    pub(super) time_sent: Instant,
    /// Later packets that the proxy reported.
    pub(super) later_seen: u32,
    /// Its place among the packets sent, modulo 2^32.
    pub(super) number: u32,
    /// When the proxy reported the first of them.
    pub(super) later_seen_at: Option<Instant>,
}

/// A packet that was declared lost, and until when the proxy may still report it.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeclaredLost {
    pub(super) entry: Entry,
    pub(super) until: Instant,
    /// The sender reported the loss to its caller. False for a packet that may have passed the
    /// proxy before the epoch began.
    pub(super) counts_as_lost: bool,
}

/// The rule for declaring a suspect lost (SPEC.md, section 7.3).
#[derive(Clone, Copy, Debug)]
pub(super) struct LossRule {
    /// A suspect is lost once this many later packets are reported.
    pub(super) packet_threshold: u32,
    /// A suspect is lost once this time has passed since the report of the first later packet.
    pub(super) delay: Duration,
    /// How long the proxy may still report it afterwards.
    pub(super) grace: Duration,
}

#[derive(Debug, Default)]
pub(super) struct History {
    /// Packets neither reported nor declared lost.
    pub(super) pending: VecDeque<Entry>,
    /// The number of suspects: the first packets of `pending`, sent before one that the proxy
    /// reported.
    pub(super) suspects: usize,
    pub(super) declared_lost: VecDeque<DeclaredLost>,
    last_sent: Option<Instant>,
    /// Packets so far, modulo 2^32.
    pushed: u32,
}

impl History {
    /// Adds a packet. Returns true if it displaced the oldest.
    pub(super) fn push(&mut self, identifier: u32, tag: u64, now: Instant) -> bool {
        self.push_within(MAX_PENDING, identifier, tag, now)
    }

    /// As [`Self::push`], but keeps at most `most` packets, 1 to [`MAX_PENDING`].
    pub(super) fn push_within(
        &mut self,
        most: usize,
        identifier: u32,
        tag: u64,
        now: Instant,
    ) -> bool {
        self.last_sent = Some(now);
        let full = self.pending.len() >= most;
        if full {
            self.drop_oldest();
        }
        self.pushed = self.pushed.wrapping_add(1);
        self.pending.push_back(Entry {
            number: self.pushed,
            identifier,
            tag,
            time_sent: now,
            later_seen: 0,
            later_seen_at: None,
        });
        full
    }

    #[cold]
    fn drop_oldest(&mut self) {
        self.pending.pop_front();
        self.suspects = self.suspects.saturating_sub(1);
    }

    /// Keeps a packet that was declared lost for as long as the proxy may still report it. See
    /// [`DeclaredLost`] for `counts_as_lost`.
    pub(super) fn keep_lost(
        declared_lost: &mut VecDeque<DeclaredLost>,
        entry: Entry,
        until: Instant,
        counts_as_lost: bool,
    ) {
        if declared_lost.len() >= MAX_DECLARED_LOST {
            declared_lost.pop_front();
        }
        declared_lost.push_back(DeclaredLost { entry, until, counts_as_lost });
    }

    /// Forgets all packets and releases their memory, because a silent proxy may never answer.
    pub(super) fn clear(&mut self) {
        self.pending = VecDeque::new();
        self.declared_lost.clear();
        self.suspects = 0;
        self.last_sent = None;
    }

    /// Discards the reports of earlier epochs. Their packets stay, because the new epoch may begin
    /// with any of them.
    pub(super) fn begin_epoch(&mut self) {
        self.declared_lost.clear();
        self.suspects = 0;
        for entry in &mut self.pending {
            (entry.later_seen, entry.later_seen_at) = (0, None);
        }
    }

    /// Whether a packet with this identifier was declared lost recently.
    pub(super) fn is_declared_lost(&self, identifier: u32) -> bool {
        self.declared_lost.iter().any(|declared| declared.entry.identifier == identifier)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The number of packets that a quACK may report, or may lack.
    pub(super) fn len(&self) -> usize {
        self.pending.len() + self.declared_lost.len()
    }

    pub(super) fn oldest(&self) -> Option<Instant> {
        self.nth(0)
    }

    /// When the sender sent the pending packet that follows `before` others.
    pub(super) fn nth(&self, before: u16) -> Option<Instant> {
        self.pending.get(usize::from(before)).map(|entry| entry.time_sent)
    }

    /// When the last packet was sent.
    pub(super) fn last_sent(&self) -> Option<Instant> {
        self.last_sent
    }

    /// The identifier of a short quACK's last packet. `last` is its low 16 bits, `more` the number
    /// of packets beyond the settled ones, and `sums` the number of sums. The first `lead` pending
    /// packets precede the epoch's first one.
    ///
    /// If several pending packets match, it is the newest for which the sums suffice. The packets
    /// between the true one and a later one then only look missing. If none matches, the last
    /// packet was reported before, and any identifier that is not pending is right. Returns `None`
    /// if some match, but the sums suffice for none.
    pub(super) fn ending(&self, last: u16, more: u32, sums: usize, lead: usize) -> Option<u32> {
        let more = usize::try_from(more).unwrap_or(usize::MAX).saturating_add(lead);
        let mut matches = self
            .pending
            .iter()
            .enumerate()
            .rev()
            .filter(|(_, entry)| low(entry.identifier) == last)
            .peekable();
        if matches.peek().is_none() {
            return Some(last.into());
        }
        let fits = |(position, _): &(usize, &Entry)| {
            (position + 1).checked_sub(more).is_some_and(|missing| missing <= sums)
        };
        matches.find(fits).map(|(_, entry)| entry.identifier)
    }

    /// The number of packets after the suspects that were sent no later than `time`.
    pub(super) fn unseen_until(&self, time: Instant) -> usize {
        self.pending.iter().skip(self.suspects).take_while(|entry| entry.time_sent <= time).count()
    }

    /// Drops the packets sent no later than `time`, and returns their number.
    pub(super) fn forget_until(&mut self, time: Instant) -> usize {
        let forgotten = self.pending.iter().take_while(|entry| entry.time_sent <= time).count();
        self.pending.drain(..forgotten);
        self.suspects = self.suspects.saturating_sub(forgotten);
        forgotten
    }

    /// Marks the packets sent no later than `time` as overdue, so that they are declared lost.
    pub(super) fn mark_tail(&mut self, time: Instant) {
        for entry in self.pending.iter_mut().take_while(|entry| entry.time_sent <= time) {
            entry.later_seen = u32::MAX;
        }
    }

    /// When the first suspect will have waited for `delay`.
    pub(super) fn loss_deadline(&self, delay: Duration) -> Option<Instant> {
        self.pending
            .iter()
            .take(self.suspects)
            .filter_map(|entry| entry.later_seen_at)
            .min()
            .map(|at| at + delay)
    }

    /// Moves the packets lost at `now` to `declared_lost`, and appends them to `lost`.
    pub(super) fn declare_lost(&mut self, rule: &LossRule, now: Instant, lost: &mut Vec<Lost>) {
        self.declared_lost.retain(|declared| declared.until > now);
        // Suspects and overdue packets are at the front. If none is there, no packet is lost.
        let is_overdue = |entry: &Entry| entry.later_seen >= rule.packet_threshold;
        if self.suspects == 0 && !self.pending.front().is_some_and(is_overdue) {
            return;
        }
        let Self { pending, declared_lost, suspects, .. } = self;
        let mut suspects_left = *suspects;
        pending.retain(|entry| {
            let suspect = suspects_left > 0;
            suspects_left = suspects_left.saturating_sub(1);
            let waited = entry.later_seen_at.is_some_and(|at| at + rule.delay <= now);
            if !is_overdue(entry) && !waited {
                return true;
            }
            lost.push(Lost::new(entry.tag, entry.time_sent, entry.number));
            Self::keep_lost(declared_lost, *entry, now + rule.grace, true);
            *suspects -= usize::from(suspect);
            false
        });
    }
}
