//! Copies for clients that ask for them: from the server past the proxy to the client.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

use crate::common::download::{Addresses, Client, V4, V6, name, near, now, numbered, router};
use crate::common::{
    Daemon, Peer, every_packets, get, in_namespace, number, run, status, status_until, until,
};
use nix::sys::signal::Signal;
use nix::sys::socket::{setsockopt, sockopt};
use sidekick_protocol::Protect;

const METRICS: &str = "127.0.0.1:9252";

const KEEP: Option<Duration> = Some(Duration::from_millis(900));

/// A client of a proxy with these flags, and its server.
fn session(addresses: Addresses, flags: &str) -> (Daemon, Client, UdpSocket) {
    let (mut sockets, server) = router(addresses, 1);
    let daemon = Daemon::start(&format!("-i near0 --json {flags}"));
    let proxy = daemon.address_on(addresses.near.0);
    let mut client = Client::new(sockets.pop().unwrap(), server.local_addr().unwrap(), proxy, KEEP);
    client.begin(&server);
    (daemon, client, server)
}

/// Stops a proxy, and removes its links. Returns its summary.
fn end(daemon: Daemon) -> serde_json::Value {
    let summary = daemon.stop().summary();
    run("ip link delete near0");
    run("ip link delete far0");
    summary
}

/// Downloads past a proxy with these flags, loses every seventh datagram, and gets it from the
/// proxy. Returns the proxy's summary.
fn download(addresses: Addresses, flags: &str) -> serde_json::Value {
    let (daemon, mut client, server) = session(addresses, flags);
    // A client may read a TAIL before the datagrams that it names. It then requests several of
    // them. Here the test alone makes requests.
    client.sender.set_fetching(false);

    let lens = [4, 60, 1200, 1472, 1000].into_iter().cycle();
    let sent: Vec<_> = (1..=200_u32).zip(lens).map(|(n, len)| numbered(n, len)).collect();
    // No more at once than a socket holds.
    for some in sent.chunks(20) {
        for datagram in some {
            server.send_to(datagram, client.address()).unwrap();
        }
        client.run_until("arrived", |client| client.arrived.contains(&some[some.len() - 1]));
    }
    assert_eq!(client.arrived, sent);
    client.sender.set_fetching(true);
    let lost: Vec<_> = sent.iter().skip(1).step_by(7).cloned().collect();
    for (before, after) in sent.iter().zip(sent.iter().skip(2)).step_by(7) {
        client.request(before, after);
    }
    client.run_until("repaired", |client| lost.iter().all(|it| client.copies.contains(it)));
    // On a busy machine, the client requests some twice. Each range holds one datagram.
    assert!(client.copies.len() as u64 <= client.sender.stats().repeats_requested);
    let set = |datagrams: Vec<Vec<u8>>| datagrams.into_iter().collect::<BTreeSet<_>>();
    assert!(set(client.copies.clone()) == set(lost), "byte for byte");
    end(daemon)
}

/// The threads of a proxy share the sources, and pnet copies as the ring does.
#[test]
fn a_lost_datagram_is_repeated_byte_for_byte() {
    in_namespace(|| {
        for (addresses, flags) in [(V4, ""), (V6, "--threads 3"), (V4, "--capture pnet")] {
            let summary = download(addresses, flags);
            assert!(summary["kept"].as_u64() >= Some(203), "{flags}: {summary}");
            assert!(summary["repeats"].as_u64() >= Some(30), "{flags}: {summary}");
            assert_eq!(summary["uncopied"], 0, "{flags}: {summary}");
        }
    });
}

/// Downloads datagrams of this length past a proxy with these flags, loses every ninth, and lets
/// parity rebuild it. Returns the number of datagrams with parity that the proxy sent.
fn protected(len: usize, flags: &str) -> u64 {
    let (daemon, mut client, server) = session(V4, flags);
    client.loses = |datagram| name(datagram).is_multiple_of(9);
    client.sender.set_fetching(false);
    let protect = Protect::of(0.25, 30, Duration::from_millis(2));
    client.sender.protect(Some(protect), now());
    // The proxy reads the request before the first loss: parity covers what passes from then on.
    let is_protected = |client: &Client| client.sender.stats().parity_received > 0;
    let mut warm_up = (0x7000_0001..).map(|n| numbered(n, len)).take(2000);
    while !flags.contains("off") && !is_protected(&client) {
        let datagram = warm_up.next().expect("parity");
        server.send_to(&datagram, client.address()).unwrap();
        client.runs(Duration::from_millis(10), is_protected);
    }
    client.arrived.clear();
    let sent: Vec<_> = (1..=200_u32).map(|n| numbered(n, len)).collect();
    for datagram in &sent {
        server.send_to(datagram, client.address()).unwrap();
        client.run_until("arrived", |client| client.arrived.contains(datagram));
    }
    let lost: BTreeSet<_> = sent.iter().filter(|it| name(it).is_multiple_of(9)).cloned().collect();
    if !flags.contains("off") {
        client.run_until("rebuilt", |client| client.rebuilt.len() >= lost.len() - 3);
    }
    assert!(client.rebuilt.iter().all(|it| lost.contains(it)), "byte for byte");
    end(daemon)["parity"].as_u64().unwrap()
}

