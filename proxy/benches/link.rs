//! The proxy on a link, beside a loop as one would write it first.
//!
//! In a network namespace of its own, a generator on one processor sends packets of a flow over a virtual Ethernet link as fast
//! as it can; on another processor the proxy counts them, which has a session for the flow, or a loop that takes each with one
//! `recvfrom`, parses it as the proxy does, and adds its identifier to the sums by the textbook. The generator also pays for what
//! the kernel does with a packet until it is in the receiver's hands, so it may be slower than both: what is compared is how
//! many packets a second of the receiver's own processor time comes to. Then the generator sends half as fast as it can, and
//! nothing may be lost.
//!
//! It needs root, or user namespaces.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark fails by panicking")]

#[path = "../../quic-sidekick/quack/benches/quack/figures.rs"]
mod figures;

#[path = "../tests/common/mod.rs"]
mod common;

use common::{Daemon, Peer, proxy, run};
use figures::Figures;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, recv, send, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeValLike;
use nix::unistd::{Pid, gettid};
use pnet_datalink::{Channel, Config};
use sidekick_protocol::{Flow, Terms};
use sidekick_proxy::packet::{self, Link};
use sidekick_quack::textbook;
use std::collections::HashMap;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

const INSIDE: &str = "SIDEKICK_BENCH_INSIDE";
const PACKETS: u32 = 1_500_000;
const ROUNDS: usize = 3;
const THRESHOLD: u8 = 20;
/// Payload bytes of a packet.
const PAYLOAD: usize = 1200;
const HEADERS: usize = 14 + 20 + 8;
/// Bytes that may wait for the loop, as for the proxy.
const BUFFER: usize = 8 << 20;

fn main() -> ExitCode {
    if std::env::var_os(INSIDE).is_none() {
        let status = Command::new("unshare")
            .args(["--net", "--pid", "--fork", "--kill-child=SIGKILL", "--"])
            .arg(std::env::current_exe().unwrap())
            .env(INSIDE, "1")
            .status()
            .expect("unshare(1) of util-linux");
        return if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    run("ip link set lo up");
    run("ip link add near0 type veth peer name far0");
    run("ip link set near0 up");
    run("ip link set far0 up");
    let mut figures = Figures::begin().unwrap();
    let (mut ours, mut base) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(with_proxy(PACKETS, Duration::ZERO));
        base.push(with_loop(PACKETS));
    }
    let best = |all: &[Round]| *all.iter().min_by(|a, b| a.cpu_ns.total_cmp(&b.cpu_ns)).unwrap();
    let (ours, base) = (best(&ours), best(&base));
    for (what, round) in [("the proxy", ours), ("the loop", base)] {
        println!(
            "{what}: {} of {PACKETS} packets counted and {} dropped, of {:.0} a second; {:.0} ns of its processor for each",
            round.counted, round.dropped, round.offered, round.cpu_ns
        );
    }
    figures.add("proxy/link/cpu", "ns", (ours.cpu_ns, base.cpu_ns), base.cpu_ns / ours.cpu_ns);
    let rate = |round: Round| 1e9 / round.cpu_ns;
    figures.add("proxy/link/rate", "packets/s", (rate(ours), rate(base)), rate(ours) / rate(base));
    // Half as fast as the generator can.
    let pause = Duration::from_secs_f64(1.0 / ours.offered);
    let half = with_proxy(PACKETS / 2, 2 * pause);
    println!(
        "at {:.0} packets a second: {} lost, {} dropped",
        half.offered,
        PACKETS / 2 - half.counted,
        half.dropped
    );
    assert_eq!((half.counted, half.dropped), (PACKETS / 2, 0), "packets were lost at half of the rate");
    assert_eq!(ours.counted + ours.dropped, PACKETS, "drops that the metrics do not have");
    figures.write().unwrap();
    ExitCode::SUCCESS
}

/// What came of a run.
#[derive(Clone, Copy, Debug)]
struct Round {
    counted: u32,
    dropped: u32,
    /// Packets a second that the generator sent.
    offered: f64,
    /// The receiver's processor time for each packet that it counted.
    cpu_ns: f64,
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
    setsockopt(&fd, sockopt::RcvBufForce, &BUFFER).unwrap();
    let interface = pnet_datalink::interfaces().into_iter().find(|interface| interface.name == name).unwrap();
    let config = Config { socket_fd: Some(fd.try_clone().unwrap().into_raw_fd()), ..Config::default() };
    let Ok(Channel::Ethernet(..)) = pnet_datalink::channel(&interface, config) else { panic!("no channel") };
    fd
}

