//! Floods at the proxy's port, where anyone can send. They must delay nothing else.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::link::{Session, bind, connected, link, send};
use crate::common::{Daemon, Peer, assert_counts, every_packets, get, hello, in_namespace};
use nix::sys::signal::Signal;
use nix::sys::socket::{setsockopt, sockopt};
use sidekick_protocol::wire::Datagram;
use sidekick_protocol::{MAX_DATAGRAM_LEN, Terms};
use sidekick_proxy::testing::RawSocket;

const HELLOS: usize = 3000;

/// Thousands of HELLOs wait for the proxy. It sends a quACK that becomes due meanwhile between its
/// answers to them.
#[test]
fn a_flood_at_the_port_delays_no_quack() {
    in_namespace(|| {
        let daemon = Daemon::start("-i lo --json --metrics off");
        let terms = Terms { every: Some(Duration::from_millis(1)), ..Terms::default() };
        let proxy = daemon.address_on("127.0.0.1");
        let session = Session::on_loopback("127.0.0.1", proxy, terms);
        let peer = &session.peer;
        // One socket receives all answers in their order.
        setsockopt(peer.socket(), sockopt::RcvBufForce, &(16 << 20)).unwrap();
        daemon.hold();
        session.send(0..5);
        let flood = hello(session.flow.local_addr().unwrap().port(), session.destination);
        for _ in 0..HELLOS {
            peer.socket().send(&flood).unwrap();
        }
        daemon.signal(Signal::SIGCONT);
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        let (mut retries, mut before_quack) = (0, None);
        while retries < HELLOS || before_quack.is_none() {
            let len = peer.socket().recv(&mut buffer).unwrap();
            match Datagram::parse(&buffer[..len]).unwrap() {
                Datagram::Retry { .. } => retries += 1,
                Datagram::Sealed { .. } => before_quack = before_quack.or(Some(retries)),
                other => panic!("{other:?}"),
            }
        }
        assert!(
            before_quack < Some(HELLOS),
            "the quACK waited for the answers to all {HELLOS} HELLOs"
        );
        daemon.stop();
    });
}

/// The answers to HELLOs from addresses without a host wait in the kernel until ARP fails. They use
/// none of the memory for the sessions' quACKs.
#[test]
fn answers_to_absent_hosts_delay_no_quack() {
    in_namespace(|| {
        let sockets = || (bind("10.9.0.2:4000"), bind("10.9.0.2:4001"), RawSocket::open().unwrap());
        let (flow, control, forge) = link("near0", ("10.9.0.1/24", "10.9.0.2/24"), &[], sockets);
        let daemon = Daemon::start("-i near0 --json --metrics off");
        let destination: SocketAddr = "10.9.0.1:443".parse().unwrap();
        let port: SocketAddr = "10.9.0.1:5252".parse().unwrap();
        control.connect(port).unwrap();
        let peer = Peer::open(control, 4000, destination, every_packets(10, 20));
        let hello = hello(4000, destination);
        for round in 1..=20 {
            // Few enough for the neighbour table, so that each entry keeps its waiting datagram.
            for host in (3..250_u8).cycle().take(1000) {
                forge.send(&hello, 0, (([10, 9, 0, host], 5000).into(), port), None).unwrap();
            }
            send(&flow, destination, (u32::from(round) - 1) * 10..u32::from(round) * 10);
            assert_eq!(peer.count(), round * 10);
        }
        daemon.stop();
    });
}

/// Sends HELLOs in trains, more than the proxy can answer, until `stop` is set.
fn flood(socket: &UdpSocket, hello: &[u8], stop: &AtomicBool) {
    let train = hello.repeat(60);
    while !stop.load(Ordering::Relaxed) {
        // The kernel drops a HELLO without room.
        let _ = socket.send(&train);
    }
}

/// During a flood the proxy reports good health, counts, and ends with a right summary. The flood
/// arrives on another interface than the packets, so that it uses none of their room.
#[test]
fn a_flood_at_the_port_delays_neither_counting_nor_the_end() {
    in_namespace(|| {
        let (daemon, session) =
            Session::across_a_link("--metrics 127.0.0.1:9252", every_packets(10, 20));
        let (hello, stop) = (hello(4000, session.destination), AtomicBool::new(false));
        let flooder = connected("127.0.0.1:0", daemon.address_on("127.0.0.1"));
        setsockopt(&flooder, sockopt::UdpGsoSegment, &i32::try_from(hello.len()).unwrap()).unwrap();
        let summary = thread::scope(|scope| {
            scope.spawn(|| flood(&flooder, &hello, &stop));
            for round in 1..=100 {
                session.send((round - 1) * 10..round * 10);
                assert_eq!(u32::from(session.peer.count()), round * 10);
            }
            assert_eq!(get("127.0.0.1:9252", "/health").0, 200);
            let ended = daemon.stop();
            stop.store(true, Ordering::Relaxed);
            ended.summary()
        });
        assert_counts(&summary, [("sessions", 1), ("counted", 1000)]);
    });
}
