//! The observer's counter of one flow: the sums of an epoch, and when a quACK is due.

use super::steady::Watch;
use crate::allowance::Allowance;
use crate::clock::micros;
use crate::identify::{Filter, Identification, Payload};
use crate::terms::Terms;
use crate::wire::{FIRST_EPOCH, Message, Quack, ShortQuack, Timing, Words, low};
use sidekick_quack::{MAX_THRESHOLD, PowerSums};
use std::time::{Duration, Instant};

/// An interface that captures none of the flow's packets for this long no longer carries the flow.
const REBIND: Duration = Duration::from_secs(1);
/// The number of whole quACKs before the first short one of an epoch: enough for the sender to
/// receive one of them.
const WHOLE_FIRST: u8 = 8;

/// The largest budget of a session, in bytes.
const BUDGET: usize = 256 * 1024;

/// A waiting quACK.
#[derive(Clone, Copy, Debug)]
struct Request {
    /// The token of the poll to answer, or 0.
    token: u16,
    /// The number of sums.
    sums: u8,
    /// When it fell due. The caller sends it right after.
    at: Instant,
}

/// The counter of one flow, which knows neither the flow's sender nor keys. The fields that each
/// packet needs come first, on as few cache lines as possible.
#[derive(Debug)]
#[repr(C)]
pub(super) struct FlowCounter {
    /// The sums lack packets that passed during the epoch.
    pub(super) missed: bool,
    /// Whether there is a `watch`, which is on another cache line.
    is_watched: bool,
    rule: Identification,
    /// The interface that captures this epoch's packets.
    interface: Option<u32>,
    every_packets: u32,
    /// Packets that no quACK has reported.
    unreported: u32,
    /// Identifiers of the epoch's first packet and of the latest.
    first: u32,
    last: u32,
    /// The bytes that may still be sent to the flow's sender (SPEC.md, section 6.7). Each packet
    /// and each message of the sender adds to it.
    pub(super) budget: Allowance,
    /// The bytes of counted packets.
    pub(super) bytes: u64,
    /// When the latest packet of this epoch was counted.
    pub(super) last_at: Option<Instant>,
    /// When the quACK after a time or a silence falls due; `None` if none does.
    pub(super) quack_due: Option<Instant>,
    duplicates: Duplicates,
    sums: PowerSums,
    /// The interval of timed quACKs.
    every: Option<Duration>,
    /// `every` and `every_packets` as granted.
    granted: (Option<Duration>, u32),
    pub(super) epoch: u16,
    /// The number of sums that an ordinary quACK carries.
    threshold: u8,
    /// The observer began the epoch by itself, and the sender has not polled in it yet.
    pub(super) unasked: bool,
    /// Whole quACKs of this epoch that count packets, at most [`WHOLE_FIRST`].
    whole: u8,
    /// The quACK that waits to be sent.
    request: Option<Request>,
    /// The watch over packets at a steady interval, which the sender requested.
    watch: Option<Watch>,
}

impl FlowCounter {
    /// A counter without packets, in epoch 1. Returns `None` if `kept_sums` is 0.
    pub(super) fn new(terms: &Terms, kept_sums: u8) -> Option<Self> {
        let every_packets = terms.every_packets.map_or(u32::MAX, |n| n.get().into());
        Some(Self {
            missed: false,
            is_watched: false,
            rule: terms.identification,
            interface: None,
            every_packets,
            unreported: 0,
            first: 0,
            last: 0,
            budget: Allowance::new(BUDGET),
            bytes: 0,
            last_at: None,
            quack_due: None,
            duplicates: Duplicates::default(),
            sums: PowerSums::new(usize::from(kept_sums)).ok()?,
            every: terms.every,
            granted: (terms.every, every_packets),
            epoch: FIRST_EPOCH,
            threshold: terms.threshold,
            unasked: false,
            whole: 0,
            request: None,
            watch: None,
        })
    }