/// Sends so many packets, each with another identifier, `pace` apart at least; gives packets a second.
fn generate(packets: u32, pace: Duration) -> f64 {
    let fd = packets_of("far0");
    let mut frame = vec![0x40; HEADERS + PAYLOAD];
    frame[..6].fill(2);
    frame[12..14].copy_from_slice(&[8, 0]);
    let total = u16::try_from(20 + 8 + PAYLOAD).unwrap().to_be_bytes();
    frame[14..26].copy_from_slice(&[0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame[26..34].copy_from_slice(&[127, 0, 0, 1, 198, 51, 100, 7]);
    let len = u16::try_from(8 + PAYLOAD).unwrap().to_be_bytes();
    frame[34..42].copy_from_slice(&[0x0f, 0xa0, 0x01, 0xbb, len[0], len[1], 0, 0]);
    let begun = now();
    for number in 0..packets {
        let identifier = number.wrapping_mul(0x9e37_79b1);
        frame[HEADERS + 21..HEADERS + 25].copy_from_slice(&identifier.to_be_bytes());
        while send(fd.as_raw_fd(), &frame, MsgFlags::empty()).is_err() {}
        while now().duration_since(begun) < pace * number {}
    }
    f64::from(packets) / now().duration_since(begun).as_secs_f64()
}

/// Processor time of a process or thread, in hundredths of a second.
fn ticks(of: &str) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{of}/stat")).unwrap();
    let fields: Vec<_> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()
}

fn with_proxy(packets: u32, pace: Duration) -> Round {
    let mut command = proxy("-i near0 --listen 127.0.0.1:5252 --json --capture ring --metrics off");
    pin(1);
    let daemon = Daemon::begin(&mut command);
    pin(0);
    let control = UdpSocket::bind("127.0.0.1:0").unwrap();
    control.connect(daemon.address()).unwrap();
    let terms = Terms { threshold: THRESHOLD, ..Terms::default() };
    let peer = Peer::open(control, 4000, "198.51.100.7:443".parse().unwrap(), terms);
    let process = daemon.id().to_string();
    let before = ticks(&process);
    let offered = generate(packets, pace);
    // It has counted what there was when it answers.
    let counted = peer.poll(7).count;
    let used = ticks(&process) - before;
    let summary = daemon.stop().summary();
    let dropped = u32::try_from(summary["capture_drops"].as_u64().unwrap()).unwrap();
    assert_eq!(summary["counted"], counted, "{summary}");
    Round { counted, dropped, offered, cpu_ns: used * 1e7 / f64::from(counted) }
}

fn with_loop(packets: u32) -> Round {
    static DONE: AtomicBool = AtomicBool::new(false);
    DONE.store(false, SeqCst);
    let fd = packets_of("near0");
    setsockopt(&fd, sockopt::ReceiveTimeout, &nix::sys::time::TimeVal::milliseconds(100)).unwrap();
    let receiver = thread::spawn(move || {
        pin(1);
        let mut flows: HashMap<Flow, (u32, Vec<u32>)> = HashMap::new();
        let mut buffer = vec![0; 1 << 16];
        loop {
            let Ok(len) = recv(fd.as_raw_fd(), &mut buffer, MsgFlags::empty()) else {
                if DONE.load(SeqCst) {
                    break;
                }
                continue;
            };
            let Ok(datagram) = packet::parse(Link::Ethernet, &buffer[..len], len) else { continue };
            let Some(Ok(identifier)) = datagram.payload.get(21..25).map(TryInto::try_into) else { continue };
            let (count, sums) = flows.entry(datagram.flow).or_insert_with(|| (0, vec![0; THRESHOLD.into()]));
            *count += 1;
            textbook::insert(sums, u32::from_be_bytes(identifier));
        }
        let used = ticks(&format!("self/task/{}", gettid()));
        (flows.values().map(|(count, _)| *count).max().unwrap(), used)
    });
    pin(0);
    let offered = generate(packets, Duration::ZERO);
    DONE.store(true, SeqCst);
    let (counted, used) = receiver.join().unwrap();
    Round { counted, dropped: packets - counted, offered, cpu_ns: used * 1e7 / f64::from(counted) }
}
