//! Parity of the reverse flow: the sender requests it, and rebuilds datagrams (SPEC.md, section
//! 7.11).

use super::Established;
use crate::sender::effects::Context;
use crate::sender::one_way::OneWay;
use crate::sender::status::HandleError;
use crate::wire::{ListTime, Parity, Protect};
use sidekick_parity::{Decoder, ListError, MAX_WINDOW, Origin};
use std::time::{Duration, Instant};

/// The sender repeats PROTECT at this interval while it wants parity. A proxy stops after a second
/// without one.
const REFRESH: Duration = Duration::from_millis(300);
/// It repeats it at this interval, or a near round trip if that is longer, while the reverse flow
/// is active and no PARITY arrives: the proxy may have missed the latest ones.
const UNHEARD: Duration = Duration::from_millis(100);
/// If the reverse flow is silent for longer, the sender does not repeat PROTECT.
const ACTIVE: Duration = Duration::from_secs(5);
/// The PARITYs that the sender accepts for each datagram of the reverse flow, and the most that it
/// saves up. An honest proxy sends at most three for a datagram.
const PAID: u32 = 3;
const MOST_PAID: u32 = 256;
/// After this many consecutive lists of old positions, a forged list must have moved the newest
/// position forward. The next one resets the decoder.
const MOST_OLD: u32 = 8;

/// The parity that a session requests, and the state to rebuild datagrams from it.
#[derive(Debug, Default)]
pub(in crate::sender) struct ReceivedParity {
    /// The parity that the sender requests.
    wanted: Option<Protect>,
    /// How many PROTECTs wait to be sent.
    waiting: u8,
    /// When the latest PROTECT was sent.
    asked: Option<Instant>,
    /// When the latest PARITY arrived.
    heard: Option<Instant>,
    /// Rebuilds datagrams, once the sender has asked for parity.
    pub(in crate::sender) decoder: Option<Box<Decoder>>,
    /// The number of PARITYs that the sender still accepts.
    paid: u32,
    /// Consecutive lists of old positions.
    old: u32,
    /// The latest list, until the caller takes it.
    list: Option<List>,
    one_way: OneWay,
    /// How long the latest list waited in a queue, until the caller takes it.
    queue: Option<Duration>,
}

/// The identifiers of datagrams that passed the proxy one after another.
#[derive(Clone, Debug)]
pub struct List {
    /// The position of the first among all that passed, modulo 2^32.
    pub first: u32,
    identifiers: [u32; MAX_WINDOW],
    len: usize,
}

impl List {
    fn of(parity: &Parity<'_>) -> Option<Self> {
        let len = parity.identifiers.len();
        let behind = parity.first.wrapping_add(parity.count.into());
        let first = behind.wrapping_sub(u32::try_from(len).ok()?);
        let mut list = Self { first, identifiers: [0; MAX_WINDOW], len };
        for (place, identifier) in list.identifiers.iter_mut().zip(parity.identifiers.iter()) {
            *place = identifier;
        }
        (len > 0).then_some(list)
    }

    /// The identifiers, the one at the position [`first`](Self::first) first. There are 1 to 64.
    #[must_use]
    pub fn identifiers(&self) -> &[u32] {
        self.identifiers.get(..self.len).unwrap_or_default()
    }
}

impl ReceivedParity {
    /// When PROTECT is due again, if the latest datagram arrived at `latest`, on a path of this
    /// near round trip.
    pub(super) fn next_timeout(&self, latest: Option<Instant>, near: Duration) -> Option<Instant> {
        let asked = self.asked.filter(|_| self.wanted.is_some())?;
        let unheard = UNHEARD.max(2 * near);
        let since = latest.unwrap_or(asked);
        let is_heard = self.heard.is_some_and(|heard| since < heard + unheard);
        let again = asked + if is_heard { REFRESH } else { unheard.min(REFRESH) };
        latest.is_some_and(|latest| again <= latest + ACTIVE).then_some(again)
    }

    /// Whether a PROTECT waits to be sent.
    #[inline]
    pub(super) fn waits(&self) -> bool {
        self.waiting > 0
    }

    /// The PROTECT that waits to be sent.
    pub(super) fn take_message(&mut self) -> Option<Protect> {
        self.waiting = self.waiting.checked_sub(1)?;
        Some(self.wanted.unwrap_or(Protect::NOTHING))
    }

    /// Repeats PROTECT, if the sender wants parity.
    pub(super) fn ask_again(&mut self, now: Instant) {
        if self.wanted.is_some() {
            self.ask(now);
        }
    }

    /// Repeats PROTECT, if the sender wants parity and none has arrived.
    pub(super) fn ask_unless_answered(&mut self, now: Instant) {
        if self.decoder.as_ref().is_some_and(|decoder| decoder.counts().listed == 0) {
            self.ask_again(now);
        }
    }

    fn ask(&mut self, now: Instant) {
        self.waiting = self.waiting.max(1);
        self.asked = Some(now);
    }
}

