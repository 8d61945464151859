//! The limits of the broker, and brokers for other tests.

use super::*;
use clap::Parser;

use crate::name::{PublisherName, TopicName};

#[derive(Debug, Parser)]
struct Only {
    #[command(flatten)]
    limits: Limits,
}

/// A broker with these options.
pub(crate) fn broker(options: &[&str]) -> Broker {
    let only = Only::parse_from(["broker"].iter().chain(options));
    Broker::new(only.limits).unwrap()
}

/// The client with address 127.0.0.`number`.
pub(crate) fn client(number: u8) -> Client {
    Client::of([127, 0, 0, number].into())
}

#[test]
fn one_client_leaves_room_for_other_publishers_of_a_topic() {
    let broker = broker(&[]);
    let topic = TopicName::new("t").unwrap();
    let join = |client| {
        let place = broker.publishers.take(client)?;
        let mut publisher = broker.topics.publisher(&topic, place)?;
        let owner = broker.topics.owner(client, None);
        publisher.take_name(PublisherName::random().unwrap(), owner)?;
        Ok::<_, Refusal>(publisher)
    };
    let mut greedy = Vec::new();
    let refusal = loop {
        match join(client(1)) {
            Ok(publisher) => greedy.push(publisher),
            Err(refusal) => break refusal,
        }
    };
    assert!(matches!(refusal, Refusal::Full(h3_server::quota::Full::Client(..))), "{refusal}");
    for _ in 0..greedy.len() {
        greedy.push(join(client(2)).unwrap());
    }
}
