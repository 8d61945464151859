//! Copies for clients that ask for them: from the server past the proxy to the client.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test ends where something is not as it should be"
)]

mod common;

use std::time::Duration;

use common::download::{Addresses, Client, V4, V6, numbered, router};
use common::link::{bind, connected, send};
use common::{Daemon, Peer, every_packets, in_namespace};
use nix::sys::socket::{setsockopt, sockopt};

const KEEP: Option<Duration> = Some(Duration::from_millis(900));

/// Downloads past a proxy with these flags, loses every seventh datagram, and gets it from the
/// proxy. Returns the proxy's summary.
fn download(addresses: Addresses, flags: &str) -> serde_json::Value {
    let (mut sockets, server) = router(addresses, &[], &[], 1);
    let daemon = Daemon::start(&format!("-i near0 --json {flags}"));
    let proxy = daemon.address_on(addresses.near.0);
    let mut client = Client::new(sockets.pop().unwrap(), server.local_addr().unwrap(), proxy, KEEP);
    client.begin(&server);

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
    let lost: Vec<_> = sent.iter().skip(1).step_by(7).cloned().collect();
    for (before, after) in sent.iter().zip(sent.iter().skip(2)).step_by(7) {
        client.request(before, after);
    }
    client.run_until("repaired", |client| client.copies.len() >= lost.len());
    let mut copies = client.copies.clone();
    copies.sort();
    let mut expected = lost;
    expected.sort();
    assert_eq!(copies, expected, "byte for byte, and each once");
    daemon.stop().summary()
}

#[test]
fn a_lost_datagram_is_repeated_byte_for_byte() {
    in_namespace("a_lost_datagram_is_repeated_byte_for_byte", || {
        let summary = download(V4, "");
        assert!(summary["kept"].as_u64() >= Some(203), "{summary}");
        assert!(summary["repeats"].as_u64() >= Some(30), "{summary}");
        assert_eq!(summary["uncopied"], 0, "{summary}");
    });
}

#[test]
fn copies_of_ipv6_go_through_several_threads() {
    in_namespace("copies_of_ipv6_go_through_several_threads", || {
        let summary = download(V6, "--listen [::]:5252 --threads 3");
        assert!(summary["repeats"].as_u64() >= Some(30), "{summary}");
    });
}

#[test]
fn pnet_copies_as_the_ring_does() {
    in_namespace("pnet_copies_as_the_ring_does", || {
        let summary = download(V4, "--capture pnet");
        assert!(summary["repeats"].as_u64() >= Some(30), "{summary}");
    });
}

#[test]
fn a_proxy_without_copies_grants_none() {
    in_namespace("a_proxy_without_copies_grants_none", || {
        for flags in ["--no-keep", "--keep 0"] {
            let daemon = Daemon::start(&format!("-i lo --json {flags}"));
            let (control, destination) =
                (connected("127.0.0.1:0", daemon.address()), "127.0.0.1:9".parse().unwrap());
            let peer = Peer::open(control, 4000, destination, every_packets(1 << 15, 4));
            assert_eq!(peer.keep(300), 0);
            send(&bind("127.0.0.1:9"), "127.0.0.1:4000".parse().unwrap(), 0..5);
            peer.request_all(1);
            // The poll's answer is the next message: there is none to the request.
            assert_eq!(peer.poll(2).count, 0);
            let summary = daemon.stop().summary();
            assert_eq!(
                (&summary["kept"], &summary["repeats"]),
                (&0.into(), &0.into()),
                "{summary}"
            );
        }
    });
}

/// Trains that the server hands over as one frame pass the router as one frame.
#[test]
fn the_datagrams_of_merged_frames_are_kept_one_by_one() {
    in_namespace("the_datagrams_of_merged_frames_are_kept_one_by_one", || {
        let (mut sockets, server) = router(V4, &[], &[], 1);
        let daemon = Daemon::start("-i near0 --json");
        let (address, proxy) = (server.local_addr().unwrap(), daemon.address_on("10.9.0.1"));
        let mut client = Client::new(sockets.pop().unwrap(), address, proxy, KEEP);
        client.begin(&server);
        let mut sent: Vec<_> = (1..=20).map(|number| numbered(number, 1200)).collect();
        sent[19] = numbered(20, 77);
        setsockopt(&server, sockopt::UdpGsoSegment, &1200).unwrap();
        server.send_to(&sent.concat(), client.address()).unwrap();
        client.run_until("arrived", |client| client.arrived.len() == sent.len());
        client.request(&sent[0], &sent[19]);
        client.run_until("repeated", |client| client.copies.len() == 18);
        assert_eq!(client.copies, sent[1..19]);
        daemon.stop();
    });
}
