//! Which losses of a segment are congestion (SPEC.md, section 7.12).
//!
//! A random loss depends neither on how much is sent nor on how long packets wait. The loss of a
//! full queue, a policer or an early drop depends on one of them or on both. So the loss at lower
//! loads and shorter queues is the *floor*: as the least round-trip time is to delay, so is the
//! floor to loss. What exceeds it is congestion, and the congestion controller has to hear of it.

mod evidence;

use crate::clock::Least;
use evidence::{Count, Evidence, Verdict};
use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

/// A packet that the near segment lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The caller's name for it: the tag of [`Sender::on_sent`](crate::Sender::on_sent).
    pub tag: u64,
    /// Whether the loss is congestion, or one of so few that the congestion controller ignores them
    /// ([`Sender::set_tolerated_loss`](crate::Sender::set_tolerated_loss)). If so, a repair must
    /// not hide it from the controller.
    pub congestion: bool,
    pub(crate) sent: Instant,
    /// Its place among the packets sent, modulo 2^32.
    pub(crate) number: u32,
}

impl Lost {
    pub(crate) fn new(tag: u64, sent: Instant, number: u32) -> Self {
        Self { tag, congestion: false, sent, number }
    }
}

/// How the near segment loses packets now. `Display` writes a clause for a user.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NearLoss {
    /// The share of the packets that are lost at the present load, from 0 to 1.
    pub rate: f32,
    /// The share of these losses that is congestion, from 0 to 1.
    pub congestion: f32,
}

/// What becomes of the losses of the near segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    /// There are none.
    Nothing,
    /// They are repaired.
    Repaired,
    /// Some are repaired, and the congestion controller hears of the others.
    Shared,
    /// The congestion controller hears of them.
    Left,
}

impl NearLoss {
    /// What becomes of the losses.
    #[must_use]
    pub fn handling(&self) -> Handling {
        match self.congestion {
            _ if self.rate <= 0.0 => Handling::Nothing,
            share if share < 0.05 => Handling::Repaired,
            share if share > 0.95 => Handling::Left,
            _ => Handling::Shared,
        }
    }
}

impl fmt::Display for NearLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lost, left) = (100.0 * self.rate, 100.0 * self.congestion);
        match self.handling() {
            Handling::Nothing => f.write_str("nothing is lost"),
            Handling::Repaired => write!(f, "{lost:.1} % are lost at any load: repaired"),
            Handling::Left => {
                write!(f, "{lost:.1} % are lost by congestion: left to the controller")
            }
            Handling::Shared => write!(
                f,
                "{lost:.1} % are lost, {left:.0} % of them by congestion: these are left to the controller"
            ),
        }
    }
}

/// An interval has at least so many packets, and lasts at least this time and a near round trip: a
/// shorter one shows bursts instead of the load.
const LEAST_PACKETS: u32 = 16;
const LEAST_TIME: Duration = Duration::from_millis(10);
const MOST_TIME: Duration = Duration::from_millis(100);
/// Intervals whose losses may still be found.
const INTERVALS: usize = 64;
/// Evidence counts half after this time. A cycle of BBR2, with its faster and its slower phase,
/// takes two to three seconds.
const HALF_LIFE: Duration = Duration::from_millis(2500);
/// The evidence fades in so many steps in that time.
const STEPS: u32 = 4;
/// A limiter lets some packets through at any load. So many consecutive losses of packets that were
/// not sent at once are therefore an outage.
const OUTAGE: usize = 8;
/// After an outage, losses are expected to come in runs of this length.
const RUN: f32 = 8.0;
/// Outages count while so much of one is not faded.
const RECENT: f32 = 0.4;
/// Losses in longer runs reach a controller together, so it does not ignore them.
const EVEN: f32 = 3.0;
/// After so long without a report, the fate of what was sent meanwhile is not known.
const SILENCE: Duration = Duration::from_secs(10);
/// So many standard deviations of an excess prove nothing. A loss is compared with several floors,
/// and a controller that ignores no loss must not hear of a random one.
const CHANCE: f32 = 3.0;
const RARE_CHANCE: f32 = 4.0;
/// Shorter queues tell what is random if they had shown so many independent losses, had they lost
/// as much as the present one.
const TELLING: f32 = 8.0;
/// How long they tell so after the latest loss.
const TOLD: Duration = Duration::from_secs(5);
/// Packets that show a loss too small to matter.
const SMALL: f32 = 300.0;

