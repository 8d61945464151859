//! The proxy on a link, compared with a naive loop.
//!
//! In a network namespace of its own, a generator on one processor sends packets of a flow over a
//! virtual Ethernet link. On another processor, the proxy counts them in a session of the flow, or
//! the naive loop does. The loop reads each packet by one `recvfrom`, parses it as the proxy does,
//! and adds its identifier to textbook sums.
//!
//! The generator's processor also does the kernel's work for a packet until the receiver can read
//! it, and is slower than both receivers. So the benchmark stops the receiver until its buffer is
//! full, and measures how long the receiver needs for these packets. It repeats that, since a proxy
//! runs for long, and the best round counts. Then the generator sends as fast as it can to a proxy
//! that is not stopped, which must lose nothing. Finally it sends more than the buffer holds, and
//! every drop must be in the metrics.
//!
//! The benchmark needs root, or user namespaces.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark fails by panicking")]

#[path = "../../quic-sidekick/quack/benches/quack/figures.rs"]
mod figures;

#[path = "../tests/common/mod.rs"]
mod common;

use common::{Daemon, Peer, proxy, run};
use figures::Figures;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::Signal;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, recv, send, setsockopt, socket, sockopt,
};
use nix::unistd::Pid;
use pnet_datalink::{Channel, Config};
use sidekick_protocol::{Filter, Flow, Identification, Position, Terms};
use sidekick_proxy::testing::packet::{self, Link};
use sidekick_quack::textbook;
use std::collections::HashMap;
use std::net::UdpSocket;
use std::num::NonZeroU16;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Packets that wait for a stopped receiver.
const HELD: u32 = 4_000;
/// MiB of these packets in the proxy's ring, and in the loop's queue.
const ROOM: usize = 8;
/// Packets for a proxy that is not stopped.
const PACKETS: u32 = 1_000_000;
const ROUNDS: u16 = 60;
/// Attempts to lose none.
const ATTEMPTS: u32 = 5;
const THRESHOLD: u8 = 20;
/// A quACK every 30 ms, as senders request by default.
const TERMS: Terms = Terms {
    threshold: THRESHOLD,
    every_packets: None,
    every: Some(Duration::from_millis(30)),
    identification: Identification {
        position: Position::Offset(21),
        filter: Filter::QuicShortHeader,
    },
};
/// Payload bytes of a packet.
const PAYLOAD: usize = 1200;
const HEADERS: usize = 14 + 20 + 8;

fn main() {
    if !common::is_in_namespace() {
        return;
    }
    run("ip link add near0 type veth peer name far0");
    run("ip link set near0 up");
    run("ip link set far0 up");
    let mut figures = Figures::begin();
    let (ours, base) = (proxy_of_held(), loop_of_held());
    figures.add("proxy/link", "packets/s", (1e9 / ours, 1e9 / base), base / ours);
    let (ring, pnet) = (latency("ring"), latency("pnet"));
    println!(
        "from a packet to its quACK: by ring {:.0} us, 99 of 100 within {:.0}; by pnet {:.0} and \
         {:.0}",
        ring.0, ring.1, pnet.0, pnet.1
    );
    figures.add("proxy/link/quack-p99", "us", (ring.1, pnet.1), pnet.1 / ring.1);
    // On a shared machine, the proxy may be without a processor for longer than its ring has room.
    // The benchmark then tries again. It measures speed, so a loss does not end it.
    let lossless = (0..ATTEMPTS).any(|_| {
        let (offered, counted, dropped) = with_proxy(PACKETS, 8, false);
        println!(
            "of {PACKETS} packets at {offered:.0} a second {counted} counted, {dropped} dropped"
        );
        assert_eq!(counted + dropped, PACKETS, "drops that the metrics do not have");
        dropped == 0
    });
    if !lossless {
        println!("packets were lost in all of {ATTEMPTS} attempts: repeat it on an idle machine");
    }
    let (_, counted, dropped) = with_proxy(2 * HELD, 8, true);
    println!("of {} packets for 4096 places {counted} counted, {dropped} dropped", 2 * HELD);
    assert_eq!(counted + dropped, 2 * HELD, "drops that the metrics do not have");
    figures.write();
}

#[allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn now() -> Instant {
    Instant::now()
}

fn pin(processor: usize) {
    let mut one = CpuSet::new();
    one.set(processor).unwrap();
    sched_setaffinity(Pid::from_raw(0), &one).unwrap();
}

/// A packet socket on an interface, bound by pnet.
fn packets_of(name: &str) -> OwnedFd {
    let fd = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None).unwrap();
    setsockopt(&fd, sockopt::RcvBufForce, &((2 * ROOM) << 20)).unwrap();
    let interface =
        pnet_datalink::interfaces().into_iter().find(|interface| interface.name == name).unwrap();
    let config =
        Config { socket_fd: Some(fd.try_clone().unwrap().into_raw_fd()), ..Config::default() };
    let Ok(Channel::Ethernet(..)) = pnet_datalink::channel(&interface, config) else {
        panic!("no channel")
    };
    fd
}

/// Microseconds from a packet's departure until the sender has the quACK that it made due: the
/// median and the 99th percentile. This covers the link, the proxy, the quACK's way over loopback,
/// and its decryption.
fn latency(capture: &str) -> (f64, f64) {
    pin(1);
    let line = format!("-i near0 --listen 127.0.0.1:5252 --json --capture {capture} --metrics off");
    let daemon = Daemon::begin(&mut proxy(&line));
    pin(0);
    let peer = session(&daemon, Terms { every: None, every_packets: NonZeroU16::new(1), ..TERMS });
    let mut generator = Generator::new();
    let mut took: Vec<f64> = (1..=10_000)
        .map(|number| {
            let begun = now();
            generator.send();
            while u32::from(peer.count()) != number {}
            let took = now().duration_since(begun).as_secs_f64() * 1e6;
            while now().duration_since(begun) < Duration::from_micros(300) {}
            took
        })
        .collect();
    daemon.stop();
    took.sort_by(f64::total_cmp);
    (took[took.len() / 2], took[took.len() * 99 / 100])
}

