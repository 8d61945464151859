//! The state of a broker: its topics, and the handles of their publishers and subscribers.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher as _;
use std::sync::Arc;

use bytes::Bytes;
use h3_server::quota::{Client, Place, Quota};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{Refusal, TooManyTopics};
use crate::limits::Limits;
use crate::name::{PublisherName, TopicName};
use crate::topic::publishers::{JoinError, NumberError, Owner};
use crate::topic::{Cursor, Item, Start, Topic};

/// The state that all connections share.
#[derive(Debug)]
pub(crate) struct Broker {
    pub(crate) limits: Limits,
    instance: u64,
    /// Of the hashes of secrets.
    key: RandomState,
    topics: Mutex<HashMap<TopicName, Arc<Shared>>>,
    publishers: Arc<Quota>,
    subscribers: Arc<Quota>,
}

/// A topic that publishers and subscribers share. A subscriber reads at its own pace, so it never
/// delays a publisher or another subscriber.
#[derive(Debug)]
struct Shared {
    topic: Mutex<Topic>,
    /// Marked as changed after each message.
    news: watch::Sender<()>,
}

impl Broker {
    /// A broker without topics.
    pub(crate) fn new(limits: Limits) -> anyhow::Result<Self> {
        let mut instance = [0; 4];
        getrandom::fill(&mut instance)?;
        let quota = |what, total: u32| Quota::new(what, total, total.min(limits.max_per_client));
        Ok(Self {
            instance: u32::from_be_bytes(instance).into(),
            key: RandomState::new(),
            topics: Mutex::default(),
            publishers: quota("publishers", limits.max_publishers),
            subscribers: quota("subscribers", limits.max_subscribers),
            limits,
        })
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

    /// Where a subscriber begins that resumes `from` a number. The number belongs to the life
    /// `instance`, or without one to this life.
    pub(crate) fn start(&self, from: Option<u64>, instance: Option<u64>) -> Start {
        match from {
            None => Start::Last,
            // All messages of this life are new to a subscriber of another.
            Some(_) if instance.is_some_and(|other| other != self.instance) => Start::From(1),
            Some(from) => Start::From(from),
        }
    }

    /// The topic of this name, which may be new.
    fn open(&self, name: &TopicName) -> Result<Arc<Shared>, TooManyTopics> {
        let mut topics = self.topics.lock();
        let most = self.limits.max_topics;
        if topics.len() >= most as usize && !topics.contains_key(name) {
            // A topic without messages, for which only subscribers waited.
            topics
                .retain(|_, topic| Arc::strong_count(topic) > 1 || !topic.topic.lock().is_unused());
        }
        let full = topics.len() >= most as usize;
        match topics.entry(name.clone()) {
            Entry::Occupied(known) => Ok(Arc::clone(known.get())),
            Entry::Vacant(_) if full => Err(TooManyTopics(most)),
            Entry::Vacant(place) => Ok(Arc::clone(place.insert(Arc::new(Shared {
                topic: Mutex::new(Topic::new(self.limits)),
                news: watch::Sender::new(()),
            })))),
        }
    }

    /// A publisher of a topic, without a name.
    pub(crate) fn publisher(
        &self,
        client: Client,
        topic: &TopicName,
    ) -> Result<Publisher, Refusal> {
        let place = self.publishers.take(client)?;
        Ok(Publisher { topic: self.open(topic)?, name: None, _place: place })
    }

    /// A subscriber of a topic.
    pub(crate) fn subscriber(
        &self,
        client: Client,
        topic: &TopicName,
        start: Start,
    ) -> Result<Subscriber, Refusal> {
        let place = self.subscribers.take(client)?;
        let topic = self.open(topic)?;
        // Before the cursor, so that no message is between them.
        let news = topic.news.subscribe();
        let cursor = topic.topic.lock().cursor(start);
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
            self.topic.topic.lock().publishers.join(&name, owner)?;
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
        if self.topic.topic.lock().publish(from, time, payload, retained)? {
            self.topic.news.send_replace(());
        }
        Ok(())
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            self.topic.topic.lock().publishers.leave(name);
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
        self.topic.topic.lock().again(&mut self.cursor, start);
    }

    /// The next item that it receives, if there is one.
    pub(crate) fn read(&mut self) -> Option<Item> {
        self.topic.topic.lock().read(&mut self.cursor)
    }

    /// Waits for the next message after [`read`](Self::read) returned `None`.
    pub(crate) async fn wait(&mut self) {
        // The topic holds the sender, so this does not fail.
        let _ = self.news.changed().await;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::limits::tests::limits;
    use h3_server::quota::Full;

    pub(crate) fn broker(options: &[&str]) -> Broker {
        Broker::new(limits(options)).unwrap()
    }

    /// The client with address 127.0.0.`number`.
    pub(crate) fn client(number: u8) -> Client {
        Client::of([127, 0, 0, number].into())
    }

    fn name(text: &str) -> TopicName {
        TopicName::new(text).unwrap()
    }

    #[test]
    fn one_client_leaves_room_for_other_publishers_of_a_topic() {
        let broker = broker(&[]);
        let join = |client| {
            let mut publisher = broker.publisher(client, &name("t"))?;
            publisher.take_name(PublisherName::random().unwrap(), broker.owner(client, None))?;
            Ok::<_, Refusal>(publisher)
        };
        let greedy: Vec<_> = std::iter::from_fn(|| join(client(1)).ok()).collect();
        assert!(matches!(join(client(1)), Err(Refusal::Full(Full::Client(..)))));
        let others: Vec<_> = greedy.iter().map(|_| join(client(2)).unwrap()).collect();
        assert_eq!(others.len(), 500);
    }

    #[test]
    fn only_an_unused_topic_makes_room() {
        let broker = broker(&["--max-topics", "2"]);
        let waits = broker.subscriber(client(1), &name("waits"), Start::Last).unwrap();
        let publisher = broker.publisher(client(1), &name("used")).unwrap();
        publisher.publish(None, 0, Bytes::from_static(b"x"), true).unwrap();
        drop(publisher);
        assert_eq!(broker.open(&name("new")).unwrap_err(), TooManyTopics(2));
        drop(waits);
        broker.open(&name("new")).unwrap();
        // The last value of a topic stays without publishers and subscribers, too.
        let mut subscriber = broker.subscriber(client(1), &name("used"), Start::Last).unwrap();
        assert!(matches!(subscriber.read(), Some(Item::Last(_))));
        assert!(broker.open(&name("waits")).is_ok(), "the new one had no message");
    }
}
