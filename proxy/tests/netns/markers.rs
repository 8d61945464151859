//! Markers from forged addresses, with the real daemon: anyone on the near segment can send them.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};

use crate::common::link::{bind, connected, link, send};
use crate::common::manager::Manager;
use crate::common::{
    Daemon, PATIENCE, Peer, assert_counts, await_route_to_own, every_packets, in_namespace,
    naive_sums, proxy, run,
};
use sidekick_protocol::wire::discovery::{Answer, MARKER_LEN, Marker, Reply};
use sidekick_proxy::testing::RawSocket;

/// A server behind the proxy.
const SERVER: &str = "198.51.100.7:443";

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// The nonce of the marker with this number.
fn nonce(number: u32) -> [u8; 16] {
    u128::from(number).to_be_bytes()
}

fn marker(number: u32, reply: Reply) -> [u8; MARKER_LEN] {
    let mut marker = [0; MARKER_LEN];
    Marker { handle: [7; 20], nonce: nonce(number), reply }.emit(&mut marker).unwrap();
    marker
}

/// The answer that arrives at a socket, and where it comes from.
fn answer_at(socket: &UdpSocket) -> (Answer, SocketAddr) {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut buffer = [0; 256];
    let (len, from) = socket.recv_from(&mut buffer).unwrap();
    (Answer::parse(&buffer[..len]).unwrap(), from)
}

/// The host on the near segment. It can forge addresses.
struct Host {
    forge: RawSocket,
    /// The flow's own socket (10.9.0.2:4000), and the adjacent one (10.9.0.2:4001).
    flow: UdpSocket,
    adjacent: UdpSocket,
    markers: u32,
}

impl Host {
    /// The host at the other end of a new link, `near0`.
    fn new() -> Self {
        link("near0", ("10.9.0.1/24", "10.9.0.2/24"), &[], || {
            run("ip route add default via 10.9.0.1");
            let (flow, adjacent) = (bind("10.9.0.2:4000"), bind("10.9.0.2:4001"));
            Self { forge: RawSocket::open().unwrap(), flow, adjacent, markers: 0 }
        })
    }

    fn mark(&mut self, from: SocketAddr, to: SocketAddr, reply: Reply) {
        self.markers += 1;
        self.forge.send(&marker(self.markers, reply), 0, (from, to), None).unwrap();
    }

    /// Sends markers of its own until the proxy answers one. The proxy has then read all before it.
    fn is_answered(&mut self) {
        let server = address(SERVER);
        for reply in [Reply::Adjacent(4001), Reply::Path] {
            self.mark(address("10.9.0.2:4000"), server, reply);
            let socket = if reply == Reply::Path { &self.flow } else { &self.adjacent };
            let (answer, from) = answer_at(socket);
            assert_eq!(answer.nonce, nonce(self.markers));
            assert_eq!(from, if reply == Reply::Path { server } else { address("10.9.0.1:5252") });
        }
    }
}

/// Fails if a datagram has arrived at this socket.
fn assert_silent(socket: &UdpSocket) {
    socket.set_nonblocking(true).unwrap();
    let mut buffer = [0; 256];
    match socket.recv_from(&mut buffer) {
        Ok((len, from)) => panic!("{:?} got {len} bytes from {from}", socket.local_addr().unwrap()),
        Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
    }
}

#[test]
fn an_answer_leaves_by_the_interface_of_its_marker() {
    in_namespace(|| {
        let mut host = Host::new();
        let victim = link("side0", ("10.8.0.1/24", "10.8.0.2/24"), &[], || bind("10.8.0.2:53"));
        let daemon = Daemon::start("-i near0 --json");
        for reply in [Reply::Path, Reply::Adjacent(53)] {
            host.mark(address("10.8.0.2:53"), address(SERVER), reply);
        }
        host.is_answered();
        assert_silent(&victim);
        assert_eq!(daemon.stop().summary()["markers"], 4);
    });
}

