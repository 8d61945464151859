//! Datagrams that the network loses on their way to the agent's host: the host gets them from the
//! proxy.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::download::{V4, V6, default_route, far, forward, prefix};
use crate::common::script::Script;
use crate::common::{Daemon, PATIENCE, agent, assert_fails, in_namespace, run, status};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::Signal;
use nix::unistd::gettid;
use serde_json::Value;

/// A link between `tap0` and `tap1`. It loses what goes to port 4000 or comes from there, with an
/// RTP number from 2000 to 2399 that ends with 5, the first time.
const RELAY: &str = r#"
import fcntl, os, select, struct
def tap(name):
    fd = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(fd, 0x400454ca, struct.pack("16sH14x", name, 0x0002 | 0x1000))
    return fd
lost = set()
def is_lost(frame):
    if frame[12:14] == b"\x88\x64":
        frame = frame[8:20] + b"\x08\x00" + frame[22:]
    udp = 14 + (20 if frame[12:14] == b"\x08\x00" else 40)
    if len(frame) < udp + 12 or b"\x0f\xa0" not in (frame[udp:udp + 2], frame[udp + 2:udp + 4]):
        return False
    number, before = int.from_bytes(frame[udp + 10:udp + 12], "big"), len(lost)
    if 2000 <= number < 2400 and number % 10 == 5:
        lost.add(number)
    return len(lost) > before
near, far = tap(b"tap0"), tap(b"tap1")
print("ready", flush=True)
while True:
    for fd in select.select([near, far], [], [])[0]:
        frame = os.read(fd, 4096)
        if not is_lost(frame):
            try:
                os.write(near + far - fd, frame)
            except OSError:
                pass
"#;

/// One end of a session of PPPoE on an Ethernet interface, with a TUN device for its packets. The
/// arguments name both, and the last bytes of the hardware addresses of this end and the other.
const PPPOE: &str = r#"
import fcntl, os, select, socket, struct, sys
interface, device, own, other = sys.argv[1:]
tun = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tun, 0x400454ca, struct.pack("16sH14x", device.encode(), 0x0001 | 0x1000))
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x8864))
link.bind((interface, 0x8864))
hardware = lambda last: b"\x02\x00\x00\x00\x00" + bytes([int(last)])
print("ready", flush=True)
while True:
    for ready in select.select([tun, link], [], [])[0]:
        if ready == tun:
            packet = os.read(tun, 4096)
            if packet[0] >> 4 != 4:
                continue
            header = struct.pack(">BBHHH", 0x11, 0, 1, len(packet) + 2, 0x21)
            link.send(hardware(other) + hardware(own) + b"\x88\x64" + header + packet)
        else:
            frame, (_, _, kind, _, _) = link.recvfrom(4096)
            if kind == socket.PACKET_HOST and frame[20:22] == b"\x00\x21":
                os.write(tun, frame[22:20 + int.from_bytes(frame[18:20], "big")])
"#;

/// Begins a session of PPPoE on an interface. Its device has this address.
fn pppoe(interface: &str, device: &str, ends: [&str; 2], address: &str) -> Script {
    run(&format!("ip link set {interface} address 02:00:00:00:00:0{}", ends[0]));
    run(&format!("ip link set {interface} up"));
    let mut script = Script::start(PPPOE, &[interface, device, ends[0], ends[1]]);
    script.hears();
    run(&format!("ip address add {} dev {device}", prefix(address)));
    run(&format!("ip link set {device} up"));
    script
}

/// What is below IP between the agent's host and the proxy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Below {
    Ethernet,
    Pppoe,
}

/// A packet of a call. No other packet ends with the same bytes.
fn rtp(number: u16) -> Vec<u8> {
    let [high, low] = number.to_be_bytes();
    let tag = u32::from(number).wrapping_mul(0x9e37_79b1).to_be_bytes();
    [&[0x80, 111, high, low, 0, 0, high, low, 0, 0, 0, 7][..], &[low; 160], &tag].concat()
}

/// A packet of QUIC. What follows the short header looks encrypted.
fn quic(number: u16) -> Vec<u8> {
    let [high, low] = number.to_be_bytes();
    let mut packet = vec![0x40, 7, high, low];
    packet.extend((0..160_u32).map(|at| {
        let mixed = (u32::from(number) << 8 | at).wrapping_mul(0x9e37_79b1);
        (mixed ^ mixed >> 15).to_be_bytes()[0]
    }));
    packet
}

/// The round trip to the server.
const FAR: Duration = Duration::from_millis(100);

