//! Sessions with the real daemon, over loopback and over a virtual Ethernet link.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use crate::common::link::{Session, across_a_link, bind, connected, send};
use crate::common::manager::Manager;
use crate::common::{
    Daemon, PATIENCE, Peer, assert_counts, await_interface, datagram, every_packets, in_namespace,
    is_refused, naive_sums, proxy as command, run,
};
use nix::sched::{CpuSet, sched_getcpu, sched_setaffinity};
use nix::sys::signal::Signal;
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::Pid;
use sidekick_protocol::Terms;

#[test]
fn each_datagram_counts_once_on_loopback() {
    in_namespace(|| {
        // The proxy listens on every address. By default the kernel would not answer from this one.
        let daemon = Daemon::start("--interface lo --json");
        for (host, proxy) in [("127.0.0.1", "127.0.0.2:5252"), ("127.0.0.9", "127.0.0.1:5252")] {
            let session = Session::on_loopback(host, proxy.parse().unwrap(), every_packets(30, 20));
            let Session { flow, destination, peer, .. } = &session;
            // Other flows, and datagrams whose form does not count.
            send(&bind(&format!("{host}:0")), *destination, 900..910);
            for other in [&[0xc0; 1200][..], &[0x40; 24], b""] {
                flow.send_to(other, destination).unwrap();
            }
            let first = session.send(0..30);
            let report = peer.report(|_| true);
            assert_eq!((report.token, report.count), (0, 30));
            assert_eq!(report.sums, naive_sums(&first, 20));
            assert_eq!(report.first.to_be_bytes(), first[0][21..25]);
            assert_eq!(report.last.to_be_bytes(), first[29][21..25]);

            let all = [first, session.send(30..60)].concat();
            let report = peer.report(|_| true);
            assert_eq!((report.count, report.sums), (60, naive_sums(&all, 20)));
            assert_eq!(peer.poll(77).count, 60);
        }
        let summary = daemon.stop().summary();
        assert_eq!(summary["counted"], 120, "{summary}");
        assert_eq!(summary["sessions"], 2, "{summary}");
        // For each: one that proves the address, two by packets, one for a poll.
        assert_eq!(summary["quacks"], 8, "{summary}");
        assert_counts(&summary, [("malformed", 0), ("capture_drops", 0)]);
    });
}

/// Packets and messages reach the daemon by two queues. A burst takes longer to read than the poll
/// after it.
#[test]
fn a_poll_does_not_overtake_the_packets_before_it() {
    in_namespace(|| {
        let daemon = Daemon::start("--interface lo --json");
        let proxy = daemon.address_on("127.0.0.1");
        let session = Session::on_loopback("127.0.0.1", proxy, every_packets(1 << 15, 20));
        // From one processor, so that the kernel keeps the order.
        let mut one = CpuSet::new();
        one.set(sched_getcpu().unwrap()).unwrap();
        sched_setaffinity(Pid::from_raw(0), &one).unwrap();
        for burst in 1..=100 {
            session.send((burst - 1) * 100..burst * 100);
            let report = session.peer.poll(u16::try_from(burst).unwrap());
            assert_eq!(report.count, burst * 100);
        }
        let summary = daemon.stop().summary();
        assert_eq!(summary["capture_drops"], 0, "{summary}");
    });
}

#[test]
fn timed_quacks_need_no_poll_and_a_signal_sends_bye() {
    in_namespace(|| {
        let daemon = Daemon::start("--interface lo --listen [::]:5252 --json");
        let terms = Terms { every: Some(Duration::from_millis(5)), ..Terms::default() };
        let v6 = Session::on_loopback("[::1]", daemon.address_on("::1"), terms);
        let mut sent = Vec::new();
        for number in 0..5 {
            sent.extend(v6.send(number..number + 1));
            let report = v6.peer.report(|report| report.count == number + 1);
            assert_eq!((report.token, report.sums), (0, naive_sums(&sent, 20)));
        }
        // An IPv4 sender at the same IPv6 socket has an IPv4 flow.
        let v4 = Session::on_loopback("127.0.0.1", daemon.address_on("127.0.0.1"), terms);
        let sent = v4.send(50..54);
        assert_eq!(v4.peer.report(|report| report.count == 4).sums, naive_sums(&sent, 20));

        let ended = daemon.stop();
        v6.peer.wait_for_bye();
        v4.peer.wait_for_bye();
        assert_eq!(ended.summary()["counted"], 9, "{ended:?}");
    });
}

