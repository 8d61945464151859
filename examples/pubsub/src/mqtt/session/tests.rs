//! The session with a client's packets.

use super::*;
use bytes::Bytes;
use mqtt5_protocol::ConnectOptions;
use mqtt5_protocol::packet::MqttPacket;
use mqtt5_protocol::packet::pingreq::PingReqPacket;

use crate::broker::tests::{broker, client};
use crate::mqtt::client::Client as MqttClient;

fn session(broker: &Broker) -> Session<'_> {
    Session::new(broker, client(1))
}

fn bytes(packet: &impl MqttPacket) -> Bytes {
    let mut out = BytesMut::new();
    write(packet, &mut out);
    out.freeze()
}

/// The packets that a client receives.
fn packets(bytes: &[u8]) -> Vec<Packet> {
    let mut packets = Packets::new(1 << 20);
    packets.push(bytes);
    let all = std::iter::from_fn(|| packets.next().unwrap()).collect();
    assert!(packets.may_end());
    all
}

/// Passes bytes to the session, and returns its answers.
fn answers(session: &mut Session<'_>, bytes: &[u8]) -> (Result<(), End>, Vec<Packet>) {
    let mut out = BytesMut::new();
    let ended = session.receive(bytes, &mut out);
    (ended, packets(&out))
}

/// A session after CONNECT.
fn connected<'a>(broker: &'a Broker, options: ConnectOptions) -> Session<'a> {
    let mut session = session(broker);
    let (ended, sent) = answers(&mut session, &bytes(&ConnectPacket::new(options)));
    assert_eq!(ended, Ok(()));
    let [Packet::ConnAck(accepted)] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!(accepted.reason_code, ReasonCode::Success);
    session
}

fn publish(topic: &str, payload: &str, id: u16) -> PublishPacket {
    PublishPacket::new(topic, payload.as_bytes().to_vec(), QoS::AtLeastOnce)
        .with_packet_id(id)
        .with_retain(true)
}

fn subscribe(topic: &str) -> SubscribePacket {
    SubscribePacket::new(1).add_filter(topic, QoS::AtLeastOnce)
}

/// The messages that the session delivers now.
fn delivered(session: &mut Session<'_>) -> Vec<PublishPacket> {
    let mut out = BytesMut::new();
    session.deliver(&mut out, usize::MAX);
    let publish = |packet| match packet {
        Packet::Publish(publish) => publish,
        other => panic!("{other:?}"),
    };
    packets(&out).into_iter().map(publish).collect()
}

#[test]
fn the_last_value_comes_at_once_and_is_marked() {
    let broker = broker(&[]);
    let mut publisher = connected(&broker, ConnectOptions::new("p"));
    for (id, payload) in [(1, "20.5"), (2, "21.5")] {
        let (_, sent) = answers(&mut publisher, &bytes(&publish("t", payload, id)));
        let [Packet::PubAck(acknowledged)] = sent.as_slice() else { panic!("{sent:?}") };
        assert_eq!((acknowledged.packet_id, acknowledged.reason_code), (id, ReasonCode::Success));
    }
    let mut subscriber = connected(&broker, ConnectOptions::new("s"));
    answers(&mut subscriber, &bytes(&subscribe("t"))).0.unwrap();
    answers(&mut publisher, &bytes(&publish("t", "22.5", 3))).0.unwrap();
    let messages = delivered(&mut subscriber);
    let seen: Vec<_> =
        messages.iter().map(|message| (&message.payload[..], message.retain)).collect();
    assert_eq!(seen, [(&b"21.5"[..], true), (b"22.5", false)]);
    let sequences: Vec<_> =
        messages.iter().map(|message| number(&message.properties, SEQUENCE)).collect();
    assert_eq!(sequences, [Some(2), Some(3)]);
}

#[test]
fn a_repeated_message_is_acknowledged_and_dropped() {
    let broker = broker(&[]);
    let mut subscriber = connected(&broker, ConnectOptions::new("s"));
    answers(&mut subscriber, &bytes(&subscribe("t"))).0.unwrap();
    let message = publish("t", "x", 1).with_user_property(SEQUENCE.to_owned(), "1".to_owned());
    for _ in 0..2 {
        let mut publisher = connected(&broker, ConnectOptions::new("p"));
        let (_, sent) = answers(&mut publisher, &bytes(&message));
        assert!(matches!(sent.as_slice(), [Packet::PubAck(_)]), "{sent:?}");
    }
    assert_eq!(delivered(&mut subscriber).len(), 1);
}

