//! Malformed and unusual frames on an interface with sessions. Each quACK covers the datagrams that
//! the next hop would accept, and the capture continues.

use std::net::{IpAddr, SocketAddr};

use crate::common::link::{Session, across_a_link, connected};
use crate::common::script::Script;
use crate::common::{Daemon, Peer, datagram, every_packets, in_namespace, naive_sums, run};
use nix::sys::socket::{setsockopt, sockopt};

/// Sends frames unchanged into the link, each after the header in which a virtual machine describes
/// how to split it.
const INJECTOR: &str = r#"
import socket, sys
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
link.setsockopt(263, 15, 1)
link.bind(("far0", 0))
for line in sys.stdin:
    try:
        link.send(bytes.fromhex(line))
        print("sent", flush=True)
    except OSError as error:
        print(error, flush=True)
"#;

/// Whether the kernel sends the frame.
fn inject(injector: &mut Script, merging: [u8; 10], frame: &[u8]) -> bool {
    let hex: String = merging.iter().chain(frame).map(|byte| format!("{byte:02x}")).collect();
    injector.ask(&hex) == "sent"
}

/// A frame under construction, with wrong values in its fields.
#[derive(Clone, Default)]
struct Odd {
    payload: Vec<u8>,
    tags: usize,
    /// Whether it belongs to a session of PPPoE.
    session: bool,
    /// Headers between IPv6 and UDP: the type of each, and its bytes after the first.
    extensions: Vec<(u8, Vec<u8>)>,
    /// Lengths in place of the true ones.
    ip_len: Option<u16>,
    udp_len: Option<u16>,
    /// The kernel's type of merging, and the bytes of each datagram.
    merging: (u8, u16),
}

impl Odd {
    fn of(payload: Vec<u8>) -> Self {
        Self { payload, ..Self::default() }
    }

    /// The header for the kernel, and the frame.
    fn build(&self, source: SocketAddr, destination: SocketAddr) -> ([u8; 10], Vec<u8>) {
        let word = |len: usize| u16::try_from(len & 0xffff).unwrap();
        let mut udp = [source.port().to_be_bytes(), destination.port().to_be_bytes()].concat();
        let udp_len = self.udp_len.unwrap_or(word(8 + self.payload.len()));
        udp.extend([&udp_len.to_be_bytes()[..], &[0, 0], &self.payload].concat());
        let mut frame = vec![2; 12];
        for _ in 0..self.tags {
            frame.extend([0x81, 0x00, 0x00, 0x07]);
        }
        match (source.ip(), destination.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let total = self.ip_len.unwrap_or(word(20 + udp.len())).to_be_bytes();
                frame
                    .extend([0x08, 0x00, 0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, 17, 0, 0]);
                frame.extend([from.octets(), to.octets()].concat());
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let (mut next, mut headers) = (17, Vec::new());
                for (kind, bytes) in self.extensions.iter().rev() {
                    headers = [&[next], &bytes[..], &headers].concat();
                    next = *kind;
                }
                let len = self.ip_len.unwrap_or(word(headers.len() + udp.len())).to_be_bytes();
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, len[0], len[1], next, 64]);
                frame.extend([from.octets(), to.octets()].concat());
                frame.extend(headers);
            }
            _ => panic!("two families"),
        }
        let (kind, each) = self.merging;
        let mut merging = [0; 10];
        if kind > 0 {
            // The kernel requires that it computes the checksum of each datagram itself.
            let [at, whole] = [word(frame.len()), word(frame.len() + 8)].map(u16::to_ne_bytes);
            let each = each.to_ne_bytes();
            merging = [1, kind, whole[0], whole[1], each[0], each[1], at[0], at[1], 6, 0];
        }
        frame.extend(udp);
        if self.session {
            let at = 12 + 4 * self.tags;
            let len = word(frame.len() - at).to_be_bytes();
            let protocol = if source.is_ipv4() { 0x21 } else { 0x57 };
            let header = [0x88, 0x64, 0x11, 0, 0, 1, len[0], len[1], 0, protocol];
            frame.splice(at..at + 2, header);
        }
        (merging, frame)
    }
}