    /// The number of packets counted in this epoch, modulo 2^32.
    pub(super) fn counted(&self) -> u32 {
        self.sums.count()
    }

    /// The identifiers of the epoch's first packet and of its latest, if there is one.
    pub(super) fn ends(&self) -> Option<(u32, u32)> {
        self.last_at.map(|_| (self.first, self.last))
    }

    /// Binds the epoch to `interface` if it is bound to none. Returns whether it is bound to this
    /// one.
    #[inline]
    fn bind(&mut self, interface: u32) -> bool {
        *self.interface.get_or_insert(interface) == interface
    }

    /// Whether the epoch lacks packets. The system dropped them, or `interface` captured them while
    /// the epoch counted on another interface, which has been idle since.
    #[inline]
    pub(super) fn lacks_packets(&self, interface: u32, now: Instant) -> bool {
        self.missed || self.interface.is_some_and(|bound| bound != interface) && self.is_idle(now)
    }

    fn is_idle(&self, now: Instant) -> bool {
        self.last_at.is_none_or(|at| now.saturating_duration_since(at) >= REBIND)
    }

    /// Prefetches the cache lines that counting a datagram needs. The value depends on all of them.
    #[inline]
    pub(super) fn touch(&self) -> u32 {
        u32::from(self.missed) ^ self.unreported ^ self.sums.count()
    }

    /// Notes a datagram that cannot be counted, because the capture kept too little of it.
    #[cold]
    pub(super) fn note_uncounted(&mut self, payload: Payload<'_>, interface: u32) {
        self.missed |= self.rule.is_hidden(payload) && self.lacks_drops_on(interface);
    }

    /// The identifier of a datagram, if it counts.
    #[inline]
    pub(super) fn identifier(&self, payload: Payload<'_>) -> Option<u32> {
        self.rule.identifier(payload)
    }

    /// Prefetches the identifier's slot among the duplicates. The value depends on it.
    #[inline]
    pub(super) fn touch_duplicates(&self, identifier: u32) -> u32 {
        self.duplicates.peek(identifier)
    }

    /// Records a packet. Returns true if the network duplicated it. QUIC never sends the same bytes
    /// twice; another protocol may, so only QUIC packets are checked.
    #[inline]
    fn record_duplicate(&mut self, identifier: u32) -> bool {
        let is_known = self.duplicates.record(identifier);
        is_known && self.rule.filter == Filter::QuicShortHeader
    }

    /// Whether this identifier is that of one of the latest packets, as far as they are remembered.
    pub(super) fn has_counted(&self, identifier: u32) -> bool {
        self.duplicates.peek(identifier) == identifier
    }

    /// Counts a packet of `len` bytes that `interface` captured.
    #[inline]
    pub(super) fn count(
        &mut self,
        identifier: u32,
        len: usize,
        interface: u32,
        now: Instant,
    ) -> Count {
        if !self.bind(interface) || self.record_duplicate(identifier) {
            return Count::Not;
        }
        if self.last_at.is_none() {
            self.first = identifier;
        }
        self.budget.earn(len);
        self.bytes += len as u64;
        self.sums.insert(identifier);
        self.last = identifier;
        let before = self.last_at.replace(now);
        self.unreported = self.unreported.saturating_add(1);
        if self.is_watched { self.watched(before, now) } else { self.by_terms(now) }
    }

    /// Applies the intervals in force to a packet that was counted.
    #[inline]
    fn by_terms(&mut self, now: Instant) -> Count {
        if self.unreported >= self.every_packets {
            return Count::WithReport;
        }
        if self.quack_due.is_none()
            && let Some(every) = self.every
        {
            self.quack_due = Some(now + every);
            return Count::WithDeadline;
        }
        Count::Silently
    }

