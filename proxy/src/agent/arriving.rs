//! Gaps in the numbers of a flow's arriving packets, and copies for them, without I/O.
//!
//! RTP and WireGuard number their packets in the clear. If a number is missing, the agent requests
//! what the proxy forwarded between the packets before and after it, and hands the copies to the
//! host. Receivers of such flows put packets in order by themselves.

use std::mem;
use std::time::Instant;

use sidekick_protocol::Sender;

use super::frame::{Passing, Template};
use super::kind::Kind;

/// Streams of a flow whose numbers are followed, such as the SSRCs of sound, of pictures, and of
/// retransmissions.
const STREAMS: usize = 8;
/// This many packets in order show that these bytes are numbers.
const ALIKE: u8 = 3;
/// A larger step is not a loss: the sender began another numbering.
const MOST_MISSING: i64 = 512;
/// The number of remembered identifiers: those of half a second of video, or of many seconds of
/// sound.
const RECENT: usize = 1024;

/// The identifiers of the latest datagrams that arrived, original or copy.
#[derive(Debug)]
struct Recent(Box<[u32; RECENT]>);

impl Recent {
    /// Notes an identifier. Returns false if it is one of the latest. Of two identifiers with one
    /// place, the later displaces the earlier. A copy may then arrive twice.
    fn note(&mut self, identifier: u32) -> bool {
        let index = usize::try_from(identifier).unwrap_or(0) % RECENT;
        let place = self.0.get_mut(index);
        place.is_some_and(|place| mem::replace(place, identifier) != identifier)
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
}

/// The place of a datagram in its stream, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// It has no number, or one of a stream whose order is unknown.
    Unknown,
    /// It is not the newest of its stream.
    Late,
    /// It is the newest of its stream.
    Newest,
    /// It is the newest. The second value counts the missing numbers between it and the datagram
    /// with the identifier in the first.
    Behind(u32, u64),
}

/// The arriving packets of a flow.
#[derive(Debug)]
pub(super) struct Reception {
    kind: Kind,
    template: Template,
    /// The one that was used last comes first.
    streams: Vec<Stream>,
    recent: Recent,
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
    pub(super) fn begin(kind: Kind, arriving: &Passing<'_>) -> Option<Self> {
        Some(Self {
            kind,
            template: Template::of(arriving)?,
            streams: Vec::with_capacity(STREAMS),
            recent: Recent(Box::new([0; RECENT])),
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
        let Some(identifier) = identifier(payload) else { return 0 };
        self.recent.note(identifier);
        let (after, missing) = match self.place(payload, identifier) {
            Place::Unknown | Place::Late => return 0,
            Place::Newest => (None, 0),
            Place::Behind(after, missing) => (Some(after), missing),
        };
        if let Some(after) = after {
            self.next_gap += 1;
            sender.request_copies(self.next_gap, Some(after), identifier, now);
        }
        self.missed += missing;
        sender.on_progress(identifier, now);
        missing
    }

    /// Notes a proxy's copy. Returns whether the host lacks it. Copies have no seal, so the agent
    /// rejects a copy whose number is far from those that arrived.
    pub(super) fn on_copy(&mut self, copy: &[u8], sender: &mut Sender, now: Instant) -> bool {
        let Some(identifier) = identifier(copy).filter(|_| self.expects(copy)) else {
            return false;
        };
        if !self.recent.note(identifier) {
            return false;
        }
        // The sender requests by itself the datagrams that are missing between copies.
        if self.place(copy, identifier) != Place::Late {
            sender.on_progress(identifier, now);
        }
        true
    }

    /// Whether a datagram continues a stream whose order is known.
    fn expects(&self, payload: &[u8]) -> bool {
        let number = self.kind.number(payload);
        number.is_some_and(|number| {
            let stream = self.streams.iter().find(|stream| stream.id == number.stream);
            stream.is_some_and(|stream| {
                let near = -MOST_MISSING..=MOST_MISSING;
                stream.alike >= ALIKE && near.contains(&number.step_from(stream.highest))
            })
        })
    }

    /// Where a datagram stands in its stream.
    fn place(&mut self, payload: &[u8], latest: u32) -> Place {
        let Some(number) = self.kind.number(payload) else { return Place::Unknown };
        let place = self.streams.iter().position(|stream| stream.id == number.stream);
        let Some(stream) = place.and_then(|place| {
            let used = self.streams.get_mut(..=place)?;
            used.rotate_right(1);
            used.first_mut()
        }) else {
            self.streams.truncate(STREAMS - 1);
            let highest = number.value.cast_signed();
            self.streams.insert(0, Stream { id: number.stream, highest, alike: 1, latest });
            return Place::Unknown;
        };
        let step = number.step_from(stream.highest);
        if !(-MOST_MISSING..=MOST_MISSING).contains(&step) {
            *stream = Stream { highest: number.value.cast_signed(), alike: 1, latest, ..*stream };
            return Place::Unknown;
        }
        if step <= 0 {
            return Place::Late;
        }
        let before = mem::replace(&mut stream.latest, latest);
        // The counters of WireGuard may pass the greatest signed number.
        stream.highest = stream.highest.wrapping_add(step);
        if stream.alike < ALIKE {
            stream.alike += 1;
            return Place::Newest;
        }
        match step.unsigned_abs() - 1 {
            0 => Place::Newest,
            missing => Place::Behind(before, missing),
        }
    }
}

/// The last four bytes, by which proxies name a datagram.
fn identifier(payload: &[u8]) -> Option<u32> {
    payload.last_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}