/// Sends packets of the flow into the link, each with another identifier.
struct Generator {
    fd: OwnedFd,
    frame: Vec<u8>,
    sent: u32,
}

impl Generator {
    fn new() -> Self {
        let mut frame = vec![0x40; HEADERS + PAYLOAD];
        frame[..6].fill(2);
        frame[12..14].copy_from_slice(&[8, 0]);
        let total = u16::try_from(20 + 8 + PAYLOAD).unwrap().to_be_bytes();
        frame[14..26].copy_from_slice(&[0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, 17, 0, 0]);
        frame[26..34].copy_from_slice(&[127, 0, 0, 1, 198, 51, 100, 7]);
        let len = u16::try_from(8 + PAYLOAD).unwrap().to_be_bytes();
        frame[34..42].copy_from_slice(&[0x0f, 0xa0, 0x01, 0xbb, len[0], len[1], 0, 0]);
        Self { fd: packets_of("far0"), frame, sent: 0 }
    }

    fn send(&mut self) {
        self.sent += 1;
        let identifier = self.sent.wrapping_mul(0x9e37_79b1);
        self.frame[HEADERS + 21..HEADERS + 25].copy_from_slice(&identifier.to_be_bytes());
        while send(self.fd.as_raw_fd(), &self.frame, MsgFlags::empty()).is_err() {}
    }

    /// Sends this many packets, and returns packets per second.
    fn send_all(&mut self, packets: u32) -> f64 {
        let begun = now();
        (0..packets).for_each(|_| self.send());
        f64::from(packets) / now().duration_since(begun).as_secs_f64()
    }
}

/// A session for the generator's flow.
fn session(daemon: &Daemon, terms: Terms) -> Peer {
    let control = UdpSocket::bind("127.0.0.1:0").unwrap();
    control.connect(daemon.address()).unwrap();
    Peer::open(control, 4000, "198.51.100.7:443".parse().unwrap(), terms)
}

/// A proxy on its processor, with this many MiB for waiting packets.
fn start(buffer: usize) -> Daemon {
    let line = format!(
        "-i near0 --listen 127.0.0.1:5252 --json --capture ring --metrics off --buffer {buffer}"
    );
    pin(1);
    let daemon = Daemon::begin(&mut proxy(&line));
    pin(0);
    daemon
}

/// Sends this many packets to a proxy, which may be stopped meanwhile. Returns packets sent per
/// second, counted, and dropped.
fn with_proxy(packets: u32, buffer: usize, hold: bool) -> (f64, u32, u32) {
    let daemon = start(buffer);
    let peer = session(&daemon, TERMS);
    if hold {
        daemon.hold();
    }
    let offered = Generator::new().send_all(packets);
    if hold {
        daemon.signal(Signal::SIGCONT);
    }
    // When the proxy answers, it has counted all packets before.
    peer.poll(7);
    let summary = daemon.stop().summary();
    let number = |key: &str| u32::try_from(summary[key].as_u64().unwrap()).unwrap();
    (offered, number("counted"), number("capture_drops"))
}

/// Nanoseconds that the proxy needs for each of many waiting packets, until it has answered a poll
/// behind them. The minimum of many rounds: in the first, the ring's memory is not mapped yet.
fn proxy_of_held() -> f64 {
    let daemon = start(ROOM);
    let peer = session(&daemon, TERMS);
    let mut generator = Generator::new();
    let round = |round: u16| {
        daemon.hold();
        generator.send_all(HELD);
        let begun = now();
        daemon.signal(Signal::SIGCONT);
        let counted = peer.poll(7 + round).count;
        let took = per_held(begun);
        assert_eq!(counted, u32::from(round + 1) * HELD);
        took
    };
    let best = (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min);
    daemon.stop();
    best
}

fn per_held(begun: Instant) -> f64 {
    now().duration_since(begun).as_secs_f64() * 1e9 / f64::from(HELD)
}

/// The same for the loop, in this process.
fn loop_of_held() -> f64 {
    let fd = packets_of("near0");
    let mut generator = Generator::new();
    let mut flows: HashMap<Flow, (u32, Vec<u32>)> = HashMap::new();
    let mut buffer = vec![0; 1 << 16];
    let round = |round: u16| {
        pin(0);
        generator.send_all(HELD);
        pin(1);
        let begun = now();
        while let Ok(len) = recv(fd.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
            let Ok(datagram) = packet::parse(Link::Ethernet, &buffer[..len], len) else { continue };
            let Some(Ok(identifier)) = datagram.payload.get(21..25).map(TryInto::try_into) else {
                continue;
            };
            let (count, sums) =
                flows.entry(datagram.flow).or_insert_with(|| (0, vec![0; THRESHOLD.into()]));
            *count += 1;
            textbook::insert(sums, u32::from_be_bytes(identifier));
        }
        let took = per_held(begun);
        let counted = flows.values().map(|(count, _)| *count).max();
        assert_eq!(counted, Some(u32::from(round + 1) * HELD), "packets were lost");
        took
    };
    let best = (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min);
    pin(0);
    best
}
