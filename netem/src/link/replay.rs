//! A recorded segment, replayed: what it did to packets at a time, it does again.
//!
//! A recording knows the fates of its own packets, and a replay needs those of others, at other
//! times. So it estimates the chance of a packet to be lost by the recorded ones before and after
//! it, as far as losses of the recording are alike over such a time. By [`Likeness`], losses that
//! came independently come so again, however dense the packets, and a fade lasts its milliseconds.
//!
//! Times of a recording are in whole microseconds.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use sidekick_proxy::{Direction, Fate, NotATrace, Packet, RoundTrip, Trace};

use crate::units::unit_interval;

mod likeness;

use likeness::Likeness;

/// The first packet that is so near to a recorded one is that packet: half of what a frame takes at
/// 100 Mbit/s.
const ITSELF: u64 = 60;
/// A packet that is so near to a recorded one is late as that one.
const LATE_TOGETHER: u64 = 1_000;
/// A flow was idle if packets were farther apart.
const LONGEST_GAP: u64 = 20_000;
/// Shares are those of the packets within this time before and after.
const AROUND: u64 = 500_000;
/// If fewer packets than this are there, the share is that of so many.
const FEW: usize = 20;
const ENOUGH: usize = 50;
/// So many packets lost in a row, over so long a time, are an outage, as in a trace's summary.
const OUTAGE_PACKETS: usize = 3;
const OUTAGE: u64 = 100_000;
/// A round trip is longer than the shortest one within this time before and after it by the jitter
/// of the link. What lasts longer is a queue that the recorded flow has filled.
const QUEUE_LASTS: u64 = 250_000;

/// Why a recording cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The file cannot be read.
    #[error(
        "cannot read the trace {}: {reason}; record one by `sidekick-agent measure --trace FILE`",
        path.display()
    )]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// Why.
        reason: std::io::Error,
    },
    /// The file is no trace.
    #[error(
        "{}: {reason}; give a file that `sidekick-agent measure --trace FILE` wrote",
        path.display()
    )]
    NotATrace {
        /// The path.
        path: PathBuf,
        /// Why.
        reason: NotATrace,
    },
    /// The trace tells nothing of its link.
    #[error("{} has no packets; record it while a transfer runs", path.display())]
    Empty {
        /// The path.
        path: PathBuf,
    },
}

/// Reads a recording.
///
/// # Errors
///
/// [`ReplayError`], which names the file.
pub(crate) fn read(path: &Path) -> Result<Trace, ReplayError> {
    let text = std::fs::read_to_string(path)
        .map_err(|reason| ReplayError::Unreadable { path: path.to_owned(), reason })?;
    let trace: Trace =
        text.parse().map_err(|reason| ReplayError::NotATrace { path: path.to_owned(), reason })?;
    let packets = [Direction::Up, Direction::Down].map(|way| trace.packets(way).len());
    if packets == [0, 0] || trace.length().is_zero() {
        return Err(ReplayError::Empty { path: path.to_owned() });
    }
    Ok(trace)
}

/// One direction of a recording, ready to replay.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    length: u64,
    /// The times of the packets outside of outages.
    times: Vec<u64>,
    /// How many of them were lost, and how many were late, before each place in `times`.
    lost: Vec<u32>,
    late: Vec<u32>,
    /// By how much those came after their place.
    latenesses: Vec<Duration>,
    /// What leaves out of order does not show. So it is late as often as what arrives.
    late_unseen: f64,
    /// When each outage began and ended.
    outages: Vec<(u64, u64)>,
    likeness: Likeness,
    /// What is added to the delay, by time.
    jitter: Arc<[(u64, Duration)]>,
}

/// A packet of a recording.
#[derive(Clone, Copy, Debug)]
struct Recorded {
    place: usize,
    at: u64,
    /// How far in time it is from the packet whose fate it tells.
    distance: u64,
}

impl Replay {
    /// Both directions of a recording: towards the proxy, and from it.
    pub(crate) fn both(trace: &Trace) -> [Arc<Self>; 2] {
        let jitter: Arc<[_]> = jitter(trace.round_trips()).into();
        // What arrived was on the air before, at the same time as what left then.
        let delay = trace.round_trips().iter().map(|it| it.took).min().unwrap_or_default() / 2;
        let new = |way, delay: Duration| {
            let on_air = |it: &Packet| Packet { at: it.at.saturating_sub(delay), ..*it };
            let packets: Vec<_> = trace.packets(way).iter().map(on_air).collect();
            Self::new(&packets, micros(trace.length()), Arc::clone(&jitter))
        };
        let [mut up, down] = [new(Direction::Up, Duration::ZERO), new(Direction::Down, delay)];
        if up.latenesses.is_empty() && !down.latenesses.is_empty() {
            up.late_unseen = down.latenesses.len() as f64 / down.times.len() as f64;
            up.latenesses.clone_from(&down.latenesses);
        }
        [up, down].map(Arc::new)
    }

