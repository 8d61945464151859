//! One topic: its history, its last value, what each publisher has published, and the positions of
//! subscribers. It does no I/O, and its memory is bounded.
//!
//! An acknowledged message is in the history, and the next one has the next number. From its first
//! message on, a subscriber receives every message in order, or the number of those that are gone.
//! A slow subscriber delays nobody. A true repetition (number, time and content) is dropped and
//! acknowledged; any other message is refused whose number is not above the publisher's latest, or
//! is more than 1,000,000 above it.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::limits::{Limits, OVERHEAD};
use crate::name::PublisherName;
use publishers::{NumberError, Publishers};

pub(crate) mod publishers;
#[cfg(test)]
mod tests;

/// A published message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// Its number in the topic, or on the way to the broker the publisher's own: from 1, or 0 if
    /// there is none.
    pub(crate) sequence: u64,
    /// When it was published, in microseconds since 1970, by the publisher's clock; 0 if unknown.
    pub(crate) time: u64,
    pub(crate) payload: Bytes,
}

/// Where a subscriber begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// With the last value, and then with new messages.
    Last,
    /// With new messages.
    Next,
    /// With the message of this number, or the oldest after it.
    From(u64),
}

/// A subscriber's position.
#[derive(Clone, Debug)]
pub(crate) struct Cursor {
    /// The last value, if the subscriber has not received it yet.
    value: Option<Message>,
    next: u64,
}

impl Cursor {
    /// The number of the next message that it will receive.
    pub(crate) fn first(&self) -> u64 {
        self.value.as_ref().map_or(self.next, |value| value.sequence)
    }
}

/// The next item for a subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// The value that the topic had when the subscriber came.
    Last(Message),
    Message(Message),
    /// The topic no longer has this many messages that the subscriber did not receive.
    Missed(u64),
}

#[derive(Debug)]
pub(crate) struct Topic {
    limits: Limits,
    /// The number of the next message.
    next: u64,
    history: VecDeque<Message>,
    bytes: usize,
    last: Option<Message>,
    pub(crate) publishers: Publishers,
}

impl Topic {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            next: 1,
            history: VecDeque::new(),
            bytes: 0,
            last: None,
            publishers: Publishers::new(limits),
        }
    }

    /// Whether it never had a message.
    pub(crate) fn is_unused(&self) -> bool {
        self.next == 1
    }

    /// Adds a message. `from` is a publisher that joined, and the publisher's own number
    /// of the message. Returns whether the message is new; see [`Publishers::note`].
    ///
    /// A `retained` message becomes the topic's last value. An empty one removes that.
    pub(crate) fn publish(
        &mut self,
        from: Option<(&PublisherName, u64)>,
        time: u64,
        payload: Bytes,
        retained: bool,
    ) -> Result<bool, NumberError> {
        if let Some((name, own)) = from
            && !self.publishers.note(name, own, time, &payload)?
        {
            return Ok(false);
        }
        let message = Message { sequence: self.next, time, payload };
        self.next += 1;
        if retained {
            self.last = (!message.payload.is_empty()).then(|| message.clone());
        }
        self.bytes += cost(&message);
        self.history.push_back(message);
        let Limits { history_messages, history_bytes, .. } = self.limits;
        // The latest message always stays.
        while self.history.len() > 1
            && (self.history.len() > history_messages as usize
                || self.bytes > history_bytes as usize)
        {
            self.bytes -= self.history.pop_front().as_ref().map_or(0, cost);
        }
        Ok(true)
    }

    /// The position of a new subscriber.
    pub(crate) fn cursor(&self, start: Start) -> Cursor {
        match start {
            Start::Last => Cursor { value: self.last.clone(), next: self.next },
            Start::Next => Cursor { value: None, next: self.next },
            Start::From(sequence) => Cursor { value: None, next: sequence.max(1) },
        }
    }

    /// Lets the subscriber at `cursor` subscribe again. Only [`Start::From`] changes which messages
    /// it will receive.
    pub(crate) fn again(&self, cursor: &mut Cursor, start: Start) {
        match start {
            Start::Last => cursor.value.clone_from(&self.last),
            Start::Next => {}
            Start::From(_) => *cursor = self.cursor(start),
        }
    }

    /// The next item at `cursor`, which advances; `None` if there is none yet.
    pub(crate) fn read(&self, cursor: &mut Cursor) -> Option<Item> {
        if let Some(value) = cursor.value.take() {
            return Some(Item::Last(value));
        }
        let oldest = self.history.front()?.sequence;
        match cursor.next.checked_sub(oldest) {
            None => {
                let missed = oldest - cursor.next;
                cursor.next = oldest;
                Some(Item::Missed(missed))
            }
            Some(index) => {
                let message = self.history.get(usize::try_from(index).ok()?)?;
                cursor.next += 1;
                Some(Item::Message(message.clone()))
            }
        }
    }
}

/// The bytes that a message counts in the history.
fn cost(message: &Message) -> usize {
    message.payload.len() + OVERHEAD
}
