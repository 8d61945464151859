//! The queue before a transmitter: its limits, and its discipline.

use std::time::Duration;

use rand_chacha::rand_core::Rng;

use super::Verdict;
use super::codel::{CoDel, Taken};
use super::config::{Discipline, LinkConfig};
use super::fifo::Fifo;
use super::frame::Frame;
use super::red::{Red, RedVerdict};
use crate::units::BitRate;

#[derive(Debug)]
enum Aqm {
    None,
    Red(Red),
    CoDel(CoDel),
}

/// The waiting packets, and their discipline.
#[derive(Debug)]
pub(super) struct Queue<P> {
    pub(super) fifo: Fifo<P>,
    aqm: Aqm,
    most_bytes: u64,
    most_packets: u64,
    ecn: bool,
}

/// The state of the transmitter when a packet arrives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// Whether the packet has to wait.
    pub(super) busy: bool,
    /// When the transmitter became idle, if it is idle.
    pub(super) idle_since: Option<Duration>,
}

impl<P: Frame> Queue<P> {
    pub(super) fn new(config: &LinkConfig) -> Self {
        Self {
            fifo: Fifo::default(),
            aqm: Self::aqm(config),
            most_bytes: config.queue_bytes,
            most_packets: config.queue_packets.unwrap_or(u64::MAX),
            ecn: config.ecn,
        }
    }

    fn aqm(config: &LinkConfig) -> Aqm {
        match config.queue {
            Discipline::DropTail => Aqm::None,
            Discipline::Red => Aqm::Red(Red::new(config.queue_bytes, mean_rate(config))),
            Discipline::CoDel(codel) => Aqm::CoDel(CoDel::new(codel)),
        }
    }

    /// Applies new limits, and a new discipline if it differs.
    pub(super) fn set_config(&mut self, before: &LinkConfig, config: &LinkConfig) {
        match &mut self.aqm {
            _ if before.queue != config.queue => self.aqm = Self::aqm(config),
            Aqm::Red(red) => red.retune(config.queue_bytes, mean_rate(config)),
            Aqm::None | Aqm::CoDel(_) => {}
        }
        self.most_bytes = config.queue_bytes;
        self.most_packets = config.queue_packets.unwrap_or(u64::MAX);
        self.ecn = config.ecn;
    }

    /// Accepts or drops a packet. Returns the verdict, and whether the queue marked the packet.
    pub(super) fn offer(
        &mut self,
        now: Duration,
        mut packet: P,
        line: Line,
        random: &mut impl Rng,
    ) -> (Verdict, bool) {
        let mut marked = false;
        if let Aqm::Red(red) = &mut self.aqm {
            match red.judge(now, self.fifo.bytes(), line.idle_since, random) {
                RedVerdict::Pass => {}
                RedVerdict::Early if self.ecn && packet.ecn().is_capable() => marked = true,
                RedVerdict::Early | RedVerdict::Forced => return (Verdict::DroppedEarly, false),
            }
        }
        let full = self.fifo.bytes() + packet.bytes() > self.most_bytes
            || self.fifo.len() as u64 >= self.most_packets;
        if line.busy && full {
            return (Verdict::QueueFull, false);
        }
        if marked {
            packet.mark_ce();
        }
        self.fifo.put(now, packet);
        (Verdict::Accepted, marked)
    }

    /// Removes the packet to send at `now`.
    pub(super) fn take(&mut self, now: Duration) -> Taken<P> {
        match &mut self.aqm {
            Aqm::CoDel(codel) => codel.take(now, &mut self.fifo, self.ecn),
            Aqm::None | Aqm::Red(_) => {
                Taken { packet: self.fifo.take(), dropped: 0, marked: false }
            }
        }
    }
}

fn mean_rate(config: &LinkConfig) -> Option<BitRate> {
    let trace = config.trace.as_ref().map(|trace| trace.mean_bits_per_second());
    trace.and_then(BitRate::from_bits_per_second).or(config.rate)
}
