//! Bytes that no client of this workspace sends.

use http::StatusCode;

use crate::http_peer;
use crate::peer::{CONNECT, SUBSCRIBE, Stream, connect, endpoint};
use crate::programs::Broker;

/// The status and the body of the broker's answer.
fn ask(broker: &Broker, method: &str, path: &str, body: &'static [u8]) -> (StatusCode, String) {
    http_peer::ask(broker.port, &broker.ca(), method, path, &[], body)
}

#[test]
fn malformed_bodies_are_refused_after_their_valid_messages() {
    let broker = Broker::start(&["--max-message", "1000"]);
    let mut subscriber = broker.subscriber("http3", "t");
    let good = b"\x00\x0b\x01\x00\x00\x00\x00\x00\x00\x00\x00ok";
    let acknowledged = "\u{2}\u{1}\u{1}";
    for (sequence, (rest, reason)) in (1..).zip([
        (&b"\x00\x80\x01\x00\x00"[..], "a message has 65520 bytes, and the limit is 1000"),
        (b"\x00\x01\x01", "a frame's content does not fit its type"),
        (b"\x02\x01\x05", "a publisher only sends messages"),
        (b"\x00\x20\x01", "the body ends within a message"),
    ]) {
        let body: &'static [u8] = [&good[..], rest].concat().leak();
        let (status, answer) = ask(&broker, "POST", "/topics/t", body);
        assert_eq!(status, StatusCode::OK);
        let refused = answer.strip_prefix(acknowledged).unwrap();
        assert!(refused.starts_with('\u{3}') && refused.ends_with(reason), "{refused}");
        subscriber.expect(sequence, &["ok"]);
    }
}

/// The body of a request that publishes `ok` with this number.
fn message(number: u8) -> &'static [u8] {
    let mut frame = b"\x00\x0b\x00\x00\x00\x00\x00\x00\x00\x00\x00ok".to_vec();
    frame[2] = number;
    frame.leak()
}

/// The same with the greatest number, 2^62 - 1.
const GREATEST: &[u8] = b"\x00\x12\xff\xff\xff\xff\xff\xff\xff\xff\
                          \x00\x00\x00\x00\x00\x00\x00\x00ok";

#[test]
fn a_stranger_cannot_silence_a_publisher() {
    let broker = Broker::start(&[]);
    let mut subscriber = broker.subscriber("http3", "t");
    let post = |secret: &[_], body| {
        let path = "/topics/t?publisher=p";
        http_peer::ask(broker.port, &broker.ca(), "POST", path, secret, body)
    };
    let secret = [("pubsub-secret", "of p")];
    assert_eq!(post(&secret, message(1)), (StatusCode::OK, "\u{2}\u{1}\u{1}".to_owned()));
    for other in [&[][..], &[("pubsub-secret", "a guess")]] {
        let (status, text) = post(other, GREATEST);
        assert_eq!(status, StatusCode::FORBIDDEN, "{text}");
        assert!(text.contains("belongs to another client"), "{text}");
    }
    // Its own mistakes are refused, too.
    let (_, text) = post(&secret, GREATEST);
    assert!(text.starts_with('\u{3}') && text.contains("more than 1000000 above 1"), "{text}");
    assert_eq!(post(&secret, message(3)).1, "\u{2}\u{1}\u{3}");
    let (_, text) = post(&secret, message(2));
    assert!(text.starts_with('\u{3}') && text.contains("message 2 is neither new"), "{text}");
    assert_eq!(post(&secret, message(1)).1, "\u{2}\u{1}\u{1}", "a repetition");
    subscriber.expect(1, &["ok", "ok"]);
    broker.publish("http3", "t", &["next"]);
    subscriber.expect(3, &["next"]);
}

#[test]
fn wrong_requests_get_a_status_and_a_sentence() {
    let broker = Broker::start(&[]);
    for (method, path, status, words) in [
        ("GET", "/", 200, "publishes"),
        ("GET", "/other", 404, "/topics/NAME"),
        ("PUT", "/topics/t", 405, "only GET"),
        ("POST", "/topics/a%2Bb", 400, "wildcard"),
        ("POST", "/topics/t?publisher=", 400, "1 to 64 bytes"),
        ("GET", "/topics/t?from=x", 400, "from that is no number"),
        ("GET", "/topics/%00", 400, "cannot be shown"),
    ] {
        let (got, text) = ask(&broker, method, path, b"");
        assert_eq!(got.as_u16(), status, "{path}: {text}");
        assert!(text.contains(words), "{path}: {text}");
    }
}

#[test]
fn malformed_packets_end_their_connection_alone() {
    let broker = Broker::start(&[]);
    let mut subscriber = broker.subscriber("mqtt", "t");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for junk in [&b"\xff\xff\xff\xff\xff\xff"[..], b"\x00\x00", b"GET / HTTP/1.1\r\n\r\n", b"\x30"]
    {
        for prefix in [&b""[..], CONNECT] {
            let ended = runtime.block_on(async {
                let quic = connect(&endpoint(), &broker, b"mqtt").await;
                let (mut send, mut receive) = quic.open_bi().await.unwrap();
                send.write_all(&[prefix, junk].concat()).await.unwrap();
                send.finish().unwrap();
                let _ = receive.read_to_end(1000).await;
                quic.closed().await
            });
            assert!(matches!(ended, quinn::ConnectionError::ApplicationClosed(_)), "{ended}");
        }
    }
    broker.publish("mqtt", "t", &["still here"]);
    subscriber.expect(1, &["still here"]);
}

#[test]
fn a_plain_client_of_mqtt_needs_none_of_the_extensions() {
    let broker = Broker::start(&[]);
    broker.publish("http3", "t", &["value"]);
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let quic = connect(&endpoint(), &broker, b"mqtt").await;
        // SUBSCRIBE to t by QoS 0, PUBLISH to u without properties, and PINGREQ.
        let packets = [CONNECT, SUBSCRIBE, b"\x30\x06\x00\x01u\x00hi", b"\xc0\x00"].concat();
        let mut stream = Stream::begin(&quic, &packets).await;
        stream.read_until(b"value").await;
        // PUBLISH with RETAIN.
        assert!(stream.received.contains(&0x31));
        // The broker answers PINGREQ after it has published the message.
        stream.read_until(b"\xd0\x00").await;
    });
    let mut subscriber = broker.subscriber("http3", "u");
    broker.publish("mqtt", "u", &["next"]);
    // The first message was not retained, so it is not a last value.
    subscriber.expect(2, &["next"]);
}