/// Datagrams with these numbers, one after the other, and their lengths.
fn train(numbers: std::ops::Range<u32>, len: usize, last: usize) -> (Vec<u8>, Vec<Vec<u8>>) {
    let end = numbers.end - 1;
    let each: Vec<_> = numbers.map(|n| datagram(n, if n == end { last } else { len })).collect();
    (each.concat(), each)
}

/// An option header of IPv6 (RFC 8200, section 4.2) that pads, eight bytes long.
fn padding(kind: u8) -> (u8, Vec<u8>) {
    (kind, vec![0, 1, 4, 0, 0, 0, 0])
}

/// The frames that the test sends, and the datagrams that count.
fn oddities(v6: bool) -> Vec<(&'static str, Odd, Vec<Vec<u8>>)> {
    // No datagram is a duplicate: each has a number of its own.
    let mut numbers = 2000..;
    let mut one = |len| datagram(numbers.next().unwrap(), len);
    let mut list = Vec::new();
    let mut merged = |what, (payload, each): (Vec<u8>, Vec<Vec<u8>>), size| {
        let odd = Odd { merging: (5, size), ..Odd::of(payload) };
        list.push((what, odd, each));
    };
    merged("a train", train(1000..1041, 1200, 700), 1200);
    merged("a train as long as IP allows", train(1100..1154, 1200, 1200), 1200);
    merged("a train of jumbo frames", train(1200..1207, 8900, 40), 8900);
    merged("a train of two", train(1300..1302, 1400, 60), 1400);
    let alone = one(1000);
    merged("a train that is none", (alone.clone(), vec![alone]), 1200);
    // Many datagrams, all too short for an identifier.
    merged("a train of single bytes", (one(1200), Vec::new()), 1);
    let mut add = |what, odd: Odd, counts: bool| {
        let counted = if counts { vec![odd.payload.clone()] } else { Vec::new() };
        list.push((what, odd, counted));
    };
    for (what, len) in
        [("a jumbo frame", 8972), ("a frame above a slot", 2100), ("the longest", 65_400)]
    {
        add(what, Odd::of(one(len)), true);
    }
    for tags in 1..=5 {
        // As many tags as the parser skips, and the outermost, which the kernel removes.
        add("tags", Odd { tags, ..Odd::of(one(1200)) }, tags <= 4);
    }
    for tags in 0..=4 {
        add("a session", Odd { tags, session: true, ..Odd::of(one(1200)) }, true);
    }
    let (header, whole) = if v6 { (0, 1208) } else { (20, 1228) };
    for (len, counts) in
        [(0, false), (1, false), (header + 7, false), (whole + 1, false), (u16::MAX, false)]
    {
        add("a lie of IP", Odd { ip_len: Some(len), ..Odd::of(one(1200)) }, counts);
    }
    for (len, counts) in [(0, false), (7, false), (1209, false), (u16::MAX, false), (1207, true)] {
        add("a lie of UDP", Odd { udp_len: Some(len), ..Odd::of(one(1200)) }, counts);
    }
    if v6 {
        for (count, counts) in [(1, true), (8, true), (9, false), (100, false)] {
            let extensions = (0..count).map(|n| padding(if n == 0 { 0 } else { 60 })).collect();
            add("a chain of headers", Odd { extensions, ..Odd::of(one(1200)) }, counts);
        }
        // RFC 2675: the length is in an option, not in the header.
        let jumbo = vec![(0, vec![0, 0xc2, 4, 0, 1, 0, 0])];
        add("a jumbogram", Odd { extensions: jumbo, ip_len: Some(0), ..Odd::of(one(1200)) }, false);
        let fragment = vec![(44, vec![0, 0, 1, 0, 0, 0, 1])];
        add("a fragment", Odd { extensions: fragment, ..Odd::of(one(1200)) }, false);
        let beyond = vec![(60, vec![255, 1, 4, 0, 0, 0, 0])];
        add("a header beyond the frame", Odd { extensions: beyond, ..Odd::of(one(40)) }, false);
    }
    list
}

