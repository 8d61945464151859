//! What a packet costs the proxy from the ring to the sums, beside code as one would write it
//! first.
//!
//! A million datagrams of a thousand flows, in random order, cut to 128 bytes, lie in memory as
//! they do in a capture's ring or file. Each is parsed, its session found, the packet counted, and
//! its identifier added to 20 sums. No quACK falls due: what that costs is the rows' that name an
//! interval. The baseline parses as we do, has its flows in a `HashMap`, and adds to the sums by
//! the textbook.
//!
//! Both run in turns, on one processor, and the best turn of each counts.
//!
//! At last the proxy gets ten thousand sessions; what the last hundred cost, handshakes and all,
//! stands beside what the first hundred cost.
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
use std::process::ExitCode;
use std::time::{Duration, Instant};

const DATAGRAMS: usize = 1_000_000;
const FLOWS: u16 = 1_000;
const TURNS: usize = 7;
const THRESHOLD: u8 = 20;

fn main() -> ExitCode {
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the figures cannot be kept: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> std::io::Result<()> {
    let mut figures = Figures::begin()?;
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
            // Others each time: a packet that comes again would be taken for one that the network
            // has doubled.
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
    figures.write()
}

#[allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn now() -> Instant {
    Instant::now()
}

fn per_packet(begun: Instant) -> f64 {
    now().duration_since(begun).as_secs_f64() * 1e9 / DATAGRAMS as f64
}

/// A microsecond from packet to packet, and as many of them together as a capture hands on.
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

/// Microseconds that a session takes to be begun: of the first, and of the last.
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

/// The code that one would write first.
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
