//! Packets that the kernel has no room for, or cannot describe: the proxy counts them as dropped,
//! and no quACK is wrong because of them.

use std::time::{Duration, Instant};

use crate::common::link::{Session, bind, connected, send};
use crate::common::script::Script;
use crate::common::{
    Daemon, PATIENCE, Peer, Report, datagram, every_packets, get, in_namespace, naive_sums, run,
    status, status_until, until,
};
use nix::sys::signal::Signal;
use nix::sys::socket::{setsockopt, sockopt};
use serde_json::Value;
use sidekick_protocol::Terms;

/// The flood exceeds the smallest buffer. The proxy counts the packets that had no room.
#[test]
fn two_proxies_on_an_interface_each_see_everything() {
    in_namespace(|| {
        // The threads of one proxy share packets, and not with those of the other proxy.
        let proxies = ["127.0.0.1:5252", "127.0.0.1:5253"].map(|listen| {
            Daemon::start(&format!("-i lo --json --threads 2 --capture ring --listen {listen}"))
        });
        let (source, sink) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
        let destination = sink.local_addr().unwrap();
        let port = source.local_addr().unwrap().port();
        let peers = proxies.each_ref().map(|proxy| {
            let socket = connected("127.0.0.1:0", proxy.address());
            Peer::open(socket, port, destination, every_packets(30, 20))
        });
        let sent = send(&source, destination, 0..30);
        for peer in &peers {
            assert_eq!(peer.report(|_| true).sums, naive_sums(&sent, 20));
        }
        let [first, second] = proxies;
        assert_eq!(first.stop().summary()["counted"], 30);
        // The other proxy continues.
        let sent = [sent, send(&source, destination, 30..60)].concat();
        let report = peers[1].report(|_| true);
        assert_eq!((report.count, report.sums), (60, naive_sums(&sent, 20)));
        assert_eq!(second.stop().summary()["counted"], 60);
    });
}

#[test]
fn drops_of_the_capture_are_counted() {
    in_namespace(|| {
        for capture in ["ring", "pnet"] {
            let daemon = Daemon::start(&format!("-i lo --json --buffer 1 --capture {capture}"));
            let proxy = daemon.address_on("127.0.0.1");
            let session = Session::on_loopback("127.0.0.1", proxy, every_packets(1 << 15, 4));
            let peer = &session.peer;
            // An epoch that must end.
            session.send(9000..9001);
            assert_eq!(peer.poll(4).count, 1, "by {capture}");
            daemon.hold();
            let sent = session.send(0..3000).len();
            daemon.signal(Signal::SIGCONT);
            // The proxy does not report sums that lack dropped packets.
            assert!(peer.new_epoch() > 1, "by {capture}");
            assert_eq!(peer.poll(2).count, 0, "by {capture}");
            let more = session.send(5000..5020);
            let report = peer.poll(3);
            assert_eq!((report.count, report.sums), (20, naive_sums(&more, 4)), "by {capture}");
            let summary = daemon.stop().summary();
            let number = |key: &str| summary[key].as_u64().unwrap();
            assert!(number("capture_drops") > 0, "{summary}");
            assert!(number("epochs") > 0, "{summary}");
            let counted = number("counted") - 21;
            // The drops may include other datagrams on loopback: messages to the proxy, and its
            // answers.
            let missing = sent as u64 - counted;
            assert!(
                (missing..=missing + 20).contains(&number("capture_drops")),
                "{missing} of {summary}"
            );
        }
    });
}

/// Whether a report covers consecutive datagrams of these, and the first of them.
fn stretch(report: &Report, sent: &[Vec<u8>]) -> Option<usize> {
    let begun = sent.iter().position(|packet| packet[21..25] == report.first.to_be_bytes())?;
    let counted = sent.get(begun..)?.get(..usize::try_from(report.count).unwrap())?;
    (report.sums == naive_sums(counted, report.sums.len())).then_some(begun)
}