#[test]
fn odd_frames_count_if_the_next_hop_accepts_them() {
    in_namespace(|| {
        run("ip link add near0 mtu 65535 type veth peer name far0 mtu 65535");
        run("ip link set near0 up");
        run("ip link set far0 up");
        let mut injector = Script::start(INJECTOR, &[]);
        for (capture, threads) in [("ring", 1), ("pnet", 1), ("ring", 2)] {
            let daemon = Daemon::start(&format!(
                "-i near0 --json --listen [::]:5252 --metrics off --threads {threads} --capture {capture}"
            ));
            for (host, to) in [("127.0.0.1", "10.9.0.1:443"), ("[::1]", "[2001:db8::1]:443")] {
                let destination: SocketAddr = to.parse().unwrap();
                let socket = connected(
                    &format!("{host}:0"),
                    daemon.address_on(host.trim_matches(['[', ']'])),
                );
                let source = SocketAddr::new(socket.local_addr().unwrap().ip(), 4000);
                let peer = Peer::open(socket, 4000, destination, every_packets(1 << 15, 4));
                let (mut counted, mut sent, mut held) = (Vec::new(), 0, 0);
                for (token, (what, odd, counts)) in (2..).zip(oddities(destination.is_ipv6())) {
                    let (merging, frame) = odd.build(source, destination);
                    if inject(&mut injector, merging, &frame) {
                        counted.extend(counts);
                        sent += 1;
                    } else {
                        held += 1;
                    }
                    let report = peer.poll(token);
                    let what =
                        format!("{what} by {capture}, {threads} threads, from {host}, {token}");
                    assert_eq!(report.count as usize, counted.len(), "{what}");
                    assert_eq!(report.sums, naive_sums(&counted, 4), "{what}");
                }
                // The kernel refuses a train of more datagrams than it can split.
                assert!(held <= 1 && sent > 20, "{held} held back, {sent} sent");
            }
            let ended = daemon.stop();
            assert_eq!(ended.summary()["capture_drops"], 0, "{ended:?}");
            assert_eq!(ended.summary()["epochs"], 0, "{ended:?}");
        }
    });
}

/// A router that merges received packets (GRO), as a forwarding one does.
#[test]
fn the_datagrams_of_frames_merged_here_count_one_by_one() {
    in_namespace(|| {
        for capture in ["ring", "pnet"] {
            // The proxy's end receives single datagrams, and merges them.
            let sockets = across_a_link(&[
                "ethtool -K near0-peer tx-udp-segmentation off",
                "ethtool -K near0 gro on rx-udp-gro-forwarding on",
            ]);
            let daemon = Daemon::start(&format!("-i near0 --json --capture {capture}"));
            let Session { flow, destination, peer, .. } =
                Session::of(sockets, every_packets(1 << 15, 4));
            let mut sent = Vec::new();
            for (token, (len, last)) in
                (2..).zip([(1200, 1200), (1200, 300), (8900, 8900), (1000, 40)])
            {
                setsockopt(&flow, sockopt::UdpGsoSegment, &i32::try_from(len).unwrap()).unwrap();
                for round in 0..100 {
                    let number = 10_000 * u32::from(token) + 10 * round;
                    let (payload, each) = train(number..number + 7, len, last);
                    flow.send_to(&payload, destination).unwrap();
                    sent.extend(each);
                }
                let report = peer.poll(token);
                assert_eq!(
                    (report.count as usize, report.sums),
                    (sent.len(), naive_sums(&sent, 4)),
                    "{capture}"
                );
            }
            let summary = daemon.stop().summary();
            assert!(summary["merged_split"].as_u64() > Some(0), "{capture}: {summary}");
            assert_eq!(
                [&summary["capture_drops"], &summary["merged_uncounted"]],
                [0, 0],
                "{summary}"
            );
            run("ip link delete near0");
        }
    });
}