/// The reason code of the only answer, a PUBACK.
fn acknowledgement(session: &mut Session<'_>, message: &PublishPacket) -> ReasonCode {
    let (ended, sent) = answers(session, &bytes(message));
    assert_eq!(ended, Ok(()));
    let [Packet::PubAck(acknowledged)] = sent.as_slice() else { panic!("{sent:?}") };
    acknowledged.reason_code
}

#[test]
fn a_message_that_is_dropped_is_not_acknowledged() {
    let broker = broker(&[]);
    let mut subscriber = connected(&broker, ConnectOptions::new("s"));
    answers(&mut subscriber, &bytes(&subscribe("t"))).0.unwrap();
    let mut publisher = connected(&broker, ConnectOptions::new("p"));
    let numbered = |payload: &str, number: u64| {
        publish("t", payload, 1).with_user_property(SEQUENCE.to_owned(), number.to_string())
    };
    let (wrong, fine) = (ReasonCode::ImplementationSpecificError, ReasonCode::Success);
    for (payload, number, code) in [
        ("first", 1, fine),
        ("a jump", u64::MAX, wrong),
        ("another content", 1, wrong),
        ("next", 3, fine),
        ("it was in a gap", 2, wrong),
        ("first", 1, fine),
    ] {
        let message = numbered(payload, number);
        assert_eq!(acknowledgement(&mut publisher, &message), code, "{payload}");
    }
    let payloads: Vec<_> =
        delivered(&mut subscriber).into_iter().map(|message| message.payload).collect();
    assert_eq!(payloads, [&b"first"[..], b"next"]);
}

#[test]
fn an_identifier_belongs_to_its_first_password_or_address() {
    let broker = broker(&[]);
    let with = |password: &str| ConnectOptions::new("p").with_credentials("user", password);
    let message = publish("t", "x", 1).with_user_property(SEQUENCE.to_owned(), "1".to_owned());
    let mut publisher = connected(&broker, with("secret"));
    assert_eq!(acknowledgement(&mut publisher, &message), ReasonCode::Success);
    drop(publisher);
    for options in [with("guess"), ConnectOptions::new("p")] {
        let mut stranger = connected(&broker, options);
        assert_eq!(acknowledgement(&mut stranger, &message), ReasonCode::NotAuthorized);
        // Without an acknowledgement, only the end of the connection tells it.
        let silent = PublishPacket::new("t", b"x".to_vec(), QoS::AtMostOnce)
            .with_user_property(SEQUENCE.to_owned(), "2".to_owned());
        let (ended, sent) = answers(&mut stranger, &bytes(&silent));
        assert!(matches!(ended, Err(End::Refused(_))), "{ended:?}");
        let [Packet::Disconnect(end)] = sent.as_slice() else { panic!("{sent:?}") };
        assert_eq!(end.reason_code, ReasonCode::NotAuthorized);
    }
    // The publisher itself may move.
    let mut session = Session::new(&broker, client(2));
    answers(&mut session, &bytes(&ConnectPacket::new(with("secret")))).0.unwrap();
    assert_eq!(acknowledgement(&mut session, &message), ReasonCode::Success);
    // Without a password its address counts, and without numbers nothing does.
    let mut owner = connected(&broker, ConnectOptions::new("q"));
    assert_eq!(acknowledgement(&mut owner, &message), ReasonCode::Success);
    let mut session = Session::new(&broker, client(2));
    answers(&mut session, &bytes(&ConnectPacket::new(ConnectOptions::new("q")))).0.unwrap();
    assert_eq!(acknowledgement(&mut session, &publish("t", "y", 1)), ReasonCode::Success);
    assert_eq!(acknowledgement(&mut session, &message), ReasonCode::NotAuthorized);
}