/// What the flow is.
#[derive(Clone, Copy)]
struct Kind {
    packet: fn(u16) -> Vec<u8>,
    /// The first bytes of its packets.
    begins: [u8; 2],
    /// What the receiver sends first, and then again and again.
    opens: fn() -> Vec<u8>,
    answers: fn(u16) -> Vec<u8>,
}

const CALL: Kind = Kind {
    packet: rtp,
    begins: [0x80, 111],
    opens: || REPORT.to_vec(),
    answers: |_| REPORT.to_vec(),
};
/// A download: its first packet has a long header of version 1, and a connection ID.
const DOWNLOAD: Kind = Kind {
    packet: quic,
    begins: [0x40, 7],
    opens: || [&[0xc3, 0, 0, 0, 1, 8][..], &[5; 1190], &[9; 4]].concat(),
    answers: |number| quic(number)[..40].to_vec(),
};

/// A receiver's report about a call (RFC 3550, section 6.4.2).
const REPORT: [u8; 8] = [0x80, 201, 0, 1, 0, 0, 0, 9];

/// The agent's host at the other end of the relay: its socket, its agent, and its namespace.
fn host(
    [ours, theirs]: [&'static str; 2],
    filter: &'static str,
    below: Below,
    arguments: &'static str,
) -> (UdpSocket, Daemon, Option<Script>, File) {
    let ((tell, told), (moved, wait)) = (mpsc::channel(), mpsc::channel::<()>());
    let there = thread::spawn(move || {
        // Only for this thread.
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        for name in ["all", "default"] {
            let file = format!("/proc/sys/net/ipv4/conf/{name}/rp_filter");
            std::fs::write(file, filter).unwrap();
        }
        tell.send(gettid()).unwrap();
        wait.recv().unwrap();
        run("ip link set lo up");
        let session = (below == Below::Pppoe).then(|| pppoe("tap1", "ppp1", ["2", "1"], theirs));
        if session.is_none() {
            run(&format!("ip address add {} dev tap1", prefix(theirs)));
            run("ip link set tap1 up");
        }
        run(&default_route(ours));
        let socket = UdpSocket::bind(SocketAddr::new(theirs.parse().unwrap(), 4000)).unwrap();
        let agent =
            Daemon::begin(&mut agent(&format!("-i tap1 -v --json --metrics off {arguments}")));
        (socket, agent, session, File::open("/proc/thread-self/ns/net").unwrap())
    });
    run(&format!("ip link set tap1 netns {}", told.recv().unwrap()));
    moved.send(()).unwrap();
    there.join().unwrap()
}

/// Sends these packets of a call from a server to the agent's host, past the proxy. Returns the
/// packets that the host got, and the agent's totals and log.
#[allow(clippy::disallowed_methods, reason = "a failing test must end")]
fn call(
    v6: bool,
    filter: &'static str,
    below: Below,
    arguments: &'static str,
    kind: Kind,
) -> (Vec<Vec<u8>>, Value, String) {
    forward();
    let addresses = if v6 { V6 } else { V4 };
    let near: [_; 2] = addresses.near.into();
    let mut relay = Script::start(RELAY, &[]);
    relay.hears();
    let server = far(addresses);
    let session = (below == Below::Pppoe).then(|| pppoe("tap0", "ppp0", ["1", "2"], near[0]));
    if session.is_none() {
        run(&format!("ip address add {} dev tap0", prefix(near[0])));
        run("ip link set tap0 up");
    }
    let announced = session.as_ref().map_or("", |_| " --announce 10.9.0.1:5252");
    let proxy = Daemon::start(&format!("-i tap0 --json --keep 8M{announced}"));
    let (socket, agent, there, _) = host(near, filter, below, arguments);
    let (from, to) = (server.local_addr().unwrap(), socket.local_addr().unwrap());
    let (mut got, mut order) = (BTreeMap::new(), Vec::new());
    let receive_from = socket.try_clone().unwrap();
    let mut receive = |within: Duration| {
        let socket = &receive_from;
        socket.set_read_timeout(Some(within)).unwrap();
        let mut buffer = [0; 2000];
        let Ok((len, source)) = socket.recv_from(&mut buffer) else { return None };
        assert_eq!(source, from, "the flow's own address");
        if buffer[..2] != kind.begins {
            // The answer to a marker, which comes along the path.
            return Some(0);
        }
        let number = u16::from_be_bytes([buffer[2], buffer[3]]);
        let before = got.insert(number, buffer[..len].to_vec());
        assert_eq!(before, None, "{number} arrives twice");
        order.push(number);
        Some(number)
    };
    // The flow sends until the proxy keeps copies, if the agent requests any.
    socket.send_to(&(kind.opens)(), from).unwrap();
    // The proxy is near: the answer to a handshake takes much longer than one of the proxy.
    let asked = Instant::now();
    while let Some(left) = FAR.checked_sub(asked.elapsed()).filter(|left| !left.is_zero()) {
        receive(left);
    }
    let (begun, mut number) = (Instant::now(), 10_000);
    let keeps = || status("127.0.0.1:9252")["copies"]["sessions"].as_u64() > Some(0);
    while number < u16::MAX
        && begun.elapsed() < PATIENCE
        && (number < 10_050 || (!arguments.contains("off") && !keeps()))
    {
        server.send_to(&(kind.packet)(number), to).unwrap();
        socket.send_to(&(kind.answers)(number), from).unwrap();
        number += 1;
        receive(Duration::from_millis(100));
    }
    let mut is_last = false;
    for number in 2000..2400 {
        server.send_to(&(kind.packet)(number), to).unwrap();
        is_last |= receive(Duration::from_millis(3)) == Some(2399);
    }
    // The relay does not lose the last packet, and changes no order.
    while !is_last {
        is_last = receive(PATIENCE).unwrap() == 2399;
    }
    // Copies may still be on their way, and at the end in the socket.
    while receive(Duration::from_millis(200)).is_some() {}
    let ended = agent.stop();
    while receive(Duration::from_millis(1)).is_some() {}
    drop((proxy, relay, session, there));
    run("ip link delete far0");
    let inner = order.into_iter().filter(|number| *number < 10_000);
    let calls = inner.filter_map(|number| got.remove(&number)).collect();
    (calls, ended.summary(), ended.stderr)
}

fn all() -> Vec<Vec<u8>> {
    (2000..2400).map(rtp).collect()
}

#[test]
fn datagrams_lost_on_their_way_to_the_host_arrive_as_copies() {
    in_namespace(|| {
        for (v6, filter) in [(false, "0"), (false, "1"), (false, "2"), (true, "1")] {
            let sent = all();
            // A pause of the machine looks like a queue. The agent then requests nothing for a
            // moment. Without the agent, 360 packets arrive in every call: one call of three is
            // proof.
            let is_repaired = (0..3).any(|_| {
                let (got, totals, log) = call(v6, filter, Below::Ethernet, "", CALL);
                let what = format!("IPv6: {v6}, rp_filter {filter}: {totals} {log}");
                assert!(got.iter().all(|packet| sent.contains(packet)), "{what}");
                assert!(log.contains(": an answer names the proxy "), "{what}");
                let delivered = u64::try_from(got.len() - 360).ok();
                assert_eq!(totals["delivered"].as_u64(), delivered, "{what}");
                eprintln!("{} of 400, {what}", got.len());
                got.len() >= 396 && totals["missed"].as_u64() >= Some(30)
            });
            assert!(is_repaired, "IPv6: {v6}, rp_filter {filter}");
        }
    });
}

/// A download of a program that knows nothing of the agent: QUIC hides the numbers of its packets.
#[test]
fn a_download_arrives_in_order() {
    in_namespace(|| {
        for v6 in [false, true] {
            let sent: Vec<_> = (2000..2400).map(quic).collect();
            // One of three is proof, as above.
            let is_repaired = (0..3).any(|_| {
                let (got, totals, log) = call(v6, "2", Below::Ethernet, "--in-order", DOWNLOAD);
                let what = format!("IPv6: {v6}: {totals} {log}");
                let delivered = u64::try_from(got.len() - 360).ok();
                assert_eq!(totals["delivered"].as_u64(), delivered, "{what}");
                let places =
                    got.iter().filter_map(|packet| sent.iter().position(|it| it == packet));
                let places: Vec<_> = places.collect();
                let behind = places.windows(2).filter(|pair| pair[1] < pair[0]).count();
                eprintln!("{} of 400, {behind} behind later ones, {what}", got.len());
                got.len() >= 396 && behind <= 2
            });
            assert!(is_repaired, "IPv6: {v6}");
        }
    });
}

/// Sends 400 packets of an upload from the agent's host past a proxy that puts them in order.
/// Returns their numbers as they arrive at the server, and the totals of the proxy and the agent.
#[allow(clippy::disallowed_methods, reason = "a failing test must end")]
fn upload(v6: bool) -> (Vec<u16>, String) {
    forward();
    let addresses = if v6 { V6 } else { V4 };
    let near: [_; 2] = addresses.near.into();
    let mut relay = Script::start(RELAY, &[]);
    relay.hears();
    let server = far(addresses);
    run(&format!("ip address add {} dev tap0", prefix(near[0])));
    run("ip link set tap0 up");
    let proxy = Daemon::start("-i tap0 --json --in-order");
    let (socket, agent, there, _) = host(near, "2", Below::Ethernet, "");
    let to = server.local_addr().unwrap();
    let mut buffer = [0; 2000];
    let mut receive = |within: Duration| {
        server.set_read_timeout(Some(within)).unwrap();
        let (len, from) = server.recv_from(&mut buffer).ok()?;
        let bytes = buffer.get(..len).filter(|bytes| bytes[..2] == DOWNLOAD.begins)?;
        Some((u16::from_be_bytes([bytes[2], bytes[3]]), from))
    };
    socket.send_to(&(DOWNLOAD.opens)(), to).unwrap();
    // The delay of the far segment, by which the agent measures the whole round trip.
    thread::sleep(FAR);
    let (begun, mut number) = (Instant::now(), 10_000);
    let orders = || status("127.0.0.1:9252")["totals"]["lists"].as_u64() > Some(0);
    while begun.elapsed() < PATIENCE && (number < 10_050 || !orders()) {
        socket.send_to(&quic(number), to).unwrap();
        number += 1;
        if let Some((number, from)) = receive(Duration::from_millis(20)) {
            server.send_to(&quic(number)[..40], from).unwrap();
        }
    }
    let mut got = Vec::new();
    for number in 2000..2400 {
        socket.send_to(&quic(number), to).unwrap();
        got.extend(receive(Duration::from_millis(3)).map(|(number, _)| number));
    }
    while let Some((number, _)) = receive(Duration::from_millis(200)) {
        got.push(number);
    }
    got.retain(|number| *number < 10_000);
    let (proxy, agent) = (proxy.stop(), agent.stop());
    drop((relay, there));
    run("ip link delete far0");
    assert!(!has_rules(), "after SIGTERM");
    (got, format!("{} {} {}", proxy.summary(), agent.summary(), proxy.stderr))
}

#[test]
fn an_upload_arrives_in_order() {
    in_namespace(|| {
        for v6 in [false, true] {
            // Without the order, all 40 repairs arrive behind later ones. A pause of the machine
            // makes some late: one upload of five is proof.
            let is_repaired = (0..5).any(|_| {
                let (mut got, what) = upload(v6);
                let mut seen = BTreeSet::new();
                got.retain(|number| seen.insert(*number));
                let behind = got.windows(2).filter(|pair| pair[1] < pair[0]).count();
                eprintln!("{} of 400, {behind} behind later ones, IPv6: {v6}: {what}", got.len());
                got.len() >= 396 && behind <= 10
            });
            assert!(is_repaired, "IPv6: {v6}");
        }
    });
}

/// Whether the firewall has rules of an agent, in either family.
fn has_rules() -> bool {
    ["iptables-save", "ip6tables-save"].iter().any(|program| {
        let rules = Command::new(program).output().unwrap().stdout;
        String::from_utf8(rules).unwrap().contains("SIDEKICK")
    })
}

#[test]
fn the_rules_for_the_order_go_with_the_agent() {
    in_namespace(|| {
        run("ip link add near0 type veth peer name near1");
        run("ip link set near0 up");
        let start = || Daemon::begin(&mut agent("-i near0 --metrics off --in-order"));
        let running = start();
        assert!(running.ready.ends_with(", in order\n") && has_rules(), "{}", running.ready);
        // Another agent helps without the order, as the queue is taken.
        let second = Daemon::begin(&mut agent("-i near0 --metrics off --tun tun9 --in-order"));
        let ended = second.stop();
        assert!(ended.stderr.contains("another program has the netfilter queue 5252"));
        assert!(!ended.stderr.contains("panicked") && has_rules());
        running.stop();
        assert!(!has_rules(), "after SIGTERM");
        let clean = || {
            let agent = env!("CARGO_BIN_EXE_sidekick-agent");
            let said = Command::new(agent).arg("clean").output().unwrap();
            assert!(said.status.success(), "{said:?}");
            String::from_utf8(said.stdout).unwrap()
        };
        // Dropping it is kill -9.
        let running = start();
        assert_eq!(clean(), "a running program has the queue 5252: its rules stay\n");
        assert!(has_rules());
        drop(running);
        assert!(has_rules());
        assert_eq!(clean(), "removed the rules for the queue 5252\n");
        assert!(!has_rules(), "after the command");
        assert_eq!(clean(), "there are no rules for the queue 5252\n");
        drop(start());
        start().stop();
        assert!(!has_rules(), "after another start");
    });
}

/// A container's root may not force the size of a socket's buffer.
#[test]
fn a_container_s_root_gets_the_order() {
    in_namespace(|| {
        let mut contained = Command::new("unshare");
        contained.args([
            "--user",
            "--map-root-user",
            "--net",
            env!("CARGO_BIN_EXE_sidekick-agent"),
        ]);
        contained.args("-i lo --metrics off --in-order".split(' '));
        let running = Daemon::begin(&mut contained);
        assert!(running.ready.ends_with(", in order\n"), "{}", running.ready);
    });
}

/// What an agent has left in this namespace of the network: rules, a queue and its device.
fn left_in(namespace: &File) -> [bool; 3] {
    thread::scope(|scope| {
        let look = || {
            setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
            let queues = "/proc/thread-self/net/netfilter/nfnetlink_queue";
            let queues = std::fs::read_to_string(queues).unwrap_or_default();
            let device = Command::new("ip").args(["link", "show", "sidekick0"]).output().unwrap();
            [has_rules(), !queues.is_empty(), device.status.success()]
        };
        scope.spawn(look).join().unwrap()
    })
}

/// A download in order of 400 datagrams, during which the agent ends by this signal, after so many
/// of them have arrived. The server sends what is not acknowledged again, under another number.
/// Returns what the agent has left.
#[allow(clippy::disallowed_methods, reason = "the server has a retransmission timer")]
fn interrupted(signal: Signal, at: usize) -> [bool; 3] {
    const LEN: u16 = 400;
    const TIMEOUT: Duration = Duration::from_millis(50);
    forward();
    let mut relay = Script::start(RELAY, &[]);
    relay.hears();
    let server = far(V4);
    run(&format!("ip address add {} dev tap0", prefix(V4.near.0)));
    run("ip link set tap0 up");
    let proxy = Daemon::start("-i tap0 --json --keep 8M");
    let (socket, agent, _, namespace) = host(V4.near.into(), "2", Below::Ethernet, "--in-order");
    let (from, to) = (server.local_addr().unwrap(), socket.local_addr().unwrap());
    let receive = |socket: &UdpSocket, within: Duration| {
        socket.set_read_timeout(Some(within)).unwrap();
        let mut buffer = [0; 2000];
        let len = socket.recv(&mut buffer).ok()?;
        // No answer to a marker, which comes along the path.
        let is_whole = buffer[..2] == DOWNLOAD.begins;
        is_whole.then(|| (u16::from_be_bytes([buffer[2], buffer[3]]), buffer[..len].to_vec()))
    };
    socket.send_to(&(DOWNLOAD.opens)(), from).unwrap();
    // The delay of the far segment, by which the agent measures the whole round trip.
    thread::sleep(FAR);
    let keeps = || status("127.0.0.1:9252")["copies"]["sessions"].as_u64() > Some(0);
    for number in 10_000.. {
        server.send_to(&quic(number), to).unwrap();
        receive(&socket, Duration::from_millis(20));
        socket.send_to(&(DOWNLOAD.answers)(number), from).unwrap();
        if number > 10_050 && keeps() {
            break;
        }
    }
    let (begun, mut agent) = (Instant::now(), Some(agent));
    let mut sent: Vec<(u16, Instant)> = Vec::new();
    let mut acknowledged = [false; LEN as usize];
    let mut got = BTreeMap::new();
    while got.len() < usize::from(LEN) {
        assert!(begun.elapsed() < PATIENCE, "{} of {LEN}, {signal} after {at}", got.len());
        let is_due = |(index, (attempt, last)): (usize, &(u16, Instant))| {
            (!acknowledged[index] && last.elapsed() >= TIMEOUT * (1 << attempt)).then_some(index)
        };
        let again = sent.iter().enumerate().find_map(is_due);
        let next = again.or_else(|| Some(sent.len()).filter(|next| *next < usize::from(LEN)));
        if let Some(index) = next {
            let attempt = sent.get(index).map_or(0, |(attempt, _)| attempt + 1);
            let number = 2000 + u16::try_from(index).unwrap() + 1000 * attempt;
            match sent.get_mut(index) {
                Some(sent) => *sent = (attempt, Instant::now()),
                None => sent.push((attempt, Instant::now())),
            }
            server.send_to(&quic(number), to).unwrap();
        }
        while let Some((number, packet)) = receive(&socket, Duration::from_millis(1)) {
            socket.send_to(&(DOWNLOAD.answers)(number), from).unwrap();
            if number < 10_000 {
                assert_eq!(packet, quic(number));
                got.insert((number - 2000) % 1000, ());
            }
        }
        while let Some((number, _)) = receive(&server, Duration::from_micros(1)) {
            if (2000..10_000).contains(&number) {
                acknowledged[usize::from((number - 2000) % 1000)] = true;
            }
        }
        if got.len() >= at
            && let Some(mut agent) = agent.take()
        {
            assert_eq!(left_in(&namespace), [true; 3], "before {signal}");
            agent.signal(signal);
            agent.wait();
        }
    }
    let left = left_in(&namespace);
    let again = sent.iter().map(|(attempts, _)| u64::from(*attempts)).sum::<u64>();
    eprintln!("{signal} after {at}: {again} sent again, {:?}, left {left:?}", begun.elapsed());
    drop((proxy, relay, socket));
    run("ip link delete far0");
    left
}

/// Killed, the agent leaves rules that stop no packet.
#[test]
fn a_download_in_order_outlives_the_agent() {
    in_namespace(|| {
        let [_, queue, device] = interrupted(Signal::SIGKILL, 150);
        assert!(!queue && !device);
        assert_eq!(interrupted(Signal::SIGTERM, 150), [false; 3]);
    });
}

#[test]
fn check_names_what_the_order_lacks() {
    in_namespace(|| {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("sidekick.toml");
        std::fs::write(&file, "interfaces = [\"lo\"]\nin-order = true\n").unwrap();
        for program in [env!("CARGO_BIN_EXE_sidekick-agent"), env!("CARGO_BIN_EXE_sidekick-proxy")]
        {
            let checked = |before: &str| {
                let line = format!("{before} exec {program} check {}", file.display());
                let output = Command::new("unshare").args(["--mount", "sh", "-c", &line]).output();
                let output = output.unwrap();
                assert!(output.status.success(), "{output:?}");
                String::from_utf8(output.stderr).unwrap()
            };
            assert_eq!(checked(""), "");
            let said = checked("mount -t tmpfs none /usr/sbin;");
            let why = "in-order: a queue for packets needs iptables or nft: inst";
            assert!(said.contains(why), "{said}");
        }
        assert!(!has_rules());
    });
}

/// The proxy and the agent capture on Ethernet what a session of PPPoE carries, as on the outer
/// side of a home router.
#[test]
fn calls_over_pppoe_are_helped() {
    in_namespace(|| {
        let is_helped = (0..3).any(|_| {
            let (got, totals, log) = call(false, "0", Below::Pppoe, "", CALL);
            let what = format!("{} of 400: {totals} {log}", got.len());
            assert!(log.contains("assisted by the proxy 10.9.0.1:5252"), "{what}");
            assert!(totals["quacks"].as_u64() > Some(5), "{what}");
            eprintln!("{what}");
            got.len() >= 396
        });
        assert!(is_helped);
    });
}

#[test]
fn an_agent_without_its_device_continues() {
    in_namespace(|| {
        let (got, totals, log) = call(false, "0", Below::Ethernet, "--tun off", CALL);
        assert_eq!(got.len(), 360, "{totals}");
        assert!(!log.contains("TUN"), "{log}");

        // Another interface has this name.
        run("ip link add other0 type veth peer name other1");
        let mut other = agent("-i lo --metrics off --tun other0");
        assert_fails(&mut other, &["the interface other0 exists already"]);

        // Without the privilege, the agent warns that it has no default device. A named device is
        // an error.
        let unprivileged = |arguments: &[&str]| {
            let mut command = Command::new("setpriv");
            command.args(["--bounding-set", "-net_admin", "--inh-caps", "-net_admin"]);
            command.arg(env!("CARGO_BIN_EXE_sidekick-agent"));
            command.args(["-i", "lo", "--metrics", "off"]).args(arguments);
            command
        };
        let said = Daemon::begin(&mut unprivileged(&[])).stop().stderr;
        assert!(said.contains("no help for what arrives: cannot create"), "{said}");
        assert_fails(&mut unprivileged(&["--tun", "mine0"]), &["CAP_NET_ADMIN"]);
    });
}
