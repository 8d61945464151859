//! Gaps in the numbers of a flow's arriving packets, and copies for them, without I/O.
//!
//! RTP and WireGuard number their packets in the clear. If a number is missing, the agent requests
//! what the proxy forwarded between the packets before and after it, and hands the copies to the
//! host. Receivers of such flows put packets in order by themselves.
//!
//! Copies have no seal, and a proxy may be anyone. So a copy reaches the host only once, in place
//! of a number that is missing or of one of the few next ones, and only with a header and a length
//! that its stream has shown. The next ones are those that are missing at the end of a talk spurt
//! or of a picture, before a silence: the proxy reports that it has them.

use std::collections::VecDeque;
use std::mem;
use std::time::{Duration, Instant};

use sidekick_protocol::{Fate, Position, Sender};

use super::frame::{Passing, Template};
use super::kind::{Kind, Number};

/// Streams of a flow whose numbers are followed, such as the SSRCs of sound, of pictures, and of
/// retransmissions.
const STREAMS: usize = 8;
/// This many packets in order show that these bytes are numbers.
const ALIKE: u8 = 3;
/// A larger step is not a loss: the sender began another numbering.
const MOST_MISSING: i64 = 512 - AHEAD.cast_signed();
/// A copy may have a number that is higher by this than the highest that arrived.
const AHEAD: u64 = 8;
/// The most headers of a stream that the agent remembers: those of the codecs between which a call
/// changes.
const FORMS: usize = 4;

/// A receiver of sound or pictures hardly waits longer for a packet.
const USEFUL: Duration = Duration::from_millis(80);
/// The most gaps that are remembered until their packets arrive.
const GAPS: usize = 64;

/// Which numbers of a stream the host lacks. The lowest bit stands for the number that is [`AHEAD`]
/// of the highest that arrived, and each further bit for the one before.
#[derive(Clone, Copy, Debug)]
struct Lacking([u64; 8]);

impl Lacking {
    /// The host lacks only what follows the highest number. It does not need earlier ones.
    fn next_ones() -> Self {
        let mut lacking = Self([0; 8]);
        lacking.0[0] = (1 << AHEAD) - 1;
        lacking
    }

    /// Notes an arrival that is higher by `step` than the highest before, at most [`MOST_MISSING`].
    /// Returns how many numbers between the two the host lacks.
    fn advance(&mut self, step: u64) -> u64 {
        for _ in 0..step {
            let mut carry = 1;
            for word in &mut self.0 {
                let highest = *word >> 63;
                *word = *word << 1 | mem::replace(&mut carry, highest);
            }
        }
        self.take(0);
        (1..step).map(|age| u64::from(self.has(age.cast_signed()))).sum()
    }

    /// The place of the number that is lower than the highest by `age`: the index and the bit.
    fn place(age: i64) -> Option<(usize, u64)> {
        let place =
            age.checked_add_unsigned(AHEAD).and_then(|place| usize::try_from(place).ok())?;
        Some((place / 64, 1 << (place % 64)))
    }

    fn has(&self, age: i64) -> bool {
        let place = Self::place(age).and_then(|(word, bit)| Some(self.0.get(word)? & bit));
        place.is_some_and(|bit| bit != 0)
    }

    /// Whether the host lacks the number that is lower than the highest by `age`. From now on it
    /// does not.
    fn take(&mut self, age: i64) -> bool {
        let lacks = self.has(age);
        if let Some((index, bit)) = Self::place(age)
            && let Some(word) = self.0.get_mut(index)
        {
            *word &= !bit;
        }
        lacks
    }
}

/// What the packets of a stream look like.
#[derive(Clone, Copy, Debug)]
struct Forms {
    /// The latest headers, without what changes from packet to packet. The last one comes first.
    headers: [Option<u16>; FORMS],
    shortest: usize,
    longest: usize,
}

impl Forms {
    fn of(kind: Kind, payload: &[u8]) -> Self {
        let mut forms =
            Self { headers: [None; FORMS], shortest: payload.len(), longest: payload.len() };
        forms.note(kind, payload);
        forms
    }

    fn note(&mut self, kind: Kind, payload: &[u8]) {
        self.shortest = self.shortest.min(payload.len());
        self.longest = self.longest.max(payload.len());
        let header = kind.header(payload);
        let at = self.headers.iter().position(|known| *known == header).unwrap_or(FORMS - 1);
        if let Some(used) = self.headers.get_mut(..=at) {
            used.rotate_right(1);
        }
        self.headers[0] = header;
    }