#[test]
fn the_client_limits_messages_in_flight() {
    let broker = broker(&[]);
    let mut publisher = connected(&broker, ConnectOptions::new("p"));
    let mut subscriber = connected(&broker, ConnectOptions::new("s").with_receive_maximum(2));
    answers(&mut subscriber, &bytes(&subscribe("t"))).0.unwrap();
    for id in 1..=5 {
        answers(&mut publisher, &bytes(&publish("t", "x", id))).0.unwrap();
    }
    let ids = |session: &mut Session<'_>| -> Vec<u16> {
        delivered(session).iter().filter_map(|message| message.packet_id).collect()
    };
    assert_eq!(ids(&mut subscriber), [1, 2]);
    assert!(!subscriber.may_deliver());
    answers(&mut subscriber, &bytes(&PubAckPacket::new(1))).0.unwrap();
    assert_eq!(ids(&mut subscriber), [3]);
    let (ended, sent) = answers(&mut subscriber, &bytes(&PubAckPacket::new(3)));
    assert!(
        matches!(ended, Err(End::Refused(_))) && matches!(sent.as_slice(), [Packet::Disconnect(_)])
    );
}

#[test]
fn a_busy_topic_does_not_starve_another() {
    let broker = broker(&[]);
    let mut publisher = connected(&broker, ConnectOptions::new("p"));
    let mut subscriber = connected(&broker, ConnectOptions::new("s").with_receive_maximum(1));
    for topic in ["a", "b"] {
        answers(&mut subscriber, &bytes(&subscribe(topic))).0.unwrap();
    }
    for id in 1..=3 {
        for topic in ["a", "b"] {
            answers(&mut publisher, &bytes(&publish(topic, "x", id))).0.unwrap();
        }
    }
    let mut topics = String::new();
    for _ in 0..6 {
        let messages = delivered(&mut subscriber);
        let [message] = messages.as_slice() else { panic!("{messages:?}") };
        topics.push_str(&message.topic_name);
        let id = message.packet_id.unwrap();
        answers(&mut subscriber, &bytes(&PubAckPacket::new(id))).0.unwrap();
    }
    assert_eq!(topics, "ababab");
}

#[test]
fn a_repeated_subscription_loses_nothing() {
    let broker = broker(&[]);
    let mut publisher = connected(&broker, ConnectOptions::new("p"));
    let mut subscriber = connected(&broker, ConnectOptions::new("s"));
    answers(&mut subscriber, &bytes(&subscribe("t"))).0.unwrap();
    answers(&mut publisher, &bytes(&publish("t", "1", 1))).0.unwrap();
    answers(&mut subscriber, &bytes(&subscribe("t"))).0.unwrap();
    let seen = |session: &mut Session<'_>| -> Vec<_> {
        let messages = delivered(session).into_iter();
        messages.map(|message| (message.payload, message.retain, message.qos)).collect()
    };
    let message = |payload, last, qos| (Bytes::from_static(payload), last, qos);
    let qos = QoS::AtLeastOnce;
    // The last value comes again, and messages under way still arrive.
    assert_eq!(seen(&mut subscriber), [message(b"1", true, qos), message(b"1", false, qos)]);
    answers(&mut publisher, &bytes(&publish("t", "2", 2))).0.unwrap();
    let mut again = SubscribePacket::new(2).add_filter("t", QoS::AtMostOnce);
    again.filters[0].options.retain_handling = RetainHandling::SendAtSubscribeIfNew;
    answers(&mut subscriber, &bytes(&again)).0.unwrap();
    assert_eq!(seen(&mut subscriber), [message(b"2", false, QoS::AtMostOnce)]);
}

#[test]
fn a_subscriber_learns_how_many_messages_are_gone() {
    let broker = broker(&["--history-messages", "2"]);
    let mut publisher = connected(&broker, ConnectOptions::new("p"));
    for id in 1..=5 {
        answers(&mut publisher, &bytes(&publish("t", "x", id))).0.unwrap();
    }
    let mut subscriber = connected(&broker, ConnectOptions::new("s"));
    let from = subscribe("t").with_user_property(FROM.to_owned(), "1".to_owned());
    answers(&mut subscriber, &bytes(&from)).0.unwrap();
    let messages = delivered(&mut subscriber);
    assert_eq!(messages.len(), 2);
    assert_eq!(number(&messages[0].properties, MISSED), Some(3));
    assert_eq!(number(&messages[1].properties, MISSED), None);
    // Numbers of another life have no effect.
    let other = subscribe("t")
        .with_user_property(FROM.to_owned(), "5".to_owned())
        .with_user_property(INSTANCE.to_owned(), (broker.topics.instance() + 1).to_string());
    let mut subscriber = connected(&broker, ConnectOptions::new("s"));
    answers(&mut subscriber, &bytes(&other)).0.unwrap();
    assert_eq!(delivered(&mut subscriber).len(), 2);
}

