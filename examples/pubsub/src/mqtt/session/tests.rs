//! The session with a client's packets.

use super::*;
use bytes::Bytes;
use mqtt5_protocol::packet::MqttPacket;
use mqtt5_protocol::packet::pingreq::PingReqPacket;
use mqtt5_protocol::{ConnectOptions, WillMessage};

use crate::broker::topics::tests::{broker, client};

/// The packets that a client receives.
fn packets(mut bytes: BytesMut) -> Vec<Packet> {
    let all = std::iter::from_fn(|| next(&mut bytes, 1 << 20).unwrap()).collect();
    assert!(bytes.is_empty());
    all
}

/// Passes a packet to the session, and returns its answers.
fn answers(session: &mut Session<'_>, packet: &impl MqttPacket) -> (Result<(), End>, Vec<Packet>) {
    let (mut bytes, mut out) = (BytesMut::new(), BytesMut::new());
    write(packet, &mut bytes);
    (session.receive(&bytes, &mut out), packets(out))
}

/// The code of the only answer, and whether the session continues.
fn code_of(session: &mut Session<'_>, packet: &impl MqttPacket) -> (ReasonCode, bool) {
    let (ended, sent) = answers(session, packet);
    let code = match sent.as_slice() {
        [Packet::ConnAck(answer)] => answer.reason_code,
        [Packet::PubAck(answer)] => answer.reason_code,
        [Packet::Disconnect(answer)] => answer.reason_code,
        [Packet::SubAck(answer)] => ReasonCode::from_u8(answer.reason_codes[0] as u8).unwrap(),
        _ => panic!("{sent:?}"),
    };
    (code, ended.is_ok())
}

const OK: (ReasonCode, bool) = (ReasonCode::Success, true);
const GRANTED: (ReasonCode, bool) = (ReasonCode::GrantedQoS1, true);

/// A session after CONNECT, of a client at 127.0.0.`number`.
fn connected(broker: &Broker, number: u8, options: ConnectOptions) -> Session<'_> {
    let mut session = Session::new(broker, client(number));
    assert_eq!(code_of(&mut session, &ConnectPacket::new(options)), OK);
    session
}

fn plain(broker: &Broker) -> Session<'_> {
    connected(broker, 1, ConnectOptions::new("p"))
}

/// A session that subscribes to `t`.
fn subscriber(broker: &Broker, options: ConnectOptions) -> Session<'_> {
    let mut session = connected(broker, 1, options);
    assert_eq!(code_of(&mut session, &subscribe("t")), GRANTED);
    session
}

fn publish(topic: &str, payload: &str) -> PublishPacket {
    PublishPacket::new(topic, payload.as_bytes().to_vec(), QoS::AtLeastOnce)
        .with_packet_id(1)
        .with_retain(true)
}

fn numbered(payload: &str, number: u64) -> PublishPacket {
    publish("t", payload).with_user_property(SEQUENCE.to_owned(), number.to_string())
}

fn subscribe(topic: &str) -> SubscribePacket {
    SubscribePacket::new(1).add_filter(topic, QoS::AtLeastOnce)
}

/// Publishes these messages in a session of its own.
fn published(broker: &Broker, messages: &[(&str, &str)]) {
    let mut session = plain(broker);
    for (topic, payload) in messages {
        assert_eq!(code_of(&mut session, &publish(topic, payload)), OK);
    }
}

/// The messages that the session delivers now.
fn delivered(session: &mut Session<'_>) -> Vec<PublishPacket> {
    let mut out = BytesMut::new();
    session.deliver(&mut out, usize::MAX);
    let publish = |packet| match packet {
        Packet::Publish(publish) => publish,
        other => panic!("{other:?}"),
    };
    packets(out).into_iter().map(publish).collect()
}

#[test]
fn the_last_value_comes_at_once_and_is_marked() {
    let broker = broker(&[]);
    published(&broker, &[("t", "20.5"), ("t", "21.5")]);
    let mut subscriber = subscriber(&broker, ConnectOptions::new("s"));
    published(&broker, &[("t", "22.5")]);
    let messages = delivered(&mut subscriber);
    let seen: Vec<_> = messages
        .iter()
        .map(|one| (&one.payload[..], one.retain, number(&one.properties, SEQUENCE)))
        .collect();
    assert_eq!(seen, [(&b"21.5"[..], true, Some(2)), (b"22.5", false, Some(3))]);
}

