//! The cost of a packet from the ring to the sums, compared with naive code.
//!
//! A million datagrams of a thousand flows, in random order and truncated to 128 bytes, lie in
//! memory as in a capture's ring or file. The proxy's code parses each, finds its session, counts
//! the packet, and adds its identifier to 20 sums. In the first row, no quACK is due. The rows that
//! name an interval include the cost of quACKs. The baseline uses the same parser, a `HashMap` of
//! flows, and textbook sums.
//!
//! Both run in turns on one processor, and the best turn of each counts.
//!
//! Finally the benchmark opens ten thousand sessions, without handshakes. It compares the cost of
//! the last hundred with that of the first hundred.
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

#[path = "../../quic-sidekick/quack/benches/quack/figures.rs"]
mod figures;

#[path = "../tests/common/frames.rs"]
mod frames;

use figures::Figures;
use frames::{Frames, LEN};
use sidekick_protocol::{Flow, Observer, ObserverConfig, Terms};
use sidekick_proxy::testing::packet::{self, Link, Skip};
use sidekick_proxy::testing::{BATCH, Replay};
use sidekick_quack::textbook;
use std::collections::HashMap;
use std::hint::black_box;
use std::num::NonZeroU16;
use std::ops::Range;
use std::time::{Duration, Instant};

const DATAGRAMS: usize = 1_000_000;
const FLOWS: u16 = 1_000;
const TURNS: usize = 7;
const THRESHOLD: u8 = 20;

fn main() {
    let mut figures = Figures::begin();
    let never =
        Terms { threshold: THRESHOLD, every: Some(Duration::from_secs(4000)), ..Terms::default() };
    let cases = [
        ("proxy/replay", never),
        (
            "proxy/replay/every-32-packets",
            Terms { every: None, every_packets: NonZeroU16::new(32), ..never },
        ),
        ("proxy/replay/every-30-ms", Terms { every: Some(Duration::from_millis(30)), ..never }),
        ("proxy/replay/threshold-128", Terms { threshold: 128, ..never }),
    ];
    for (name, terms) in cases {
        let mut ours = Replay::new(FLOWS.into(), terms, now()).unwrap();
        let mut textbook = Textbook::new(terms.threshold);
        let (mut best, mut baseline) = (f64::INFINITY, f64::INFINITY);
        // The first turn opens the sessions.
        for turn in 0..=TURNS {
            // Other packets in each turn: the observer ignores repeated packets as duplicates.
            let frames = Frames::new(DATAGRAMS, FLOWS, turn as u64);
            let took = replay(&mut ours, &frames, turn);
            let textbook = textbook.run(&frames);
            if turn > 0 {
                (best, baseline) = (best.min(took), baseline.min(textbook));
            }
        }
        let missed = ((TURNS + 1) * DATAGRAMS) as u64 - ours.stats().counted;
        assert!(missed < 10, "{missed}");
        figures.add(name, "ns", (best, baseline), baseline / best);
    }
    let (first, last) = sessions();
    figures.add("proxy/session/ten-thousandth", "us", (last, first), first / last);
    figures.write();
}

#[allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn now() -> Instant {
    Instant::now()
}

fn per_packet(begun: Instant) -> f64 {
    now().duration_since(begun).as_secs_f64() * 1e9 / DATAGRAMS as f64
}

/// A microsecond from packet to packet, in batches as large as those of a capture.
fn replay(replay: &mut Replay, frames: &Frames, turn: usize) -> f64 {
    let begun = now();
    for (number, together) in (turn * DATAGRAMS / BATCH..).zip(frames.together(BATCH)) {
        let mut found = [Err(Skip::NotUdp); BATCH];
        for (found, bytes) in found.iter_mut().zip(together) {
            *found = packet::parse(Link::Ethernet, bytes, LEN.into());
        }
        replay.observe_all(&found, Some(Duration::from_micros((number * BATCH) as u64)));
    }
    per_packet(begun)
}

/// Microseconds to open a session: for the first hundred, and for the last.
fn sessions() -> (f64, f64) {
    const SESSIONS: u16 = 10_000;
    const FEW: u16 = 100;
    let (mut first, mut last) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..TURNS {
        let limits = ObserverConfig { max_sessions: SESSIONS.into(), ..ObserverConfig::default() };
        let mut observer = Observer::new(limits, [1; 32]).unwrap();
        let mut add = |sessions: Range<u16>| {
            let begun = now();
            for session in sessions.clone() {
                let [high, low] = session.to_be_bytes();
                let source = ([10, 1, high, low], 4000).into();
                let flow = Flow { source, destination: ([198, 51, 100, 7], 443).into() };
                observer.adopt(flow, Terms::default(), begun).unwrap();
            }
            now().duration_since(begun).as_secs_f64() * 1e6 / sessions.len() as f64
        };
        first = first.min(add(0..FEW));
        add(FEW..SESSIONS - FEW);
        last = last.min(add(SESSIONS - FEW..SESSIONS));
    }
    (first, last)
}

/// The naive code.
struct Textbook {
    flows: HashMap<Flow, (u32, Vec<u32>)>,
    threshold: usize,
}

impl Textbook {
    fn new(threshold: u8) -> Self {
        Self { flows: HashMap::new(), threshold: threshold.into() }
    }

    fn run(&mut self, frames: &Frames) -> f64 {
        let begun = now();
        for (bytes, len) in frames.iter() {
            let datagram = packet::parse(Link::Ethernet, bytes, len).unwrap();
            let fresh = || (0, vec![0; self.threshold]);
            let (count, sums) = self.flows.entry(datagram.flow).or_insert_with(fresh);
            let identifier = datagram.payload.get(21..25).unwrap().try_into().unwrap();
            *count += 1;
            textbook::insert(sums, u32::from_be_bytes(identifier));
        }
        black_box(&self.flows);
        per_packet(begun)
    }
}
