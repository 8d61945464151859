//! Which losses of the reverse flow are congestion (SPEC.md, section 7.12).

use super::lengths::Lengths;
use super::overtaking::Overtaking;
use super::trial::Trial;
use crate::loss_floor::{LossFloor, Lost, NearLoss};
use crate::sender::fetcher::Fate;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// More datagrams than that are not missing: the peer began another numbering.
const MOST_MISSING: u64 = 512;
/// The most gaps that are remembered.
const MAX_GAPS: usize = 256;
/// The weight of the latest gap in a share of them.
const WEIGHT: f32 = 1.0 / 8.0;
/// With a smaller share of random losses among gaps, they are not expected.
const EXPECTED: f32 = 0.1;

/// Losses elsewhere that are closer together than this are one event.
const EVENT: Duration = Duration::from_millis(50);

/// The near segment now.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::sender) struct Near {
    pub(in crate::sender) rtt: Duration,
    /// The delay of the latest packet in a queue.
    pub(in crate::sender) queue: Duration,
}

/// Datagrams that were missing when a later one arrived.
#[derive(Debug)]
struct Gap {
    number: u64,
    /// The place of the first one among all datagrams.
    first: u64,
    packets: u32,
    /// When the first one would have arrived, and the time to the next.
    at: Instant,
    interval: Duration,
    found: Instant,
    congestion: bool,
    /// How many of them the near segment lost, once that is known or assumed.
    near: Option<u32>,
}

impl Gap {
    /// The losses of its first datagrams, in place of what `out` has.
    #[allow(clippy::cast_possible_truncation, reason = "modulo 2^32")]
    fn losses(&self, packets: u32, mut out: Vec<Lost>) -> Vec<Lost> {
        out.clear();
        out.extend((0..packets).map(|later| {
            let place = self.first + u64::from(later);
            Lost::new(place, self.at + self.interval * later, place as u32)
        }));
        out
    }
}

/// What arrives of the reverse flow, and what does not. What was offered to the near segment is
/// both of them.
#[derive(Debug)]
pub(in crate::sender) struct Arrivals {
    floor: LossFloor,
    /// The place of the latest datagram among all.
    place: u64,
    /// The length of the latest datagram that arrived.
    bytes: usize,
    lengths: Lengths,
    /// When it arrived.
    latest: Option<Instant>,
    gaps: VecDeque<Gap>,
    overtaking: Overtaking,
    trial: Trial,
    /// The share of the gaps of late that the near segment caused, once the fate of one is known.
    near_share: Option<f32>,
    /// The share of random losses among the gaps of late.
    random_share: f32,
    /// When a gap was last found that the near segment did not cause.
    elsewhere: Option<Instant>,
    /// How much of gaps of unknown fate is still to be counted, below one.
    uncounted: f32,
    /// Scratch, kept to avoid allocation.
    lost: Vec<Lost>,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self {
            floor: LossFloor::of_arrivals(),
            place: 0,
            bytes: 0,
            lengths: Lengths::default(),
            latest: None,
            gaps: VecDeque::new(),
            overtaking: Overtaking::default(),
            trial: Trial::default(),
            near_share: None,
            random_share: 1.0,
            elsewhere: None,
            uncounted: 0.0,
            lost: Vec::new(),
        }
    }
}

impl Arrivals {
    pub(in crate::sender) fn latest(&self) -> NearLoss {
        let latest = self.floor.latest();
        if self.trial.hears() { NearLoss { congestion: 1.0, ..latest } } else { latest }
    }

    /// The longest copy that is passed on.
    pub(in crate::sender) fn longest_copy(&self, now: Instant) -> usize {
        self.lengths.longest(now)
    }

    /// Notes a datagram that arrived. `near` is asked once in each interval.
    pub(in crate::sender) fn on_received(
        &mut self,
        bytes: usize,
        near: impl FnOnce() -> Near,
        now: Instant,
    ) {
        (self.bytes, self.latest) = (bytes, Some(now));
        self.lengths.note(bytes, now);
        self.count(near, now);
    }

    fn count(&mut self, near: impl FnOnce() -> Near, at: Instant) {
        self.place += 1;
        self.trial.note(at);
        if self.floor.on_sent(self.place, self.bytes, at) {
            // Once in each interval: more often where more is lost would be a bias.
            let near = near();
            self.floor.on_queue(near.queue, at);
            self.floor.on_reported(at, near.rtt, at);
        }
    }

    /// Notes that a list, which arrives now, waited in a queue for this time.
    pub(in crate::sender) fn on_queue(&mut self, queue: Duration, now: Instant) {
        self.floor.on_queue(queue, now);
    }