/// Packets that were sent one after another.
#[derive(Clone, Debug)]
struct Interval {
    begun: Instant,
    /// When the next one begins.
    end: Option<Instant>,
    bytes: usize,
    count: Count,
    /// The longest time that one of them waited in a queue.
    queue: Option<Duration>,
    /// Where the evidence counts them, once their fate is known.
    place: Option<[usize; 2]>,
}

/// Tells congestion from random loss.
#[derive(Debug)]
pub(crate) struct LossFloor {
    intervals: VecDeque<Interval>,
    least_time: Duration,
    by_load: Evidence,
    by_queue: Evidence,
    /// By load, of the packets that found the queue empty. One who does not see what was sent has
    /// none.
    unqueued: Option<Evidence>,
    faded: Option<Instant>,
    reported: Option<Instant>,
    /// Copies of late, which are not among the evidence: they follow losses.
    copies: Count,
    /// Outages of late.
    outages: f32,
    /// How long the latest reported packet waited in a queue.
    queue: Duration,
    /// The share that the controller ignores.
    tolerated: f32,
    /// What the controller is still to hear, below one packet.
    unheard: f32,
    latest: NearLoss,
    /// When shorter queues last showed enough to tell a loss from congestion.
    told: Option<Instant>,
    /// The least floor of late. Overload that lasts raises the loss at all loads.
    least: Least<f32>,
    /// The latest tag of a packet that is no repetition.
    newest: Option<u64>,
    /// Bytes of repetitions in the latest interval.
    repeated: usize,
}

impl LossFloor {
    /// Judges losses for a congestion controller that ignores this share of them, from 0 to 1. Of
    /// a smaller loss it hears everything. 0 is right for a controller that reacts to each loss:
    /// it hears only of what is proven to be congestion.
    pub(crate) fn new(tolerated: f32) -> Self {
        Self {
            intervals: VecDeque::new(),
            least_time: LEAST_TIME,
            by_load: Evidence::by_load(),
            by_queue: Evidence::by_queue(),
            unqueued: Some(Evidence::by_load()),
            faded: None,
            reported: None,
            copies: Count::default(),
            outages: 0.0,
            queue: Duration::ZERO,
            tolerated,
            unheard: 0.0,
            latest: NearLoss::default(),
            told: None,
            least: Least::default(),
            newest: None,
            repeated: 0,
        }
    }

    /// Judges losses that only the receiver of the packets sees. It knows what arrived, not what
    /// was sent, so it cannot tell a load from one far above.
    pub(crate) fn of_arrivals() -> Self {
        // The peer's controller is unknown, so each loss may matter to it.
        let all = Self::new(0.0);
        let (by_load, by_queue) = (all.by_load.of_any_reach(), all.by_queue.of_any_reach());
        Self { by_load, by_queue, unqueued: None, ..all }
    }

    pub(crate) fn set_tolerated(&mut self, share: f32) {
        self.tolerated = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    }

    pub(crate) fn tolerated(&self) -> f32 {
        self.tolerated
    }

    #[cfg(test)]
    pub(crate) fn pretend(&mut self, latest: NearLoss) {
        self.latest = latest;
    }

    /// The state at the latest loss.
    pub(crate) fn latest(&self) -> NearLoss {
        self.latest
    }

    /// Whether shorter queues have shown enough to tell random losses from what a queue drops, at
    /// the latest loss, and not long ago.
    pub(crate) fn tells(&self, now: Instant) -> bool {
        self.told.is_some_and(|told| now < told + TOLD)
    }

