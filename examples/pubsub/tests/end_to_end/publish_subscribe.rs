//! Messages from publishers to subscribers.

use crate::programs::{Broker, PROTOCOLS, Publisher, Subscriber, numbered};

#[test]
fn messages_arrive_in_order_across_protocols() {
    let broker = Broker::start(&[]);
    for from in PROTOCOLS {
        for to in PROTOCOLS {
            // A name that needs encoding in a path.
            let topic = format!("house/{from}/to {to}/°C");
            let mut subscriber = Subscriber::start(broker.client("subscribe", to), &topic);
            let texts = ["one", "", "three ☺"];
            broker.publish(from, &topic, &texts);
            let lines = std::iter::repeat_with(|| subscriber.line()).take(3);
            for (line, (sequence, text)) in lines.zip(numbered(1, &texts)) {
                assert_eq!(line["topic"], *topic);
                assert_eq!((&line["sequence"], &line["message"]), (&sequence.into(), &text.into()));
                assert!(line["latency_ms"].is_f64(), "{line}");
            }
        }
    }
}

#[test]
fn the_last_value_comes_at_once() {
    let broker = Broker::start(&[]);
    broker.publish("mqtt", "t", &["old", "new"]);
    for protocol in PROTOCOLS {
        let mut subscriber = Subscriber::start(broker.client("subscribe", protocol), "t");
        let line = subscriber.line();
        assert_eq!((&line["message"], &line["sequence"]), (&"new".into(), &2.into()));
        assert!(line["latency_ms"].is_null(), "it was not late: {line}");
    }
    // An empty message removes it.
    broker.publish("http3", "t", &[""]);
    for protocol in PROTOCOLS {
        let mut subscriber = Subscriber::start(broker.client("subscribe", protocol), "t");
        broker.publish(protocol, "t", &["next"]);
        assert_eq!(subscriber.line()["message"], "next");
        broker.publish(protocol, "t", &[""]);
    }
}

#[test]
fn a_subscriber_begins_at_its_position_and_ends_after_its_count() {
    let broker = Broker::start(&["--history-messages", "3"]);
    broker.publish("http3", "t", &["1", "2", "3", "4", "5"]);
    for protocol in PROTOCOLS {
        let from = |sequence: &str, count: &str| {
            let mut command = broker.client("subscribe", protocol);
            command.args(["--from", sequence, "--count", count, "t"]).output().unwrap()
        };
        let output = from("4", "2");
        assert!(output.status.success());
        assert_eq!(output.stdout, b"4\n5\n");
        let output = from("1", "3");
        assert_eq!(output.stdout, b"3\n4\n5\n");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("2 messages gone before they could be received"), "{errors}");
        assert!(errors.contains("3 messages received from t, 2 missed"), "{errors}");
    }
}

#[test]
fn a_publisher_reports_what_was_acknowledged() {
    let broker = Broker::start(&[]);
    for protocol in PROTOCOLS {
        let mut command = broker.client("publish", protocol);
        command.args(["--count", "50", "--interval", "0", "--size", "7", "--json", "t"]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["acknowledged"], 50);
        assert_eq!(report["protocol"], protocol);
        let p99 = report["acknowledgement_ms"]["p99"].as_f64().unwrap();
        assert!(p99 > 0.0, "{report}");
    }
    let mut subscriber = Subscriber::start(broker.client("subscribe", "http3"), "t");
    assert_eq!(subscriber.messages(1), numbered(100, &["0123456"]));
}

#[test]
fn many_publishers_share_a_topic() {
    let broker = Broker::start(&[]);
    let mut subscriber = Subscriber::start(broker.client("subscribe", "mqtt"), "t");
    let mut publishers: Vec<_> = PROTOCOLS
        .iter()
        .cycle()
        .take(4)
        .map(|protocol| Publisher::start(broker.client("publish", protocol), "t"))
        .collect();
    for round in 0..3 {
        for (index, publisher) in publishers.iter_mut().enumerate() {
            publisher.say(&format!("{index}:{round}"));
        }
    }
    for publisher in publishers {
        assert!(publisher.end().status.success());
    }
    let received = subscriber.messages(12);
    let sequences: Vec<_> = received.iter().map(|(sequence, _)| *sequence).collect();
    assert_eq!(sequences, (1..=12).collect::<Vec<_>>());
    for index in 0..4 {
        let own: Vec<_> = received
            .iter()
            .filter_map(|(_, text)| text.strip_prefix(&format!("{index}:")))
            .collect();
        assert_eq!(own, ["0", "1", "2"]);
    }
}