    /// Applies the watch to a packet that was counted in a flow with a steady interval. `before` is
    /// when the previous packet was counted.
    #[inline(never)]
    fn watched(&mut self, before: Option<Instant>, now: Instant) -> Count {
        let Some(watch) = &mut self.watch else { return Count::Silently };
        let held = watch.holds();
        let is_late = watch.on_packet(before.map(|at| now.saturating_duration_since(at)));
        if !watch.holds() {
            if held {
                // It was the deadline of a silence.
                self.quack_due = None;
            }
            return self.by_terms(now);
        }
        // In terms without a number of packets, this is a number that no flow reaches.
        let terms = Some(self.granted.1).filter(|n| *n < u32::MAX).unwrap_or_default();
        let enough = self.unreported >= watch.every_packets().max(terms);
        self.quack_due = self.silence_due();
        if is_late || enough { Count::WithReport } else { Count::WithDeadline }
    }

    /// When the watch makes the next quACK due if no packet arrives.
    fn silence_due(&self) -> Option<Instant> {
        Some(self.last_at? + self.watch.as_ref()?.silence()?)
    }

    /// Sets when quACKs leave, as a sender asks, at most as often as in the terms. The caller
    /// requests a quACK first, which ends the wait for a timed one.
    pub(super) fn schedule(&mut self, timing: Timing) {
        let held = self.watch.as_ref().is_some_and(Watch::holds);
        self.watch = Watch::renewed(self.watch.take(), timing);
        self.is_watched = self.watch.is_some();
        if held || self.is_watched {
            self.quack_due = self.silence_due();
        }
        // A watched flow that proves not to be steady gets the quACKs of the terms.
        let sparse = Some(timing).filter(|timing| timing.interval.is_zero()).unwrap_or_default();
        let (every, every_packets) = self.granted;
        self.every = every.map(|every| every.max(sparse.every));
        self.every_packets = every_packets.max(sparse.every_packets.into());
    }

    /// Notes that a quACK fell due.
    pub(super) fn note_silence(&mut self) {
        if let Some(watch) = &mut self.watch {
            watch.note_silence();
        }
    }

    /// Whether this epoch has counted packets of another interface than this.
    pub(super) fn moves_to(&self, interface: u32) -> bool {
        self.interface.is_some_and(|counted| counted != interface)
    }

    /// Whether the epoch lacks packets of this interface that the system dropped just now. In the
    /// first epoch it lacks them even before the first counted packet: the sender may declare
    /// packets lost that it sent after an empty quACK (SPEC.md, section 7.2).
    pub(super) fn lacks_drops_on(&self, interface: u32) -> bool {
        match self.last_at {
            Some(_) => self.interface == Some(interface),
            None => self.epoch == FIRST_EPOCH,
        }
    }

    /// Begins an epoch that the sender did not request.
    pub(super) fn begin_unasked(&mut self) {
        self.begin_epoch();
        self.unasked = true;
    }

    pub(super) fn begin_epoch(&mut self) {
        self.epoch = self.epoch.checked_add(1).unwrap_or(1);
        self.sums.clear();
        self.duplicates.clear();
        (self.first, self.last, self.last_at) = (0, 0, None);
        (self.unreported, self.whole) = (0, 0);
        self.quack_due = None;
        self.interface = None;
        self.request = None;
        (self.watch, self.is_watched) = (None, false);
        (self.every, self.every_packets) = self.granted;
        (self.missed, self.unasked) = (false, false);
    }

    /// Requests a quACK of `sums` sums, or of the threshold if that is 0. Returns true if one
    /// waited already. That one then has the larger number of sums, and answers the newer poll,
    /// if a poll requests it (`token` is not 0).
    pub(super) fn request_quack(&mut self, token: u16, sums: u8, now: Instant) -> bool {
        self.quack_due = self.silence_due();
        self.unreported = 0;
        let sums = if sums == 0 { self.threshold } else { sums };
        let waiting = self.request;
        self.request = Some(match waiting {
            Some(old) => Request {
                token: if token == 0 { old.token } else { token },
                sums: sums.max(old.sums),
                at: now,
            },
            None => Request { token, sums, at: now },
        });
        waiting.is_some()
    }

    pub(super) fn drop_request(&mut self) {
        self.request = None;
    }