    /// Notes that a packet was sent. The bytes of a repetition count in the next interval: it
    /// follows a loss, and in one interval more load would seem to cause more losses. Returns
    /// whether an interval begins.
    #[inline]
    pub(crate) fn on_sent(&mut self, tag: u64, bytes: usize, now: Instant) -> bool {
        let is_new = self.newest.is_none_or(|newest| is_later(tag, newest));
        if is_new {
            self.newest = Some(tag);
        }
        self.repeated += if is_new { 0 } else { bytes };
        let bytes = if is_new { bytes } else { 0 };
        if let Some(interval) = self.intervals.back_mut() {
            let lasts = now.saturating_duration_since(interval.begun);
            if interval.count.packets() < LEAST_PACKETS || lasts < self.least_time {
                interval.count.send();
                interval.bytes += bytes;
                return false;
            }
            interval.end = Some(now);
        }
        self.begin(bytes, now);
        true
    }

    fn begin(&mut self, bytes: usize, now: Instant) {
        if self.intervals.len() >= INTERVALS {
            self.intervals.pop_front();
        }
        let mut count = Count::default();
        count.send();
        let bytes = bytes + std::mem::take(&mut self.repeated);
        let (end, queue, place) = (None, None, None);
        self.intervals.push_back(Interval { begun: now, end, bytes, count, queue, place });
    }

    /// Notes a report, whose losses are judged: the fate of what was sent until `until` is known,
    /// but for losses that are still to be declared. `near` is the near RTT.
    pub(crate) fn on_reported(&mut self, until: Instant, near: Duration, now: Instant) {
        self.fade(now);
        let before = self.reported.replace(now);
        if before.is_some_and(|at| now.saturating_duration_since(at) > SILENCE) {
            self.intervals.clear();
        }
        self.least_time = near.clamp(LEAST_TIME, MOST_TIME);
        let Self { intervals, by_load, by_queue, unqueued, queue, .. } = self;
        for interval in intervals.iter_mut().rev() {
            let Some(end) = interval.end.filter(|end| *end <= until) else { continue };
            if interval.place.is_some() {
                break;
            }
            let place = interval.place_at(end, *queue, by_load, by_queue);
            interval.place = Some(place);
            add(interval.count, place, by_load, by_queue, unqueued);
        }
    }

    /// Notes how long a packet of this time waited in a queue. The losses that the same report
    /// shows are judged next.
    pub(crate) fn on_queue(&mut self, queue: Duration, at: Instant) {
        self.queue = queue;
        if let Some(interval) = interval_of(&mut self.intervals, at) {
            interval.queue = Some(interval.queue.unwrap_or_default().max(queue));
        }
    }

    /// Counts and judges losses, in the order of sending.
    pub(crate) fn judge(&mut self, lost: &mut [Lost], now: Instant) {
        self.fade(now);
        for run in lost.chunk_by_mut(|one, next| one.number.wrapping_add(1) == next.number) {
            if self.note_outage(run) {
                continue;
            }
            for (before, lost) in run.iter_mut().enumerate() {
                self.lose(lost.sent, before);
                lost.congestion = self.is_congestion(lost.sent, true, now);
            }
        }
    }

    /// Counts losses of packets that were sent one after another.
    pub(crate) fn count(&mut self, run: &[Lost]) {
        if !self.note_outage(run) {
            run.iter().enumerate().for_each(|(before, lost)| self.lose(lost.sent, before));
        }
    }

    /// If these consecutive losses are an outage, they show nothing about the load.
    fn note_outage(&mut self, run: &[Lost]) -> bool {
        let is_outage = self.is_outage(run);
        if is_outage {
            self.outages += 1.0;
            self.told = None;
            run.iter().for_each(|lost| self.uncount(lost.sent));
        }
        is_outage
    }

    pub(crate) fn is_outage(&self, run: &[Lost]) -> bool {
        let ([first, .., last], true) = (run, run.len() >= OUTAGE) else { return false };
        let mut intervals = self.intervals.iter().rev();
        let Some(interval) = intervals.find(|interval| interval.begun <= first.sent) else {
            return false;
        };
        let lasts = interval.end.unwrap_or(last.sent).saturating_duration_since(interval.begun);
        // A train is sent at once, and may be too long for a queue.
        let paced = lasts / interval.count.packets().max(1);
        let span = last.sent.saturating_duration_since(first.sent);
        !paced.is_zero() && 2 * span >= paced.saturating_mul(u32::try_from(run.len()).unwrap_or(0))
    }

