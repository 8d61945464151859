//! The pages of the running daemon: metrics, health and status.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Instant;

use crate::common::link::{Session, rename};
use crate::common::{
    Daemon, PATIENCE, assert_fails, every_packets, exchange, get, in_namespace, number, page_until,
    probe, proxy, run,
};
use sidekick_protocol::keys::SecretKey;
use sidekick_protocol::wire::{Datagram, SessionNumber};
use sidekick_protocol::{MAX_DATAGRAM_LEN, Observer, ObserverConfig, Shard};
use sidekick_proxy::testing::{
    HostNetwork, Limits, Port, ProxyInfo, RawSocket, Report, Sockets, StatusReader, WorkerEvent,
    WorkerPool, serve,
};

const METRICS: &str = "127.0.0.1:9252";

/// A session of a flow on loopback. The flow has sent this many packets. The proxy has counted all,
/// and has sent one quACK for them.
fn session(packets: u16) -> Session {
    let proxy = "127.0.0.1:5252".parse().unwrap();
    let session = Session::on_loopback("127.0.0.1", proxy, every_packets(packets, 4));
    session.send(0..packets.into());
    assert_eq!(session.peer.report(|_| true).count, u32::from(packets));
    session
}

#[test]
fn metrics_agree_with_the_summary() {
    in_namespace(|| {
        let daemon = Daemon::start("-i lo --json --threads 2 --capture ring");
        let _session = session(30);
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        stranger.connect("127.0.0.1:5252").unwrap();
        stranger.send(b"x").unwrap();
        probe(&stranger);
        let page = page_until(METRICS, "/metrics", |_, page| {
            number(page, "sidekick_messages_other_version_total") > 0.0
        });
        let (status, head, _) = get(METRICS, "/metrics");
        assert_eq!(status, 200);
        assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
        for (series, expected) in [
            ("sidekick_packets_counted_total", 30.0),
            ("sidekick_messages_unknown_session_total", 1.0),
            ("sidekick_sessions", 1.0),
            ("sidekick_sessions_max", 1024.0),
            ("sidekick_sessions_max_per_source", 64.0),
            ("sidekick_threads", 2.0),
            ("sidekick_threads_answering", 2.0),
            ("sidekick_interface_up{interface=\"lo\"}", 1.0),
            (concat!("sidekick_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"}"), 1.0),
        ] {
            assert_eq!(number(&page, series), expected, "{series}");
        }
        assert!(number(&page, "process_resident_memory_bytes") > 1e6);
        assert!(number(&page, "process_start_time_seconds") > 1.7e9);
        let of_interface = number(
            &page,
            "sidekick_interface_packets_captured_total{interface=\"lo\",backend=\"ring\"}",
        );
        assert_eq!(of_interface, number(&page, "sidekick_packets_captured_total"));

        let summary = daemon.stop().summary();
        let at_the_end =
            |field: &str| f64::from(u32::try_from(summary[field].as_u64().unwrap()).unwrap());
        for (field, series) in [
            ("counted", "sidekick_packets_counted_total"),
            ("ignored", "sidekick_packets_ignored_total"),
            ("quacks", "sidekick_quacks_sent_total"),
            ("sessions", "sidekick_sessions_opened_total"),
            ("malformed", "sidekick_messages_malformed_total"),
            ("other_version", "sidekick_messages_other_version_total"),
            ("unknown_session", "sidekick_messages_unknown_session_total"),
            ("forged", "sidekick_messages_forged_total"),
            ("deferred", "sidekick_hellos_deferred_total"),
            ("capture_drops", "sidekick_packets_dropped_total"),
            ("unsent", "sidekick_messages_unsent_total"),
        ] {
            assert_eq!(number(&page, series), at_the_end(field), "{field}");
        }
        // The proxy sent the BYE, and captured it, after the page.
        for (field, series) in [
            ("captured", "sidekick_packets_captured_total"),
            ("bytes", "sidekick_sent_bytes_total"),
        ] {
            let then = number(&page, series);
            assert!(then > 0.0 && then <= at_the_end(field), "{field}: {then} of {summary}");
        }
    });
}

#[test]
fn health_follows_the_only_interface() {
    in_namespace(|| {
        let plug_in = || {
            run("ip link add near0 type veth peer name far0");
            run("ip link set near0 up");
            run("ip link set far0 up");
        };
        plug_in();
        let daemon = Daemon::start("-i near0 --no-discovery");
        let well = || page_until(METRICS, "/health", |status, _| status == 200);
        assert_eq!(well(), "ok\n");
        run("ip link set near0 down");
        let said = page_until(METRICS, "/health", |status, _| status == 503);
        assert_eq!(said, "all interfaces are down: near0\n");
        assert_eq!(
            number(&get(METRICS, "/metrics").2, "sidekick_interface_up{interface=\"near0\"}"),
            0.0
        );
        run("ip link set near0 up");
        well();
        rename("near0", "other0");
        page_until(METRICS, "/health", |_, said| said.ends_with("there is no near0\n"));
        rename("other0", "near0");
        well();
        run("ip link delete near0");
        page_until(METRICS, "/health", |status, said| {
            status == 503 && said == "the proxy captures on no interface: there is no near0\n"
        });
        let shown = proxy("status").output().unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        assert!(
            shown.lines().any(|line| line.split_whitespace().eq(["near0", "-", "gone", "0", "0"])),
            "{shown}"
        );
        plug_in();
        well();
        let said = daemon.stop().stderr;
        assert_eq!(said.matches("interface near0 is called other0 now: ").count(), 1, "{said}");
    });
}

#[test]
fn status_shows_a_session() {
    in_namespace(|| {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("proxy.toml");
        std::fs::write(&file, "interfaces = [\"lo\"]\nmetrics = \"127.0.0.1:9999\"\n").unwrap();
        let with_file = format!("--config {}", file.display());
        let daemon = Daemon::start(&with_file);
        let session = session(20);
        let text = |line: &str| {
            let output = proxy(line).output().unwrap();
            assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let shown = text(&format!("status {with_file}"));
        let source = session.flow.local_addr().unwrap().to_string();
        let destination = format!(" {} ", session.destination);
        let row = shown.lines().find(|line| line.contains(&destination)).unwrap();
        // The proxy knows the source from captured packets.
        assert!(row.starts_with(&source), "{row}");
        assert_eq!(
            row.split_whitespace().skip(3).take(3).collect::<Vec<_>>(),
            ["1", "20", "2"],
            "{row}"
        );
        for wanted in [
            &session.peer.key.to_string(),
            "[::]:5252",
            "1 open, 1024 at most, 64 of one source",
            "counted 20",
            env!("CARGO_PKG_VERSION"),
        ] {
            assert!(shown.contains(wanted), "{wanted} in {shown}");
        }
        let json: serde_json::Value =
            serde_json::from_str(&text("status --all --json --metrics 127.0.0.1:9999")).unwrap();
        assert_eq!(
            (&json["sessions_open"], &json["sessions"][0]["counted"]),
            (&1.into(), &20.into()),
            "{json}"
        );
        assert_eq!(json["totals"]["counted"], 20, "{json}");
        daemon.stop();

        assert_fails(&mut proxy("status"), &["no proxy answers at 127.0.0.1:9252: start it"]);
        let with_file = format!("status {with_file}");
        assert_fails(&mut proxy(&with_file), &["127.0.0.1:9999"]);
        std::fs::write(&file, "metrics = \"off\"\n").unwrap();
        assert_fails(&mut proxy(&with_file), &["metrics off"]);
    });
}

/// Clients that send nothing or little, or that read nothing, do not keep others out.
#[test]
fn slow_clients_do_not_delay_others() {
    in_namespace(|| {
        let daemon = Daemon::start("-i lo --listen 127.0.0.1:0");
        let mut slow = Vec::new();
        // Of one address, the daemon answers twelve requests at once.
        for (begun, count) in [
            (&b""[..], 12),
            (b"GET /metr", 12),
            (b"GET /metrics HTTP/1.1\r\nX: y\r\n", 12),
            (b"GET /status HTTP/1.1\r\n\r\n", 4),
        ] {
            for _ in 0..count {
                let mut stream = TcpStream::connect(METRICS).unwrap();
                stream.write_all(begun).unwrap();
                slow.push(stream);
            }
            assert_eq!(get(METRICS, "/metrics").0, 200);
        }
        let many: Vec<_> = (0..8).map(|_| thread::spawn(|| get(METRICS, "/health").0)).collect();
        for one in many {
            assert_eq!(one.join().unwrap(), 200);
        }
        let ended = daemon.stop();
        assert_eq!(ended.stderr, "", "nothing an attacker sends may fill the log");
    });
}

#[test]
fn an_invalid_request_gets_no_page() {
    in_namespace(|| {
        let daemon = Daemon::start("-i lo --listen 127.0.0.1:0");
        let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(20_000));
        for (request, expected) in [
            (&b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..], 404),
            (b"GET /metrics/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
            (b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", 405),
            (b"DELETE /status HTTP/1.1\r\n\r\n", 405),
            (b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
            (b"GET /metrics?x=y HTTP/1.1\r\nHost: [::1]:9252\r\n\r\n", 200),
            (b"HEAD /health HTTP/1.1\r\n\r\n", 200),
            (b"GET /health HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 200),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
            (b"GET /metrics HTTP/9.9\r\n\r\n", 400),
            (b"GET /\xff HTTP/1.1\r\n\r\n", 400),
            (long.as_bytes(), 431),
        ] {
            let (status, head, _) = exchange(METRICS, request);
            assert_eq!(status, expected, "{}: {head}", String::from_utf8_lossy(request));
        }
        let mut silent = TcpStream::connect(METRICS).unwrap();
        silent.write_all(&[0; 64]).unwrap();
        drop(silent);
        assert_eq!(get(METRICS, "/metrics").0, 200);
        let ended = daemon.stop();
        assert_eq!(ended.stderr, "", "nothing an attacker sends may fill the log");
    });
}

#[test]
fn a_second_daemon_runs_without_metrics_by_default() {
    in_namespace(|| {
        let first = Daemon::start("-i lo --listen 127.0.0.1:0");
        let second = Daemon::start("-i lo --listen 127.0.0.1:0");
        let quiet = Daemon::start("-i lo --listen 127.0.0.1:0 --metrics off");
        let open = Daemon::start("-i lo --listen 127.0.0.1:0 --metrics 0.0.0.0:9253");
        assert_eq!(get("127.0.0.1:9253", "/health").0, 200);
        for line in [
            "-i lo --listen 127.0.0.1:0 --metrics 127.0.0.1:9252",
            "-i lo --metrics 127.0.0.2:9253",
        ] {
            assert_fails(&mut proxy(line), &["in use", "--metrics"]);
        }
        assert_eq!(get(METRICS, "/health").0, 200);
        assert_eq!((first.stop().stderr.as_str(), quiet.stop().stderr.as_str()), ("", ""));
        let warned = second.stop().stderr;
        assert!(
            warned.contains("the proxy serves no metrics: TCP port 9252 is in use on 127.0.0.1"),
            "{warned}"
        );
        let warned = open.stop().stderr;
        assert!(warned.contains("keep strangers away"), "{warned}");
    });
}

/// Two workers, and a port.
fn two_workers() -> (WorkerPool, SocketAddr, mpsc::Receiver<WorkerEvent>) {
    let port = Port::open("127.0.0.1:0".parse().unwrap()).unwrap();
    let (events, inbox) = mpsc::channel::<WorkerEvent>();
    let address = port.address();
    let observers = [0, 1].map(|index| {
        let shard = Shard::new(index, 2).unwrap();
        Observer::new(ObserverConfig { shard, ..ObserverConfig::default() }, [0; 32]).unwrap()
    });
    let sockets = Sockets { port, raw: RawSocket::open().unwrap() };
    let pool =
        WorkerPool::start(observers.into(), sockets, &HostNetwork::default(), &events).unwrap();
    (pool, address, inbox)
}

/// A message for the worker with this index, of a session that it does not know.
fn message_of_no_session(worker: u32) -> Vec<u8> {
    let session = SessionNumber(worker);
    let sealed = Datagram::Sealed { session, sequence: 1, ciphertext: &[0; 24] };
    let mut message = [0; MAX_DATAGRAM_LEN];
    let len = sealed.emit(&mut message).unwrap();
    message[..len].to_vec()
}

/// While a worker is stuck, the server answers requests that need no worker, and totals do not
/// decrease.
#[test]
fn a_stuck_thread_is_reported() {
    in_namespace(|| {
        let (pool, address, _events) = two_workers();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let at = listener.local_addr().unwrap().to_string();
        let limits = Arc::new(Limits { max_sessions: 9.into(), ..Limits::default() });
        let public_key = SecretKey([7; 32]).public();
        let info = ProxyInfo { address, public_key, interfaces: vec!["none0".to_owned()], limits };
        serve(listener, StatusReader::new(pool.clone(), info)).unwrap();

        let strange = "sidekick_messages_unknown_session_total";
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        for worker in [0, 1, 1] {
            stranger.send_to(&message_of_no_session(worker), address).unwrap();
        }
        page_until(&at, "/metrics", |_, page| number(page, strange) == 3.0);
        let held = pool.hold(1);
        // Clients that disconnect leave no questions behind.
        for _ in 0..100 {
            let mut stream = TcpStream::connect(&at).unwrap();
            stream.write_all(b"GET /status HTTP/1.1\r\n\r\n").unwrap();
        }
        assert_eq!(get(&at, "/elsewhere").0, 404);
        page_until(&at, "/health", |status, said| {
            status == 503 && said == "1 of 2 threads do not answer: restart the proxy\n"
        });
        let page = get(&at, "/metrics").2;
        assert_eq!(number(&page, strange), 3.0, "its last answer");
        assert_eq!(number(&page, "sidekick_threads_answering"), 1.0);
        drop(held);
        page_until(&at, "/health", |_, said| said.contains("there is no none0"));
        assert_eq!(number(&get(&at, "/metrics").2, strange), 3.0);
    });
}

/// However many messages wait for a busy thread, it receives the daemon's commands.
#[test]
#[allow(clippy::disallowed_methods, reason = "a failing test must end")]
fn a_flood_of_messages_does_not_keep_the_daemon_out() {
    in_namespace(|| {
        let (pool, address, _events) = two_workers();
        let held = pool.hold(1);
        let flooding = UdpSocket::bind("127.0.0.1:0").unwrap();
        let message = message_of_no_session(1);
        let begun = Instant::now();
        let late = |reports: &[Option<Report>]| {
            reports[0].as_ref().is_some_and(|report| report.totals.late > 0)
        };
        while !late(&pool.all_reports(0)) {
            assert!(begun.elapsed() < PATIENCE, "no message was dropped");
            for _ in 0..2000 {
                flooding.send_to(&message, address).unwrap();
            }
        }
        let closing = thread::spawn(move || pool.close());
        drop(held);
        let summary = closing.join().unwrap();
        // The first thread has dropped some, and only the second can have read the others.
        assert!(summary.late > 0 && summary.unknown_session > 0, "{summary:?}");
    });
}
