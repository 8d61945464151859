//! Errors and signals.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;

use crate::child::{ClosedPort, send};
use crate::programs::{Broker, PROTOCOLS, Publisher, Subscriber, assert_complains, client};

fn fails(command: &mut Command, arguments: &[&str], words: &str) {
    assert_complains(&command.args(arguments).output().unwrap(), words);
}

#[test]
fn only_a_message_that_is_too_long_is_refused() {
    let broker = Broker::start(&["--max-message", "1000"]);
    for (protocol, words) in [("http3", "a message has 1001 bytes"), ("mqtt", "too long")] {
        let mut subscriber = broker.subscriber(protocol, protocol);
        let mut publisher = broker.publisher(protocol, protocol);
        publisher.say("short");
        subscriber.expect(1, &["short"]);
        publisher.say(&"x".repeat(1001));
        let output = publisher.fail();
        assert_complains(&output, words);
        assert_complains(&output, "1 message published, 1 not acknowledged");
        broker.publish(protocol, protocol, &["after"]);
        subscriber.expect(2, &["after"]);
    }
}

#[test]
fn a_broker_that_dies_ends_its_clients_with_a_reason() {
    for protocol in PROTOCOLS {
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            let kills = signal == Signal::SIGKILL;
            // Only clients of a killed broker must wait for this.
            let mut broker = Broker::start(&["--idle-timeout", if kills { "2" } else { "30" }]);
            let client = |kind| {
                let mut command = broker.client(kind, protocol);
                command.args(["--reconnect", "0"]);
                command
            };
            let mut subscriber = Subscriber::start(client("subscribe"), "t");
            let mut publisher = Publisher::start(client("publish"), "t");
            publisher.say("1");
            subscriber.expect(1, &["1"]);
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
fn what_another_try_does_not_help_is_an_error_at_once() {
    let (closed, broker, other) = (ClosedPort::new(), Broker::start(&[]), Broker::start(&[]));
    for protocol in PROTOCOLS {
        for kind in ["publish", "subscribe"] {
            fails(&mut client(kind, closed.number, protocol), &["t"], "no program listens");
            let foreign = &mut other.client_through(broker.port, kind, protocol);
            fails(foreign, &["t"], "is not trusted");
            let words = "always checks the broker's certificate";
            fails(&mut client(kind, broker.port, protocol), &["--insecure", "t"], words);
        }
        let mut reader = broker.client("publish", protocol);
        fails(reader.stdin(File::open("/").unwrap()), &["t"], "cannot read standard input");
        let full = Broker::start(&["--max-topics", "1", "--max-subscribers", "1"]);
        let _there = full.subscriber(protocol, "t");
        let words = "the broker already has 1 topics";
        fails(&mut full.client("publish", protocol), &["u", "x"], words);
        let words = "already has 1 subscribers";
        fails(&mut full.client("subscribe", protocol), &["t"], words);
    }
}

#[test]
fn signals_end_clients_with_their_exit_codes() {
    let broker = Broker::start(&[]);
    for protocol in PROTOCOLS {
        for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
            let topic = format!("{protocol} {signal}");
            let mut subscriber = broker.subscriber(protocol, &topic);
            let mut publisher = broker.publisher(protocol, &topic);
            publisher.say("1");
            subscriber.expect(1, &["1"]);
            send(&subscriber.child, signal);
            assert_eq!(subscriber.child.wait().unwrap().code(), Some(code), "{topic}");
            send(&publisher.child, signal);
            let output = publisher.fail();
            assert_eq!(output.status.code(), Some(code), "{topic}");
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(errors.contains(" published"), "{errors}");
        }
    }
}

#[test]
fn a_reader_that_has_enough_ends_a_subscriber() {
    let broker = Broker::start(&[]);
    for protocol in PROTOCOLS {
        let mut command = broker.client("subscribe", protocol);
        command.arg(protocol).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        broker.publish(protocol, protocol, &["1"]);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert_eq!(line, "1\n");
        drop(reader);
        broker.publish(protocol, protocol, &["2"]);
        assert_complains(&child.wait_with_output().unwrap(), "cannot write to standard output");
    }
}

#[test]
fn a_broker_needs_a_certificate_and_consistent_limits() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("junk.pem"), "junk").unwrap();
    for (arguments, words) in [
        (&[][..], "--self-signed"),
        (&["--self-signed", "localhost", "--history-bytes", "10"], "--history-bytes 65632"),
        (&["--cert", "junk.pem", "--key", "junk.pem"], "no certificate"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pubsub"));
        command.args(["broker", "--listen", "127.0.0.1:0"]).current_dir(&directory);
        fails(&mut command, arguments, words);
    }
}
