//! The cost of a packet in the agent, compared with capturing it alone.
//!
//! One flow of 1,400-byte packets at 1 Gbit/s: 11 us from packet to packet, in batches as large as
//! those of a capture. The agent finds the flow of each packet, names it to its sender and copies
//! it, reads a quACK each millisecond, and sends lost packets again. The baseline parses the same
//! frames, as a capture does. Both run in turns, and the best turn of each counts. The proxy's work
//! is not part of either.
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

#[path = "../../quic-sidekick/quack/benches/quack/figures.rs"]
mod figures;
#[path = "../tests/common/frames.rs"]
mod frames;

use figures::Figures;
use frames::LongFrames;
use sidekick_proxy::testing::BATCH;
use sidekick_proxy::testing::agent::AgentReplay;
use sidekick_proxy::testing::packet::{self, Link};
use std::hint::black_box;
use std::time::{Duration, Instant};

const PACKETS: usize = 90_000;
const TURNS: usize = 7;
const INTERVAL: Duration = Duration::from_micros(11);

#[allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn now() -> Instant {
    Instant::now()
}

fn main() {
    let mut figures = Figures::begin();
    for (name, lost) in [
        ("agent/packet", None),
        ("agent/packet/1-percent", Some(100)),
        ("agent/packet/10-percent", Some(10)),
    ] {
        let (mut replay, mut at) = (AgentReplay::new().unwrap(), now());
        let (mut best, mut baseline) = (f64::INFINITY, f64::INFINITY);
        for turn in 0..=TURNS {
            let frames = LongFrames::new(PACKETS, turn as u64);
            let mut took = Duration::ZERO;
            for (index, batch) in frames.together(BATCH).enumerate() {
                at += INTERVAL * u32::try_from(batch.len()).unwrap();
                let begun = now();
                replay.leave(batch.iter().map(|frame| &frame[..]), at);
                took += now() - begun;
                let arrives = |place: usize| {
                    lost.is_none_or(|lost| {
                        turn == 0 || !(index * BATCH + place).is_multiple_of(lost)
                    })
                };
                let arrived = batch.iter().enumerate().filter(|(place, _)| arrives(*place));
                replay.pass(arrived.map(|(_, frame)| &frame[..]), at);
                let begun = now();
                replay.hear(at);
                took += now() - begun;
            }
            let begun = now();
            for frame in frames.together(BATCH).flatten() {
                let _ = black_box(packet::parse(Link::Ethernet, frame, frame.len()));
            }
            if turn > 0 {
                let per_packet = |took: Duration| took.as_secs_f64() * 1e9 / PACKETS as f64;
                best = best.min(per_packet(took));
                baseline = baseline.min(per_packet(now() - begun));
            }
        }
        let totals = replay.totals();
        assert!(totals.quacks > 5000 && totals.withheld_far == 0, "{totals:?}");
        assert_eq!(totals.resent > 0, lost.is_some(), "{totals:?}");
        figures.add(name, "ns", (best, baseline), best / baseline);
    }
    figures.write();
}