#[test]
fn a_message_that_is_dropped_is_not_acknowledged() {
    let broker = broker(&[]);
    let mut subscriber = subscriber(&broker, ConnectOptions::new("s"));
    let wrong = (ReasonCode::ImplementationSpecificError, true);
    for (payload, number, code) in [
        ("first", 1, OK),
        ("a jump", u64::MAX, wrong),
        ("another content", 1, wrong),
        ("next", 3, OK),
        ("it was in a gap", 2, wrong),
        ("first", 1, OK),
    ] {
        // Each in a new connection of the same client.
        let code_now = code_of(&mut plain(&broker), &numbered(payload, number));
        assert_eq!(code_now, code, "{payload}");
    }
    let payloads: Vec<_> =
        delivered(&mut subscriber).into_iter().map(|message| message.payload).collect();
    assert_eq!(payloads, [&b"first"[..], b"next"]);
}

#[test]
fn an_identifier_belongs_to_its_first_password_or_address() {
    let broker = broker(&[]);
    let with = |password: &str| ConnectOptions::new("p").with_credentials("user", password);
    let other = || ConnectOptions::new("q");
    let message = numbered("x", 1);
    let not_its_own = ReasonCode::NotAuthorized;
    let mut first = connected(&broker, 1, with("secret"));
    assert_eq!(code_of(&mut first, &message), OK);
    for options in [with("guess"), ConnectOptions::new("p")] {
        let mut stranger = connected(&broker, 1, options);
        assert_eq!(code_of(&mut stranger, &message), (not_its_own, true));
        // Without an acknowledgement, only the end of the connection tells it.
        let silent = PublishPacket::new("t", b"x".to_vec(), QoS::AtMostOnce)
            .with_user_property(SEQUENCE.to_owned(), "2".to_owned());
        assert_eq!(code_of(&mut stranger, &silent), (not_its_own, false));
    }
    // The publisher itself may move.
    assert_eq!(code_of(&mut connected(&broker, 2, with("secret")), &message), OK);
    // Without a password its address counts, and without numbers nothing does.
    assert_eq!(code_of(&mut connected(&broker, 1, other()), &message), OK);
    let mut moved = connected(&broker, 2, other());
    assert_eq!(code_of(&mut moved, &publish("t", "y")), OK);
    assert_eq!(code_of(&mut moved, &message), (not_its_own, true));
}

#[test]
fn the_client_limits_messages_in_flight_and_topics_take_turns() {
    let broker = broker(&[]);
    let mut session = connected(&broker, 1, ConnectOptions::new("s").with_receive_maximum(2));
    for topic in ["a", "b"] {
        assert_eq!(code_of(&mut session, &subscribe(topic)), GRANTED);
    }
    published(&broker, &[("a", "x"), ("a", "x"), ("a", "x"), ("b", "x"), ("b", "x")]);
    let mut topics = String::new();
    for acknowledged in 0..4 {
        for message in delivered(&mut session) {
            topics.push_str(&message.topic_name);
            assert_eq!(message.packet_id.map(usize::from), Some(topics.len()));
        }
        assert_eq!(topics.len(), acknowledged + 2);
        assert!(!session.may_deliver());
        let id = u16::try_from(acknowledged + 1).unwrap();
        answers(&mut session, &PubAckPacket::new(id)).0.unwrap();
    }
    // A busy topic does not starve another.
    assert_eq!(topics, "ababa");
    let out_of_order = PubAckPacket::new(9);
    assert_eq!(code_of(&mut session, &out_of_order), (ReasonCode::ProtocolError, false));
}

#[test]
fn a_repeated_subscription_loses_nothing() {
    let broker = broker(&[]);
    let mut session = subscriber(&broker, ConnectOptions::new("s"));
    published(&broker, &[("t", "1")]);
    assert_eq!(code_of(&mut session, &subscribe("t")), GRANTED);
    let seen = |session: &mut Session<'_>| -> Vec<_> {
        let messages = delivered(session).into_iter();
        messages.map(|message| (message.payload, message.retain, message.qos)).collect()
    };
    let message = |payload, last, qos| (Bytes::from_static(payload), last, qos);
    let qos = QoS::AtLeastOnce;
    // The last value comes again, and messages under way still arrive.
    assert_eq!(seen(&mut session), [message(b"1", true, qos), message(b"1", false, qos)]);
    published(&broker, &[("t", "2")]);
    let mut again = SubscribePacket::new(2).add_filter("t", QoS::AtMostOnce);
    again.filters[0].options.retain_handling = RetainHandling::SendAtSubscribeIfNew;
    assert_eq!(code_of(&mut session, &again), OK);
    assert_eq!(seen(&mut session), [message(b"2", false, QoS::AtMostOnce)]);
}

#[test]
fn a_subscriber_learns_how_many_messages_are_gone() {
    let broker = broker(&["--history-messages", "2"]);
    published(&broker, &[("t", "x"); 5]);
    let missed = |properties: &[(&str, u64)]| -> Vec<_> {
        let mut packet = subscribe("t");
        for (name, value) in properties {
            packet = packet.with_user_property((*name).to_owned(), value.to_string());
        }
        let mut session = connected(&broker, 1, ConnectOptions::new("s"));
        assert_eq!(code_of(&mut session, &packet), GRANTED);
        delivered(&mut session).iter().map(|one| number(&one.properties, MISSED)).collect()
    };
    assert_eq!(missed(&[(FROM, 1)]), [Some(3), None]);
    // Numbers of another life have no effect.
    assert_eq!(missed(&[(FROM, 5), (INSTANCE, broker.instance() + 1)]), [Some(3), None]);
    assert_eq!(missed(&[(FROM, 5), (INSTANCE, broker.instance())]), [None]);
}

