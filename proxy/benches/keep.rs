//! The cost of a copy, from the captured frame to the session's memory, compared with naive code.
//!
//! Datagrams of 1200 bytes to the clients, in random order, lie in memory as in a capture's ring.
//! The proxy's code parses each, finds the client's session, and keeps a copy. The baseline uses
//! the same parser, and a `HashMap` of queues with a vector for each datagram.
//!
//! There are three loads, which differ in the memory that copies fill. With a thousand clients all
//! sessions are at their limit, so each copy replaces an old one, which is in no cache. With 64
//! clients at 1 Gbit/s the default budget is full. With 16 clients at 100 Mbit/s, for 200 ms, the
//! copies fit into a processor's own cache.
//!
//! No code can be faster than the copy of the bytes itself. So the benchmark also prints the time
//! of that copy alone: the payloads of the same frames in the same order, to as much memory.
//!
//! All run in turns on one processor, and the best turn of each counts.
//!
//! With a number as its argument, it keeps this many copies of the first load and measures nothing.
//! `valgrind --tool=callgrind` with two numbers shows by the difference how many instructions a
//! copy takes.
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

#[path = "../../quic-sidekick/quack/benches/quack/figures.rs"]
mod figures;

use std::collections::{HashMap, VecDeque};
use std::hint::black_box;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use figures::Figures;
use sidekick_protocol::{
    Addresses, Flow, MAX_DATAGRAM_LEN, Observer, ObserverConfig, Peer, Route, Seen, Sender,
    SenderConfig,
};
use sidekick_proxy::testing::BATCH;
use sidekick_proxy::testing::packet::{self, Link};

/// Frames in memory. All pass several times in each turn.
const FRAMES: usize = 8_192;
const DATAGRAMS: usize = 400_000;
const TURNS: usize = 7;
const LEN: u16 = 1_200;

