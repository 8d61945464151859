//! How the daemon starts, fails to start, and ends.

use std::fs::File;
use std::net::UdpSocket;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use crate::common::link::Session;
use crate::common::manager::Manager;
use crate::common::{
    Daemon, PATIENCE, assert_fails, every_packets, in_namespace, page_until, probe, proxy, run,
    without_ipv6,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sidekick_protocol::PublicKey;

#[test]
fn too_little_memory_for_copies_is_logged() {
    in_namespace(|| {
        let ended = Daemon::start("-i lo --keep-per-session 9K").stop();
        assert!(ended.stderr.contains("keep-per-session = 9K is less than 64K"), "{ended:?}");
        assert_eq!(Daemon::start("-i lo --keep 0").stop().stderr, "");
    });
}

/// The journal gives each line a time. A file does not, even if the daemon's parent has a journal.
#[test]
fn a_line_for_the_journal_has_no_time() {
    in_namespace(|| {
        let file = tempfile::NamedTempFile::new().unwrap();
        let script = r#"JOURNAL_STREAM="$1"; export JOURNAL_STREAM; shift; exec "$@" 2>"$0""#;
        let begins_with = |journal: &str| {
            let daemon = proxy("-i lo --keep-per-session 9K");
            let mut command = Command::new("sh");
            command.arg("-c").arg(script).arg(file.path()).arg(journal);
            command.arg(daemon.get_program()).args(daemon.get_args());
            Daemon::begin(&mut command).stop();
            let log = std::fs::read_to_string(file.path()).unwrap();
            log.split_whitespace().next().unwrap().to_owned()
        };
        let is = file.as_file().metadata().unwrap();
        assert_eq!(begins_with(&format!("{}:{}", is.dev(), is.ino())), "WARN");
        let dated = begins_with("1:1");
        assert!(dated.starts_with("20") && dated.ends_with('Z'), "{dated}");
    });
}

#[test]
fn an_error_about_an_unknown_interface_lists_those_that_exist() {
    in_namespace(|| {
        let parts = ["no interface nonesuch0", "this machine has lo"];
        assert_fails(&mut proxy("--interface nonesuch0"), &parts);
    });
}

#[test]
fn an_interface_may_come_later() {
    in_namespace(|| {
        let daemon = Daemon::start("-i lo -i late0 --json");
        assert!(daemon.ready.contains("capturing on lo (there is no late0 yet), public key "));
        run("ip link add late0 type veth peer name late1");
        run("ip link set late0 up");
        page_until("127.0.0.1:9252", "/metrics", |_, page| {
            page.contains("sidekick_interface_up{interface=\"late0\"} 1")
        });
        let ended = daemon.stop();
        assert!(ended.stderr.contains("there is no interface late0 here"), "{ended:?}");
        assert!(ended.stderr.contains("late0 is back"), "{ended:?}");
    });
}

#[test]
fn a_missing_privilege_is_named_with_its_remedy() {
    in_namespace(|| {
        let program = env!("CARGO_BIN_EXE_sidekick-proxy");
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-net_raw", "--inh-caps=-net_raw", "--", program, "-i", "lo"]);
        let remedy = format!("setcap cap_net_raw+ep {program}");
        assert_fails(&mut command, &["CAP_NET_RAW", "root", &remedy]);
    });
}

#[test]
fn each_terminating_signal_ends_the_proxy_in_order() {
    in_namespace(|| {
        run("ip link add near0 type veth peer name near1");
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            let mut daemon = Daemon::start("-i lo -i near0,near1 -i lo --listen 127.0.0.1:5253");
            let expected =
                "ready: listening on 127.0.0.1:5253, capturing on lo, near0, near1, public key ";
            let key = daemon
                .ready
                .strip_prefix(expected)
                .expect("each interface once, in the order given");
            assert!(key.trim_end().parse::<PublicKey>().is_ok(), "{key:?}");
            daemon.signal(signal);
            let ended = daemon.wait();
            assert_eq!(ended.status.code(), Some(0), "{signal}: {ended:?}");
            assert_eq!(ended.stdout.lines().count(), 1, "{ended:?}");
            assert!(
                ended.stdout.starts_with("stopped: captured 0, counted 0, quACKs 0"),
                "{ended:?}"
            );
        }
    });
}

#[test]
fn a_service_manager_is_notified() {
    in_namespace(|| {
        let directory = tempfile::tempdir().unwrap();
        let manager = Manager::new(directory.path());
        let mut command = proxy("-i lo --listen 127.0.0.1:0");
        let mut daemon = Daemon::begin(command.env("NOTIFY_SOCKET", &manager.path));
        assert_eq!(manager.hears(), "READY=1\n");
        daemon.signal(Signal::SIGTERM);
        assert_eq!(manager.hears(), "STOPPING=1\n");
        assert_eq!(daemon.wait().status.code(), Some(0));
    });
}

