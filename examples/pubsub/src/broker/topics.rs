//! The topics of a broker, and the handles of their publishers and subscribers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use h3_server::quota::Place;
use thiserror::Error;
use tokio::sync::watch;

use crate::name::{PublisherName, TopicName};
use crate::topic::{Bounds, Cursor, Item, Start, TooManyPublishers, Topic};

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
        Ok(Self { bounds, most: most as usize, instance, table: Mutex::default() })
    }

    /// A random number of this broker's life. The next life numbers messages from 1 again.
    pub(crate) fn instance(&self) -> u64 {
        self.instance
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

    /// A publisher of a topic. With a name, the topic recognises repeated messages.
    pub(crate) fn publisher(
        &self,
        topic: &TopicName,
        name: Option<PublisherName>,
        place: Place,
    ) -> Result<Publisher, super::Refusal> {
        let topic = self.open(topic)?;
        if let Some(name) = &name {
            topic.topic().join(name).map_err(|full: TooManyPublishers| full)?;
        }
        Ok(Publisher { topic, name, _place: place })
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
    /// Publishes a message, unless it is a repetition; see [`Topic::publish`].
    pub(crate) fn publish(&self, own: Option<u64>, time: u64, payload: Bytes, retained: bool) {
        let from = self.name.as_ref().zip(own);
        if self.topic.topic().publish(from, time, payload, retained) {
            self.topic.news.send_replace(());
        }
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
    use h3_server::quota::{Client, Quota};

    const BOUNDS: Bounds = Bounds { messages: 10, bytes: 10_000, publishers: 10 };

    fn place() -> Place {
        Quota::new("places", 1, 1).take(Client::of([127, 0, 0, 1].into())).unwrap()
    }

    #[test]
    fn only_an_unused_topic_makes_room() {
        let topics = Topics::new(BOUNDS, 2).unwrap();
        let name = |text| TopicName::new(text).unwrap();
        let waits = topics.subscriber(&name("waits"), Start::Last, place()).unwrap();
        let publisher = topics.publisher(&name("used"), None, place()).unwrap();
        publisher.publish(None, 0, Bytes::from_static(b"x"), true);
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
        let publisher = topics.publisher(&topic, None, place()).unwrap();
        publisher.publish(None, 0, Bytes::from_static(b"x"), true);
        subscriber.wait().await;
        assert!(matches!(subscriber.read(), Some(Item::Message(_))));
        assert_eq!(subscriber.read(), None);
    }
}
