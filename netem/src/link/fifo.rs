//! Packets that wait, in their order.

use std::collections::VecDeque;
use std::time::Duration;

use super::frame::Frame;

/// A waiting packet.
#[derive(Debug)]
pub(super) struct Waiting<P> {
    /// When it arrived.
    pub(super) since: Duration,
    bytes: u64,
    pub(super) packet: P,
}

/// The waiting packets.
#[derive(Debug)]
pub(super) struct Fifo<P> {
    packets: VecDeque<Waiting<P>>,
    bytes: u64,
}

impl<P> Default for Fifo<P> {
    fn default() -> Self {
        Self { packets: VecDeque::new(), bytes: 0 }
    }
}

impl<P> Fifo<P> {
    pub(super) fn put(&mut self, now: Duration, packet: P)
    where
        P: Frame,
    {
        let bytes = packet.bytes();
        self.bytes += bytes;
        self.packets.push_back(Waiting { since: now, bytes, packet });
    }

    pub(super) fn take(&mut self) -> Option<Waiting<P>> {
        let oldest = self.packets.pop_front()?;
        self.bytes -= oldest.bytes;
        Some(oldest)
    }

    /// When the oldest packet arrived.
    pub(super) fn since(&self) -> Option<Duration> {
        self.packets.front().map(|oldest| oldest.since)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }
}
