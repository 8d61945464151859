//! The cost of a copy, from the captured frame to the session's memory, compared with naive code.
//!
//! Datagrams of 1200 bytes to a thousand clients, in random order, lie in memory as in a capture's
//! ring. The proxy's code parses each, finds the client's session, and keeps a copy. All sessions
//! keep copies, and all are at their limit of memory, so each copy replaces old ones. The baseline
//! uses the same parser, and a `HashMap` of queues with a vector for each datagram.
//!
//! Both run in turns on one processor, and the best turn of each counts.
//!
//! With a number as its argument, it keeps so many copies and measures nothing. `valgrind
//! --tool=callgrind` with two numbers shows by the difference what a copy takes in instructions.
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

#[path = "../../quic-sidekick/quack/benches/quack/figures.rs"]
mod figures;

use std::collections::{HashMap, VecDeque};
use std::hint::black_box;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use figures::Figures;
use sidekick_protocol::{
    Addresses, Flow, MAX_DATAGRAM_LEN, Observer, ObserverConfig, Peer, Route, Seen, Sender,
    SenderConfig,
};
use sidekick_proxy::testing::BATCH;
use sidekick_proxy::testing::packet::{self, Link};

const FLOWS: u16 = 1_000;
/// Frames in memory. All pass several times in each turn.
const FRAMES: usize = 8_192;
const DATAGRAMS: usize = 400_000;
const TURNS: usize = 7;
const LEN: u16 = 1_200;
/// Bytes that a session keeps.
const SHARE: usize = 128 << 10;

fn main() -> ExitCode {
    let number = std::env::args().skip(1).find_map(|argument| argument.parse::<usize>().ok());
    let frames = frames();
    let mut ours = Keeper::new();
    if let Some(number) = number {
        ours.keep(&frames, number);
        println!("kept {}", ours.observer.stats().kept);
        return ExitCode::SUCCESS;
    }
    match measure(&mut ours, &frames) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the figures cannot be kept: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(ours: &mut Keeper, frames: &[Vec<u8>]) -> std::io::Result<()> {
    let mut figures = Figures::begin()?;
    let mut naive = Naive::default();
    let (mut best, mut baseline) = (f64::INFINITY, f64::INFINITY);
    // The first turn fills the memory.
    for turn in 0..=TURNS {
        let took = ours.keep(frames, DATAGRAMS);
        let naive = naive.keep(frames, DATAGRAMS);
        if turn > 0 {
            (best, baseline) = (best.min(took), baseline.min(naive));
        }
    }
    let stats = ours.observer.stats();
    assert_eq!(stats.kept, ((TURNS + 1) * DATAGRAMS) as u64);
    let full = usize::from(FLOWS) * SHARE;
    // A client that few frames are for may have room left.
    assert!((full * 9 / 10..=full).contains(&ours.observer.copies_bytes()));
    figures.add("proxy/keep", "ns", (best, baseline), baseline / best);
    figures.write()
}

#[allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn now() -> Instant {
    Instant::now()
}

fn client(number: u16) -> SocketAddr {
    let [high, low] = number.to_be_bytes();
    ([10, 0, high, low], 4000).into()
}

const SERVER: ([u8; 4], u16) = ([198, 51, 100, 7], 443);

/// Ethernet frames to clients in random order.
fn frames() -> Vec<Vec<u8>> {
    let mut state = 7_u32;
    let frame = |number: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let flow = u16::try_from((state >> 8) % u32::from(FLOWS)).unwrap();
        let SocketAddr::V4(to) = client(flow) else { panic!("an IPv4 address") };
        let mut frame = vec![2; 12];
        frame.extend([0x08, 0x00, 0x45, 0]);
        frame.extend((LEN + 28).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
        frame.extend(SERVER.0);
        frame.extend(to.ip().octets());
        for field in [SERVER.1, to.port(), LEN + 8, 0] {
            frame.extend(field.to_be_bytes());
        }
        frame.extend(vec![0x41; usize::from(LEN) - 4]);
        frame.extend(u32::try_from(number).unwrap().to_be_bytes());
        frame
    };
    (0..FRAMES).map(frame).collect()
}