    /// Notes that datagrams are missing before the next one to arrive. Returns whether the loss of
    /// one of them is congestion.
    pub(in crate::sender) fn on_missing(
        &mut self,
        number: u64,
        packets: u64,
        near: Near,
        now: Instant,
    ) -> bool {
        self.overtaking.on_missing(packets);
        let Some(latest) = self.latest.filter(|_| packets <= MOST_MISSING) else { return false };
        let packets = u32::try_from(packets).unwrap_or(0);
        // They would have arrived at even intervals.
        let interval = now.saturating_duration_since(latest) / packets.saturating_add(1);
        let (first, at) = (self.place + 1, latest + interval);
        let mut gap =
            Gap { number, first, packets, at, interval, found: now, congestion: false, near: None };
        (0..packets).for_each(|later| self.count(|| near, at + interval * later));
        let lost = std::mem::take(&mut self.lost);
        let lost = gap.losses(packets, lost);
        // Until their fate is known, they neither arrived nor are lost here.
        lost.iter().for_each(|lost| self.floor.uncount(lost.sent));
        if !self.floor.is_outage(&lost) {
            // Each of them is judged, for the controller is to hear of a share.
            let judged = lost.iter().map(|lost| self.floor.is_congestion(lost.sent, false, now));
            gap.congestion = judged.filter(|is_congestion| *is_congestion).count() > 0;
        }
        self.lost = lost;
        gap.congestion |= self.trial.is_heard(now);
        if gap.congestion {
            // Recent losses that were taken for random ones were no more random than these.
            self.random_share = self.random_share.min(1.0 - self.floor.latest().congestion);
        }
        let congestion = gap.congestion;
        if let Some(oldest) = self.gaps.front().filter(|_| self.gaps.len() >= MAX_GAPS) {
            self.on_fate(oldest.number, Fate::Unknown);
            self.gaps.pop_front();
        }
        self.gaps.push_back(gap);
        congestion
    }

    /// Notes that so many consecutive copies were lost, and so many arrived. Returns whether the
    /// near segment loses so many more of them than of originals that they are congestion
    /// themselves. Where datagrams are often late, so are copies.
    pub(in crate::sender) fn on_copies(&mut self, lost: u32, arrived: u32) -> bool {
        self.overtaking.patience().is_zero() && self.floor.on_copies(lost, arrived)
    }

    /// When to request copies of a gap: late datagrams close many gaps by themselves. `longest` is
    /// how long to wait at most.
    pub(in crate::sender) fn request_at(
        &self,
        number: u64,
        longest: Duration,
        now: Instant,
    ) -> Instant {
        let gap = self.gaps.iter().rfind(|gap| gap.number == number);
        let found = gap.map_or(now, |gap| gap.found);
        now.max(found + self.overtaking.patience().min(longest))
    }

    /// Whether a new gap is likely enough a random loss, or a datagram that is late.
    pub(in crate::sender) fn waits(&self) -> bool {
        self.random_share >= EXPECTED || !self.overtaking.patience().is_zero()
    }

    /// Notes what became of a gap's datagrams.
    #[allow(clippy::cast_possible_truncation, reason = "a gap has few datagrams")]
    pub(in crate::sender) fn on_fate(&mut self, number: u64, fate: Fate) {
        let is_open = |gap: &&mut Gap| gap.number == number && gap.near.is_none();
        let Some(gap) = self.gaps.iter_mut().rfind(is_open) else { return };
        let known = match fate {
            Fate::Lost(near) => Some(near.min(gap.packets)),
            Fate::Elsewhere => Some(0),
            Fate::Unknown => None,
        };
        let near = known.unwrap_or_else(|| {
            self.uncounted += self.near_share.unwrap_or(0.0) * gap.packets as f32;
            let near = self.uncounted as u32;
            self.uncounted -= near as f32;
            near.min(gap.packets)
        });
        if let Some(near) = known.filter(|_| gap.packets > 0) {
            let share = near as f32 / gap.packets as f32;
            let near_share = self.near_share.get_or_insert(share);
            *near_share += WEIGHT * (share - *near_share);
            // A burst of losses elsewhere is one event. Skipped numbers come one by one.
            let is_event = near > 0 || self.elsewhere.is_none_or(|at| gap.found >= at + EVENT);
            if near == 0 && is_event {
                self.elsewhere = Some(gap.found);
            }
            if !gap.congestion && is_event {
                self.random_share += WEIGHT * (share - self.random_share);
            }
        }
        gap.near = Some(near);
        let lost = std::mem::take(&mut self.lost);
        let lost = gap.losses(gap.packets, lost);
        let near = lost.get(..near as usize).unwrap_or(&lost);
        near.iter().for_each(|lost| self.floor.recount(lost.sent));
        if !self.floor.is_outage(near) {
            self.trial.lose(u32::try_from(near.len()).unwrap_or(0));
        }
        self.floor.count(near);
        self.lost = lost;
    }

    /// Notes that a datagram of a gap arrived after all.
    pub(in crate::sender) fn on_late(&mut self, number: u64, now: Instant) {
        let Some(gap) = self.gaps.iter_mut().rfind(|gap| gap.number == number) else { return };
        self.overtaking.on_late(now.saturating_duration_since(gap.found));
        match &mut gap.near {
            // It counts as the datagram that it is.
            None => gap.packets = gap.packets.saturating_sub(1),
            Some(near) if *near > 0 => {
                *near -= 1;
                self.floor.on_turned_up(gap.at);
                self.floor.uncount(gap.at);
            }
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
