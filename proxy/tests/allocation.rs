//! From the frame to the sums, and from the sums to the quACK: nothing allocates memory.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

#[path = "../../quic-sidekick/quack/tests/support/allocator.rs"]
mod allocator;
#[path = "common/frames.rs"]
mod frames;

use allocator::requests_during;
use frames::Frames;
use sidekick_protocol::Terms;
use sidekick_proxy::testing::Replay;
use sidekick_proxy::testing::packet::{self, Link};
use std::num::NonZeroU16;
use std::time::{Duration, Instant};

#[test]
#[allow(clippy::disallowed_methods, reason = "any instant will do for a start")]
fn nothing_is_allocated_once_the_sessions_are_open() {
    let terms = Terms { every_packets: NonZeroU16::new(32), ..Terms::default() };
    let mut replay = Replay::new(1000, terms, Instant::now()).unwrap();
    let mut round = |turn: u64| {
        let frames = Frames::new(100_000, 1000, turn);
        let requests = requests_during(|| {
            // Ten microseconds from packet to packet, so that quACKs also become due by time.
            for (number, (bytes, len)) in (0..).zip(frames.iter()) {
                let found = packet::parse(Link::Ethernet, bytes, len);
                replay.observe(found, Some(Duration::from_micros(10 * (turn * 100_000 + number))));
            }
        });
        (requests, *replay.stats())
    };
    let (opening, _) = round(0);
    assert!(opening > 1000, "the instrument works: a session takes memory");
    let (requests, stats) = round(1);
    assert_eq!((requests, stats.counted, stats.sessions_opened), (0, 200_000, 1000));
    assert!(stats.quacks_sent > 6000, "{stats:?}");
}