#[test]
fn a_packet_beyond_the_clients_limit_is_left_out() {
    let broker = broker(&[]);
    let mut options = ConnectOptions::new("s");
    options.properties.maximum_packet_size = Some(200);
    let mut publisher = connected(&broker, ConnectOptions::new("p"));
    let mut subscriber = connected(&broker, options);
    answers(&mut subscriber, &bytes(&subscribe("t"))).0.unwrap();
    for (id, len) in [(1, 1000), (2, 10)] {
        let message = publish("t", &"x".repeat(len), id);
        answers(&mut publisher, &bytes(&message)).0.unwrap();
    }
    let messages = delivered(&mut subscriber);
    assert_eq!(messages.len(), 1);
    assert_eq!(number(&messages[0].properties, MISSED), Some(1));
}

#[test]
fn unsupported_features_are_refused_with_their_code() {
    let broker = broker(&["--max-message", "100"]);
    let long = publish("t", &"x".repeat(101), 1);
    let exactly_once = PublishPacket::new("t", &b"x"[..], QoS::ExactlyOnce).with_packet_id(1);
    let alias = publish("t", "x", 1).with_topic_alias(1);
    for (packet, code) in [
        (bytes(&long), ReasonCode::PacketTooLarge),
        (bytes(&publish("t", &"x".repeat(2000), 1)), ReasonCode::PacketTooLarge),
        (bytes(&exactly_once), ReasonCode::QoSNotSupported),
        (bytes(&alias), ReasonCode::TopicAliasInvalid),
        (bytes(&ConnectPacket::new(ConnectOptions::new("p"))), ReasonCode::ProtocolError),
        (Bytes::from_static(b"\xf1\x00"), ReasonCode::MalformedPacket),
    ] {
        let mut session = connected(&broker, ConnectOptions::new("p"));
        let (ended, sent) = answers(&mut session, &packet);
        assert!(matches!(ended, Err(End::Refused(_))), "{code:?}");
        let [Packet::Disconnect(end)] = sent.as_slice() else { panic!("{sent:?}") };
        assert_eq!(end.reason_code, code);
    }
    let mut session = connected(&broker, ConnectOptions::new("p"));
    let (ended, sent) = answers(&mut session, &bytes(&publish("$SYS/x", "x", 1)));
    assert_eq!(ended, Ok(()));
    let [Packet::PubAck(refused)] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!(refused.reason_code, ReasonCode::TopicNameInvalid);
    for (filter, code) in [
        ("a/+", SubAckReasonCode::WildcardSubscriptionsNotSupported),
        ("$share/g/a", SubAckReasonCode::SharedSubscriptionsNotSupported),
        ("$SYS/a", SubAckReasonCode::TopicFilterInvalid),
    ] {
        let (_, sent) = answers(&mut session, &bytes(&subscribe(filter)));
        let [Packet::SubAck(refused)] = sent.as_slice() else { panic!("{sent:?}") };
        assert_eq!(refused.reason_codes, [code]);
    }
}

