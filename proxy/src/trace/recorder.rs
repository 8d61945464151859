//! Records what the near segment does to the packets of a flow, without I/O.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::{Direction, Fate, MAX_LINES, Packet, RoundTrip, Trace};

/// Packets whose fate is not known yet, in each direction. Of the others it never will be.
const MOST_UNKNOWN: usize = 1 << 14;
/// The fate of a packet that left is known after this time, unless more were lost at once than
/// sums identify, or nothing came back.
const REPORTED: Duration = Duration::from_secs(5);
/// Nothing came for so long, although so many packets left: an outage.
const SILENCE: Duration = Duration::from_millis(100);
const LEFT_IN_SILENCE: u32 = 3;
/// Packets that arrive this far apart or farther are not counted in an outage.
const MOST_SPACING: Duration = Duration::from_millis(50);
/// The most outages that are remembered until the fate of the packets around them is known.
const MOST_SILENCES: usize = 64;
/// A packet that has not arrived so long after its list is lost.
const PATIENCE: Duration = Duration::from_secs(1);
/// No list names what arrived so long ago.
const UNLISTED: Duration = Duration::from_secs(2);
/// If a list is farther from the one before, the proxy has begun to count again.
const MOST_SKIPPED: u32 = 1 << 14;

/// A trace that is being recorded.
#[derive(Debug)]
pub(crate) struct Recorder {
    begun: Instant,
    pub(super) up: Vec<Packet>,
    down: Vec<Packet>,
    round_trips: Vec<RoundTrip>,
    /// Packets that left and whose fate no report showed.
    unknown: u64,
}

impl Recorder {
    pub(crate) fn begin(now: Instant) -> Self {
        Self { begun: now, up: Vec::new(), down: Vec::new(), round_trips: Vec::new(), unknown: 0 }
    }

    /// Whether it takes no more.
    pub(crate) fn is_full(&self) -> bool {
        self.up.len() + self.down.len() + self.round_trips.len() >= MAX_LINES
    }

    fn push(&mut self, direction: Direction, packet: Packet) {
        if !self.is_full() {
            match direction {
                Direction::Up => self.up.push(packet),
                Direction::Down => self.down.push(packet),
            }
        }
    }

    /// Packets that left and whose fate no report showed: mostly where more were lost at once than
    /// sums identify.
    pub(crate) fn unknown(&self) -> u64 {
        self.unknown
    }

    /// The trace until now.
    pub(crate) fn end(self, now: Instant) -> Trace {
        let length = now.saturating_duration_since(self.begun);
        Trace::new(self.up, self.down, self.round_trips, length)
    }

    fn since(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.begun)
    }
}

/// A packet that left.
#[derive(Clone, Copy, Debug)]
struct Left {
    at: Duration,
    bytes: u16,
}

/// A packet that arrived.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    identifier: u32,
    at: Duration,
    bytes: u16,
}

/// A packet that passed the proxy towards this host, or some that were lost with their lists.
#[derive(Clone, Copy, Debug)]
struct Listed {
    identifier: Option<u32>,
    since: Duration,
    arrival: Option<Left>,
    /// How many were lost if it did not arrive.
    count: u32,
}

/// A time in which packets left and nothing came.
#[derive(Clone, Copy, Debug)]
struct Silence {
    begin: Duration,
    end: Duration,
    /// What left so long before its begin arrived.
    half: Duration,
    /// It is recorded of what arrives.
    is_bridged: bool,
}

/// What is known of a flow's packets.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// What left, and the name of the first.
    left: VecDeque<Option<Left>>,
    first: u64,
    /// What arrived and no list names yet.
    unlisted: VecDeque<Arrival>,
    /// The position after those that lists named.
    next: Option<u32>,
    /// In the order in which they passed the proxy, and how many are recorded.
    listed: VecDeque<Listed>,
    recorded: usize,
    /// The places of those that have not arrived, counted from the first ever.
    lacking: HashMap<u32, usize>,
    /// The latest of these whose fate is recorded and that arrived.
    before: Option<Left>,
    round_trip: Option<Duration>,
    /// When anything last came from the proxy, when a packet first left after that, and how many
    /// have.
    heard: Option<Duration>,
    left_from: Duration,
    left_since: u32,
    silences: VecDeque<Silence>,
    /// How far apart packets arrive, smoothed.
    spacing: Duration,
    arrived: Option<Duration>,
}

impl Watch {
    /// A packet left by this name, which is one more than that before.
    pub(crate) fn on_left(&mut self, name: u64, bytes: usize, to: &mut Recorder, now: Instant) {
        let at = to.since(now);
        if self.left.is_empty() {
            self.first = name;
        }
        if self.left_since == 0 {
            self.left_from = at;
        }
        self.left_since = self.left_since.saturating_add(1);
        self.left.push_back(Some(Left { at, bytes: length(bytes) }));
        if self.left.len() > MOST_UNKNOWN {
            to.unknown += u64::from(self.left.pop_front().flatten().is_some());
            self.first += 1;
        }
    }