impl Established {
    /// Requests parity, changes the request, or ends it.
    pub(in crate::sender) fn protect(&mut self, wanted: Option<Protect>, now: Instant) {
        let may_be_kept = self.keeping.may_be_kept();
        let protection = &mut self.keeping.protection;
        if wanted == protection.wanted || wanted.is_some() && !may_be_kept {
            return;
        }
        // Without the first one, nothing of a short flow is covered.
        let copies = if protection.wanted.is_none() { 2 } else { 1 };
        protection.waiting = protection.waiting.max(copies);
        protection.wanted = wanted;
        protection.ask(now);
        if wanted.is_some() && protection.paid == 0 {
            protection.paid = MOST_PAID;
        }
        if wanted.is_some_and(|wanted| wanted.share > 0) && protection.decoder.is_none() {
            protection.decoder = Some(Box::default());
        }
        self.last_message_at = now;
    }

    /// Ends the request for parity, and forgets the datagrams that arrived.
    pub(in crate::sender) fn end_parity(&mut self, now: Instant) {
        self.protect(None, now);
        self.keeping.protection.decoder = None;
    }

    /// Records a datagram of the reverse flow that arrived.
    pub(in crate::sender) fn on_arrival(&mut self, datagram: &[u8], origin: Origin) {
        let ReceivedParity { decoder, paid, .. } = &mut self.keeping.protection;
        if let Some(decoder) = decoder {
            decoder.arrived(datagram, origin);
        }
        *paid = MOST_PAID.min(*paid + PAID);
    }

    /// The latest list, once.
    pub(in crate::sender) fn take_list(&mut self) -> Option<List> {
        self.keeping.protection.list.take()
    }

    /// How long the latest list waited in a queue, once.
    pub(in crate::sender) fn take_queue(&mut self) -> Option<Duration> {
        self.keeping.protection.queue.take()
    }

    /// How long the latest list or quACK waited in a queue. Lists are more frequent.
    pub(in crate::sender) fn latest_queue(&self, now: Instant) -> Duration {
        let listed = self.keeping.protection.one_way.queue(now);
        listed.unwrap_or_else(|| self.near_rtt.latest_queue())
    }

    pub(super) fn on_parity(
        &mut self,
        parity: &Parity<'_>,
        len: usize,
        context: &mut Context<'_>,
    ) -> Result<(), HandleError> {
        self.repeat_end_of_parity(context.now);
        let ReceivedParity {
            decoder, paid, old, asked, heard, list, wanted, one_way, queue, ..
        } = &mut self.keeping.protection;
        if asked.is_none() {
            context.stats.malformed += 1;
            return Err(HandleError::Outdated);
        }
        *paid = paid.checked_sub(1).ok_or(HandleError::Outdated)?;
        *heard = Some(context.now);
        context.stats.parity_received += 1;
        context.stats.added_bytes += u64::try_from(len).unwrap_or(0);
        let mut note_time = || {
            if parity.symbol.is_empty() {
                *queue = Some(one_way.note(ListTime(parity.number), context.now));
            }
        };
        // A gate judges lists by itself.
        if let Some(latest) = List::of(parity).filter(|_| wanted.is_some()) {
            *list = Some(latest);
        }
        let Some(decoder) = decoder else {
            note_time();
            return Ok(());
        };
        let listed = u32::try_from(parity.identifiers.len()).unwrap_or(0);
        if listed > 0 {
            let first = parity.first.wrapping_add(u32::from(parity.count) - listed);
            match decoder.list(first, parity.identifiers.iter()) {
                Ok(_) => {
                    *old = 0;
                    note_time();
                }
                Err(ListError::Old) if *old < MOST_OLD => {
                    *old += 1;
                    return Err(HandleError::Outdated);
                }
                Err(ListError::Old) => {
                    *old = 0;
                    decoder.clear();
                    return Err(HandleError::Outdated);
                }
                Err(ListError::Contradiction { .. } | ListError::TooLong) => {
                    context.stats.parity_false += 1;
                    return Err(HandleError::Outdated);
                }
            }
        }
        if !parity.symbol.is_empty() {
            // Parsing has made all checks of this call.
            let _ = decoder.repair(parity.number, parity.first, parity.count, parity.symbol);
        }
        Ok(())
    }

    /// Repeats the request to end parity, if parity still arrives a near round trip after it. The
    /// first request was lost.
    fn repeat_end_of_parity(&mut self, now: Instant) {
        let patience = self.near_rtt.rough();
        let protection = &mut self.keeping.protection;
        let is_late = protection.asked.is_some_and(|asked| asked + patience <= now);
        if protection.wanted.is_none() && is_late {
            protection.ask(now);
        }
    }

    /// Rebuilds datagrams; `None` before the sender asks for parity.
    pub(in crate::sender) fn decoder_mut(&mut self) -> Option<&mut Decoder> {
        self.keeping.protection.decoder.as_deref_mut()
    }

    /// Whether the sender wants parity.
    pub(super) fn is_protected(&self) -> bool {
        self.keeping.protection.wanted.is_some()
    }

    /// Repeats PROTECT if it is due.
    pub(super) fn on_parity_timeout(&mut self, now: Instant) {
        if self.parity_at().is_some_and(|at| at <= now) {
            self.keeping.protection.ask(now);
            self.last_message_at = now;
        }
    }

    /// When PROTECT is due again.
    pub(super) fn parity_at(&self) -> Option<Instant> {
        self.keeping.protection.next_timeout(self.keeping.latest_at(), self.near_rtt.rough())
    }
}
