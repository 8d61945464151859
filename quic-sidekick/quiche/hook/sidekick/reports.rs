//! What becomes of a proxy's reports: the receiver confirms each, or refutes it.
//!
//! A report has data sent again at once, but moves no congestion controller. The controller hears
//! of the loss when the receiver has acknowledged later packets, as without a proxy. A packet that
//! is acknowledged instead comes back into the flight first, so that the connection takes it for
//! what it is: a packet that arrived. A wrong report thus costs the repetition alone, and nothing
//! of it remains.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::Reaction;
use crate::frame::Frame;
use crate::ranges::RangeSet;

/// Reports per path on which the receiver's word is still to come. While there are as many, no more
/// are acted on.
pub(super) const MAX_OPEN: usize = 4096;
/// The same as bytes, in congestion windows.
const MAX_OPEN_WINDOWS: usize = 2;
/// What any connection may send before it knows the path, in bytes (RFC 9002, section 7.2).
const INITIAL_WINDOW: usize = 14_720;
/// Packets per path that are on their way again as they were.
const MAX_HELD: usize = 1024;
/// Confirmed losses whose acknowledgement is still looked for, per path; past it, the lowest packet
/// number is forgotten.
pub(super) const MAX_CONFIRMED: usize = 1024;

/// A packet that was declared lost, as it was.
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

/// A packet that was sent again as it was.
#[derive(Debug)]
struct Held {
    /// When it was first sent again, and which packet was the last before.
    resent: Instant,
    last: u64,
    /// Until when only the latest attempt counts.
    until: Instant,
    attempts: u64,
}

/// The early losses of one packet number space on one path, until their end-to-end fate is known.
#[derive(Debug, Default)]
pub(crate) struct EarlyLosses {
    open: BTreeMap<u64, Report>,
    /// Bytes of these packets.
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
    /// Whether a packet of `size` bytes may be declared lost, with such a congestion window.
    ///
    /// What is declared lost leaves the flight, and makes room for more. The receiver has not
    /// confirmed that it left the path. So no more than two windows of it wait for the receiver's
    /// word, however much a proxy reports; at half of the packets lost, one does. An initial window
    /// may always wait.
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

    /// Whether the receiver's word on this packet is still to come, so that its record has to stay.
    pub(crate) fn is_open(&self, packet_number: u64) -> bool {
        self.open.contains_key(&packet_number)
    }

    /// The lowest packet number of those, if it is below `in_flight`, the lowest of all in flight.
    pub(crate) fn least_open(&self, in_flight: impl FnOnce() -> Option<u64>) -> Option<u64> {
        let least = *self.open.keys().next()?;
        in_flight().is_none_or(|in_flight| least < in_flight).then_some(least)
    }

    /// Takes a report whose fate is known.
    fn close(&mut self, packet_number: u64) -> Option<Report> {
        let report = self.open.remove(&packet_number)?;
        self.open_bytes = self.open_bytes.saturating_sub(report.size);
        Some(report)
    }

    pub(super) fn awaits(&self, packet_number: u64) -> bool {
        self.is_open(packet_number) || self.confirmed.contains(&packet_number)
    }

    /// Whether this packet may go out again: what becomes of each attempt has to be seen.
    pub(crate) fn may_hold(&self, packet_number: u64) -> bool {
        self.held.len() < MAX_HELD || self.held.contains_key(&packet_number)
    }

    /// A packet goes out again, behind `last`; a loss of it is not looked for before `until`.
    pub(crate) fn hold(&mut self, packet_number: u64, last: u64, now: Instant, until: Instant) {
        let first = Held { resent: now, last, until, attempts: 0 };
        let held = self.held.entry(packet_number).or_insert(first);
        held.until = until;
        held.attempts += 1;
    }

    /// Whether a packet's second attempt is under way. If so, `look_again` is brought to its end;
    /// BBR2's loss detection prefers the time of the next packet that may be lost, and looks again
    /// then.
    pub(crate) fn holds(&mut self, packet_number: u64, now: Instant, look_again: &mut Option<Instant>) -> bool {
        let Some(until) = self.held.get(&packet_number).map(|held| held.until) else { return false };
        if until <= now {
            self.held.remove(&packet_number);
            return false;
        }
        *look_again = Some(look_again.map_or(until, |at| at.min(until)));
        true
    }

    /// These ranges are acknowledged, over a path whose shortest round trip is `min_rtt`, when
    /// packets up to `known` were acknowledged before.
    ///
    /// Both attempts at a packet look the same, but they arrive in their turns. When the first was
    /// lost, the receiver acknowledges what was sent between both attempts before it has the
    /// second. When it was not, it acknowledges the packet before them. A proxy cannot make the one
    /// look like the other.
    pub(crate) fn release(
        &mut self,
        ranges: &RangeSet,
        known: Option<u64>,
        min_rtt: Option<Duration>,
        now: Instant,
    ) {
        let Some(largest) = ranges.last().filter(|_| !self.held.is_empty()) else { return };
        for range in ranges.iter() {
            while let Some((&packet_number, _)) = self.held.range(range.clone()).next() {
                let Some(Held { resent, last, attempts, .. }) = self.held.remove(&packet_number) else { break };
                let passed = known.is_some_and(|known| known > packet_number);
                let too_soon = min_rtt.is_some_and(|rtt| now < resent + rtt);
                // One in the middle between both: what is near either may have changed places with
                // it.
                let middle = packet_number + last.saturating_sub(packet_number).div_ceil(2);
                if passed && !too_soon {
                    continue;
                }
                if !passed && (too_soon || largest < middle) {
                    self.needless += attempts;
                    self.refuted += attempts;
                } else {
                    self.undecided += attempts;
                }
            }
        }
    }

    /// Takes the early losses that these ranges acknowledge: with the report, if the receiver had
    /// not confirmed it.
    pub(crate) fn take_acknowledged(&mut self, ranges: &RangeSet) -> Vec<(u64, Option<Report>)> {
        let mut acknowledged = Vec::new();
        if self.open.is_empty() && self.confirmed.is_empty() {
            return acknowledged;
        }
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

    /// Takes the reports that are confirmed when `largest` is acknowledged, by the thresholds of
    /// end-to-end loss detection: `packets` acknowledged since, or sent no later than
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