    fn new(packets: &[Packet], length: u64, jitter: Arc<[(u64, Duration)]>) -> Self {
        let mut replay = Self {
            length,
            times: Vec::new(),
            lost: vec![0],
            late: vec![0],
            latenesses: Vec::new(),
            late_unseen: 0.0,
            outages: Vec::new(),
            likeness: Likeness::default(),
            jitter,
        };
        let mut before = None;
        let is_lost = |packet: &Packet| packet.fate == Fate::Lost;
        let mut runs = packets.chunk_by(|one, other| is_lost(one) == is_lost(other)).peekable();
        while let Some(run) = runs.next() {
            let after = runs.peek().and_then(|next| next.first()).map(|packet| micros(packet.at));
            match outage(run, before, after) {
                Some(outage) => replay.outages.push(outage),
                None => run.iter().for_each(|packet| replay.add(packet)),
            }
            before = run.last().map(|packet| micros(packet.at));
        }
        replay.likeness = Likeness::of(&replay.times, &replay.lost);
        replay
    }

    fn add(&mut self, packet: &Packet) {
        let before = self.times.last().copied();
        let at = micros(packet.at);
        self.times.push(at);
        if let Fate::Late(by) = packet.fate {
            // It is timed by the next one. Its own place was halfway from the one before.
            let gap = before.map_or(0, |before| at.saturating_sub(before));
            self.latenesses.push(by + Duration::from_micros(gap.min(LONGEST_GAP) / 2));
        }
        for (counts, counted) in [
            (&mut self.lost, packet.fate == Fate::Lost),
            (&mut self.late, matches!(packet.fate, Fate::Late(_))),
        ] {
            counts.push(counts.last().copied().unwrap_or_default() + u32::from(counted));
        }
    }

    fn is_out(&self, at: u64) -> bool {
        let ended = self.outages.partition_point(|(_, to)| *to <= at);
        self.outages.get(ended).is_some_and(|(from, _)| *from < at)
    }

    /// The recorded packets before and after a time.
    fn sides(&self, at: u64) -> [Option<Recorded>; 2] {
        let after = self.times.partition_point(|time| *time < at);
        let recorded = |place: usize| {
            let time = *self.times.get(place)?;
            Some(Recorded { place, at: time, distance: time.abs_diff(at) })
        };
        [after.checked_sub(1).and_then(recorded), recorded(after)]
    }

    fn nearest(&self, at: u64) -> Option<Recorded> {
        self.sides(at).into_iter().flatten().min_by_key(|recorded| recorded.distance)
    }

    /// How much the fates of two recorded packets are alike, without looking at them.
    fn alike(&self, one: Recorded, other: Recorded) -> f64 {
        if one.place == other.place { 1.0 } else { self.likeness.over(one.at.abs_diff(other.at)) }
    }

    /// The weights by which the fates of the packets before and after a time estimate that of one
    /// in between, as well as a linear estimate can (simple kriging).
    fn weights(&self, at: u64) -> [Option<(Recorded, f64)>; 2] {
        let sides = self.sides(at);
        let alike = |side: Recorded| self.likeness.over(side.distance);
        let [Some(before), Some(after)] = sides else {
            return sides.map(|side| side.map(|side| (side, alike(side))));
        };
        let (one, other, both) = (alike(before), alike(after), self.alike(before, after));
        let rest = 1.0 - both * both;
        let [one, other] = if rest > 0.0 {
            [(one - both * other) / rest, (other - both * one) / rest]
        } else {
            // They tell the same.
            [one / 2.0, other / 2.0]
        };
        [(before, one), (after, other)].map(|(side, weight)| Some((side, weight.clamp(0.0, 1.0))))
    }

    /// The share of counted packets around a time whose nearest packet is this.
    fn share(&self, counts: &[u32], at: u64, nearest: Recorded) -> f64 {
        let mut from = self.times.partition_point(|time| *time + AROUND < at);
        let mut to = self.times.partition_point(|time| *time <= at + AROUND);
        if to.saturating_sub(from) < FEW {
            let last = self.times.len().saturating_sub(ENOUGH);
            from = nearest.place.saturating_sub(ENOUGH / 2).min(last);
            to = (from + ENOUGH).min(self.times.len());
        }
        f64::from(counted(counts, from, to)) / (to.saturating_sub(from)).max(1) as f64
    }