#[test]
fn connect_comes_first_and_requests_supported_features() {
    let broker = broker(&[]);
    let mut early = session(&broker);
    let (ended, sent) = answers(&mut early, &bytes(&PingReqPacket::default()));
    assert!(matches!(ended, Err(End::Refused(_))) && sent.is_empty());
    let will = mqtt5_protocol::WillMessage::new("t", b"gone".to_vec());
    let old = bytes(&ConnectPacket::new_v311(ConnectOptions::new("p")));
    let long = "x".repeat(65);
    for (packet, code) in [
        (
            bytes(&ConnectPacket::new(ConnectOptions::new("p").with_will(will))),
            ReasonCode::ImplementationSpecificError,
        ),
        (
            bytes(&ConnectPacket::new(ConnectOptions::new(long))),
            ReasonCode::ClientIdentifierNotValid,
        ),
        (old, ReasonCode::UnsupportedProtocolVersion),
    ] {
        let mut session = session(&broker);
        let (ended, sent) = answers(&mut session, &packet);
        assert!(matches!(ended, Err(End::Refused(_))), "{code:?}");
        let [Packet::ConnAck(refused)] = sent.as_slice() else { panic!("{sent:?}") };
        assert_eq!(refused.reason_code, code);
    }
}

#[test]
fn topics_and_subscriptions_of_a_connection_are_limited() {
    let broker = broker(&["--max-requests", "2", "--max-topics", "3"]);
    let mut session = connected(&broker, ConnectOptions::new("p"));
    let codes: Vec<_> = (1..=3)
        .map(|id| {
            let (_, sent) = answers(&mut session, &bytes(&publish(&format!("t{id}"), "x", id)));
            let [Packet::PubAck(acknowledged)] = sent.as_slice() else { panic!("{sent:?}") };
            acknowledged.reason_code
        })
        .collect();
    assert_eq!(codes, [ReasonCode::Success, ReasonCode::Success, ReasonCode::QuotaExceeded]);
    let mut subscriber = connected(&broker, ConnectOptions::new("s"));
    let codes: Vec<_> = ["u1", "u2", "u1"]
        .map(|topic| {
            let (_, sent) = answers(&mut subscriber, &bytes(&subscribe(topic)));
            let [Packet::SubAck(granted)] = sent.as_slice() else { panic!("{sent:?}") };
            granted.reason_codes[0]
        })
        .into();
    let granted = SubAckReasonCode::GrantedQoS1;
    assert_eq!(codes, [granted, SubAckReasonCode::QuotaExceeded, granted]);
}

#[test]
fn both_ends_of_these_files_understand_each_other() {
    use crate::client::codec::{Event, Place, Role};
    use crate::name::{PublisherName, Secret, TopicName};
    use crate::outbox::Outbox;

    let broker = broker(&[]);
    let topic = TopicName::new("a/b").unwrap();
    let (mut to_broker, mut to_client) = (BytesMut::new(), BytesMut::new());
    let name = PublisherName::new("p").unwrap();
    let role = Role::Publisher(Secret::random().unwrap());
    let mut publisher = MqttClient::new(&topic, &name, role, &mut to_broker);
    let mut outbox = Outbox::new();
    for n in 0..3_u8 {
        outbox.push(Bytes::from(vec![n]), 1000 + u64::from(n), h3_client::now());
        publisher.publish(outbox.send().unwrap(), &mut to_broker);
    }
    publisher.end(&mut to_broker);
    let mut at_broker = session(&broker);
    assert_eq!(at_broker.receive(&to_broker, &mut to_client), Err(End::Left));
    let mut events = Vec::new();
    publisher.receive(&to_client, &mut BytesMut::new(), &mut events).unwrap();
    assert_eq!(events, [1, 2, 3].map(Event::Acknowledged));

    let (mut to_broker, mut to_client) = (BytesMut::new(), BytesMut::new());
    let place = Place { from: Some(2), instance: Some(broker.topics.instance()) };
    let name = PublisherName::new("s").unwrap();
    let mut subscriber = MqttClient::new(&topic, &name, Role::Subscriber(place), &mut to_broker);
    let mut at_broker = session(&broker);
    at_broker.receive(&to_broker, &mut to_client).unwrap();
    at_broker.deliver(&mut to_client, usize::MAX);
    let (mut events, mut answers) = (Vec::new(), BytesMut::new());
    subscriber.receive(&to_client, &mut answers, &mut events).unwrap();
    let message = |n: u8| Event::Message {
        sequence: Some(u64::from(n) + 1),
        time: 1000 + u64::from(n),
        payload: Bytes::from(vec![n]),
    };
    assert_eq!(events, [Event::Began(place), message(1), message(2)]);
    at_broker.receive(&answers, &mut to_client).unwrap();
    assert!(at_broker.in_flight.is_empty());
}
