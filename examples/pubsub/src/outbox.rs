//! A publisher's messages that the broker has not acknowledged. They survive a reconnection.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::topic::Message;
use crate::topic::publishers::MOST_REPEATED;

/// The most messages that wait for their acknowledgement, and their bytes.
const MESSAGES: usize = MOST_REPEATED;
const BYTES: usize = 4 << 20;

/// The messages in their order: those sent on the present connection, and then the others.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// With the publisher's own numbers, from 1, and the times of their publication.
    waiting: VecDeque<(Message, Instant)>,
    sent: usize,
    bytes: usize,
    acknowledged: u64,
}

impl Outbox {
    pub(crate) fn new() -> Self {
        Self { waiting: VecDeque::new(), sent: 0, bytes: 0, acknowledged: 0 }
    }

    /// Whether there is room for another message.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.len() < MESSAGES && self.bytes < BYTES
    }

    /// Adds a message that was published at `time`, which is `now`.
    pub(crate) fn push(&mut self, payload: Bytes, time: u64, now: Instant) {
        self.bytes += payload.len();
        let sequence = self.acknowledged + self.waiting.len() as u64 + 1;
        self.waiting.push_back((Message { sequence, time, payload }, now));
    }

    /// The next message to send on this connection.
    pub(crate) fn send(&mut self) -> Option<&Message> {
        let (next, _) = self.waiting.get(self.sent)?;
        self.sent += 1;
        Some(next)
    }

    /// The broker has all messages up to this number. Returns how long each new one of them took;
    /// `None` if it was never sent on this connection.
    pub(crate) fn acknowledge(&mut self, own: u64, now: Instant) -> Option<Vec<Duration>> {
        // The numbers have no gaps, so the number of the first waiting message determines that of
        // the last sent one.
        let count = usize::try_from(own.saturating_sub(self.acknowledged)).ok()?;
        if count > self.sent {
            return None;
        }
        self.sent -= count;
        self.acknowledged += count as u64;
        let took = self.waiting.drain(..count).map(|(message, published)| {
            self.bytes -= message.payload.len();
            now.saturating_duration_since(published)
        });
        Some(took.collect())
    }

    /// Notes that the connection was lost: a new one begins with the first waiting message.
    pub(crate) fn reconnected(&mut self) {
        self.sent = 0;
    }

    /// The messages that wait for their acknowledgement.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The messages that the broker has acknowledged.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unacknowledged_messages_are_sent_again() {
        let now = h3_client::now();
        let mut outbox = Outbox::new();
        for n in 0..5_u8 {
            outbox.push(Bytes::from(vec![n]), 0, now);
        }
        let first: Vec<u64> = (0..4).map(|_| outbox.send().unwrap().sequence).collect();
        assert_eq!(first, [1, 2, 3, 4]);
        assert_eq!(outbox.acknowledge(2, now).unwrap().len(), 2);
        assert_eq!(outbox.acknowledge(2, now).unwrap().len(), 0, "a repeated acknowledgement");
        outbox.reconnected();
        let again: Vec<u64> =
            std::iter::from_fn(|| outbox.send().map(|next| next.sequence)).collect();
        assert_eq!(again, [3, 4, 5]);
        assert!(outbox.send().is_none());
        assert_eq!(outbox.acknowledge(5, now).unwrap().len(), 3);
        assert_eq!((outbox.len(), outbox.acknowledged(), outbox.bytes), (0, 5, 0));
    }

    #[test]
    fn a_message_that_was_not_sent_cannot_be_acknowledged() {
        let now = h3_client::now();
        let mut outbox = Outbox::new();
        outbox.push(Bytes::new(), 0, now);
        assert_eq!(outbox.acknowledge(1, now), None);
        outbox.send().unwrap();
        assert_eq!(outbox.acknowledge(2, now), None);
        assert_eq!(outbox.acknowledge(1, now).unwrap().len(), 1);
    }

    #[test]
    fn it_is_bounded() {
        let now = h3_client::now();
        let mut outbox = Outbox::new();
        while outbox.has_room() {
            outbox.push(Bytes::from_static(b"x"), 0, now);
        }
        assert_eq!(outbox.len(), MESSAGES);
    }
}