    fn is_lost(&self, place: usize) -> bool {
        counted(&self.lost, place, place + 1) > 0
    }
}

/// How many packets between two places were counted.
fn counted(counts: &[u32], from: usize, to: usize) -> u32 {
    let before = |place: usize| counts.get(place).copied().unwrap_or_default();
    before(to).saturating_sub(before(from))
}

/// When the outage that this run of packets is began and ended, between the arrivals before and
/// after it. A flow that hears nothing sends little, so an outage has few packets for its length,
/// and lasts longer than from the first to the last: by the longest time between them at most, as
/// the flow may have been idle before.
fn outage(run: &[Packet], before: Option<u64>, after: Option<u64>) -> Option<(u64, u64)> {
    let (first, last) = (run.first()?, run.last()?);
    if first.fate != Fate::Lost || run.len() < OUTAGE_PACKETS {
        return None;
    }
    let gap = |pair: &[Packet]| match pair {
        [one, other] => micros(other.at.saturating_sub(one.at)),
        _ => 0,
    };
    let longest = run.windows(2).map(gap).max().unwrap_or_default();
    let [first, last] = [first, last].map(|packet| micros(packet.at));
    let (from, to) = (first.saturating_sub(longest), last + longest);
    let (from, to) = (from.max(before.unwrap_or(0)), to.min(after.unwrap_or(to)));
    let lasted = u64::midpoint(last, to).saturating_sub(u64::midpoint(from, first));
    (lasted >= OUTAGE).then_some((from, to))
}

