//! A subscriber that stops reading.

use crate::programs::{Broker, PROTOCOLS, Subscriber};

/// The messages of a round. The broker keeps twice as many.
const ROUND: u64 = 400;
const ROUNDS: u64 = 20;

#[test]
fn a_slow_subscriber_delays_no_other_and_learns_what_it_missed() {
    for protocol in PROTOCOLS {
        let options = ["--history-messages", "800", "--history-bytes", "100000000"];
        let broker = Broker::start(&options);
        // Its standard output is a pipe that the test does not read yet.
        let mut slow = Subscriber::start(broker.client("subscribe", protocol), "t");
        let mut fast = Subscriber::start(broker.client("subscribe", protocol), "t");
        let mut next = 1;
        for _ in 0..ROUNDS {
            let mut publisher = broker.client("publish", "http3");
            let round = ROUND.to_string();
            publisher.args(["--count", &round, "--interval", "0", "--size", "2000", "-q", "t"]);
            assert!(publisher.status().unwrap().success());
            for _ in 0..ROUND {
                assert_eq!(fast.line()["sequence"], next, "{protocol}");
                next += 1;
            }
        }
        let (mut expected, mut missed) = (1, 0);
        while expected < next {
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