/// Clients, and the bytes of their datagrams that are kept.
struct Load {
    figure: &'static str,
    clients: u16,
    /// The most bytes of all sessions, and of each.
    keep: usize,
    share: usize,
    /// The time from one datagram to the next.
    interval: Duration,
    age: Duration,
    /// The bytes that hold copies in the end.
    held: RangeInclusive<usize>,
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const SECOND: Duration = Duration::from_secs(1);

const LOADS: [Load; 3] = [
    Load {
        figure: "proxy/keep",
        clients: 1000,
        keep: 1 << 30,
        share: 128 * KIB,
        interval: Duration::from_micros(1),
        age: SECOND,
        // A client that few frames go to may have room left.
        held: 900 * 128 * KIB..=1000 * 128 * KIB,
    },
    Load {
        figure: "proxy/keep/64-clients",
        clients: 64,
        keep: 64 * MIB,
        share: 4 * MIB,
        interval: Duration::from_nanos(9_600),
        age: SECOND,
        held: 60 * MIB..=64 * MIB,
    },
    Load {
        figure: "proxy/keep/16-clients",
        clients: 16,
        keep: 64 * MIB,
        share: 4 * MIB,
        interval: Duration::from_micros(96),
        age: Duration::from_millis(200),
        held: 2 * MIB..=5 * MIB,
    },
];

fn main() {
    let number = std::env::args().skip(1).find_map(|argument| argument.parse::<usize>().ok());
    if let Some(number) = number {
        let load = &LOADS[0];
        let mut ours = Keeper::new(load);
        ours.keep(&frames(load), number);
        println!("kept {}", ours.observer.stats().kept);
        return;
    }
    let mut figures = Figures::begin();
    LOADS.iter().for_each(|load| measure(load, &mut figures));
    figures.write();
}

fn measure(load: &Load, figures: &mut Figures) {
    let frames = frames(load);
    let (mut ours, mut naive, mut bare) = (Keeper::new(load), Naive::new(load), Bare::new(load));
    let mut best = [f64::INFINITY; 3];
    // The first turn fills the memory.
    for turn in 0..=TURNS {
        let took = [
            ours.keep(&frames, DATAGRAMS),
            naive.keep(&frames, DATAGRAMS),
            bare.copy(&frames, DATAGRAMS),
        ];
        if turn > 0 {
            best = std::array::from_fn(|which| best[which].min(took[which]));
        }
    }
    let stats = ours.observer.stats();
    assert_eq!(stats.kept, ((TURNS + 1) * DATAGRAMS) as u64);
    let held = ours.observer.copies_bytes();
    assert!(load.held.contains(&held), "{held}");
    let [best, baseline, floor] = best;
    println!("{}: {floor:.0} ns to copy the bytes alone", load.figure);
    figures.add(load.figure, "ns", (best, baseline), baseline / best);
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
fn frames(load: &Load) -> Vec<Vec<u8>> {
    let mut state = 7_u32;
    let frame = |number: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let flow = u16::try_from((state >> 8) % u32::from(load.clients)).unwrap();
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
    interval: Duration,
}

impl Keeper {
    /// Opens the sessions as senders do, in virtual time.
    fn new(load: &Load) -> Self {
        let proxy: SocketAddr = "192.0.2.254:5252".parse().unwrap();
        let limits = ObserverConfig {
            keep_bytes: load.keep,
            keep_bytes_per_session: load.share,
            idle_timeout: Duration::from_secs(1_000_000),
            ..ObserverConfig::default()
        };
        let mut observer = Observer::new(limits, [1; 32]).unwrap();
        observer.set_addresses(Addresses::announcing(0, proxy));
        let mut now = now();
        for number in 0..load.clients {
            let source = client(number);
            let adjacent = Peer::from(SocketAddr::new(source.ip(), 5000));
            let keep = Some(load.age);
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
        Self { observer, now, interval: load.interval }
    }

    /// Keeps this many datagrams. Returns the nanoseconds for each.
    fn keep(&mut self, frames: &[Vec<u8>], number: usize) -> f64 {
        let begun = now();
        let batches = frames.chunks(BATCH).cycle();
        for batch in batches.take(number / BATCH) {
            let parsed = batch.iter().map(|frame| {
                let datagram = packet::parse(Link::Ethernet, frame, frame.len()).unwrap();
                Seen { flow: datagram.flow, payload: datagram.payload() }
            });
            let seen: [Seen<'_>; BATCH] = collect(parsed);
            self.now += self.interval * u32::try_from(BATCH).unwrap();
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
struct Naive<'a> {
    load: &'a Load,
    now: Instant,
    /// The bytes of each flow's copies, and the copies with their times.
    kept: HashMap<Flow, (usize, Queue)>,
}

type Queue = VecDeque<(Instant, Vec<u8>)>;

impl<'a> Naive<'a> {
    fn new(load: &'a Load) -> Self {
        Self { load, now: now(), kept: HashMap::new() }
    }

    fn keep(&mut self, frames: &[Vec<u8>], number: usize) -> f64 {
        let begun = now();
        // Its sessions have as much memory as the proxy's, without a pool that they share.
        let share = self.load.share.min(self.load.keep / usize::from(self.load.clients));
        for frame in frames.iter().cycle().take(number) {
            let datagram = packet::parse(Link::Ethernet, frame, frame.len()).unwrap();
            self.now += self.load.interval;
            let (bytes, queue) = self.kept.entry(datagram.flow).or_default();
            *bytes += datagram.payload.len();
            queue.push_back((self.now, datagram.payload.to_vec()));
            let is_old = |at: Instant| self.now - at >= self.load.age;
            while (*bytes > share || queue.front().is_some_and(|(at, _)| is_old(*at)))
                && let Some((_, oldest)) = queue.pop_front()
            {
                *bytes -= oldest.len();
            }
        }
        black_box(&self.kept);
        per_datagram(begun, number)
    }
}

/// The copy of the bytes alone: each client's payloads go round a buffer.
struct Bare(Vec<(usize, Vec<u8>)>);

impl Bare {
    fn new(load: &Load) -> Self {
        let kept = load.age.as_nanos() / load.interval.as_nanos() * u128::from(LEN);
        let all = usize::try_from(kept).unwrap().min(load.keep);
        let share = load.share.min(all / usize::from(load.clients));
        Self(vec![(0, vec![0; share.next_multiple_of(LEN.into())]); load.clients.into()])
    }

    fn copy(&mut self, frames: &[Vec<u8>], number: usize) -> f64 {
        let begun = now();
        for frame in frames.iter().cycle().take(number) {
            let [high, low] = [frame[32], frame[33]];
            let (next, buffer) = &mut self.0[usize::from(u16::from_be_bytes([high, low]))];
            let payload = &frame[frame.len() - usize::from(LEN)..];
            buffer[*next..*next + payload.len()].copy_from_slice(payload);
            *next = (*next + payload.len()) % buffer.len();
        }
        black_box(&self.0);
        per_datagram(begun, number)
    }
}

fn per_datagram(begun: Instant, number: usize) -> f64 {
    now().duration_since(begun).as_secs_f64() * 1e9 / number.max(1) as f64
}