    fn include(&self, kind: Kind, payload: &[u8]) -> bool {
        (self.shortest..=self.longest).contains(&payload.len())
            && self.headers.contains(&kind.header(payload))
    }
}

/// Packets that share one sequence of numbers.
#[derive(Clone, Copy, Debug)]
struct Stream {
    /// The value that they share.
    id: u32,
    highest: i64,
    /// Packets in order so far, at most [`ALIKE`].
    alike: u8,
    /// The identifier of the packet with the highest number.
    latest: u32,
    lacking: Lacking,
    forms: Forms,
}

/// Numbers that were missing when a higher one arrived.
#[derive(Clone, Copy, Debug)]
struct Gap {
    /// The sender's number for it.
    number: u64,
    stream: u32,
    /// The highest number before it, and how many follow up to the one that showed the gap.
    before: i64,
    numbers: i64,
    /// How many the host still lacks.
    missing: u64,
    /// Of how many the host has a copy, and the packet itself did not arrive.
    copied: u64,
}

impl Gap {
    /// Notes that the host does not lack one of the numbers any more.
    fn fill(&mut self, sender: &mut Sender) {
        self.missing = self.missing.saturating_sub(1);
        if self.missing == 0 {
            sender.close_gap(self.number);
        }
    }
}

/// Where a packet belongs in its stream.
#[derive(Clone, Copy, Debug)]
enum Arrival {
    /// Behind a gap. `after` is the identifier of the newest packet before it.
    Behind { gap: Gap, after: u32 },
    /// Before the highest number of its stream. `lacked`: the host lacked it.
    Late { number: Number, lacked: bool },
}

/// The arriving packets of a flow.
#[derive(Debug)]
pub(super) struct Reception {
    kind: Kind,
    /// By what proxies name a datagram.
    position: Position,
    template: Template,
    /// The one that was used last comes first.
    streams: Vec<Stream>,
    /// The sender's number of the next gap.
    next_gap: u64,
    /// The latest gap is last.
    gaps: VecDeque<Gap>,
    /// Numbers that were missing when a higher one arrived.
    pub(super) missed: u64,
    /// Copies that the caller handed to the host.
    pub(super) delivered: u64,
}

impl Reception {
    /// A flow of which this datagram arrived. `None` if its packets have headers that the agent
    /// does not write.
    pub(super) fn begin(kind: Kind, position: Position, arriving: &Passing<'_>) -> Option<Self> {
        Some(Self {
            kind,
            position,
            template: Template::of(arriving)?,
            streams: Vec::with_capacity(STREAMS),
            next_gap: 0,
            gaps: VecDeque::new(),
            missed: 0,
            delivered: 0,
        })
    }

    /// The headers for copies that the agent hands to the host.
    pub(super) fn template(&self) -> &Template {
        &self.template
    }

    /// Notes the headers of a datagram that arrived.
    pub(super) fn note_headers(&mut self, arriving: &Passing<'_>) {
        self.template.update(arriving);
    }

    /// Notes a datagram that arrived, and requests the missing ones before it. Returns how many
    /// numbers are missing, and how many of them are left to the endpoints as congestion.
    pub(super) fn on_arriving(
        &mut self,
        payload: &[u8],
        sender: &mut Sender,
        now: Instant,
    ) -> (u64, u64) {
        let Some(identifier) = self.position.of_copy(payload) else { return (0, 0) };
        let (mut missing, mut left) = (0, 0);
        match self.place(payload, identifier) {
            Some(Arrival::Behind { gap, after }) => {
                missing = gap.missing;
                let congestion = sender.on_missing(gap.number, missing, now);
                left = if congestion { missing } else { 0 };
                let (id, until) = (gap.number, now + USEFUL);
                if congestion || !sender.request_copies(id, Some(after), identifier, until, now) {
                    sender.on_fate(gap.number, Fate::Unknown);
                }
                if self.gaps.len() >= GAPS {
                    self.gaps.pop_front();
                }
                self.gaps.push_back(gap);
            }
            Some(Arrival::Late { number, lacked }) => {
                if let Some(gap) = self.on_late(number, lacked, sender) {
                    sender.on_late(gap, now);
                }
            }
            None => {}
        }
        sender.on_received(payload.len(), now);
        self.missed += missing;
        // Also one without a number, such as a packet of RTCP: it is the newest that passed the
        // proxy.
        sender.on_progress(identifier, now);
        (missing, left)
    }

