//! From frames to datagrams.

use std::mem;
use std::net::SocketAddr;
use std::slice::Chunks;

use sidekick_protocol::{Flow, Payload, Seen};
use tracing::warn;

use super::Counters;
use super::settings::Direction;
use super::source::{BATCH, Frames};
use crate::offload::{self, Merging};
use crate::packet::{self, Datagram, Link, Skip};

/// A result of a capture, in the order of arrival.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Captured<'a> {
    /// Datagrams, none missing between them.
    Datagrams(&'a [Seen<'a>]),
    /// Here datagrams are missing: the kernel had no room for them, or could not describe them.
    Missed,
}

/// Datagrams that are observed together, at most [`BATCH`].
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    seen: [Seen<'a>; BATCH],
    len: usize,
}

impl Default for Batch<'_> {
    #[inline]
    fn default() -> Self {
        let unspecified = SocketAddr::from(([0; 4], 0));
        let flow = Flow { source: unspecified, destination: unspecified };
        Self { seen: [Seen { flow, payload: Payload::whole(&[]) }; BATCH], len: 0 }
    }
}

impl<'a> Batch<'a> {
    /// Adds a datagram. Returns false, and does nothing, if there is no room.
    #[inline]
    pub(crate) fn push(&mut self, seen: Seen<'a>) -> bool {
        let place = self.seen.get_mut(self.len);
        self.len += usize::from(place.is_some());
        place.map(|place| *place = seen).is_some()
    }

    #[inline]
    #[must_use]
    pub(crate) fn seen(&self) -> &[Seen<'a>] {
        self.seen.get(..self.len).unwrap_or_default()
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.len == BATCH
    }
}

/// The rest of a merged frame.
#[derive(Debug)]
struct Segments<'a> {
    flow: Flow,
    payloads: Chunks<'a, u8>,
}

/// The datagrams of frames that a capture has read.
#[derive(Debug)]
pub(crate) struct Datagrams<'a, 'f> {
    name: &'a str,
    link: Link,
    direction: Direction,
    counters: &'a mut Counters,
    frames: &'f Frames<'a>,
    /// Frames that the read took from the source.
    read: usize,
    /// Datagrams are missing before the next ones.
    missed: bool,
    /// The index of the next frame.
    next: usize,
    segments: Option<Segments<'a>>,
}

impl<'a, 'f> Datagrams<'a, 'f> {
    /// The datagrams of `frames`, which a capture on `name` has read. `read` are the frames that it
    /// took from its source, and `missed` says whether datagrams are missing before these.
    pub(super) fn new(
        (name, link, direction): (&'a str, Link, Direction),
        counters: &'a mut Counters,
        frames: &'f Frames<'a>,
        read: usize,
        missed: bool,
    ) -> Self {
        Self { name, link, direction, counters, frames, read, missed, next: 0, segments: None }
    }

    /// How many frames the read took from the source, including those that it discarded.
    #[must_use]
    pub(crate) fn frames_read(&self) -> usize {
        self.read
    }

    /// The next datagrams, which it puts into `batch`; `None` at the end. The datagrams of merged
    /// frames are separate, as on the wire.
    pub(crate) fn next<'b>(&mut self, batch: &'b mut Batch<'a>) -> Option<Captured<'b>> {
        if mem::take(&mut self.missed) {
            return Some(Captured::Missed);
        }
        batch.len = 0;
        self.fill(batch);
        self.counters.datagrams += batch.len as u64;
        if batch.len > 0 {
            return Some(Captured::Datagrams(batch.seen()));
        }
        mem::take(&mut self.missed).then_some(Captured::Missed)
    }

    /// Parses frames until the batch is full, datagrams are missing or there are no more frames.
    fn fill(&mut self, batch: &mut Batch<'a>) {
        self.push_segments(batch);
        while !batch.is_full()
            && let Some(frame) = self.frames.get(self.next)
        {
            self.next += 1;
            let datagram = match packet::parse(self.link, frame.bytes, frame.len) {
                Ok(datagram) => datagram,
                Err(Skip::NotUdp | Skip::Encapsulated(_)) => continue,
                Err(Skip::Fragment) => {
                    self.counters.fragments += 1;
                    continue;
                }
                Err(Skip::Malformed | Skip::Cut) => {
                    self.counters.malformed += 1;
                    continue;
                }
            };
            let Datagram { flow, payload, len } = datagram;
            match frame.merging {
                Merging::Single => drop(batch.push(Seen { flow, payload: datagram.payload() })),
                // The end of the last datagram is only known if the frame is whole.
                Merging::Datagrams { each } if payload.len() == len => {
                    self.counters.split += 1;
                    let payloads = payload.chunks(each.max(1));
                    self.segments = Some(Segments { flow, payloads });
                    self.push_segments(batch);
                }
                Merging::Fragments => self.counters.fragments += 1,
                Merging::Datagrams { .. } | Merging::Other => {
                    count_unsplit(self.name, self.direction, self.counters);
                    self.missed = true;
                    return;
                }
            }
        }
    }

    /// Moves datagrams of a merged frame into the batch while it has room.
    fn push_segments(&mut self, batch: &mut Batch<'a>) {
        let Some(Segments { flow, payloads }) = &mut self.segments else { return };
        while !batch.is_full() {
            let Some(payload) = payloads.next() else {
                self.segments = None;
                return;
            };
            batch.push(Seen { flow: *flow, payload: Payload::whole(payload) });
        }
    }
}

/// The datagram of a frame, or those of a merged one, with the frame itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole<'a> {
    pub(crate) link: Link,
    /// The datagram. For a merged frame: all of its datagrams, one after the other.
    pub(crate) datagram: Datagram<'a>,
    /// The length of each datagram of a merged frame but the last.
    pub(crate) each: Option<usize>,
    /// The frame that the datagram lies in.
    pub(crate) frame: &'a [u8],
}