#[test]
fn a_packet_beyond_the_clients_limit_is_left_out() {
    let broker = broker(&[]);
    let mut options = ConnectOptions::new("s");
    options.properties.maximum_packet_size = Some(200);
    let mut session = subscriber(&broker, options);
    published(&broker, &[("t", &"x".repeat(1000)), ("t", "short")]);
    let messages = delivered(&mut session);
    assert_eq!(messages.len(), 1);
    assert_eq!(number(&messages[0].properties, MISSED), Some(1));
}

#[test]
fn unsupported_features_are_refused_with_their_code() {
    let broker = broker(&["--max-message", "100"]);
    let exactly_once = PublishPacket::new("t", &b"x"[..], QoS::ExactlyOnce).with_packet_id(1);
    for (packet, code) in [
        (publish("t", &"x".repeat(101)), ReasonCode::PacketTooLarge),
        (publish("t", &"x".repeat(2000)), ReasonCode::PacketTooLarge),
        (exactly_once, ReasonCode::QoSNotSupported),
        (publish("t", "x").with_topic_alias(1), ReasonCode::TopicAliasInvalid),
    ] {
        assert_eq!(code_of(&mut plain(&broker), &packet), (code, false));
    }
    let again = ConnectPacket::new(ConnectOptions::new("p"));
    assert_eq!(code_of(&mut plain(&broker), &again), (ReasonCode::ProtocolError, false));
    let mut out = BytesMut::new();
    assert!(matches!(plain(&broker).receive(b"\xf1\x00", &mut out), Err(End::Refused(_))));
    let [Packet::Disconnect(end)] = &packets(out)[..] else { panic!() };
    assert_eq!(end.reason_code, ReasonCode::MalformedPacket);

    let mut session = plain(&broker);
    let reserved = code_of(&mut session, &publish("$SYS/x", "x"));
    assert_eq!(reserved, (ReasonCode::TopicNameInvalid, true));
    let mut no_local = subscribe("a");
    no_local.filters[0].options.no_local = true;
    for (packet, code) in [
        (subscribe("a/+"), ReasonCode::WildcardSubscriptionsNotSupported),
        (subscribe("$share/g/a"), ReasonCode::SharedSubscriptionsNotSupported),
        (subscribe("$SYS/a"), ReasonCode::TopicFilterInvalid),
        (
            subscribe("a").with_subscription_identifier(1),
            ReasonCode::SubscriptionIdentifiersNotSupported,
        ),
        (no_local, ReasonCode::ImplementationSpecificError),
    ] {
        assert_eq!(code_of(&mut session, &packet), (code, true));
    }
}

#[test]
fn connect_comes_first_and_requests_supported_features() {
    let broker = broker(&[]);
    let (ended, sent) = answers(&mut Session::new(&broker, client(1)), &PingReqPacket::default());
    assert!(matches!(ended, Err(End::Refused(_))) && sent.is_empty());
    let options = || ConnectOptions::new("p");
    let will = options().with_will(WillMessage::new("t", b"gone".to_vec()));
    let mut method = options();
    method.properties.authentication_method = Some("m".to_owned());
    for (packet, code) in [
        (ConnectPacket::new(will), ReasonCode::ImplementationSpecificError),
        (ConnectPacket::new(method), ReasonCode::BadAuthenticationMethod),
        (
            ConnectPacket::new(ConnectOptions::new("x".repeat(65))),
            ReasonCode::ClientIdentifierNotValid,
        ),
        (ConnectPacket::new_v311(options()), ReasonCode::UnsupportedProtocolVersion),
    ] {
        let mut session = Session::new(&broker, client(1));
        assert_eq!(code_of(&mut session, &packet), (code, false));
    }
}

#[test]
fn topics_and_subscriptions_of_a_connection_are_limited() {
    let broker = broker(&["--max-requests", "2", "--max-topics", "3"]);
    let full = (ReasonCode::QuotaExceeded, true);
    let mut session = plain(&broker);
    for (topic, code) in [("t1", OK), ("t2", OK), ("t3", full)] {
        assert_eq!(code_of(&mut session, &publish(topic, "x")), code, "{topic}");
    }
    for (topic, code) in [("t1", GRANTED), ("t2", GRANTED), ("t3", full), ("t1", GRANTED)] {
        assert_eq!(code_of(&mut session, &subscribe(topic)), code, "{topic}");
    }
}
