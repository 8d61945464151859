//! A topic against a model that forgets nothing.

use super::publishers::Owner;
use super::*;
use crate::limits::tests::limits;
use h3_server::quota::Client;
use proptest::prelude::*;

const MESSAGES: usize = 5;
const BYTES: usize = MESSAGES * OVERHEAD + 40;

/// All that a subscriber can read now.
fn all(topic: &Topic, cursor: &mut Cursor) -> Vec<Item> {
    std::iter::from_fn(|| topic.read(cursor)).collect()
}

#[derive(Clone, Debug)]
enum Act {
    Publish { publisher: usize, own: u64, len: usize, retained: bool },
    Subscribe(Start),
    Read { subscriber: usize, most: usize },
}

fn act() -> impl Strategy<Value = Act> {
    let start =
        prop_oneof![Just(Start::Last), Just(Start::Next), (0..30_u64).prop_map(Start::From)];
    prop_oneof![
        5 => (0..2_usize, 1..40_u64, 0..30_usize, any::<bool>()).prop_map(
            |(publisher, own, len, retained)| Act::Publish { publisher, own, len, retained }
        ),
        1 => start.prop_map(Act::Subscribe),
        3 => (0..8_usize, 0..8_usize).prop_map(|(subscriber, most)| Act::Read { subscriber, most }),
    ]
}

/// A subscriber of the model: what it received, and where it began.
struct Follower {
    cursor: Cursor,
    value: Option<Message>,
    begin: u64,
    received: Vec<Item>,
}

impl Follower {
    /// Checks that every message from its beginning was received or counted as missed, in order.
    fn check(&self, published: &[Message]) {
        let mut items = self.received.as_slice();
        if let (Some(value), [first, rest @ ..]) = (&self.value, items) {
            assert_eq!(first, &Item::Last(value.clone()));
            items = rest;
        }
        let mut next = self.begin;
        for item in items {
            match item {
                Item::Last(_) => panic!("a second last value"),
                Item::Missed(count) => next += count,
                Item::Message(message) => {
                    assert_eq!(message.sequence, next);
                    let index = usize::try_from(next - 1).unwrap();
                    assert_eq!(Some(message), published.get(index));
                    next += 1;
                }
            }
        }
    }
}

/// Checks that the topic keeps every message that fits, and no other.
fn check_history(topic: &Topic, published: &[Message]) {
    let kept = topic.history.len();
    assert!(kept <= MESSAGES);
    assert_eq!(topic.bytes, topic.history.iter().map(cost).sum::<usize>());
    assert!(topic.bytes <= BYTES || kept == 1);
    if let Some(gone) = published.len().checked_sub(kept + 1) {
        let would = topic.bytes + cost(&published[gone]);
        assert!(kept == MESSAGES || would > BYTES);
    }
}

proptest! {
    #[test]
    fn no_subscriber_receives_less_than_the_topic_has(
        acts in proptest::collection::vec(act(), 0..120)
    ) {
        let (messages, bytes) = (MESSAGES.to_string(), BYTES.to_string());
        let options = ["--history-messages", &messages, "--history-bytes", &bytes];
        let mut topic = Topic::new(limits(&options));
        let names = ["one", "other"].map(|name| PublisherName::new(name).unwrap());
        let owner = Owner { client: Client::of([192, 0, 2, 1].into()), secret: None };
        for name in &names {
            topic.publishers.join(name, owner).unwrap();
        }
        let mut published: Vec<Message> = Vec::new();
        let mut last = None;
        let mut latest = [0; 2];
        let mut followers: Vec<Follower> = Vec::new();
        for (time, act) in (0..).zip(acts) {
            match act {
                Act::Publish { publisher, own, len, retained } => {
                    let payload = Bytes::from(vec![7; len]);
                    let from = Some((&names[publisher], own));
                    let new = topic.publish(from, time, payload.clone(), retained);
                    // None has the time of another, so none is a repetition.
                    prop_assert_eq!(new.ok(), (own > latest[publisher]).then_some(true));
                    if own <= latest[publisher] { continue }
                    latest[publisher] = own;
                    let sequence = published.len() as u64 + 1;
                    published.push(Message { sequence, time, payload });
                    if retained {
                        last = published.last().filter(|_| len > 0).cloned();
                    }
                }
                Act::Subscribe(start) => {
                    let (value, begin) = match start {
                        Start::Last => (last.clone(), published.len() as u64 + 1),
                        Start::Next => (None, published.len() as u64 + 1),
                        Start::From(sequence) => (None, sequence.max(1)),
                    };
                    let cursor = topic.cursor(start);
                    followers.push(Follower { cursor, value, begin, received: Vec::new() });
                }
                Act::Read { subscriber, most } => {
                    let Some(follower) = followers.get_mut(subscriber) else { continue };
                    for _ in 0..most {
                        follower.received.extend(topic.read(&mut follower.cursor));
                    }
                }
            }
            check_history(&topic, &published);
        }
        for follower in &mut followers {
            follower.received.extend(all(&topic, &mut follower.cursor));
            follower.check(&published);
            // In the end each subscriber that began before it has the latest message.
            let reached = follower.cursor.next;
            prop_assert_eq!(reached, follower.begin.max(published.len() as u64 + 1));
        }
    }
}