/// Packets one by one, and in trains of one frame each, of which a few fill the queue. The test
/// stops the proxy for a moment, and for longer than the proxy waits between questions about drops.
/// There are jumbo frames, too, which are longer than a slot of the ring, and wait in the socket's
/// queue.
#[test]
#[allow(clippy::disallowed_methods, reason = "a failing test must end")]
fn quacks_are_right_during_a_flood() {
    in_namespace(|| {
        for capture in ["ring", "pnet"] {
            let jumbo = [(1, 8900, 0), (1, 8900, 1300), (7, 8900, 1300)];
            for (train, len, held) in
                [(1, 1200, 0), (1, 1200, 1300), (40, 1200, 0), (40, 1200, 1300)]
                    .into_iter()
                    .chain(jumbo)
            {
                let what =
                    format!("{capture}, trains of {train} of {len} bytes, held for {held} ms");
                let flags = format!("--buffer 1 --metrics off --capture {capture}");
                let terms = Terms { threshold: 4, ..Terms::default() };
                let (daemon, Session { flow, destination, peer, .. }) =
                    Session::across_a_link(&flags, terms);
                setsockopt(&flow, sockopt::UdpGsoSegment, &i32::try_from(len).unwrap()).unwrap();
                let mut sent: Vec<Vec<u8>> = Vec::new();
                let send_train = |sent: &mut Vec<Vec<u8>>| {
                    let number = u32::try_from(sent.len()).unwrap();
                    let packets: Vec<_> =
                        (number..number + train).map(|n| datagram(n, len)).collect();
                    flow.send_to(&packets.concat(), destination).unwrap();
                    sent.extend(packets);
                    sent.len()
                };
                // An epoch that must end.
                send_train(&mut sent);
                assert!(
                    stretch(&peer.report(|report| report.count > 0), &sent).is_some(),
                    "{what}"
                );
                daemon.hold();
                let begun = Instant::now();
                while send_train(&mut sent) < 4000 || begun.elapsed() < Duration::from_millis(held)
                {
                }
                daemon.signal(Signal::SIGCONT);
                let resumed = Instant::now();
                loop {
                    assert!(resumed.elapsed() < PATIENCE, "{what}: it does not recover");
                    send_train(&mut sent);
                    if peer.has_word(Duration::from_millis(40))
                        && let Some(report) = peer.next_report().filter(|report| report.count > 0)
                    {
                        let place = stretch(&report, &sent);
                        assert!(
                            place.is_some(),
                            "{what}: {report:?} does not cover consecutive datagrams"
                        );
                        // The epoch must differ from the first one.
                        if place > Some(0) {
                            break;
                        }
                    }
                }
                let summary = daemon.stop().summary();
                assert!(summary["epochs"].as_u64().unwrap() > 0, "{what}: {summary}");
                assert!(summary["capture_drops"].as_u64().unwrap() > 0, "{what}: {summary}");
                run("ip link delete near0");
            }
        }
    });
}

/// Writes frames into a tap interface, as a virtual machine does. A line `plain N` makes N
/// datagrams. `odd` makes one that the kernel must fragment, which the kernel cannot describe to a
/// capture.
const TAP: &str = r#"
import fcntl, os, struct, sys
tap = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tap, 0x400454ca, struct.pack("16sH14x", b"tap0", 0x0002 | 0x1000 | 0x4000))
def frame(length, header):
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 28 + length, 0, 0, 64, 17, 0, bytes([10, 9, 0, 2]), bytes([10, 9, 0, 1]))
    udp = struct.pack(">HHHH", 4000, 443, 8 + length, 0)
    os.write(tap, header + bytes([2] * 12) + b"\x08\x00" + ip + udp + b"\x40" * length)
print("ready", flush=True)
for line in sys.stdin:
    word = line.split()
    if word[0] == "odd":
        frame(3000, struct.pack("<BBHHHH", 1, 3, 42, 1400, 34, 6))
    else:
        for _ in range(int(word[1])):
            frame(1200, bytes(10))
    print("done", flush=True)
"#;

/// Such a frame leaves a ring stuck. The proxy detects that, and captures on the interface by pnet.
#[test]
fn a_stuck_ring_is_replaced_by_pnet() {
    in_namespace(|| {
        let mut tap = Script::start(TAP, &[]);
        tap.hears();
        run("ip link set tap0 up");
        let daemon = Daemon::start("-i tap0 --json --capture auto");
        let interface = || status("127.0.0.1:9252")["interfaces"][0].clone();
        let before = interface()["backend"].clone();
        tap.ask("plain 100");
        let captured = |status: &Value| status["interfaces"][0]["captured"] == 100;
        status_until("127.0.0.1:9252", "captured", captured);
        tap.ask("odd");
        // The new capture has counted more packets than there were at a time.
        until("replaced", || {
            let now = interface();
            if now["backend"] == "pnet" && now["captured"].as_u64() >= Some(50) {
                return Ok(());
            }
            tap.ask("plain 20");
            Err(now.to_string())
        });
        assert_eq!(get("127.0.0.1:9252", "/health").0, 200);
        let ended = daemon.stop();
        if before == "ring" {
            assert!(ended.stderr.contains("the ring of tap0 is stuck"), "{ended:?}");
        }
    });
}
