//! From the frame to the sums, and from the sums to the quACK: nothing allocates memory.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../quic-sidekick/quack/tests/support/allocator.rs"]
mod allocator;
#[path = "common/frames.rs"]
mod frames;

use allocator::requests_during;
use frames::{Frames, LongFrames};
use sidekick_protocol::Terms;
use sidekick_proxy::testing::agent::AgentReplay;
use sidekick_proxy::testing::packet::{self, Link};
use sidekick_proxy::testing::{BATCH, Replay};
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

/// One frame in fifty is lost, and the agent sends it again.
#[test]
#[allow(clippy::disallowed_methods, reason = "any instant will do for a start")]
fn an_agent_allocates_nothing_once_its_flow_is_helped() {
    let (mut replay, mut now) = (AgentReplay::new().unwrap(), Instant::now());
    let mut round = |turn: u64| {
        let frames = LongFrames::new(20_000, turn);
        let mut requests = 0;
        for (number, batch) in frames.together(BATCH).enumerate() {
            now += Duration::from_micros(11 * BATCH as u64);
            requests += requests_during(|| replay.leave(batch.iter().map(|it| &it[..]), now));
            let arrived = batch.iter().skip(usize::from(turn > 0 && number % 2 == 0));
            replay.pass(arrived.map(|frame| &frame[..]), now);
            requests += requests_during(|| replay.hear(now));
        }
        (requests, replay.totals())
    };
    assert!(round(0).0 > 100, "the instrument works: a flow takes memory");
    // Queues grow to their largest need.
    for turn in 1..5 {
        round(turn);
    }
    let (requests, totals) = round(5);
    assert!(totals.resent > 500 && totals.quacks > 300, "{totals:?}");
    assert_eq!(requests, 0, "{totals:?}");
}
