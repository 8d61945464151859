//! Connections that are lost.

use std::process::Command;

use nix::sys::signal::Signal;

use crate::programs::{Broker, PROTOCOLS, Publisher, Subscriber};
use crate::relay::Relay;

/// A broker and a path to it. By `--idle-timeout`, both ends detect a cut soon.
struct Scene(Broker, Relay);

impl Scene {
    fn set(options: &[&str]) -> Self {
        let broker = Broker::start(options);
        let relay = Relay::start(broker.port);
        Self(broker, relay)
    }

    /// The command line of a client behind the path.
    fn client(&self, kind: &str, protocol: &str) -> Command {
        self.0.client_through(self.1.port, kind, protocol)
    }
}

#[test]
fn a_subscriber_that_reconnects_loses_nothing_that_the_broker_still_has() {
    for protocol in PROTOCOLS {
        // It also waits for the place of its lost connection.
        let options = ["--history-messages", "3", "--max-subscribers", "1"];
        let scene = Scene::set(&[&["--idle-timeout", "2"][..], &options].concat());
        let mut subscriber = Subscriber::start(scene.client("subscribe", protocol), "t");
        let Scene(broker, relay) = scene;
        // It has no message yet.
        relay.cut();
        // Each packet that the broker sends restarts its idle timeout.
        broker.publish("http3", "t", &["1", "2"]);
        subscriber.expect(1, &["1", "2"]);
        relay.cut();
        broker.publish("http3", "t", &["3", "4", "5"]);
        subscriber.expect(3, &["3", "4", "5"]);
        relay.cut_during(|| broker.publish("http3", "t", &["6", "7", "8", "9", "10"]));
        assert_eq!(subscriber.line()["missed"], 2, "{protocol}");
        subscriber.expect(8, &["8", "9", "10"]);
    }
}

#[test]
fn repeated_messages_are_published_once() {
    for protocol in PROTOCOLS {
        let scene = Scene::set(&["--idle-timeout", "2"]);
        let mut subscriber = scene.0.subscriber("http3", "t");
        let mut publisher = Publisher::start(scene.client("publish", protocol), "t");
        publisher.say("1");
        subscriber.expect(1, &["1"]);
        // The broker gets the next two messages, but their acknowledgements are lost.
        scene.1.cut_to_clients();
        publisher.say("2");
        publisher.say("3");
        subscriber.expect(2, &["2", "3"]);
        publisher.say("4");
        let errors = publisher.succeed();
        assert!(errors.contains("reconnecting"), "{errors}");
        assert!(errors.contains("4 messages published"), "{errors}");
        let mut publisher = Publisher::start(scene.client("publish", protocol), "t");
        publisher.say("5");
        subscriber.expect(4, &["4", "5"]);
        // These are published while there is no connection.
        scene.1.cut();
        publisher.say("6");
        publisher.say("7");
        publisher.succeed();
        scene.0.publish("http3", "t", &["8"]);
        subscriber.expect(6, &["6", "7", "8"]);
    }
}

#[test]
fn a_flow_that_moves_to_another_port_continues() {
    for protocol in PROTOCOLS {
        let scene = Scene::set(&[]);
        let mut command = scene.client("subscribe", protocol);
        command.args(["--count", "20"]);
        let mut subscriber = Subscriber::start(command, "t");
        let mut publisher = Publisher::start(scene.client("publish", protocol), "t");
        for n in 1..=20 {
            if n % 5 == 0 {
                scene.1.rebind();
            }
            publisher.say("x");
            subscriber.expect(n, &["x"]);
        }
        assert_eq!(subscriber.line()["reconnections"], 0, "{protocol}");
        let errors = publisher.succeed();
        assert!(!errors.contains("reconnecting"), "{errors}");
    }
}

#[test]
fn many_cuts_under_load_lose_and_repeat_nothing() {
    for protocol in PROTOCOLS {
        let scene = Scene::set(&["--idle-timeout", "1", "--history-messages", "5000"]);
        let mut subscriber = Subscriber::start(scene.client("subscribe", protocol), "t");
        let mut command = scene.client("publish", protocol);
        command.args(["--count", "2000", "--interval", "1"]);
        let publisher = Publisher::start(command, "t");
        for expected in 1..=2000 {
            let line = subscriber.line();
            assert_eq!(line["sequence"], expected, "{protocol}: {line}");
            if expected % 300 == 0 && expected <= 1500 {
                scene.1.cut();
            }
        }
        let errors = publisher.succeed();
        assert!(errors.contains("reconnecting"), "{errors}");
        assert!(errors.contains("2000 messages published"), "{errors}");
    }
}

#[test]
fn a_subscriber_learns_that_the_broker_has_restarted() {
    for protocol in PROTOCOLS {
        let broker = Broker::start(&[]);
        let mut subscriber = broker.subscriber(protocol, "t");
        broker.publish("http3", "t", &["1", "2"]);
        subscriber.expect(1, &["1", "2"]);
        let broker = broker.restart(Signal::SIGTERM, &[]);
        broker.publish("http3", "t", &["a"]);
        let line = subscriber.line();
        assert_eq!(line["restarted"], true, "{protocol}: {line}");
        subscriber.expect(1, &["a"]);
    }
}
