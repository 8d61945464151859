//! The fate of a proxy's reports: the receiver confirms or refutes each.
//!
//! A report triggers a retransmission at once, but affects no congestion controller. The controller
//! learns of the loss when the receiver has acknowledged later packets, as without a proxy. If the
//! packet is acknowledged instead, it first returns to the flight, so that the connection treats it
//! as an arrived packet. A wrong report thus costs only the retransmission.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::Reaction;
use crate::frame::Frame;
use crate::ranges::RangeSet;

/// The most reports per path that await the receiver's confirmation. Further ones are ignored.
pub(super) const MAX_OPEN: usize = 4096;
/// The same limit in bytes, in congestion windows.
const MAX_OPEN_WINDOWS: usize = 2;
/// The initial window in bytes (RFC 9002, section 7.2).
const INITIAL_WINDOW: usize = 14_720;
/// The most packets per path that are sent again unchanged and in flight.
const MAX_HELD: usize = 1024;
/// The most confirmed losses per path whose acknowledgement may still arrive. Past it, the lowest
/// packet number is dropped.
pub(super) const MAX_CONFIRMED: usize = 1024;

/// The state of a packet before it was declared lost.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) reaction: Reaction,
    pub(crate) reported: Instant,
    pub(crate) time_sent: Instant,
    pub(crate) size: usize,
    pub(crate) in_flight: bool,
    pub(crate) ack_eliciting: bool,
    pub(crate) has_data: bool,
    pub(crate) frames: SmallVec<[Frame; 1]>,
}

/// A packet that was sent again unchanged.
#[derive(Debug)]
struct Held {
    /// When it was first sent again, and the last packet before.
    resent: Instant,
    last: u64,
    /// The time until which only the latest attempt counts.
    until: Instant,
    attempts: u64,
    /// An attempt took another link, so it may overtake packets sent before.
    elsewhere: bool,
}

/// The early losses of one packet number space on one path, until their end-to-end fate is known.
#[derive(Debug, Default)]
pub(crate) struct EarlyLosses {
    open: BTreeMap<u64, Report>,
    /// The total size of these packets in bytes.
    open_bytes: usize,
    confirmed: BTreeSet<u64>,
    pub(super) declared: u64,
    pub(super) spurious: u64,
    held: BTreeMap<u64, Held>,
    pub(super) needless: u64,
    pub(super) refuted: u64,
    pub(super) undecided: u64,
}

impl EarlyLosses {
    /// Whether a packet of `size` bytes may be declared lost, with this congestion window.
    ///
    /// A packet declared lost leaves the flight and makes room for more, before the receiver
    /// confirms that it left the path. So at most two windows of such packets await confirmation,
    /// whatever a proxy reports; at half of the packets lost, one does. An initial window may
    /// always wait.
    pub(crate) fn has_room(&self, size: usize, window: usize) -> bool {
        let most = (MAX_OPEN_WINDOWS * window).max(INITIAL_WINDOW);
        self.open.len() < MAX_OPEN && self.open_bytes + size <= most
    }

    pub(crate) fn declare(&mut self, packet_number: u64, report: Report) {
        self.held.remove(&packet_number);
        self.open_bytes += report.size;
        self.open.insert(packet_number, report);
        self.declared += 1;
    }

    /// Whether any packet was sent again and is in flight.
    #[inline]
    pub(crate) fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether any report awaits the receiver's confirmation.
    #[inline]
    pub(crate) fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Whether the acknowledgement of any early loss may still arrive.
    #[inline]
    pub(crate) fn has_declared(&self) -> bool {
        self.has_open() || !self.confirmed.is_empty()
    }

    /// Whether this packet awaits confirmation, so that its record must stay.
    pub(crate) fn is_open(&self, packet_number: u64) -> bool {
        self.open.contains_key(&packet_number)
    }

    /// The lowest such packet number, if it is below `in_flight`, the lowest of all in flight.
    pub(crate) fn least_open(&self, in_flight: impl FnOnce() -> Option<u64>) -> Option<u64> {
        let least = *self.open.keys().next()?;
        in_flight().is_none_or(|in_flight| least < in_flight).then_some(least)
    }

    /// Removes a report whose fate is known.
    fn close(&mut self, packet_number: u64) -> Option<Report> {
        let report = self.open.remove(&packet_number)?;
        self.open_bytes = self.open_bytes.saturating_sub(report.size);
        Some(report)
    }

    pub(super) fn awaits(&self, packet_number: u64) -> bool {
        self.is_open(packet_number) || self.confirmed.contains(&packet_number)
    }