    /// The proxy reported what became of a packet that left.
    pub(crate) fn on_fate(&mut self, name: u64, is_lost: bool, to: &mut Recorder) {
        let place = name.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        let left = place.and_then(|place| self.left.get_mut(place)).and_then(Option::take);
        let fate = if is_lost { Fate::Lost } else { Fate::Arrived };
        if let Some(Left { at, bytes }) = left {
            to.push(Direction::Up, Packet { at, bytes, fate });
        }
    }

    /// Anything came from the proxy, to which a round trip takes `near`.
    pub(crate) fn on_heard(&mut self, near: Duration, to: &mut Recorder, now: Instant) {
        let now = to.since(now);
        let left = std::mem::take(&mut self.left_since);
        let Some(before) = self.heard.replace(now) else { return };
        // An idle flow hears nothing, either.
        let begin = before.max(self.left_from);
        if now.saturating_sub(begin) < SILENCE || left < LEFT_IN_SILENCE {
            return;
        }
        let silence = Silence { begin, end: now, half: near / 2, is_bridged: false };
        self.silences.push_back(silence);
        if self.silences.len() > MOST_SILENCES {
            self.silences.pop_front();
        }
    }

    /// Records what left in outages, whose fate no report can show. Without a time, that is all
    /// whose fate is not known yet. `is_reported` says that a proxy reports the flow now: else
    /// silence says nothing.
    pub(crate) fn settle_left(
        &mut self,
        is_reported: bool,
        to: &mut Recorder,
        now: Option<Instant>,
    ) {
        let old = now.map(|now| to.since(now));
        while let Some(left) = self.left.front()
            && left.is_none_or(|left| old.is_none_or(|now| left.at + REPORTED <= now))
        {
            self.first += 1;
            let Some(Some(Left { at, bytes })) = self.left.pop_front() else { continue };
            let is_in = |it: &Silence| (it.begin..it.end).contains(&(at + it.half));
            if is_reported && self.silences.iter().any(is_in) {
                to.push(Direction::Up, Packet { at, bytes, fate: Fate::Lost });
            } else {
                to.unknown += 1;
            }
        }
    }

    /// A round trip to the proxy took so long, if it is another one than the latest.
    pub(crate) fn on_round_trip(&mut self, took: Duration, to: &mut Recorder, now: Instant) {
        if self.round_trip.replace(took) != Some(took) && !to.is_full() {
            to.round_trips.push(RoundTrip { at: to.since(now), took });
        }
    }

    /// A packet arrived.
    pub(crate) fn on_arrival(
        &mut self,
        identifier: u32,
        bytes: usize,
        to: &Recorder,
        now: Instant,
    ) {
        let (at, bytes) = (to.since(now), length(bytes));
        if let Some(before) = self.arrived.replace(at) {
            let spacing = at.saturating_sub(before);
            let is_first = self.spacing.is_zero();
            if spacing < MOST_SPACING {
                self.spacing = if is_first { spacing } else { (15 * self.spacing + spacing) / 16 };
            }
        }
        let place = self.lacking.remove(&identifier);
        let place = place.and_then(|place| place.checked_sub(self.recorded));
        if let Some(listed) = place.and_then(|place| self.listed.get_mut(place)) {
            listed.arrival = Some(Left { at, bytes });
            return;
        }
        self.unlisted.push_back(Arrival { identifier, at, bytes });
        if self.unlisted.len() > MOST_UNKNOWN {
            self.unlisted.pop_front();
        }
    }

    /// A list names packets that passed the proxy, in order from this position on.
    pub(crate) fn on_list(&mut self, first: u32, list: &[u32], to: &mut Recorder, now: Instant) {
        let since = to.since(now);
        if self.next.is_none() {
            self.bridge(to);
        }
        let next = self.next.unwrap_or(first);
        let (known, skipped) = (next.wrapping_sub(first), first.wrapping_sub(next));
        let new = if known <= MOST_SKIPPED { list.get(known as usize..) } else { Some(list) };
        let Some(new) = new.filter(|new| !new.is_empty()) else { return };
        if (1..=MOST_SKIPPED).contains(&skipped) {
            self.skip(skipped, new, since);
        }
        let len = u32::try_from(list.len()).unwrap_or(u32::MAX);
        self.next = Some(first.wrapping_add(len));
        while self.unlisted.front().is_some_and(|it| it.at + UNLISTED <= since) {
            self.unlisted.pop_front();
        }
        for identifier in new {
            let place = self.unlisted.iter().position(|it| it.identifier == *identifier);
            let arrival = place.and_then(|place| self.unlisted.remove(place));
            let arrival = arrival.map(|Arrival { at, bytes, .. }| Left { at, bytes });
            let identifier = Some(*identifier);
            self.push(Listed { identifier, since, arrival, count: 1 });
        }
        self.settle(to, Some(now));
        if self.listed.len() > MOST_UNKNOWN {
            self.end_lists(to);
        }
    }

