//! Connections that are lost.

use nix::sys::signal::Signal;

use crate::programs::{Broker, PROTOCOLS, Publisher, Subscriber, message, numbered};
use crate::relay::Relay;

/// With these timeouts both ends detect a cut soon.
const IMPATIENT: [&str; 2] = ["--idle-timeout", "2"];

#[test]
fn a_subscriber_that_reconnects_loses_nothing() {
    for protocol in PROTOCOLS {
        let broker = Broker::start(&IMPATIENT);
        let relay = Relay::start(broker.port);
        let command = broker.client_through(relay.port, "subscribe", protocol);
        let mut subscriber = Subscriber::start(command, "t");
        broker.publish("http3", "t", &["1", "2"]);
        assert_eq!(subscriber.messages(2), numbered(1, &["1", "2"]));
        relay.cut();
        broker.publish("http3", "t", &["3", "4", "5"]);
        assert_eq!(subscriber.messages(3), numbered(3, &["3", "4", "5"]), "{protocol}");
    }
}

#[test]
fn a_subscriber_without_a_message_yet_loses_nothing() {
    for protocol in PROTOCOLS {
        let broker = Broker::start(&IMPATIENT);
        let relay = Relay::start(broker.port);
        let command = broker.client_through(relay.port, "subscribe", protocol);
        let mut subscriber = Subscriber::start(command, "t");
        relay.cut();
        broker.publish("http3", "t", &["1", "2"]);
        assert_eq!(subscriber.messages(2), numbered(1, &["1", "2"]), "{protocol}");
    }
}

#[test]
fn a_subscriber_that_reconnects_too_late_learns_what_it_missed() {
    for protocol in PROTOCOLS {
        let broker = Broker::start(&["--idle-timeout", "2", "--history-messages", "2"]);
        let relay = Relay::start(broker.port);
        let command = broker.client_through(relay.port, "subscribe", protocol);
        let mut subscriber = Subscriber::start(command, "t");
        broker.publish("http3", "t", &["1"]);
        assert_eq!(subscriber.messages(1), numbered(1, &["1"]));
        relay.cut_during(|| broker.publish("http3", "t", &["2", "3", "4", "5"]));
        assert_eq!(subscriber.line()["missed"], 2, "{protocol}");
        assert_eq!(subscriber.messages(2), numbered(4, &["4", "5"]));
    }
}

#[test]
fn repeated_messages_are_published_once() {
    for protocol in PROTOCOLS {
        let broker = Broker::start(&IMPATIENT);
        let relay = Relay::start(broker.port);
        let mut subscriber = Subscriber::start(broker.client("subscribe", "http3"), "t");
        let command = broker.client_through(relay.port, "publish", protocol);
        let mut publisher = Publisher::start(command, "t");
        publisher.say("1");
        assert_eq!(subscriber.messages(1), numbered(1, &["1"]));
        // The broker gets the next two messages, but their acknowledgements are lost.
        relay.cut_to_clients();
        publisher.say("2");
        publisher.say("3");
        assert_eq!(subscriber.messages(2), numbered(2, &["2", "3"]));
        publisher.say("4");
        let output = publisher.end();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.contains("reconnecting"), "{errors}");
        assert!(errors.contains("4 messages published"), "{errors}");
        assert_eq!(subscriber.messages(1), numbered(4, &["4"]), "{protocol}");
        broker.publish("http3", "t", &["5"]);
        assert_eq!(subscriber.messages(1), numbered(5, &["5"]), "no message is repeated");
    }
}

#[test]
fn messages_published_during_a_cut_arrive() {
    for protocol in PROTOCOLS {
        let broker = Broker::start(&IMPATIENT);
        let relay = Relay::start(broker.port);
        let mut subscriber = Subscriber::start(broker.client("subscribe", "mqtt"), "t");
        let command = broker.client_through(relay.port, "publish", protocol);
        let mut publisher = Publisher::start(command, "t");
        publisher.say("1");
        assert_eq!(subscriber.messages(1), numbered(1, &["1"]));
        relay.cut();
        publisher.say("2");
        publisher.say("3");
        assert!(publisher.end().status.success());
        assert_eq!(subscriber.messages(2), numbered(2, &["2", "3"]), "{protocol}");
    }
}

#[test]
fn a_subscriber_waits_for_the_place_of_its_lost_connection() {
    for protocol in PROTOCOLS {
        let broker = Broker::start(&["--idle-timeout", "2", "--max-subscribers", "1"]);
        let relay = Relay::start(broker.port);
        let command = broker.client_through(relay.port, "subscribe", protocol);
        let mut subscriber = Subscriber::start(command, "t");
        relay.cut();
        // Each packet that the broker sends restarts its idle timeout.
        broker.publish("http3", "t", &["1"]);
        assert_eq!(subscriber.messages(1), numbered(1, &["1"]), "{protocol}");
    }
}

#[test]
fn a_flow_that_moves_to_another_port_continues() {
    for protocol in PROTOCOLS {
        let broker = Broker::start(&[]);
        let relay = Relay::start(broker.port);
        let mut command = broker.client_through(relay.port, "subscribe", protocol);
        command.args(["--count", "20"]);
        let mut subscriber = Subscriber::start(command, "t");
        let command = broker.client_through(relay.port, "publish", protocol);
        let mut publisher = Publisher::start(command, "t");
        for n in 1..=20 {
            if n % 5 == 0 {
                relay.rebind();
            }
            publisher.say("x");
            assert_eq!(subscriber.messages(1), numbered(n, &["x"]), "{protocol}");
        }
        assert_eq!(subscriber.line()["reconnections"], 0, "{protocol}");
        let output = publisher.end();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !errors.contains("reconnecting"), "{errors}");
        assert!(relay.moved() >= 4, "the publisher moved before each message");
    }
}

#[test]
fn many_cuts_under_load_lose_and_repeat_nothing() {
    for protocol in PROTOCOLS {
        let broker = Broker::start(&["--idle-timeout", "1", "--history-messages", "5000"]);
        let relay = Relay::start(broker.port);
        let command = broker.client_through(relay.port, "subscribe", protocol);
        let mut subscriber = Subscriber::start(command, "t");
        let mut command = broker.client_through(relay.port, "publish", protocol);
        command.args(["--count", "2000", "--interval", "1"]);
        let publisher = Publisher::start(command, "t");
        for expected in 1..=2000 {
            let line = subscriber.line();
            assert_eq!(line["sequence"], expected, "{protocol}: {line}");
            if expected % 300 == 0 && expected <= 1500 {
                relay.cut();
            }
        }
        let output = publisher.end();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.contains("reconnecting"), "{errors}");
        assert!(errors.contains("2000 messages published"), "{errors}");
    }
}

#[test]
fn a_subscriber_learns_that_the_broker_has_restarted() {
    for protocol in PROTOCOLS {
        let broker = Broker::start(&[]);
        let mut subscriber = Subscriber::start(broker.client("subscribe", protocol), "t");
        broker.publish("http3", "t", &["1", "2"]);
        assert_eq!(subscriber.messages(2), numbered(1, &["1", "2"]));
        let broker = broker.restart(Signal::SIGTERM, &[]);
        broker.publish("http3", "t", &["a"]);
        let line = subscriber.line();
        assert_eq!(line["restarted"], true, "{protocol}: {line}");
        assert_eq!(message(&subscriber.line()), (1, "a".to_owned()));
    }
}
