//! Errors and signals.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use nix::sys::signal::Signal;

use crate::child::send;
use crate::closed_port::ClosedPort;
use crate::programs::{
    Broker, PROTOCOLS, Publisher, Subscriber, assert_complains, client, file, numbered,
};

#[test]
fn only_a_message_that_is_too_long_is_refused() {
    let broker = Broker::start(&["--max-message", "1000"]);
    for (protocol, words) in [("http3", "a message has 1001 bytes"), ("mqtt", "too long")] {
        let topic = format!("t/{protocol}");
        let mut subscriber = Subscriber::start(broker.client("subscribe", protocol), &topic);
        let mut publisher = Publisher::start(broker.client("publish", protocol), &topic);
        publisher.say("short");
        assert_eq!(subscriber.messages(1), numbered(1, &["short"]));
        publisher.say(&"x".repeat(1001));
        let output = publisher.fail();
        assert_complains(&output, words);
        assert_complains(&output, "1 message published, 1 not acknowledged");
        broker.publish(protocol, &topic, &["after"]);
        assert_eq!(subscriber.messages(1), numbered(2, &["after"]));
    }
}

#[test]
fn a_broker_that_dies_ends_its_clients_with_a_reason() {
    for protocol in PROTOCOLS {
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            let kills = signal == Signal::SIGKILL;
            // Only clients of a killed broker must wait for this.
            let mut broker = Broker::start(&["--idle-timeout", if kills { "2" } else { "30" }]);
            let mut command = broker.client("subscribe", protocol);
            command.args(["--reconnect", "0"]);
            let mut subscriber = Subscriber::start(command, "t");
            let mut command = broker.client("publish", protocol);
            command.args(["--reconnect", "0"]);
            let mut publisher = Publisher::start(command, "t");
            publisher.say("1");
            assert_eq!(subscriber.messages(1), numbered(1, &["1"]));
            if kills {
                // It no longer acknowledges messages.
                broker.hold();
                publisher.say("2");
            }
            send(&broker.child, signal);
            broker.child.wait().unwrap();
            let output = publisher.fail();
            // The first message may be unacknowledged, too: the subscriber receives it before the
            // publisher gets the acknowledgement.
            let (reason, numbers) = match kills {
                true => ("the server stopped answering", " not acknowledged: publish again"),
                false => ("the server is shutting down", " published"),
            };
            assert_complains(&output, reason);
            assert_complains(&output, numbers);
            assert_eq!(subscriber.child.wait().unwrap().code(), Some(1), "{protocol} {signal}");
        }
    }
}

#[test]
fn without_a_broker_there_is_a_reason_at_once() {
    let closed = ClosedPort::new();
    for protocol in PROTOCOLS {
        for kind in ["publish", "subscribe"] {
            let output = client(kind, closed.number, protocol).arg("t").output().unwrap();
            assert_complains(&output, "no program listens");
        }
    }
}

#[test]
fn a_foreign_certificate_is_refused() {
    let broker = Broker::start(&[]);
    let other = Broker::start(&[]);
    for protocol in PROTOCOLS {
        for kind in ["publish", "subscribe"] {
            let mut command = other.client_through(broker.port, kind, protocol);
            assert_complains(&command.arg("t").output().unwrap(), "is not trusted");
            let mut command = client(kind, broker.port, protocol);
            let output = command.args(["--insecure", "t"]).output().unwrap();
            assert_complains(&output, "always checks the broker's certificate");
        }
    }
}

#[test]
fn signals_end_clients_with_their_exit_codes() {
    let broker = Broker::start(&[]);
    for protocol in PROTOCOLS {
        for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
            let mut subscriber = Subscriber::start(broker.client("subscribe", protocol), "t");
            send(&subscriber.child, signal);
            assert_eq!(subscriber.child.wait().unwrap().code(), Some(code), "{protocol}");
            let mut subscriber = Subscriber::start(broker.client("subscribe", protocol), "u");
            let mut publisher = Publisher::start(broker.client("publish", protocol), "u");
            publisher.say("1");
            assert_eq!(subscriber.messages(1)[0].1, "1");
            send(&publisher.child, signal);
            let output = publisher.fail();
            assert_eq!(output.status.code(), Some(code), "{protocol}");
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(errors.contains(" published"), "{errors}");
            broker.publish(protocol, "u", &[""]);
        }
    }
}

#[test]
fn input_that_cannot_be_read_is_an_error() {
    let broker = Broker::start(&[]);
    for protocol in PROTOCOLS {
        let mut command = broker.client("publish", protocol);
        let output = command.arg("t").stdin(File::open("/").unwrap()).output().unwrap();
        assert_complains(&output, "cannot read standard input");
        assert!(!String::from_utf8_lossy(&output.stderr).contains("reconnecting"));
    }
}

#[test]
fn a_reader_that_has_enough_ends_a_subscriber() {
    let broker = Broker::start(&[]);
    for protocol in PROTOCOLS {
        let mut command = broker.client("subscribe", protocol);
        command.arg("t").stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        broker.publish(protocol, "t", &["1"]);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert_eq!(line, "1\n");
        drop(reader);
        broker.publish(protocol, "t", &["2"]);
        let output = child.wait_with_output().unwrap();
        assert_complains(&output, "cannot write to standard output");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!errors.contains("reconnecting") && !errors.contains("panicked"), "{errors}");
        // An empty message removes the last value.
        broker.publish(protocol, "t", &[""]);
    }
}

#[test]
fn limits_are_named() {
    for protocol in PROTOCOLS {
        let broker = Broker::start(&["--max-topics", "1", "--max-subscribers", "1"]);
        broker.publish("http3", "t", &["1"]);
        let output = broker.client("publish", protocol).args(["u", "x"]).output().unwrap();
        assert_complains(&output, "the broker already has 1 topics");
        let _there = Subscriber::start(broker.client("subscribe", protocol), "t");
        let output = broker.client("subscribe", protocol).arg("t").output().unwrap();
        assert_complains(&output, "already has 1 subscribers");
    }
}

#[test]
fn a_broker_needs_a_certificate_and_consistent_limits() {
    let directory = tempfile::tempdir().unwrap();
    let broker = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_pubsub"));
        command.args(["broker", "--listen", "127.0.0.1:0"]).args(arguments);
        command.current_dir(directory.path()).output().unwrap()
    };
    assert_complains(&broker(&[]), "--self-signed");
    let small = ["--self-signed", "localhost", "--history-bytes", "10"];
    assert_complains(&broker(&small), "--history-bytes 65632");
    file(directory.path(), "junk.pem", "junk");
    assert_complains(&broker(&["--cert", "junk.pem", "--key", "junk.pem"]), "no certificate");
}