    /// Notes that a packet that was sent then turned up, although its loss was judged.
    pub(crate) fn on_turned_up(&mut self, sent: Instant) {
        self.change(sent, Count::find);
    }

    /// Takes a packet out of the evidence, whose loss is not counted. It remains part of the load.
    pub(crate) fn uncount(&mut self, sent: Instant) {
        self.change(sent, Count::unsend);
    }

    /// Counts a packet that was taken out.
    pub(crate) fn recount(&mut self, sent: Instant) {
        self.change(sent, Count::send_again);
    }

    fn change(&mut self, sent: Instant, change: impl FnOnce(&mut Count) -> Count) {
        let Some(interval) = interval_of(&mut self.intervals, sent) else { return };
        let count = change(&mut interval.count);
        if let Some(place) = interval.place {
            let Self { by_load, by_queue, unqueued, .. } = self;
            add(count, place, by_load, by_queue, unqueued);
        }
    }

    /// Counts the loss of a packet that was sent then, after `before` other losses in a row.
    fn lose(&mut self, sent: Instant, before: usize) {
        self.change(sent, |count| count.lose(before));
    }

    /// Notes what became of copies: so many consecutive ones were lost, and so many arrived.
    /// Returns whether chance does not explain why more of them are lost than of other packets.
    pub(crate) fn on_copies(&mut self, lost: u32, arrived: u32) -> bool {
        self.copies += Count::of(lost, arrived);
        let congestion = lost > 0 && self.by_load.is_exceeded_by(self.copies, RARE_CHANCE);
        if congestion {
            self.copies = Count::default();
        }
        congestion
    }

    /// Whether the loss of a packet that was sent then is congestion. `counted` says whether it is
    /// among the evidence already.
    pub(crate) fn is_congestion(&mut self, sent: Instant, counted: bool, now: Instant) -> bool {
        let Some(([load, queue], mut unplaced)) = self.place_of(sent, now) else { return false };
        if !counted {
            unplaced.lose(0);
        }
        let run = if self.outages > RECENT { RUN } else { 1.0 };
        let chance = if self.tolerated > 0.0 { CHANCE } else { RARE_CHANCE };
        // What overran a queue says nothing about those that find it empty.
        let unqueued = self.unqueued.as_ref().filter(|_| queue == 0);
        let similar = unqueued.unwrap_or(&self.by_load);
        let verdicts = [
            self.by_load.judge(similar, load, unplaced, run, chance),
            self.by_queue.judge(&self.by_queue, queue, unplaced, run, chance),
        ];
        let known = verdicts.iter().filter(|verdict| verdict.below > SMALL);
        let floor = known.map(|verdict| verdict.floor).reduce(f32::min);
        let [_, by_queue] = &verdicts;
        self.told = (by_queue.expected >= TELLING).then_some(now);
        self.least.note(floor, now);
        let congestion = self.proven_share(&verdicts);
        let rate = verdicts[0].rate.min(1.0);
        self.latest = NearLoss { rate, congestion: congestion.unwrap_or(0.0) };
        self.unheard += congestion.unwrap_or_else(|| self.ignored_share(&verdicts));
        let heard = self.unheard >= 1.0;
        self.unheard -= f32::from(u8::from(heard));
        heard
    }