/// The proxy's code, with a session for each flow.
struct Keeper {
    observer: Observer,
    now: Instant,
}

impl Keeper {
    /// Opens the sessions as senders do, in virtual time.
    fn new() -> Self {
        let proxy: SocketAddr = "192.0.2.254:5252".parse().unwrap();
        let limits = ObserverConfig {
            keep_bytes: 1 << 30,
            keep_bytes_per_session: SHARE,
            idle_timeout: Duration::from_secs(1_000_000),
            ..ObserverConfig::default()
        };
        let mut observer = Observer::new(limits, [1; 32]).unwrap();
        observer.set_addresses(Addresses::announcing(0, proxy));
        let mut now = now();
        for number in 0..FLOWS {
            let source = client(number);
            let adjacent = Peer::from(SocketAddr::new(source.ip(), 5000));
            let keep = Some(Duration::from_secs(1));
            let mut sender = Sender::new(
                SenderConfig { keep, ..SenderConfig::of(proxy) },
                [number.to_be_bytes()[1]; 32],
            );
            sender.start(Flow { source, destination: SERVER.into() }, now);
            let mut buffer = [0; MAX_DATAGRAM_LEN];
            while !sender.is_kept() {
                while let Some(transmit) = sender.poll_transmit(&mut buffer) {
                    let _ = observer.handle_input(adjacent, &buffer[..transmit.size], now);
                }
                while let Some(transmit) = observer.poll_transmit(&mut buffer) {
                    let bytes = &buffer[..transmit.size];
                    if matches!(transmit.route, Route::Path { .. }) {
                        let _ = sender.handle_on_path(bytes, now);
                    } else if transmit.destination == adjacent.address {
                        let _ = sender.handle_input(proxy, bytes, now);
                    }
                }
                // As slowly as the observer admits handshakes.
                now += Duration::from_millis(5);
                sender.on_timeout(now);
            }
        }
        Self { observer, now }
    }

    /// Keeps so many datagrams, a microsecond apart. Returns the nanoseconds for each.
    fn keep(&mut self, frames: &[Vec<u8>], number: usize) -> f64 {
        let begun = now();
        let batches = frames.chunks(BATCH).cycle();
        for batch in batches.take(number / BATCH) {
            let parsed = batch.iter().map(|frame| {
                let datagram = packet::parse(Link::Ethernet, frame, frame.len()).unwrap();
                Seen { flow: datagram.flow, payload: datagram.payload() }
            });
            let seen: [Seen<'_>; BATCH] = collect(parsed);
            self.now += Duration::from_micros(BATCH as u64);
            self.observer.keep_all(&seen, 0, self.now);
        }
        per_datagram(begun, number)
    }
}

/// A batch of datagrams as an array, as a capture has it.
fn collect<'a>(mut seen: impl Iterator<Item = Seen<'a>>) -> [Seen<'a>; BATCH] {
    std::array::from_fn(|_| seen.next().unwrap())
}

/// The naive code.
#[derive(Default)]
struct Naive(HashMap<Flow, (usize, VecDeque<Vec<u8>>)>);

impl Naive {
    fn keep(&mut self, frames: &[Vec<u8>], number: usize) -> f64 {
        let begun = now();
        for frame in frames.iter().cycle().take(number) {
            let datagram = packet::parse(Link::Ethernet, frame, frame.len()).unwrap();
            let (bytes, queue) = self.0.entry(datagram.flow).or_default();
            *bytes += datagram.payload.len();
            queue.push_back(datagram.payload.to_vec());
            while *bytes > SHARE
                && let Some(oldest) = queue.pop_front()
            {
                *bytes -= oldest.len();
            }
        }
        black_box(&self.0);
        per_datagram(begun, number)
    }
}

fn per_datagram(begun: Instant, number: usize) -> f64 {
    now().duration_since(begun).as_secs_f64() * 1e9 / number.max(1) as f64
}
