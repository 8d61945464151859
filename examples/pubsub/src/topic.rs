//! One topic: its history, its last value, what each publisher has published, and the positions of
//! subscribers. It does no I/O, and its memory is bounded.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use thiserror::Error;

use crate::name::PublisherName;

#[cfg(test)]
mod tests;

/// The bytes that each message counts in the history beside its payload. It takes about as many:
/// `measure --instructions` measures that.
pub(crate) const OVERHEAD: usize = 96;

/// A published message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// Its number in the topic, from 1.
    pub(crate) sequence: u64,
    /// When it was published, in microseconds since 1970, by the publisher's clock; 0 if unknown.
    pub(crate) time: u64,
    pub(crate) payload: Bytes,
}

/// The bounds of a topic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Messages of history.
    pub(crate) messages: usize,
    /// Bytes of history, with [`OVERHEAD`] for each message. The latest message always stays.
    pub(crate) bytes: usize,
    /// Publishers whose repeated messages the topic recognises.
    pub(crate) publishers: usize,
}

/// The topic remembers as many publishers as it may, and all of them are connected.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the topic already has {0} publishers: try again later")]
pub(crate) struct TooManyPublishers(usize);

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
struct Publisher {
    /// The greatest of the publisher's own numbers that the topic has.
    latest: u64,
    /// Its connections.
    present: u32,
    /// When it last came or left, by a counter.
    seen: u64,
}

/// A topic.
#[derive(Debug)]
pub(crate) struct Topic {
    bounds: Bounds,
    /// The number of the next message.
    next: u64,
    history: VecDeque<Message>,
    bytes: usize,
    last: Option<Message>,
    publishers: HashMap<PublisherName, Publisher>,
    turn: u64,
}

impl Topic {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            next: 1,
            history: VecDeque::new(),
            bytes: 0,
            last: None,
            publishers: HashMap::new(),
            turn: 0,
        }
    }

    /// Whether it never had a message.
    pub(crate) fn is_unused(&self) -> bool {
        self.next == 1
    }

    /// Adds a publisher. The topic remembers the publisher's numbers until it leaves, and then as
    /// long as there is room.
    pub(crate) fn join(&mut self, name: &PublisherName) -> Result<(), TooManyPublishers> {
        self.turn += 1;
        if !self.publishers.contains_key(name) {
            if self.publishers.len() >= self.bounds.publishers {
                let gone = self.publishers.iter().filter(|(_, publisher)| publisher.present == 0);
                let oldest = gone.min_by_key(|(_, publisher)| publisher.seen);
                let oldest = oldest.map(|(name, _)| name.clone());
                let oldest = oldest.ok_or(TooManyPublishers(self.bounds.publishers))?;
                self.publishers.remove(&oldest);
            }
            self.publishers
                .insert(name.clone(), Publisher { latest: 0, present: 0, seen: self.turn });
        }
        if let Some(publisher) = self.publishers.get_mut(name) {
            publisher.present += 1;
            publisher.seen = self.turn;
        }
        Ok(())
    }

    /// Notes that a publisher leaves.
    pub(crate) fn leave(&mut self, name: &PublisherName) {
        self.turn += 1;
        if let Some(publisher) = self.publishers.get_mut(name) {
            publisher.present = publisher.present.saturating_sub(1);
            publisher.seen = self.turn;
        }
    }

    /// Adds a message. `from` is a publisher that was added before, and the publisher's own number
    /// of the message. Returns whether the message is new. A publisher's numbers increase, so a
    /// number that is not above the latest is a repetition.
    ///
    /// A `retained` message becomes the topic's last value. An empty one removes that.
    pub(crate) fn publish(
        &mut self,
        from: Option<(&PublisherName, u64)>,
        time: u64,
        payload: Bytes,
        retained: bool,
    ) -> bool {
        if let Some((name, own)) = from
            && let Some(publisher) = self.publishers.get_mut(name)
        {
            if own <= publisher.latest {
                return false;
            }
            publisher.latest = own;
        }
        let message = Message { sequence: self.next, time, payload };
        self.next += 1;
        if retained {
            self.last = (!message.payload.is_empty()).then(|| message.clone());
        }
        self.bytes += cost(&message);
        self.history.push_back(message);
        while self.history.len() > 1
            && (self.history.len() > self.bounds.messages || self.bytes > self.bounds.bytes)
        {
            self.bytes -= self.history.pop_front().as_ref().map_or(0, cost);
        }
        true
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
