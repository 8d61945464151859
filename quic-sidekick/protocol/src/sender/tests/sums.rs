//! The sender adopts the proxy's sums.

use super::*;
use crate::testing::NONE;

/// At each burst, the sender's sums lack another number of settled packets.
#[test]
fn bursts_need_no_new_epoch_whichever_side_computed_the_sums() {
    for loss_percent in [0, 3] {
        let mut s = assisted(near(0), 4);
        let first = s.send(None);
        s.near.loss_percent = loss_percent;
        for packets in [1100, 400, 1500, 2500] {
            for _ in 0..80 {
                s.send(Some(true));
                s.run(MS / 10);
            }
            s.stream(packets, MS);
        }
        s.near.loss_percent = 0;
        s.stream(300, MS);
        assert_eq!(s.overlooked(first), NONE, "{loss_percent} %");
        assert_eq!(s.false_alarms(), NONE, "{loss_percent} %");
        assert_eq!(s.sender.stats().epochs, 1, "{loss_percent} %");
    }
}

/// With losses, the sender computes the sums.
#[test]
fn the_sender_asks_for_all_sums_once_in_1440_packets() {
    for (loss_percent, expected) in [(0, 6..=7), (2, 0..=0)] {
        let mut s = assisted(near(0), 5);
        s.near.loss_percent = loss_percent;
        let (mut requests, mut waited, mut longest) = (0, 0, 0);
        for _ in 0..10_000 {
            s.stream(1, MS);
            let awaits = s.sender.established().unwrap().reconciler.awaits_all_sums();
            requests += usize::from(awaits && waited == 0);
            waited = if awaits { waited + 1 } else { 0 };
            longest = longest.max(waited);
        }
        assert!(expected.contains(&requests), "{requests} requests");
        // If the sender did not adopt the sums, it would wait for 480 packets.
        assert!(longest < 60, "{longest} packets until the sums arrived");
        assert_eq!(s.sender.stats().epochs, 1);
    }
}

/// Half the bytes of a flow of small packets do not pay for quACKs of twenty sums.
#[test]
fn an_answer_has_few_sums_where_few_packets_are_unreported() {
    for seed in 0..10 {
        let mut s = assisted(near(0), seed);
        s.packet_len = 100;
        s.near.loss_percent = 4;
        let first = s.send(None);
        s.stream(2000, 20 * MS);
        s.near.loss_percent = 0;
        s.stream(10, 20 * MS);
        assert_eq!(s.overlooked(first), NONE, "seed {seed}");
        assert_eq!(s.false_alarms(), NONE, "seed {seed}");
        assert_eq!(s.proxy.as_ref().unwrap().stats().quacks_withheld, 0, "seed {seed}");
        let stats = s.sender.stats();
        assert!(stats.undecodable <= 2, "seed {seed}: {stats:?}");
        let each = stats.quack_bytes / stats.quacks_received;
        let of_sums = |sums| Quack::sealed_len(sums) as u64;
        assert!(each < of_sums(6), "seed {seed}: {each} bytes, not {}", of_sums(20));
    }
}
