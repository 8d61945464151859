//! A segment of the path: one link for each direction.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use super::chain::{Node, Outbox, Side};
use super::packet::Packet;
use crate::link::Link;
use crate::pcap::SegmentPcap;
use crate::relay::SegmentCounters;
use crate::scenario::{Direction, Segment};

pub(super) struct Wire {
    start: Instant,
    to_receiver: Link<Packet>,
    to_sender: Link<Packet>,
    /// Later states of the segment, with their times.
    later: VecDeque<(Duration, Segment)>,
    pub(super) changes: u64,
    pcap: Option<SegmentPcap>,
    pcap_failure: Option<io::Error>,
}

impl Wire {
    /// The segment, whose random losses follow from `seed` and the two `streams` (to the receiver,
    /// to the sender), as those of the `user` backend do. `later` has the segment's later states in
    /// order.
    pub(super) fn new(
        start: Instant,
        segment: &Segment,
        later: Vec<(Duration, Segment)>,
        seed: u64,
        streams: (u64, u64),
        pcap: Option<SegmentPcap>,
    ) -> Self {
        Self {
            pcap,
            pcap_failure: None,
            start,
            to_receiver: Link::new(segment.link(Direction::ToReceiver), seed, streams.0),
            to_sender: Link::new(segment.link(Direction::ToSender), seed, streams.1),
            later: later.into(),
            changes: 0,
        }
    }

    fn change(&mut self, elapsed: Duration) {
        while let Some((at, segment)) = self.later.front().filter(|(at, _)| *at <= elapsed) {
            self.to_receiver.set_config(*at, segment.link(Direction::ToReceiver));
            self.to_sender.set_config(*at, segment.link(Direction::ToSender));
            self.changes += 1;
            self.later.pop_front();
        }
    }

    /// Ends the capture files. Returns the error if they are not complete.
    pub(super) fn pcap_failure(&mut self) -> Option<io::Error> {
        self.write_down(SegmentPcap::finish);
        self.pcap_failure.take()
    }

    fn write_down(&mut self, write: impl FnOnce(&mut SegmentPcap) -> io::Result<()>) {
        if let Some(pcap) = &mut self.pcap
            && let Err(error) = write(pcap)
        {
            self.pcap_failure.get_or_insert(error);
        }
    }

    pub(super) fn counters(&self) -> SegmentCounters {
        SegmentCounters {
            to_receiver: self.to_receiver.counters().into(),
            to_sender: self.to_sender.counters().into(),
        }
    }
}

impl Node for Wire {
    fn receive(&mut self, from: Side, packet: Packet, now: Instant, out: &mut Outbox) {
        let elapsed = now - self.start;
        self.change(elapsed);
        self.write_down(|pcap| pcap.sent.write(elapsed, &packet.to_frame()));
        let link = match from {
            Side::Left => &mut self.to_receiver,
            Side::Right => &mut self.to_sender,
        };
        link.push(elapsed, packet);
        // A link without a rate and a delay delivers at once.
        self.on_timeout(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let change = self.later.front().map(|&(at, _)| at);
        let deadlines = [self.to_receiver.poll_timeout(), self.to_sender.poll_timeout(), change];
        deadlines.into_iter().flatten().min().map(|deadline| self.start + deadline)
    }

    fn on_timeout(&mut self, now: Instant, out: &mut Outbox) {
        let elapsed = now - self.start;
        self.change(elapsed);
        let before = out.len();
        while let Some(packet) = self.to_receiver.pop(elapsed) {
            out.push((Side::Right, packet));
        }
        while let Some(packet) = self.to_sender.pop(elapsed) {
            out.push((Side::Left, packet));
        }
        for (_, packet) in out.iter().skip(before) {
            self.write_down(|pcap| pcap.delivered.write(elapsed, &packet.to_frame()));
        }
    }
}