/// For a file that is not a key file, the proxy exits at once with one sentence. `check` prints the
/// same sentence.
#[test]
fn an_unusable_key_file_is_named() {
    in_namespace(|| {
        let directory = tempfile::tempdir().unwrap();
        let [pipe, config] =
            ["pipe", "config"].map(|name| directory.path().join(name).display().to_string());
        run(&format!("mkfifo {pipe}"));
        let parts = [&*pipe, "is not a regular file"];
        let stderr = assert_fails(&mut proxy(&format!("-i lo --key {pipe}")), &parts);
        std::fs::write(&config, format!("interfaces = [\"lo\"]\nkey = {pipe:?}\n")).unwrap();
        let checked = proxy(&format!("check {config}")).output().unwrap();
        assert_eq!(checked.status.code(), Some(1));
        assert_eq!(String::from_utf8(checked.stderr).unwrap(), stderr);
    });
}

/// On a full disk there is no room for the log and the summary. The proxy still counts, and exits
/// with 0.
#[test]
fn a_proxy_continues_when_its_output_cannot_be_written() {
    in_namespace(|| {
        let full = || File::options().write(true).open("/dev/full").unwrap();
        let directory = tempfile::tempdir().unwrap();
        let manager = Manager::new(directory.path());
        let mut command = proxy("-i lo --listen 127.0.0.1:5252 -vvv");
        let mut daemon = command
            .env("NOTIFY_SOCKET", &manager.path)
            .stdout(full())
            .stderr(full())
            .spawn()
            .expect("a process");
        assert_eq!(manager.hears(), "READY=1\n");

        let proxy_address = "127.0.0.1:5252".parse().unwrap();
        let session = Session::on_loopback("127.0.0.1", proxy_address, every_packets(9, 4));
        session.send(0..9);
        assert_eq!(session.peer.report(|_| true).count, 9);
        kill(Pid::from_raw(daemon.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
        assert_eq!(daemon.wait().unwrap().code(), Some(0));
        let status = proxy("-i nonesuch0").stdout(full()).stderr(full()).status().unwrap();
        assert_eq!(status.code(), Some(1));
    });
}

/// Without IPv6 the default is IPv4, with no more than a remark. An address that the operator names
/// is the one that the proxy uses.
#[test]
fn a_kernel_without_ipv6_gets_a_port_of_ipv4() {
    in_namespace(|| {
        let command = |line: &str| without_ipv6(env!("CARGO_BIN_EXE_sidekick-proxy"), line);
        for (log, said) in [("", 0), ("-v", 1)] {
            let daemon = Daemon::begin(&mut command(&format!("-i lo {log}")));
            assert_eq!(daemon.address().to_string(), "0.0.0.0:5252");
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.connect("127.0.0.1:5252").unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            probe(&socket);
            let ended = daemon.stop();
            let remark = "this kernel has no IPv6, so the proxy listens on 0.0.0.0:5252";
            assert_eq!(ended.stderr.matches(remark).count(), said, "{ended:?}");
            assert!(said == 1 || ended.stderr.is_empty(), "{ended:?}");
        }
        // The kernel chooses an agent's port, here of IPv4.
        let agent = env!("CARGO_BIN_EXE_sidekick-agent");
        Daemon::begin(&mut without_ipv6(agent, "-i lo --metrics off")).stop();
        let parts = ["cannot listen on [::]:5252"];
        assert_fails(&mut command("-i lo --listen [::]:5252"), &parts);
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/sidekick-proxy.toml");
        let checked = command(&format!("check {file}")).output().unwrap();
        let settings = String::from_utf8(checked.stdout).unwrap();
        assert!(settings.contains("listen = \"0.0.0.0:5252\"\n"), "{settings}");
    });
}

#[test]
fn malformed_datagrams_at_the_port_are_counted_and_dropped() {
    in_namespace(|| {
        let daemon = Daemon::start("-i lo --listen 127.0.0.1:0 --json");
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(daemon.address()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let nonsense = [&b""[..], b"x", &[0xff; 40], &[0; 1200], &[b'S'; 9000]];
        for datagram in nonsense {
            socket.send(datagram).unwrap();
        }
        // The proxy answers a well-formed poll for a session that does not exist. So it has read
        // all messages before that.
        probe(&socket);
        let ended = daemon.stop();
        // Two begin like messages of another version.
        let counted =
            [&ended.summary()["malformed"], &ended.summary()["other_version"]].map(|n| n.as_u64());
        assert_eq!(counted, [Some(1), Some(4)], "{ended:?}");
        assert_eq!(ended.summary()["unknown_session"], 1, "{ended:?}");
        assert_eq!(ended.summary()["sessions"], 0, "{ended:?}");
        assert_eq!(ended.stderr, "", "nothing an attacker sends may fill the log");
    });
}