/// A changed file applies from SIGHUP on, and open sessions continue.
#[test]
fn a_changed_file_is_applied_without_losing_a_session() {
    in_namespace(|| {
        let directory = tempfile::tempdir().unwrap();
        let (file, manager) = (directory.path().join("proxy.toml"), Manager::new(directory.path()));
        let reload = |daemon: &Daemon, text: &str| {
            std::fs::write(&file, text).unwrap();
            manager.reload(daemon);
        };
        std::fs::write(&file, "interfaces = [\"lo\"]\nmax-sessions = 1\n").unwrap();
        let line = format!("--config {} --listen 127.0.0.1:5252 --json", file.display());
        let daemon = Daemon::begin(command(&line).env("NOTIFY_SOCKET", &manager.path));
        assert_eq!(manager.hears(), "READY=1\n");

        let destination = "127.0.0.1:9".parse().unwrap();
        let proxy = || connected("127.0.0.1:0", daemon.address());
        let (first, second, third) = (proxy(), proxy(), proxy());
        let peer = Peer::open(first, 4000, destination, every_packets(2, 20));
        assert!(is_refused(&second, 4001, destination), "one session only");
        // More threads take effect at a restart. They would share the limit of sessions.
        let text = "interfaces = [\"lo\"]\nmax-sessions = 2\nmax-threshold = 3\nthreads = 2\n";
        reload(&daemon, text);
        assert_eq!(peer.poll(5).sums.len(), 20, "a session keeps its terms");
        let other = Peer::open(second, 4001, destination, every_packets(2, 20));
        assert_eq!(other.poll(6).sums.len(), 3);
        reload(&daemon, "interfaces = [\"lo\", \"near0\"]\nmax-sessions = many\n");
        assert!(is_refused(&third, 4002, destination), "two sessions, as before");
        // The next start would refuse this.
        let text = "interfaces = [\"lo\"]\nmax-sessions = 3\nkeep = \"1024G\"\nlog = \"debug\"\n";
        reload(&daemon, text);
        assert!(is_refused(&third, 4002, destination), "two sessions, as before");
        reload(&daemon, "interfaces = [\"lo\", \"near0\"]\n");
        let ended = daemon.stop();
        assert_eq!(ended.summary()["sessions"], 2, "{ended:?}");
        assert!(ended.stderr.contains("proxy.toml:2: max-sessions: "), "{ended:?}");
        assert!(ended.stderr.contains("reduce buffer, threads, keep or max-sessions"), "{ended:?}");
        assert!(!ended.stderr.contains("DEBUG"), "the level, too, is as before: {ended:?}");
        assert!(ended.stderr.contains("a restart is required to change interfaces"), "{ended:?}");
        let said: Vec<_> =
            ended.stdout.lines().filter_map(|line| line.strip_prefix("reloaded: ")).collect();
        let defaults = "max-sessions = 1024, max-threshold = 40";
        assert_eq!(said, ["max-sessions = 2, max-threshold = 3", defaults], "{ended:?}");
    });
}

#[test]
fn the_datagrams_of_merged_frames_count_one_by_one() {
    in_namespace(|| {
        let (daemon, session) = Session::across_a_link("-v", every_packets(25, 20));
        let Session { flow, destination, peer, .. } = &session;
        let sink = UdpSocket::bind(destination).unwrap();

        // Two trains of one frame each, the second with a shorter last datagram, and one datagram
        // alone.
        setsockopt(flow, sockopt::UdpGsoSegment, &1200).unwrap();
        let mut sent: Vec<Vec<u8>> = (0..24).map(|number| datagram(number, 1200)).collect();
        sent[23].truncate(100);
        flow.send_to(&sent[..12].concat(), destination).unwrap();
        flow.send_to(&sent[12..].concat(), destination).unwrap();
        setsockopt(flow, sockopt::UdpGsoSegment, &0).unwrap();
        sent.extend(session.send(24..25));

        let report = peer.report(|_| true);
        assert_eq!((report.count, report.sums), (25, naive_sums(&sent, 20)));
        // The receiver has the same datagrams: the kernel and the proxy split the trains alike.
        sink.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut buffer = [0; 65536];
        for expected in &sent {
            let len = sink.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..len], expected);
        }
        let summary = daemon.stop().summary();
        assert_counts(&summary, [("counted", 25), ("merged_split", 2)]);
        assert_eq!(summary["merged_uncounted"], 0, "{summary}");
    });
}

#[test]
fn counting_resumes_when_a_link_comes_up_again() {
    in_namespace(|| {
        let (daemon, session) = Session::across_a_link("", every_packets(3, 4));
        let peer = &session.peer;
        let mut sent = session.send(0..3);
        assert_eq!(peer.report(|_| true).count, 3);
        // The proxy notices that the link is down before it reads the last packet.
        daemon.hold();
        sent.extend(session.send(3..4));
        run("ip link set near0 down");
        daemon.signal(Signal::SIGCONT);
        await_interface(&daemon, "127.0.0.1:9252", false);
        run("ip link set near0 up");
        assert_eq!(peer.poll(2).count, 4);
        sent.extend(session.send(4..7));
        let report = peer.report(|report| report.token == 0);
        assert_eq!((report.count, report.sums), (7, naive_sums(&sent, 4)));
        let ended = daemon.stop();
        // The operator learns of both without -v.
        assert_eq!(ended.stderr.matches("near0 is down").count(), 1, "{ended:?}");
        assert_eq!(ended.stderr.matches("near0 is up again").count(), 1, "{ended:?}");
    });
}