    /// Whether this packet may be sent again: the fate of each attempt must be observable.
    pub(crate) fn may_hold(&self, packet_number: u64) -> bool {
        self.held.len() < MAX_HELD || self.held.contains_key(&packet_number)
    }

    /// Records that a packet is sent again, after `last`. Loss detection ignores it until `until`.
    pub(crate) fn hold(&mut self, packet_number: u64, last: u64, elsewhere: bool, now: Instant, until: Instant) {
        let first = Held { resent: now, last, until, attempts: 0, elsewhere };
        let held = self.held.entry(packet_number).or_insert(first);
        held.until = until;
        held.attempts += 1;
        held.elsewhere |= elsewhere;
    }

    /// Whether a packet's second attempt is in flight. If so, sets `look_again` to its end. BBR2's
    /// loss detection prefers the time of the next packet that may be lost, and checks again then.
    pub(crate) fn holds(&mut self, packet_number: u64, now: Instant, look_again: &mut Option<Instant>) -> bool {
        let Some(until) = self.held.get(&packet_number).map(|held| held.until) else { return false };
        if until <= now {
            self.held.remove(&packet_number);
            return false;
        }
        *look_again = Some(look_again.map_or(until, |at| at.min(until)));
        true
    }

    /// Handles acknowledged ranges, on a path whose shortest round trip is `min_rtt`, when packets
    /// up to `known` were acknowledged before.
    ///
    /// Both attempts at a packet look the same, but they arrive in order. If the first was lost,
    /// the receiver acknowledges packets sent between the attempts before it has the second. If
    /// not, it acknowledges the packet before them. A proxy cannot disguise one case as the other.
    /// An attempt by another link may arrive sooner, and before others. But at least what follows
    /// the link takes as long as ever, and the way back: half of a round trip.
    pub(crate) fn release(
        &mut self,
        ranges: &RangeSet,
        known: Option<u64>,
        min_rtt: Option<Duration>,
        now: Instant,
    ) {
        let Some(largest) = ranges.last() else { return };
        for range in ranges.iter() {
            while let Some((&packet_number, _)) = self.held.range(range.clone()).next() {
                let Some(held) = self.held.remove(&packet_number) else { break };
                let Held { resent, last, attempts, elsewhere, .. } = held;
                let passed = known.is_some_and(|known| known > packet_number);
                let least = min_rtt.map(|rtt| if elsewhere { rtt / 2 } else { rtt });
                let too_soon = least.is_some_and(|least| now < resent + least);
                // Use the packet in the middle between both: packets near either may be reordered
                // with it.
                let middle = packet_number + last.saturating_sub(packet_number).div_ceil(2);
                if passed && !too_soon {
                    continue;
                }
                let in_turn = largest < middle && !elsewhere;
                if !passed && (too_soon || in_turn) {
                    self.needless += attempts;
                    self.refuted += attempts;
                } else {
                    self.undecided += attempts;
                }
            }
        }
    }

    /// Removes the early losses that these ranges acknowledge, each with its report if the receiver
    /// had not confirmed it.
    pub(crate) fn take_acknowledged(&mut self, ranges: &RangeSet) -> Vec<(u64, Option<Report>)> {
        let mut acknowledged = Vec::new();
        for range in ranges.iter() {
            while let Some((&packet_number, _)) = self.open.range(range.clone()).next() {
                acknowledged.push((packet_number, self.close(packet_number)));
                self.refuted += 1;
            }
            while let Some(&packet_number) = self.confirmed.range(range.clone()).next() {
                self.confirmed.remove(&packet_number);
                acknowledged.push((packet_number, None));
            }
        }
        self.spurious += acknowledged.len() as u64;
        acknowledged
    }

    /// Removes the reports that the acknowledgement of `largest` confirms, by the thresholds of
    /// end-to-end loss detection: `packets` acknowledged later, or sent no later than
    /// `sent_before`.
    pub(crate) fn take_confirmed(
        &mut self,
        largest: Option<u64>,
        packets: Option<u64>,
        sent_before: Option<Instant>,
    ) -> Vec<(u64, Report)> {
        let Some(largest) = largest.filter(|_| !self.open.is_empty()) else { return Vec::new() };
        let is_lost = |number: u64, report: &Report| {
            packets.is_some_and(|packets| largest >= number + packets)
                || sent_before.is_some_and(|before| report.time_sent <= before)
        };
        let below = self.open.range(..largest);
        let numbers: Vec<_> =
            below.filter(|(number, report)| is_lost(**number, report)).map(|(number, _)| *number).collect();
        self.confirmed.extend(&numbers);
        while self.confirmed.len() > MAX_CONFIRMED {
            self.confirmed.pop_first();
        }
        numbers.into_iter().filter_map(|number| Some((number, self.close(number)?))).collect()
    }
}