#[test]
fn parity_rebuilds_lost_datagrams_byte_for_byte() {
    in_namespace(|| {
        assert!(protected(1200, "") >= 45);
        // Their lists and their repair symbols have datagrams of their own.
        assert!(protected(1440, "--parity auto") >= 90);
        assert_eq!(protected(1200, "--parity off"), 0);
    });
}

/// Trains that the server hands over as one frame pass the router as one frame.
#[test]
fn the_datagrams_of_merged_frames_are_kept_one_by_one() {
    in_namespace(|| {
        let (daemon, mut client, server) = session(V4, "");
        let mut sent: Vec<_> = (1..=20).map(|number| numbered(number, 1200)).collect();
        sent[19] = numbered(20, 77);
        setsockopt(&server, sockopt::UdpGsoSegment, &1200).unwrap();
        server.send_to(&sent.concat(), client.address()).unwrap();
        client.run_until("arrived", |client| client.arrived.len() == sent.len());
        client.request(&sent[0], &sent[19]);
        let repeated = |client: &Client| client.copies.iter().cloned().collect::<BTreeSet<_>>();
        client.run_until("repeated", |client| repeated(client).len() == 18);
        assert!(repeated(&client).into_iter().eq(sent[1..19].iter().cloned()));
        daemon.stop();
    });
}

#[test]
fn the_status_shows_copies_and_the_end_of_a_session_frees_them() {
    in_namespace(|| {
        let (daemon, mut client, server) = session(V4, "--keep 8M");
        let sent: Vec<_> = (1..=9).map(|number| numbered(number, 1000)).collect();
        for datagram in &sent {
            server.send_to(datagram, client.address()).unwrap();
        }
        client.run_until("arrived", |client| client.arrived.len() == sent.len());
        client.request(&sent[3], &sent[5]);
        client.run_until("repeated", |client| client.copies.contains(&sent[4]));

        let status = status(METRICS);
        assert_eq!(status["copies"]["sessions"], 1, "{status}");
        assert_eq!(status["copies"]["max_bytes"], 8 << 20, "{status}");
        assert!(status["sessions"][0]["kept"].as_u64() >= Some(12), "{status}");
        let totals = &status["totals"];
        assert!(totals["kept_bytes"].as_u64() >= Some(9000), "{status}");
        assert!(totals["repeat_bytes"].as_u64() > Some(1000), "{status}");
        let page = get(METRICS, "/metrics").2;
        assert_eq!(number(&page, "sidekick_sessions_keeping"), 1.0);
        assert!(number(&page, "sidekick_repeats_sent_total") >= 1.0);

        // The client sends several BYEs, because the proxy does not acknowledge them, and one may
        // be lost.
        client.sender.stop();
        client.run_until("ended", |_| true);
        let status = status_until(METRICS, "freed", |status| status["sessions_open"] == 0);
        assert_eq!(status["copies"]["bytes"], 0, "{status}");
        assert_eq!(status["copies"]["sessions"], 0, "{status}");
        daemon.stop();
    });
}

/// Only a client that has proven that it receives the flow gets copies.
#[test]
fn a_client_without_a_proof_gets_no_copies() {
    in_namespace(|| {
        let (mut sockets, server) = router(V4, 2);
        let daemon = Daemon::start("-i near0 --json");
        let (address, proxy) = (server.local_addr().unwrap(), daemon.address_on("10.9.0.1"));
        // A program at the client's address, with a session of its own flow to the same server.
        let (other, control) = sockets.pop().unwrap();
        control.connect(proxy).unwrap();
        let port = other.local_addr().unwrap().port();
        let stranger = Peer::open(control, port, address, every_packets(1 << 15, 4));
        let mut client = Client::new(sockets.pop().unwrap(), address, proxy, KEEP);
        client.begin(&server);
        stranger.send_keep(300);
        for round in 1..=50_u16 {
            stranger.request_all(round);
            // The answer to the poll is the next message: there is none to KEEP or request.
            let report = stranger.poll(round + 1);
            assert_eq!(report.count, 0);
        }
        let summary = daemon.stop().summary();
        let unanswered = summary["requests_unanswered"].as_u64();
        assert!(unanswered >= Some(50), "{summary}");
        assert!(summary["keeps_unproven"].as_u64() >= Some(2), "{summary}");
    });
}