/// A modem that is removed and inserted again, or a tunnel that is created again, keeps its name.
#[test]
#[allow(clippy::disallowed_methods, reason = "a failing test must end")]
fn capture_resumes_when_an_interface_comes_back() {
    in_namespace(|| {
        for capture in ["ring", "pnet"] {
            let _sockets = across_a_link(&[]);
            let daemon =
                Daemon::start(&format!("-i near0 -i lo --json -v --threads 2 --capture {capture}"));
            run("ip link delete near0");
            let session = Session::of(across_a_link(&[]), every_packets(1 << 15, 4));
            let peer = &session.peer;
            let begun = Instant::now();
            let mut sent = Vec::new();
            while peer.poll(1).count == 0 {
                assert!(begun.elapsed() < PATIENCE, "nothing was counted by {capture}");
                let number = u32::try_from(sent.len()).unwrap();
                sent.extend(session.send(number..number + 1));
            }
            let number = u32::try_from(sent.len()).unwrap();
            sent.extend(session.send(number..number + 9));
            // From the first packet that was counted, all are. A poll can overtake packets in the
            // kernel, so that the latest are missing at first.
            let counted = loop {
                assert!(begun.elapsed() < PATIENCE, "not all were counted by {capture}");
                let report = peer.poll(2);
                let first = sent.len() - usize::try_from(report.count).unwrap();
                if report.count > 9 && report.sums == naive_sums(&sent[first..], 4) {
                    break report.count;
                }
                // An epoch may have begun that has few of these packets.
                if report.count <= 9 {
                    let number = u32::try_from(sent.len()).unwrap();
                    sent.extend(session.send(number..number + 1));
                }
            };
            let ended = daemon.stop();
            assert!(ended.stderr.contains("interface near0 has disappeared"), "{ended:?}");
            assert!(ended.stderr.contains("near0 is back"), "{ended:?}");
            let (summary, counted) = (ended.summary(), u64::from(counted));
            let all = summary["counted"].as_u64().unwrap();
            // An epoch that begins because the proxy may have missed packets counts from 0.
            let begun_again = summary["epochs"].as_u64().unwrap() > 1;
            assert!(if begun_again { all >= counted } else { all == counted }, "{ended:?}");
            run("ip link delete near0");
        }
    });
}

/// The proxy may notice only that the link is up again.
#[test]
fn counting_goes_on_after_a_short_break_of_a_link() {
    in_namespace(|| {
        let (daemon, session) = Session::across_a_link("", every_packets(3, 4));
        let peer = &session.peer;
        daemon.hold();
        run("ip link set near0 down");
        run("ip link set near0 up");
        daemon.signal(Signal::SIGCONT);
        assert_eq!(peer.poll(2).count, 0);
        let sent = session.send(0..3);
        let report = peer.report(|report| report.token == 0);
        assert_eq!((report.count, report.sums), (3, naive_sums(&sent, 4)));
        let ended = daemon.stop();
        assert!(!ended.stderr.contains("near0 is down"), "{ended:?}");
    });
}

/// Each source has its thread, which also receives the source's messages.
#[test]
fn threads_share_the_sources() {
    in_namespace(|| {
        for capture in ["ring", "pnet"] {
            let line =
                format!("-i lo --threads 4 --json -v --capture {capture} --listen [::]:5252");
            let daemon = Daemon::start(&line);
            let hosts = (1..=12).map(|last| (format!("127.0.1.{last}"), "127.0.0.1"));
            for (host, proxy) in hosts.chain([("[::1]".to_owned(), "::1")]) {
                let proxy = daemon.address_on(proxy);
                let session = Session::on_loopback(&host, proxy, every_packets(20, 7));
                let sent = session.send(0..20);
                let report = session.peer.report(|_| true);
                assert_eq!((report.count, report.sums), (20, naive_sums(&sent, 7)), "{host}");
            }
            let ended = daemon.stop();
            assert_eq!(ended.summary()["counted"], 13 * 20, "{ended:?}");
            assert_eq!(ended.summary()["sessions"], 13, "{ended:?}");
            assert!(ended.stderr.contains(&format!("capturing on lo by {capture}")), "{ended:?}");
        }
    });
}

/// The proxy does not capture what this machine sends through the interface, with one thread or
/// several.
#[test]
fn what_leaves_is_not_captured() {
    in_namespace(|| {
        for threads in [1, 2] {
            let flags = format!("--threads {threads} --metrics off");
            let (daemon, session) = Session::across_a_link(&flags, every_packets(1, 4));
            send(&bind("10.9.0.1:0"), "10.9.0.2:9".parse().unwrap(), 0..200);
            // The proxy captures what arrives after it, even the same datagram.
            session.send(0..1);
            assert_eq!(session.peer.count(), 1);
            let ended = daemon.stop();
            let captured = ended.summary()["captured"].as_u64().unwrap();
            let told = ended.stderr.contains("also captures what leaves");
            assert!(
                (1..100).contains(&captured) || told && threads > 1,
                "{threads} threads: {ended:?}"
            );
            run("ip link delete near0");
        }
    });
}