    fn push(&mut self, listed: Listed) {
        if let Some(identifier) = listed.identifier.filter(|_| listed.arrival.is_none()) {
            self.lacking.insert(identifier, self.recorded + self.listed.len());
        }
        self.listed.push_back(listed);
    }

    /// Records what an outage lost that ended the lists, as if packets had come as before.
    fn bridge(&mut self, to: &mut Recorder) {
        let Some(Left { at, bytes }) = self.before else { return };
        let Some(silence) = self.silences.back_mut() else { return };
        let Silence { begin, end, is_bridged, .. } = *silence;
        if is_bridged || begin < at.saturating_sub(SILENCE) || self.spacing.is_zero() {
            return;
        }
        silence.is_bridged = true;
        let lost = (1..MOST_SKIPPED).map(|place| begin + self.spacing * place);
        for at in lost.take_while(|at| *at < end) {
            to.push(Direction::Down, Packet { at, bytes, fate: Fate::Lost });
        }
    }

    /// The lists that named so many packets were lost. Some of these arrived; the others were lost
    /// in the longest time without any.
    fn skip(&mut self, count: u32, list: &[u32], since: Duration) {
        let before = self.listed.iter().rev().find_map(|it| it.arrival).or(self.before);
        // No list will name those before.
        self.unlisted.retain(|it| before.is_none_or(|before| before.at <= it.at));
        let place = self.unlisted.iter().position(|it| list.contains(&it.identifier));
        let end = place.and_then(|place| self.unlisted.get(place)).map(|it| it.at);
        let arrived: Vec<_> = self.unlisted.drain(..place.unwrap_or(0)).collect();
        let came = u32::try_from(arrived.len()).unwrap_or(u32::MAX);
        let lost = count.saturating_sub(came);
        let mut times: Vec<_> = before.iter().map(|it| it.at).collect();
        let offset = 1 - times.len();
        times.extend(arrived.iter().map(|it| it.at));
        times.extend(end);
        let gaps = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
        let longest = gaps.enumerate().max_by_key(|(_, gap)| *gap).map_or(0, |(at, _)| at + offset);
        for (at, arrival) in arrived.iter().map(Some).chain([None]).enumerate() {
            if at == longest && lost > 0 {
                self.push(Listed { identifier: None, since, arrival: None, count: lost });
            }
            if let Some(Arrival { identifier, at, bytes }) = arrival.copied() {
                let (identifier, arrival) = (Some(identifier), Some(Left { at, bytes }));
                self.push(Listed { identifier, since, arrival, count: 1 });
            }
        }
    }

    /// Records the fate of what is listed for some time; of all that is, without a time.
    pub(crate) fn settle(&mut self, to: &mut Recorder, now: Option<Instant>) {
        let now = now.map(|now| to.since(now));
        loop {
            let places = self.listed.iter().take_while(|it| it.arrival.is_none()).count();
            let Some(first) = self.listed.get(places) else { break };
            let (Some(after), since) = (first.arrival, first.since) else { break };
            // What arrived is recorded once it is known whether the next one came before it.
            let next = self.listed.iter().skip(places + 1).find_map(|it| it.arrival);
            if now.is_some_and(|now| now < since + PATIENCE || next.is_none()) {
                break;
            }
            let mut lost = 0_u32;
            for gone in self.listed.drain(..=places) {
                if gone.arrival.is_none() {
                    lost = lost.saturating_add(gone.count);
                    gone.identifier.into_iter().for_each(|it| _ = self.lacking.remove(&it));
                }
            }
            self.recorded += places + 1;
            let late = next.and_then(|next| after.at.checked_sub(next.at));
            let late = late.filter(|late| !late.is_zero());
            let (at, fate) =
                late.map_or((after.at, Fate::Arrived), |late| (after.at - late, Fate::Late(late)));
            let begin = self.before.map_or(at, |before| before.at);
            let even = at.saturating_sub(begin) / lost.saturating_add(1);
            // A sender that hears of losses pauses after them. An outage lasts until it ends.
            let is_out = self.silences.iter().any(|it| it.begin < at && begin < it.end);
            let is_even = is_out || self.spacing.is_zero();
            let step = if is_even { even } else { even.min(self.spacing) };
            let bytes = after.bytes;
            for place in 1..=lost {
                let at = begin + step * place;
                to.push(Direction::Down, Packet { at, bytes, fate: Fate::Lost });
            }
            to.push(Direction::Down, Packet { at, bytes, fate });
            self.before = Some(Left { at, bytes });
        }
    }

    /// Records what lists showed, and forgets the rest: they end, or another session begins them.
    pub(crate) fn end_lists(&mut self, to: &mut Recorder) {
        self.settle(to, None);
        self.next = None;
        self.recorded += self.listed.len();
        self.listed.clear();
        self.lacking.clear();
        self.unlisted.clear();
    }
}

fn length(bytes: usize) -> u16 {
    u16::try_from(bytes).unwrap_or(u16::MAX)
}