    /// Makes a quACK of all packets counted so far, if one waits, with its sums in `words`. Returns
    /// [`Withheld`] if the budget is exhausted.
    pub(super) fn take_quack<'a>(
        &mut self,
        words: &'a mut [u32; MAX_THRESHOLD],
    ) -> Result<Option<Message<'a>>, Withheld> {
        let Some(request) = self.request.take() else { return Ok(None) };
        let age = self.last_at.map_or(0, |at| micros(request.at.saturating_duration_since(at)));
        let affordable = self.budget.left().saturating_sub(Quack::sealed_len(0)) / 4;
        let wanted = usize::from(request.sums).min(affordable);
        let wanted = words.get_mut(..wanted).unwrap_or_default();
        let written = self.sums.write_sums(wanted);
        let short = (request.token, age) == (0, 0) && self.whole == WHOLE_FIRST && !self.unasked;
        let len = if short { ShortQuack::sealed_len(written) } else { Quack::sealed_len(written) };
        if written == 0 || !self.budget.spend(len) {
            return Err(Withheld);
        }
        let sums = Words::new(wanted.get(..written).unwrap_or_default());
        let (last, count) = (self.last, self.sums.count());
        let message = if short {
            Message::ShortQuack(ShortQuack { count: low(count), last: low(last), sums })
        } else {
            if count > 0 && self.whole < WHOLE_FIRST {
                self.whole += 1;
            }
            let (epoch, token) = (self.epoch, request.token);
            Message::Quack(Quack {
                epoch,
                token,
                age_us: age,
                first: self.first,
                last,
                count,
                sums,
            })
        };
        Ok(Some(message))
    }
}

/// The outcome of counting a packet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Count {
    /// It does not count.
    Not,
    /// It was counted.
    Silently,
    /// It was counted, and set the deadline of a quACK.
    WithDeadline,
    /// It was counted, and a quACK is due.
    WithReport,
}

/// The quACK exceeds the session's budget.
#[derive(Debug)]
pub(super) struct Withheld;

/// Slots of the table. A later identifier replaces an earlier one in the same slot.
const SLOTS: usize = 256;

/// Identifiers of a session's latest packets, each in the slot of its last bits.
#[derive(Debug)]
pub(super) struct Duplicates(Box<[u32; SLOTS]>);

impl Default for Duplicates {
    fn default() -> Self {
        let mut duplicates = Self(Box::new([0; SLOTS]));
        duplicates.clear();
        duplicates
    }
}

fn slot(identifier: u32) -> usize {
    usize::try_from(identifier).unwrap_or(0) % SLOTS
}

impl Duplicates {
    pub(super) fn clear(&mut self) {
        self.0.fill(0);
        // An identifier in a slot not its own matches nothing.
        if let Some(first) = self.0.first_mut() {
            *first = 1;
        }
    }

    /// The contents of the identifier's slot.
    #[inline]
    pub(super) fn peek(&self, identifier: u32) -> u32 {
        self.0.get(slot(identifier)).copied().unwrap_or(0)
    }

    /// Records an identifier. Returns true if its slot held it already.
    #[inline]
    pub(super) fn record(&mut self, identifier: u32) -> bool {
        let Some(slot) = self.0.get_mut(slot(identifier)) else { return false };
        std::mem::replace(slot, identifier) == identifier
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_identifier_is_detected_until_another_replaces_it() {
        let mut duplicates = Duplicates::default();
        let known: Vec<bool> = [0, 7, 0, 256, 7, 0].map(|id| duplicates.record(id)).to_vec();
        // 0 and 256 share a slot: 256 replaces 0.
        assert_eq!(known, [false, false, true, false, true, false]);
        assert!(!duplicates.record(9));
        assert!(!(1000..2000).any(|id| duplicates.record(id * 256 + 11)));
        assert!(duplicates.record(9), "recorded many packets ago");
        duplicates.clear();
        assert!(!(0..1024).any(|id| duplicates.record(id)));
    }
}