#[test]
fn a_proxy_sends_nothing_to_itself_from_a_forged_address() {
    in_namespace(|| {
        let mut host = Host::new();
        // All sockets of programs on the proxy's machine.
        let programs = ["127.0.0.1:53", "127.0.0.9:53", "10.9.0.1:53", "0.0.0.0:54"].map(bind);
        let daemon = Daemon::start("-i near0 --json");
        let server = address(SERVER);
        for forged in
            ["127.0.0.1:53", "127.0.0.9:53", "10.9.0.1:53", "10.9.0.255:54", "127.0.0.1:54"]
        {
            for reply in [Reply::Path, Reply::Adjacent(53), Reply::Adjacent(54)] {
                host.mark(address(forged), server, reply);
                host.mark(address(forged), address("10.9.0.1:55"), reply);
            }
        }
        host.is_answered();
        programs.iter().for_each(assert_silent);
        let summary = daemon.stop().summary();
        assert_counts(&summary, [("markers", 2), ("markers_refused", 30)]);
    });
}

/// Addresses change while the proxy runs. It announces the new one, and sends nothing to itself
/// there.
#[test]
fn a_new_address_of_the_proxy_is_noticed() {
    in_namespace(|| {
        let mut host = Host::new();
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("proxy.toml");
        std::fs::write(&file, "interfaces = [\"near0\"]\n").unwrap();
        let manager = Manager::new(directory.path());
        let line = format!("--config {} --json", file.display());
        let daemon = Daemon::begin(proxy(&line).env("NOTIFY_SOCKET", &manager.path));
        assert_eq!(manager.hears(), "READY=1\n");
        run("ip address add 10.9.0.77/24 dev near0");
        let program = bind("10.9.0.77:53");
        // The proxy reads the addresses every second, and when it rereads its file.
        manager.reload(&daemon);
        host.is_answered();
        host.mark(address("10.9.0.77:53"), address(SERVER), Reply::Adjacent(53));
        host.is_answered();
        assert_silent(&program);
        let summary = daemon.stop().summary();
        assert_eq!(summary["markers_refused"], 1, "{summary}");
    });
}

/// 200,000 markers from 65,000 addresses. A session on the same link continues, and loses nothing.
#[test]
#[allow(clippy::disallowed_methods, reason = "the rate is per second")]
fn a_flood_of_forged_markers_draws_answers_at_a_fixed_rate() {
    in_namespace(|| {
        let mut host = Host::new();
        let control = host.adjacent.try_clone().unwrap();
        let daemon = Daemon::start("-i near0 --json");
        control.connect("10.9.0.1:5252").unwrap();
        let destination = address("10.9.0.1:443");
        let peer = Peer::open(control, 4000, destination, every_packets(1 << 15, 20));
        let (begun, mut sent) = (std::time::Instant::now(), Vec::new());
        for round in 0..200u16 {
            for number in 0..1000 {
                let [.., high, low] = (u32::from(round) * 1000 + number).to_be_bytes();
                host.mark(([10, 9, high, low], 53).into(), address(SERVER), Reply::Path);
            }
            let next = u32::from(round) * 10;
            sent.extend(send(&host.flow, destination, next..next + 10));
            // The proxy then has read all before, so no queue overflows on a slow machine.
            let report = peer.poll(round + 1);
            assert_eq!(
                (usize::try_from(report.count).unwrap(), report.sums),
                (sent.len(), naive_sums(&sent, 20))
            );
        }
        let seconds = begun.elapsed().as_secs() + 1;
        let summary = daemon.stop().summary();
        let number = |key: &str| summary[key].as_u64().unwrap();
        assert!(number("markers") <= 256 + 250 * seconds, "in {seconds} s: {summary}");
        assert_eq!(
            number("markers") + number("markers_deferred") + number("markers_refused"),
            u64::from(host.markers),
            "{summary}"
        );
        assert_eq!((number("epochs"), number("capture_drops")), (0, 0), "{summary}");
    });
}

