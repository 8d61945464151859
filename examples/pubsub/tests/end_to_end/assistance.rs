//! The help of a proxy on a client's path, in both protocols.

use crate::assisted_path::Relay;
use crate::programs::{Broker, PROTOCOLS, Subscriber};

const COUNT: u64 = 400;

#[test]
fn a_proxy_helps_a_publisher_whose_messages_are_lost() {
    let broker = Broker::start(&[]);
    for protocol in PROTOCOLS {
        let relay = Relay::start(broker.port, 20);
        let mut command = broker.client_through(relay.port, "publish", protocol);
        command.args(["--count", &COUNT.to_string(), "--interval", "3", "--json", protocol]);
        command.args(["--sidekick", "auto", "--proxy", &relay.proxy.to_string()]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["acknowledged"], COUNT);
        assert_eq!(report["assisted"], true, "{report}");
        assert!(report["packets"]["lost_early"].as_u64().unwrap() > 0, "{report}");
    }
}

#[test]
fn a_proxy_helps_a_subscriber_whose_messages_are_lost() {
    let broker = Broker::start(&[]);
    for protocol in PROTOCOLS {
        let relay = Relay::for_downloads(broker.port, 20);
        let mut command = broker.client_through(relay.port, "subscribe", protocol);
        command.args(["--count", &COUNT.to_string()]);
        command.args(["--sidekick", "auto", "--proxy", &relay.proxy.to_string()]);
        let mut subscriber = Subscriber::start(command, protocol);
        let mut publisher = broker.client("publish", "http3");
        publisher.args(["--count", &COUNT.to_string(), "--interval", "3", "-q", protocol]);
        assert!(publisher.status().unwrap().success());
        for sequence in 1..=COUNT {
            assert_eq!(subscriber.line()["sequence"], sequence);
        }
        let report = subscriber.line();
        assert_eq!(report["assisted"], true, "{report}");
        assert!(report["repaired_near"].as_u64().unwrap() > 0, "{report}");
    }
}