    fn gap_of(&mut self, number: Number) -> Option<&mut Gap> {
        self.gaps.iter_mut().rfind(|gap| {
            let contains = (1..=gap.numbers).contains(&number.step_from(gap.before));
            gap.stream == number.stream && contains
        })
    }

    /// Notes a packet that arrived in a gap by itself. Returns the gap's number, unless it is a
    /// duplicate.
    fn on_late(&mut self, number: Number, lacked: bool, sender: &mut Sender) -> Option<u64> {
        let gap = self.gap_of(number)?;
        if lacked {
            gap.fill(sender);
        } else {
            gap.copied = gap.copied.checked_sub(1)?;
        }
        Some(gap.number)
    }

    /// Notes a proxy's copy. Returns whether the host lacks it.
    pub(super) fn on_copy(&mut self, copy: &[u8], sender: &mut Sender, now: Instant) -> bool {
        let (Some(number), Some(identifier)) =
            (self.kind.number(copy), self.position.of_copy(copy))
        else {
            return false;
        };
        let stream = self.streams.iter_mut().find(|stream| stream.id == number.stream);
        let Some(stream) =
            stream.filter(|it| it.alike >= ALIKE && it.forms.include(self.kind, copy))
        else {
            return false;
        };
        let step = number.step_from(stream.highest);
        if (1..=MOST_MISSING).contains(&step) && sender.first_link_is_silent() {
            // No packet arrives by itself, so copies stand for them.
            let is_next = step.unsigned_abs() <= AHEAD;
            if is_next && !stream.lacking.has(-step) {
                return false;
            }
            stream.highest = stream.highest.wrapping_add(step);
            stream.lacking.advance(step.unsigned_abs());
            stream.latest = identifier;
            sender.on_progress(identifier, now);
            return true;
        }
        if !stream.lacking.take(step.saturating_neg()) {
            return false;
        }
        if step > 0 {
            // The sender requests by itself the datagrams that are missing between copies.
            sender.on_progress(identifier, now);
            if (1..step).all(|before| !stream.lacking.has(-before)) {
                stream.latest = identifier;
            }
        }
        if let Some(gap) = self.gap_of(number) {
            gap.fill(sender);
            gap.copied += 1;
        }
        true
    }

    /// Notes the number of a datagram that arrived. Returns its place in a stream whose order is
    /// known, unless it is the next one.
    fn place(&mut self, payload: &[u8], latest: u32) -> Option<Arrival> {
        let number = self.kind.number(payload)?;
        let new = Stream {
            id: number.stream,
            highest: number.value.cast_signed(),
            alike: 1,
            latest,
            lacking: Lacking::next_ones(),
            forms: Forms::of(self.kind, payload),
        };
        let place = self.streams.iter().position(|stream| stream.id == number.stream);
        let Some(stream) = place.and_then(|place| {
            let used = self.streams.get_mut(..=place)?;
            used.rotate_right(1);
            used.first_mut()
        }) else {
            self.streams.truncate(STREAMS - 1);
            self.streams.insert(0, new);
            return None;
        };
        let step = number.step_from(stream.highest);
        if !(-MOST_MISSING..=MOST_MISSING).contains(&step) {
            *stream = new;
            return None;
        }
        stream.forms.note(self.kind, payload);
        if step <= 0 {
            let lacked = stream.lacking.take(step.saturating_neg());
            return Some(Arrival::Late { number, lacked });
        }
        let after = mem::replace(&mut stream.latest, latest);
        let before = stream.highest;
        // The counters of WireGuard may pass the greatest signed number.
        stream.highest = stream.highest.wrapping_add(step);
        if stream.alike < ALIKE {
            stream.alike += 1;
            return None;
        }
        let missing = stream.lacking.advance(step.unsigned_abs());
        if missing == 0 {
            return None;
        }
        self.next_gap += 1;
        let (stream, numbers) = (number.stream, step - 1);
        let (number, copied) = (self.next_gap, 0);
        let gap = Gap { number, stream, before, numbers, missing, copied };
        Some(Arrival::Behind { gap, after })
    }
}