/// What the link's jitter adds to the delay of each direction, by time: half of what a round trip
/// took longer than others around it.
fn jitter(round_trips: &[RoundTrip]) -> Vec<(u64, Duration)> {
    let mut ahead = round_trips.iter();
    // Those of the window that may be its least yet, with ever longer round trips.
    let mut least: VecDeque<&RoundTrip> = VecDeque::new();
    let jitter = |round_trip: &RoundTrip| {
        let at = micros(round_trip.at);
        while let Some(next) = ahead.as_slice().first()
            && micros(next.at) <= at + QUEUE_LASTS
        {
            while least.back().is_some_and(|last| last.took >= next.took) {
                least.pop_back();
            }
            least.push_back(next);
            ahead.next();
        }
        while least.front().is_some_and(|first| micros(first.at) + QUEUE_LASTS < at) {
            least.pop_front();
        }
        let shortest = least.front().map_or(round_trip.took, |first| first.took);
        (at, round_trip.took.saturating_sub(shortest) / 2)
    };
    round_trips.iter().map(jitter).collect()
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The replay of one direction. It begins at a time that follows from the seed, as that of the
/// other direction does.
#[derive(Debug)]
pub(super) struct Player {
    random: ChaCha8Rng,
    /// Where it begins, as a share of the recording.
    begins: f64,
    /// The last packet whose fate was drawn.
    drawn: Option<Drawn>,
    /// The pass and place of the last packet that was a recorded one itself.
    itself: Option<(u64, usize)>,
}

/// A packet whose fate was drawn.
#[derive(Clone, Copy, Debug)]
struct Drawn {
    pass: u64,
    at: u64,
    /// The recorded packets before and after it, and their weights.
    sides: [Option<(Recorded, f64)>; 2],
    chance: f64,
    /// The packet is lost if this is below its chance.
    draw: f64,
}

impl Player {
    /// A replay that draws from the first of two streams. Both directions share the second.
    pub(super) fn new(seed: u64, [own, shared]: [u64; 2]) -> Self {
        let [random, mut begins] = [own, shared].map(|stream| {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            random.set_stream(stream);
            random
        });
        let begins = unit_interval(begins.next_u64());
        Self { random, begins, drawn: None, itself: None }
    }

    /// The number of the pass at a time since the start of the run, and the time within it.
    fn place(&self, replay: &Replay, at: Duration) -> (u64, u64) {
        let shift = Duration::from_micros(replay.length).mul_f64(self.begins);
        let since = micros(at + shift);
        let length = replay.length.max(1);
        (since / length, since % length)
    }

    /// Whether a packet that is on the air at this time is lost.
    pub(super) fn loses(&mut self, replay: &Replay, at: Duration) -> bool {
        let [fresh, share] = [(); 2].map(|()| unit_interval(self.random.next_u64()));
        let (pass, at) = self.place(replay, at);
        if replay.is_out(at) {
            return true;
        }
        let is_lossy = replay.lost.last().is_some_and(|lost| *lost > 0);
        let Some(nearest) = replay.nearest(at).filter(|_| is_lossy) else { return false };
        let itself = Some((pass, nearest.place));
        if nearest.distance <= ITSELF && self.itself != itself {
            self.itself = itself;
            return replay.is_lost(nearest.place);
        }
        let mean = replay.share(&replay.lost, at, nearest);
        let sides = replay.weights(at);
        let tells = |(side, weight): &(Recorded, f64)| {
            weight * (f64::from(u8::from(replay.is_lost(side.place))) - mean)
        };
        let chance = mean + sides.iter().flatten().map(tells).sum::<f64>();
        let mut now = Drawn { pass, at, sides, chance: chance.clamp(0.0, 1.0), draw: fresh };
        if let Some(last) = self.drawn.filter(|last| share < last.shares(&now, replay)) {
            now.draw = last.draw;
        }
        self.drawn = Some(now);
        now.draw < now.chance
    }

    /// By how much a packet that left at this time comes later than its place, if it does.
    pub(super) fn lateness(&mut self, replay: &Replay, at: Duration) -> Option<Duration> {
        let [draw, which] = [(); 2].map(|()| self.random.next_u64());
        let (_, at) = self.place(replay, at);
        let nearest = replay.nearest(at)?;
        let count = replay.latenesses.len() as u64;
        let place = if replay.late_unseen > 0.0 {
            let is_late = unit_interval(draw) < replay.late_unseen;
            is_late.then(|| which.checked_rem(count)).flatten()
        } else if nearest.distance <= LATE_TOGETHER {
            let is_late = counted(&replay.late, nearest.place, nearest.place + 1) > 0;
            replay.late.get(nearest.place).filter(|_| is_late).map(|place| u64::from(*place))
        } else {
            let is_late = unit_interval(draw) < replay.share(&replay.late, at, nearest);
            is_late.then(|| which.checked_rem(count)).flatten()
        };
        replay.latenesses.get(usize::try_from(place?).ok()?).copied()
    }

    /// What jitter adds to the delay at this time, between the values before and after it.
    pub(super) fn jitter(&self, replay: &Replay, at: Duration) -> Duration {
        let (_, at) = self.place(replay, at);
        let after = replay.jitter.partition_point(|(time, _)| *time <= at);
        let before = after.checked_sub(1).and_then(|place| replay.jitter.get(place));
        match (before, replay.jitter.get(after)) {
            (Some(&(from, one)), Some(&(to, other))) => {
                let share = (at - from) as f64 / (to - from).max(1) as f64;
                one.mul_f64(1.0 - share) + other.mul_f64(share)
            }
            (Some(&(_, only)), None) | (None, Some(&(_, only))) => only,
            (None, None) => Duration::ZERO,
        }
    }
}

impl Drawn {
    /// How often a later packet must share the draw of this one, so that their fates are as alike
    /// as the time between them wants. The recorded packets make them alike already.
    fn shares(&self, later: &Self, replay: &Replay) -> f64 {
        if self.pass != later.pass {
            return 0.0;
        }
        let alike = replay.likeness.over(self.at.abs_diff(later.at));
        let left = |one: &Self, other: &Self, alike: f64| alike - one.told(other, replay);
        let variances = left(self, self, 1.0).max(0.0) * left(later, later, 1.0).max(0.0);
        let [one, other] = [self.chance, later.chance];
        let spreads = (one * (1.0 - one) * other * (1.0 - other)).sqrt();
        // The covariance of two fates by one draw.
        let by_one_draw = one.min(other) - one * other;
        if variances <= 0.0 || by_one_draw <= 0.0 {
            return 1.0;
        }
        (left(self, later, alike) / variances.sqrt() * spreads / by_one_draw).clamp(0.0, 1.0)
    }

    /// The correlation of two packets' estimates, which may rest on the same recorded packets.
    fn told(&self, other: &Self, replay: &Replay) -> f64 {
        let pairs = self
            .sides
            .iter()
            .flatten()
            .flat_map(|one| other.sides.iter().flatten().map(move |other| (*one, *other)));
        pairs.map(|((one, a), (other, b))| a * b * replay.alike(one, other)).sum()
    }
}

#[cfg(test)]
mod tests;