/// By default, flows of both families find the proxy, each at an address of its family. They reach
/// it at every address of the machine.
#[test]
fn flows_of_both_families_find_the_proxy_by_default() {
    in_namespace(|| {
        const FAMILIES: [[&str; 4]; 2] = [
            ["10.9.0.1", "10.9.0.2", "10.9.0.77", SERVER],
            ["[2001:db8:9::1]", "[2001:db8:9::2]", "[2001:db8:9::77]", "[2001:db8:7::7]:443"],
        ];
        let prepare = ["ip address add 2001:db8:9::1/64 dev near0 nodad"];
        let sockets = link("near0", ("10.9.0.1/24", "10.9.0.2/24"), &prepare, || {
            run("ip address add 2001:db8:9::2/64 dev near0-peer nodad");
            run("ip route add default via 10.9.0.1");
            run("ip route add default via 2001:db8:9::1");
            let at = |host: &str, port| bind(&format!("{host}:{port}"));
            FAMILIES.map(|[_, host, ..]| [4000, 4001, 4002].map(|port| at(host, port)))
        });
        run("ip address add 10.9.0.77/24 dev near0");
        run("ip address add 2001:db8:9::77/64 dev near0 nodad");
        await_route_to_own("2001:db8:9::1");
        await_route_to_own("2001:db8:9::77");
        let (daemon, mut number) = (Daemon::start("-i near0 --json"), 0);
        // The host's namespace, and so the link, last as long as its sockets. When the proxy stops,
        // it sends a message to each of these peers.
        let mut peers = Vec::new();
        for ([ours, host, other, server], [flow, adjacent, stranger]) in
            FAMILIES.iter().zip(sockets)
        {
            let proxies = [ours, other].map(|ip| address(&format!("{ip}:5252")));
            let server = address(server);
            for (reply, socket) in [(Reply::Adjacent(4001), &adjacent), (Reply::Path, &flow)] {
                number += 1;
                flow.send_to(&marker(number, reply), server).unwrap();
                let (answer, from) = answer_at(socket);
                assert!(proxies.contains(&answer.proxy), "{}", answer.proxy);
                assert_eq!(answer.nonce, nonce(number));
                assert_eq!(answer.flow.source, address(&format!("{host}:4000")));
                assert_eq!(from, if reply == Reply::Path { server } else { answer.proxy });
            }
            // A connected socket accepts datagrams only from its peer's address.
            for (socket, at) in [adjacent, stranger].into_iter().zip(proxies) {
                socket.connect(at).unwrap();
                let peer = Peer::open(socket, 4000, server, every_packets(9, 4));
                let sent = send(&flow, server, 0..9);
                let report = peer.report(|_| true);
                assert_eq!((report.count, report.sums), (9, naive_sums(&sent, 4)), "{at}");
                peers.push(peer);
            }
        }
        let summary = daemon.stop().summary();
        assert_counts(&summary, [("markers", 4), ("unsent", 0)]);
    });
}

/// On loopback, a sender finds the proxy of the same machine. The proxy counts a marker of another
/// version, and does not answer it.
#[test]
fn a_marker_on_loopback_is_answered() {
    in_namespace(|| {
        let daemon = Daemon::start("-i lo --json");
        let (flow, adjacent) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
        let marker = marker(1, Reply::Adjacent(adjacent.local_addr().unwrap().port()));
        let sink = bind("127.0.0.1:0");
        let mut other = marker;
        other[29] += 1;
        for marker in [other, marker] {
            flow.send_to(&marker, sink.local_addr().unwrap()).unwrap();
        }
        assert_eq!(answer_at(&adjacent).0.flow.source, flow.local_addr().unwrap());
        drop(connected("127.0.0.1:0", daemon.address_on("127.0.0.1")));
        let summary = daemon.stop().summary();
        let counted = [&summary["markers"], &summary["markers_other_version"]];
        assert_eq!(counted, [1, 1], "{summary}");
    });
}
