//! Flows whose packets come at a steady interval: the proxy reports overdue packets instead of
//! arrivals (SPEC.md, section 6.4).

use crate::clock::scale;
use crate::wire::Timing;
use std::time::Duration;

/// The least time by which a packet may be late.
const LEAST_ALLOWANCE: Duration = Duration::from_millis(1);
/// While a packet is overdue, this many reports of silence leave, a fifth of the interval apart.
/// There are several, since each may be lost.
const REPORTS: u32 = 5;
/// After this many pauses in a row the flow counts as not steady, until as many packets come in
/// time.
const DOUBTS: u32 = 4;
/// It also counts as not steady once the overdue packets exceed those in time by this many.
const EXCESS: u32 = 8;

/// The watch over a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    interval: Duration,
    every_packets: u32,
    /// The mean deviation of the gaps between packets from the interval.
    deviation: Duration,
    /// Pauses in a row, at most [`DOUBTS`]; then less the packets in time since.
    doubts: u32,
    /// The packets that came overdue, less those in time, at least 0.
    excess: u32,
    /// The flow is not steady at present, despite its sender's request.
    unsteady: bool,
    /// Reports of silence since the latest packet.
    reports: u32,
}

impl Watch {
    /// The watch that `timing` asks for. A repeated request changes nothing.
    pub(super) fn renewed(before: Option<Self>, timing: Timing) -> Option<Self> {
        let (interval, every_packets) = (timing.interval, timing.every_packets.into());
        let same =
            |watch: &Self| (watch.interval, watch.every_packets) == (interval, every_packets);
        if let Some(watch) = before.filter(same) {
            return Some(watch);
        }
        let is_useful = !interval.is_zero() && interval <= Timing::LONGEST_INTERVAL;
        is_useful.then_some(Self {
            interval,
            every_packets,
            deviation: Duration::ZERO,
            doubts: 0,
            excess: 0,
            unsteady: false,
            reports: 0,
        })
    }

    /// Whether reports follow this watch, and not the terms.
    pub(super) fn holds(&self) -> bool {
        !self.unsteady
    }

    /// A quACK is due after this many packets.
    pub(super) fn every_packets(&self) -> u32 {
        self.every_packets
    }

    /// The time after a packet at which the next one is overdue.
    fn patience(&self) -> Duration {
        let allowance = LEAST_ALLOWANCE.max(self.interval / 10).max(4 * self.deviation);
        self.interval + allowance.min(self.interval / 2)
    }

    /// The time after the latest packet at which the next report of silence is due. A flow that
    /// pauses often has fewer reports.
    pub(super) fn silence(&self) -> Option<Duration> {
        let is_due = self.holds() && self.reports < REPORTS >> self.doubts;
        is_due.then(|| self.patience() + scale(self.interval, self.reports, REPORTS))
    }

    /// Notes that a report of silence leaves.
    pub(super) fn note_silence(&mut self) {
        self.reports = self.reports.saturating_add(1);
    }

    /// Notes a packet, `gap` after the one before it. Returns whether it was overdue.
    pub(super) fn on_packet(&mut self, gap: Option<Duration>) -> bool {
        let Some(gap) = gap else { return false };
        let overdue = gap >= self.patience();
        let was_missed = std::mem::take(&mut self.reports) > 0;
        self.excess = if overdue { self.excess + 1 } else { self.excess.saturating_sub(1) };
        if self.excess >= EXCESS {
            (self.unsteady, self.doubts, self.excess) = (true, DOUBTS, 0);
            return overdue;
        }
        let (half, pause) = (self.interval / 2, self.interval * 3 / 2);
        if gap >= pause || self.unsteady && overdue {
            self.doubts = if self.unsteady { DOUBTS } else { self.doubts + 1 };
            self.unsteady |= self.doubts >= DOUBTS;
            return overdue;
        }
        self.doubts = if self.unsteady { self.doubts.saturating_sub(1) } else { 0 };
        self.unsteady &= self.doubts > 0;
        // The overdue packet may be a repair, which keeps to no interval.
        if gap >= half && !was_missed {
            let deviation = gap.abs_diff(self.interval);
            self.deviation = scale(self.deviation, 15, 16) + deviation / 16;
        }
        overdue
    }
}
