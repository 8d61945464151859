//! The topics of a broker, and the handles of their publishers and subscribers.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use h3_server::quota::{Client, Place};
use thiserror::Error;
use tokio::sync::watch;

use crate::name::{PublisherName, TopicName};
use crate::topic::publishers::{JoinError, NumberError, Owner};
use crate::topic::{Bounds, Cursor, Item, Start, Topic};

/// The broker has as many topics as it may.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the broker already has {0} topics: use one of them, or raise its --max-topics")]
pub(crate) struct TooManyTopics(usize);

/// All topics.
#[derive(Debug)]
pub(crate) struct Topics {
    bounds: Bounds,
    most: usize,
    instance: u64,
    /// Of the hashes of secrets.
    key: RandomState,
    table: Mutex<HashMap<TopicName, Arc<Shared>>>,
}

/// A topic that publishers and subscribers share. A subscriber reads at its own pace, so it never
/// delays a publisher or another subscriber.
#[derive(Debug)]
struct Shared {
    topic: Mutex<Topic>,
    /// Marked as changed after each message.
    news: watch::Sender<()>,
}

impl Shared {
    fn topic(&self) -> MutexGuard<'_, Topic> {
        lock(&self.topic)
    }
}

/// No code panics while it holds these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Topics {
    /// An empty table of at most `most` topics, each of which keeps what `bounds` allows.
    pub(crate) fn new(bounds: Bounds, most: u32) -> anyhow::Result<Self> {
        let mut instance = [0; 4];
        getrandom::fill(&mut instance)?;
        let instance = u32::from_be_bytes(instance).into();
        let (most, key) = (most as usize, RandomState::new());
        Ok(Self { bounds, most, instance, key, table: Mutex::default() })
    }

    /// A random number of this broker's life. The next life numbers messages from 1 again.
    pub(crate) fn instance(&self) -> u64 {
        self.instance
    }

    /// The owner of the names that this client uses with this secret. An empty secret is none.
    pub(crate) fn owner(&self, client: Client, secret: Option<&[u8]>) -> Owner {
        let secret = secret.filter(|secret| !secret.is_empty());
        Owner { client, secret: secret.map(|secret| self.key.hash_one(secret)) }
    }

    /// The topic of this name, which may be new.
    fn open(&self, name: &TopicName) -> Result<Arc<Shared>, TooManyTopics> {
        let mut table = lock(&self.table);
        if table.len() >= self.most && !table.contains_key(name) {
            // A topic without messages, for which only subscribers waited.
            table.retain(|_, topic| Arc::strong_count(topic) > 1 || !topic.topic().is_unused());
        }
        let full = table.len() >= self.most;
        match table.entry(name.clone()) {
            Entry::Occupied(known) => Ok(Arc::clone(known.get())),
            Entry::Vacant(_) if full => Err(TooManyTopics(self.most)),
            Entry::Vacant(place) => Ok(Arc::clone(place.insert(Arc::new(Shared {
                topic: Mutex::new(Topic::new(self.bounds)),
                news: watch::Sender::new(()),
            })))),
        }
    }

    /// A publisher of a topic, without a name.
    pub(crate) fn publisher(
        &self,
        topic: &TopicName,
        place: Place,
    ) -> Result<Publisher, TooManyTopics> {
        Ok(Publisher { topic: self.open(topic)?, name: None, _place: place })
    }

    /// A subscriber of a topic.
    pub(crate) fn subscriber(
        &self,
        topic: &TopicName,
        start: Start,
        place: Place,
    ) -> Result<Subscriber, TooManyTopics> {
        let topic = self.open(topic)?;
        // Before the cursor, so that no message is between them.
        let news = topic.news.subscribe();
        let cursor = topic.topic().cursor(start);
        Ok(Subscriber { topic, cursor, news, _place: place })
    }
}

/// A publisher of a topic, until it is dropped.
#[derive(Debug)]
pub(crate) struct Publisher {
    topic: Arc<Shared>,
    name: Option<PublisherName>,
    _place: Place,
}

impl Publisher {
    /// Takes a name, by which the topic recognises repeated messages. A second one has no effect.
    pub(crate) fn take_name(&mut self, name: PublisherName, owner: Owner) -> Result<(), JoinError> {
        if self.name.is_none() {
            self.topic.topic().join(&name, owner)?;
            self.name = Some(name);
        }
        Ok(())
    }

    /// Publishes a message, unless it is a repetition; see [`Topic::publish`].
    pub(crate) fn publish(
        &self,
        own: Option<u64>,
        time: u64,
        payload: Bytes,
        retained: bool,
    ) -> Result<(), NumberError> {
        let from = self.name.as_ref().zip(own);
        if self.topic.topic().publish(from, time, payload, retained)? {
            self.topic.news.send_replace(());
        }
        Ok(())
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            self.topic.topic().leave(name);
        }
    }
}

/// A subscriber of a topic.
#[derive(Debug)]
pub(crate) struct Subscriber {
    topic: Arc<Shared>,
    cursor: Cursor,
    news: watch::Receiver<()>,
    _place: Place,
}

impl Subscriber {
    /// The number of the next message that it will receive.
    pub(crate) fn first(&self) -> u64 {
        self.cursor.first()
    }

    /// Subscribes again; see [`Topic::again`].
    pub(crate) fn again(&mut self, start: Start) {
        self.topic.topic().again(&mut self.cursor, start);
    }

    /// The next item that it receives, if there is one.
    pub(crate) fn read(&mut self) -> Option<Item> {
        self.topic.topic().read(&mut self.cursor)
    }

    /// Waits for the next message after [`read`](Self::read) returned `None`.
    pub(crate) async fn wait(&mut self) {
        // The topic holds the sender, so this does not fail.
        let _ = self.news.changed().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topic::publishers::Most;
    use h3_server::quota::Quota;

    const BOUNDS: Bounds =
        Bounds { messages: 10, bytes: 10_000, publishers: Most { all: 10, of_client: 10 } };

    fn place() -> Place {
        Quota::new("places", 1, 1).take(Client::of([127, 0, 0, 1].into())).unwrap()
    }

    #[test]
    fn only_an_unused_topic_makes_room() {
        let topics = Topics::new(BOUNDS, 2).unwrap();
        let name = |text| TopicName::new(text).unwrap();
        let waits = topics.subscriber(&name("waits"), Start::Last, place()).unwrap();
        let publisher = topics.publisher(&name("used"), place()).unwrap();
        publisher.publish(None, 0, Bytes::from_static(b"x"), true).unwrap();
        drop(publisher);
        assert_eq!(topics.open(&name("new")).unwrap_err(), TooManyTopics(2));
        drop(waits);
        topics.open(&name("new")).unwrap();
        // The last value of a topic stays without publishers and subscribers, too.
        let mut subscriber = topics.subscriber(&name("used"), Start::Last, place()).unwrap();
        assert!(matches!(subscriber.read(), Some(Item::Last(_))));
        assert!(topics.open(&name("waits")).is_ok(), "the new one had no message");
    }

    #[tokio::test]
    async fn a_message_wakes_a_subscriber_that_came_before_it() {
        let topics = Topics::new(BOUNDS, 2).unwrap();
        let topic = TopicName::new("t").unwrap();
        let mut subscriber = topics.subscriber(&topic, Start::Last, place()).unwrap();
        let publisher = topics.publisher(&topic, place()).unwrap();
        publisher.publish(None, 0, Bytes::from_static(b"x"), true).unwrap();
        subscriber.wait().await;
        assert!(matches!(subscriber.read(), Some(Item::Message(_))));
        assert_eq!(subscriber.read(), None);
    }
}
