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

use std::mem;
use std::time::Instant;

use sidekick_protocol::{Position, Sender};

use super::frame::{Passing, Template};
use super::kind::Kind;

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
    /// numbers are missing.
    pub(super) fn on_arriving(&mut self, payload: &[u8], sender: &mut Sender, now: Instant) -> u64 {
        let Some(identifier) = self.position.of_copy(payload) else { return 0 };
        let missing = self.place(payload, identifier).map_or(0, |(after, missing)| {
            if missing > 0 {
                self.next_gap += 1;
                sender.request_copies(self.next_gap, Some(after), identifier, now);
            }
            missing
        });
        self.missed += missing;
        // Also one without a number, such as a packet of RTCP: it is the newest that passed the
        // proxy.
        sender.on_progress(identifier, now);
        missing
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
        true
    }

    /// Notes the number of a datagram that arrived. If it is the newest of a stream whose order is
    /// known: the identifier of the newest before it, and how many are missing between the two.
    fn place(&mut self, payload: &[u8], latest: u32) -> Option<(u32, u64)> {
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
            stream.lacking.take(step.saturating_neg());
            return None;
        }
        let before = mem::replace(&mut stream.latest, latest);
        // The counters of WireGuard may pass the greatest signed number.
        stream.highest = stream.highest.wrapping_add(step);
        if stream.alike < ALIKE {
            stream.alike += 1;
            return None;
        }
        Some((before, stream.lacking.advance(step.unsigned_abs())))
    }
}