/// Passes the datagram of each frame to `handle`.
pub(super) fn each_whole<'a>(
    frames: &Frames<'a>,
    (name, link, direction): (&str, Link, Direction),
    counters: &mut Counters,
    mut handle: impl FnMut(Whole<'a>),
) {
    for frame in (0..frames.len()).filter_map(|index| frames.get(index)) {
        let datagram = match packet::parse(link, frame.bytes, frame.len) {
            Ok(datagram) => datagram,
            Err(Skip::NotUdp | Skip::Encapsulated(_)) => continue,
            Err(Skip::Fragment) => {
                counters.fragments += 1;
                continue;
            }
            Err(Skip::Malformed | Skip::Cut) => {
                counters.malformed += 1;
                continue;
            }
        };
        let each = match frame.merging {
            Merging::Single => None,
            Merging::Datagrams { each } => Some(each),
            Merging::Fragments => {
                counters.fragments += 1;
                continue;
            }
            Merging::Other => {
                count_unsplit(name, direction, counters);
                continue;
            }
        };
        counters.split += u64::from(each.is_some());
        counters.datagrams += datagram.len.div_ceil(each.unwrap_or(datagram.len).max(1)) as u64;
        handle(Whole { link, datagram, each, frame: frame.bytes });
    }
}

/// Counts a merged frame whose datagrams the sums lack. The first time, it logs the remedy.
pub(super) fn count_unsplit(name: &str, direction: Direction, counters: &mut Counters) {
    if counters.unsplit == 0 {
        warn!(
            "{name} delivers merged frames that this kernel cannot split, and their datagrams get \
             no help: {}",
            offload::advice(name, direction)
        );
    }
    counters.unsplit += 1;
}

#[cfg(test)]
mod tests {
    use sidekick_protocol::{Filter, Identification, Position};

    use super::super::source::Frame;
    use super::*;

    /// The first four bytes of a payload.
    const HEAD: Identification =
        Identification { position: Position::Offset(0), filter: Filter::All };

    /// An IPv4 packet with a UDP datagram of this payload.
    fn packet(payload: &[u8]) -> Vec<u8> {
        let len = |headers: usize| u16::try_from(headers + payload.len()).unwrap().to_be_bytes();
        let mut packet = vec![0x45, 0, len(28)[0], len(28)[1], 0, 0, 0, 0, 64, 17, 0, 0];
        packet.extend([192, 0, 2, 1, 192, 0, 2, 2, 0x10, 0, 0x20, 0, len(8)[0], len(8)[1], 0, 0]);
        packet.extend(payload);
        packet
    }

    /// The numbers that the payloads of frames begin with, one list for each batch. The list is
    /// empty where datagrams are missing.
    fn deliver(frames: &Frames<'_>, missed: bool) -> (Vec<Vec<u32>>, Counters) {
        let mut counters = Counters::default();
        let mut batch = Batch::default();
        let (read, on) = (frames.len(), ("lo", Link::Ip, Direction::Arriving));
        let mut datagrams = Datagrams::new(on, &mut counters, frames, read, missed);
        let mut all = Vec::new();
        while let Some(captured) = datagrams.next(&mut batch) {
            all.push(match captured {
                Captured::Datagrams(seen) => {
                    seen.iter().filter_map(|seen| HEAD.identifier(seen.payload)).collect()
                }
                Captured::Missed => Vec::new(),
            });
        }
        (all, counters)
    }

    fn frame(merging: Merging, bytes: &[u8]) -> Frame<'_> {
        Frame { merging, bytes, len: bytes.len() }
    }

    #[test]
    fn a_merged_frame_fills_several_batches_in_order() {
        let train: Vec<u8> = (1..=70).flat_map(u32::to_be_bytes).collect();
        let (single, merged) = (packet(&[0, 0, 0, 100, 7]), packet(&train));
        let mut frames = Frames::default();
        frames.push(frame(Merging::Single, &single));
        frames.push(frame(Merging::Datagrams { each: 4 }, &merged));
        frames.push(frame(Merging::Single, &single));
        let (batches, counters) = deliver(&frames, false);
        let lens: Vec<_> = batches.iter().map(Vec::len).collect();
        assert_eq!(lens, [BATCH, BATCH, 8]);
        let expected: Vec<u32> = [100].into_iter().chain(1..=70).chain([100]).collect();
        assert_eq!(batches.concat(), expected);
        assert_eq!((counters.datagrams, counters.split), (72, 1));
    }

    #[test]
    fn missing_datagrams_are_reported_in_their_place() {
        let (one, two) = (packet(&[0, 0, 0, 1]), packet(&[0, 0, 0, 2]));
        let mut frames = Frames::default();
        for (merging, bytes) in [
            (Merging::Single, &one),
            (Merging::Other, &one),
            (Merging::Single, &two),
            (Merging::Other, &two),
        ] {
            frames.push(frame(merging, bytes));
        }
        let (batches, counters) = deliver(&frames, true);
        assert_eq!(batches, [vec![], vec![1], vec![], vec![2], vec![]]);
        assert_eq!((counters.datagrams, counters.unsplit), (2, 2));
        assert_eq!(deliver(&Frames::default(), false).0.len(), 0);
        assert_eq!(deliver(&Frames::default(), true).0.len(), 1);
    }
}
