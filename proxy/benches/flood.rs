//! The proxy under a flood of HELLOs at its port, compared with the proxy without a flood.
//!
//! In a network namespace of its own, a flow sends a packet every 10 ms for some seconds. Its
//! session has a quACK due 40 ms after the first unreported packet: some 20 a second. Meanwhile
//! another socket sends HELLOs in trains, as fast as one processor can. Then the benchmark sends
//! SIGTERM. It measures quACKs per second, the slowest answer of /health, and the time from SIGTERM
//! to the end. The final summary must be right.
//!
//! The benchmark needs root, or user namespaces.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark fails by panicking")]

#[path = "../../quic-sidekick/quack/benches/quack/figures.rs"]
mod figures;

#[path = "../tests/common/mod.rs"]
mod common;

use common::link::{bind, connected, send};
use common::{Daemon, Peer, get, hello};
use figures::Figures;
use nix::sys::socket::{setsockopt, sockopt};
use sidekick_protocol::Terms;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const METRICS: &str = "127.0.0.1:9252";
const PACKETS: u32 = 500;
const INTERVAL: Duration = Duration::from_millis(10);
const QUACK_AFTER: Duration = Duration::from_millis(40);

#[allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn now() -> Instant {
    Instant::now()
}

#[allow(clippy::disallowed_methods, reason = "packets and questions are so far apart")]
fn pause_until(then: Instant) {
    thread::sleep(then.saturating_duration_since(now()));
}

/// The result of a run.
struct Outcome {
    quacks_a_second: f64,
    slowest_health_ms: f64,
    end_ms: f64,
    hellos_a_second: f64,
}

/// Ends the threads that watch this flag, also when the benchmark panics. Otherwise it would wait
/// for them forever.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends HELLOs until the flag is set, and counts them.
fn flood(socket: &UdpSocket, hello: &[u8], (stop, sent): (&AtomicBool, &AtomicU64)) {
    let train = hello.repeat(60);
    while !stop.load(Ordering::Relaxed) {
        if socket.send(&train).is_ok() {
            sent.fetch_add(60, Ordering::Relaxed);
        }
    }
}

fn measure(flooded: bool) -> Outcome {
    let daemon = Daemon::start(&format!("-i lo --json --metrics {METRICS}"));
    let (source, sink) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
    let destination = sink.local_addr().unwrap();
    let port = source.local_addr().unwrap().port();
    let control = connected("127.0.0.1:0", daemon.address_on("127.0.0.1"));
    let terms = Terms { every: Some(QUACK_AFTER), every_packets: None, ..Terms::default() };
    let peer = Peer::open(control, port, destination, terms);
    let flooder = connected("127.0.0.1:0", daemon.address_on("127.0.0.1"));
    let hello = hello(port, destination);
    setsockopt(&flooder, sockopt::UdpGsoSegment, &i32::try_from(hello.len()).unwrap()).unwrap();
    let (stop, sent, done) = (AtomicBool::new(!flooded), AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let (flood_ends, health_ends) = (Ends(&stop), Ends(&done));
        scope.spawn(|| flood(&flooder, &hello, (&stop, &sent)));
        let health = scope.spawn(|| {
            let mut slowest = Duration::ZERO;
            while !done.load(Ordering::Relaxed) {
                let asked = now();
                assert_eq!(get(METRICS, "/health").0, 200);
                slowest = slowest.max(asked.elapsed());
                pause_until(asked + INTERVAL * 10);
            }
            slowest
        });
        let begun = now();
        let quacks = scope.spawn(move || {
            let mut quacks = 0_u32;
            while u32::from(peer.count()) < PACKETS {
                quacks += 1;
            }
            (quacks + 1, begun.elapsed())
        });
        for number in 0..PACKETS {
            send(&source, destination, number..number + 1);
            pause_until(begun + INTERVAL * (number + 1));
        }
        let (quacks, took) = quacks.join().unwrap();
        drop(health_ends);
        let slowest = health.join().unwrap();
        let hellos = sent.load(Ordering::Relaxed);
        let asked = now();
        let summary = daemon.stop().summary();
        let end = asked.elapsed();
        drop(flood_ends);
        assert_eq!(
            (&summary["counted"], &summary["sessions"]),
            (&PACKETS.into(), &1.into()),
            "{summary}"
        );
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        Outcome {
            quacks_a_second: f64::from(quacks) / took.as_secs_f64(),
            slowest_health_ms: ms(slowest),
            end_ms: ms(end),
            // Below 2^53.
            hellos_a_second: hellos as f64 / took.as_secs_f64(),
        }
    })
}

fn main() {
    if !common::is_in_namespace() {
        return;
    }
    let mut figures = Figures::begin();
    let (quiet, flooded) = (measure(false), measure(true));
    for (what, outcome) in [("without a flood", &quiet), ("with a flood", &flooded)] {
        let Outcome { quacks_a_second, slowest_health_ms, end_ms, hellos_a_second } = outcome;
        println!(
            "{what} ({hellos_a_second:.0} HELLOs/s): {quacks_a_second:.1} quACKs/s, /health within \
             {slowest_health_ms:.0} ms, ended {end_ms:.0} ms after SIGTERM"
        );
    }
    let ratio = flooded.quacks_a_second / quiet.quacks_a_second;
    figures.add(
        "proxy/flood/quacks",
        "1/s",
        (flooded.quacks_a_second, quiet.quacks_a_second),
        ratio,
    );
    figures.add(
        "proxy/flood/end",
        "ms",
        (flooded.end_ms, quiet.end_ms),
        quiet.end_ms / flooded.end_ms,
    );
    figures.write();
}
