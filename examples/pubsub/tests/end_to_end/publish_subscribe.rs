//! Messages from publishers to subscribers.

use crate::programs::{Broker, PROTOCOLS};

#[test]
fn messages_arrive_in_order_across_protocols() {
    let broker = Broker::start(&[]);
    for from in PROTOCOLS {
        for to in PROTOCOLS {
            // A name that needs encoding in a path.
            let topic = format!("house/{from}/to {to}/°C");
            let mut subscriber = broker.subscriber(to, &topic);
            let texts = ["one", "", "three ☺"];
            broker.publish(from, &topic, &texts);
            for (sequence, text) in (1..).zip(texts) {
                let line = subscriber.line();
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
        let mut subscriber = broker.subscriber(protocol, "t");
        let line = subscriber.line();
        assert_eq!((&line["message"], &line["sequence"]), (&"new".into(), &2.into()));
        assert!(line["latency_ms"].is_null(), "it was not late: {line}");
    }
    // An empty message removes it.
    broker.publish("http3", "t", &[""]);
    for protocol in PROTOCOLS {
        let mut subscriber = broker.subscriber(protocol, "t");
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
    broker.subscriber("http3", "t").expect(100, &["0123456"]);
}

#[test]
fn many_publishers_share_a_topic() {
    let broker = Broker::start(&[]);
    let mut subscriber = broker.subscriber("mqtt", "t");
    let mut publishers: Vec<_> =
        PROTOCOLS.iter().cycle().take(4).map(|protocol| broker.publisher(protocol, "t")).collect();
    for round in 0..3 {
        for (index, publisher) in publishers.iter_mut().enumerate() {
            publisher.say(&format!("{index}:{round}"));
        }
    }
    for publisher in publishers {
        publisher.succeed();
    }
    let mut rounds = [0; 4];
    for sequence in 1..=12 {
        let line = subscriber.line();
        assert_eq!(line["sequence"], sequence);
        let (index, round) = line["message"].as_str().unwrap().split_once(':').unwrap();
        let next = &mut rounds[index.parse::<usize>().unwrap()];
        assert_eq!(round, next.to_string());
        *next += 1;
    }
}

/// The messages of a round. The broker keeps twice as many.
const ROUND: u64 = 400;
const ROUNDS: u64 = 20;

#[test]
fn a_slow_subscriber_delays_no_other_and_learns_what_it_missed() {
    for protocol in PROTOCOLS {
        let options = ["--history-messages", "800", "--history-bytes", "100000000"];
        let broker = Broker::start(&options);
        // Its standard output is a pipe that the test does not read yet.
        let mut slow = broker.subscriber(protocol, "t");
        let mut fast = broker.subscriber(protocol, "t");
        for round in 0..ROUNDS {
            let mut publisher = broker.client("publish", "http3");
            let count = ROUND.to_string();
            publisher.args(["--count", &count, "--interval", "0", "--size", "2000", "-q", "t"]);
            assert!(publisher.status().unwrap().success());
            for n in 1..=ROUND {
                assert_eq!(fast.line()["sequence"], round * ROUND + n, "{protocol}");
            }
        }
        let (mut expected, mut missed) = (1, 0);
        while expected <= ROUNDS * ROUND {
            let line = slow.line();
            if let Some(count) = line["missed"].as_u64() {
                missed += count;
                expected += count;
            } else {
                assert_eq!(line["sequence"], expected, "{protocol}");
                expected += 1;
            }
        }
        assert!(missed > 0, "{protocol}: the broker cannot have kept all of it");
    }
}