/// Drops of the near interface's queue are congestion, which the server must detect.
#[test]
fn datagrams_that_the_interface_s_queue_drops_are_not_kept() {
    in_namespace(|| {
        let (daemon, mut client, server) = session(V4, "-i far0");
        let sent: Vec<_> = (1..=3).map(|number| numbered(number, 1000)).collect();
        let send = |number: usize| server.send_to(&sent[number], client.address()).unwrap();
        send(0);
        run("tc qdisc replace dev near0 root blackhole");
        send(1);
        run("tc qdisc delete dev near0 root");
        send(2);
        client.run_until("arrived", |client| client.arrived.len() == 2);
        let gap = client.request(&sent[0], &sent[2]);
        client.run_until("answered", |client| client.unfilled.contains(&gap));
        assert!(client.copies.is_empty());
        daemon.stop();
    });
}

/// More datagrams than the capture holds pass while the proxy does nothing, for longer than it
/// waits between questions about drops. It keeps those that the capture has.
#[test]
fn the_datagrams_of_a_full_capture_are_kept() {
    in_namespace(|| {
        for capture in ["ring", "pnet"] {
            let flags = format!("--buffer 1 --capture {capture}");
            let (daemon, mut client, server) = session(V4, &flags);
            daemon.hold();
            let begun = now();
            let sent: Vec<_> = (1..=6).map(|number| numbered(number, 1000)).collect();
            let send =
                |datagram: &Vec<u8>| assert!(server.send_to(datagram, client.address()).is_ok());
            sent.iter().for_each(send);
            while begun.elapsed() < Duration::from_millis(1300) {
                send(&sent[5]);
            }
            daemon.signal(Signal::SIGCONT);
            client.request(&sent[3], &sent[5]);
            client.run_until("repeated", |client| client.copies.contains(&sent[4]));
            let summary = end(daemon);
            assert!(summary["uncopied"].as_u64() > Some(0), "{capture}: {summary}");
        }
    });
}

/// Sends each frame, in hexadecimal, from near0.
const INJECTOR: &str = "
import socket, sys
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
link.bind(('near0', 0))
for frame in sys.argv[1:]: link.send(bytes.fromhex(frame))
";

#[test]
fn datagrams_with_vlan_tags_are_kept() {
    in_namespace(|| {
        let (daemon, mut client, _server) = session(V4, "");
        let sent: Vec<_> = (1..=3).map(|number| numbered(number, 64)).collect();
        let frames = sent.iter().map(|payload| {
            let tags = [0x81, 0, 0, 7, 0x81, 0, 0, 5, 0x08, 0x00];
            let ip = [0x45, 0, 0, 92, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 8, 0, 2, 10, 9, 0, 2];
            let udp = [443_u16, client.address().port(), 72, 0].map(u16::to_be_bytes).concat();
            let frame = [&[2; 12][..], &tags, &ip, &udp, payload].concat();
            frame.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        });
        let sent_all =
            Command::new("python3").args(["-c", INJECTOR]).args(frames).status().unwrap();
        assert!(sent_all.success());
        // The client has no interface for these VLANs, so it lacks all three.
        client.request(&sent[0], &sent[2]);
        client.run_until("repeated", |client| client.copies.contains(&sent[1]));
        daemon.stop();
    });
}

/// The packet sockets that are open in this network namespace, and how many of them receive.
fn packet_sockets() -> (usize, usize) {
    let table = std::fs::read_to_string("/proc/net/packet").unwrap();
    let receives = |line: &&str| line.split_whitespace().nth(5) == Some("1");
    let sockets = table.lines().skip(1);
    (sockets.clone().count(), sockets.filter(receives).count())
}

/// Waits for this many packet sockets, and for this many that receive.
fn sockets_until(wanted: (usize, usize)) {
    until("as many packet sockets", || {
        let sockets = packet_sockets();
        if sockets == wanted { Ok(()) } else { Err(format!("{sockets:?}, not {wanted:?}")) }
    });
}

/// The capture for copies ends with the interface, and begins again when the interface is back.
#[test]
fn copies_resume_when_an_interface_comes_back() {
    in_namespace(|| {
        let (mut sockets, server) = router(V4, 1);
        let daemon = Daemon::start("-i near0 --json --threads 2");
        let (address, proxy) = (server.local_addr().unwrap(), daemon.address_on("10.9.0.1"));
        // Each thread has a socket to count, and a spare one to copy.
        sockets_until((4, 2));
        // The link ends with the last socket of the client's host.
        let mut client = Client::new(sockets.pop().unwrap(), address, proxy, KEEP);
        client.begin(&server);
        // The client's thread copies.
        assert_eq!(packet_sockets(), (4, 3));
        run("ip link delete near0");
        drop(client);
        sockets_until((0, 0));
        let mut sockets = near(V4, 1);
        Client::new(sockets.pop().unwrap(), address, proxy, KEEP).begin(&server);
        daemon.stop();
    });
}