    /// The classes of a packet that was sent then, and what its interval adds to them.
    fn place_of(&self, sent: Instant, now: Instant) -> Option<([usize; 2], Count)> {
        let Self { intervals, by_load, by_queue, .. } = self;
        let at = intervals.iter().rposition(|interval| interval.begun <= sent)?;
        let interval = intervals.get(at)?;
        if let Some(place) = interval.place {
            return Some((place, Count::default()));
        }
        let lasts = now.saturating_duration_since(interval.begun);
        let is_short = interval.count.packets() < LEAST_PACKETS || lasts < self.least_time;
        let end = interval.end.unwrap_or(now.max(sent));
        let mut place = interval.place_at(end, self.queue, by_load, by_queue);
        // The load of a short interval is not known yet.
        let before = at.checked_sub(1).and_then(|at| intervals.get(at)).filter(|_| is_short);
        if let Some([load, _]) = before.and_then(|before| before.place) {
            place[0] = load;
        }
        Some((place, interval.count))
    }

    /// The share of the present losses that is congestion, if some are.
    fn proven_share(&self, verdicts: &[Verdict; 2]) -> Option<f32> {
        let least = self.least.get().unwrap_or(1.0);
        let above = |verdict: &Verdict| 1.0 - self.hidden(verdict.floor.min(least)) / verdict.rate;
        let proven = verdicts.iter().filter(|verdict| verdict.exceeds && verdict.rate > 0.0);
        proven.map(above).reduce(f32::max).map(|share| share.clamp(0.0, 1.0))
    }

    /// The share of other losses that the controller hears: all or nothing.
    fn ignored_share(&self, verdicts: &[Verdict; 2]) -> f32 {
        let [load, _] = verdicts;
        let is_even = self.outages <= RECENT && load.run < EVEN;
        let is_small = is_even && load.packets > SMALL && load.rate < self.tolerated;
        f32::from(u8::from(is_small))
    }

    /// How much of a floor is hidden. The controller may as well hear what it ignores.
    fn hidden(&self, floor: f32) -> f32 {
        (2.0 * (floor - self.tolerated)).clamp(0.0, floor)
    }

    fn fade(&mut self, now: Instant) {
        let since = *self.faded.get_or_insert(now);
        let step = HALF_LIFE / STEPS;
        let steps = now.saturating_duration_since(since).as_nanos() / step.as_nanos();
        if steps == 0 {
            return;
        }
        let steps = u8::try_from(steps).unwrap_or(u8::MAX);
        self.faded = Some(if steps == u8::MAX { now } else { since + step * steps.into() });
        let factor = 0.5_f32.powf(f32::from(steps) / STEPS as f32);
        self.outages *= factor;
        self.copies.fade(factor);
        self.by_load.fade(factor);
        self.by_queue.fade(factor);
        self.unqueued.iter_mut().for_each(|evidence| evidence.fade(factor));
    }
}

/// Counts packets of this place.
fn add(
    count: Count,
    [load, queue]: [usize; 2],
    by_load: &mut Evidence,
    by_queue: &mut Evidence,
    unqueued: &mut Option<Evidence>,
) {
    by_load.add(load, count);
    by_queue.add(queue, count);
    if let Some(unqueued) = unqueued.as_mut().filter(|_| queue == 0) {
        unqueued.add(load, count);
    }
}

/// Whether a tag comes after another. Those of repetitions do not, or are out of their range.
pub(crate) fn is_later(tag: u64, other: u64) -> bool {
    (1..1 << 62).contains(&tag.wrapping_sub(other))
}

fn interval_of(intervals: &mut VecDeque<Interval>, sent: Instant) -> Option<&mut Interval> {
    intervals.iter_mut().rev().find(|interval| interval.begun <= sent)
}

impl Interval {
    /// Where the evidence counts it, if it ends at `end`. Without a measurement of its own, its
    /// packets waited as long as the latest one.
    fn place_at(
        &self,
        end: Instant,
        latest: Duration,
        by_load: &Evidence,
        by_queue: &Evidence,
    ) -> [usize; 2] {
        let lasts = end.saturating_duration_since(self.begun).max(Duration::from_micros(100));
        let queue = self.queue.unwrap_or(latest);
        [
            by_load.class(self.bytes as f32 / lasts.as_secs_f32()),
            by_queue.class(queue.as_secs_f32()),
        ]
    }
}

#[cfg(test)]
pub(crate) mod links;
#[cfg(test)]
mod tests;
