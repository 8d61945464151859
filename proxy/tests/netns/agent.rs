//! A running agent. Flows continue whatever happens to it, to its interface or to the proxy.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;
use std::time::Duration;

use crate::common::link::{bind, link, rename};
use crate::common::manager::Manager;
use crate::common::{
    Daemon, PATIENCE, agent, assert_counts, await_interface, datagram, fails, in_namespace, proxy,
    run, status, status_until, until,
};
use crate::frames;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use serde_json::Value;
use sidekick_protocol::Sender;
use sidekick_protocol::wire::discovery::Marker;
use tun_rs::{DeviceBuilder, SyncDevice};

const METRICS: &str = "127.0.0.1:9253";
/// The receiver of the flow, on the proxy's host.
const RECEIVER: &str = "10.9.0.2:7000";

/// An agent that knows the proxy: a proxy answers no marker of a flow to its own host.
fn started() -> Daemon {
    Daemon::begin(&mut agent("-i near0 --json --proxy 10.9.0.2:5252"))
}

/// A flow from this host to the other.
struct Flow {
    sender: UdpSocket,
    receiver: UdpSocket,
    sent: u32,
    /// Datagrams that the test has given up.
    missing: Vec<Vec<u8>>,
}

/// The datagram with this number. The agent helps only flows whose packets look encrypted.
fn encrypted(number: u32) -> Vec<u8> {
    let mut datagram = datagram(number, 1200);
    frames::fill(&mut datagram[1100..], number.into());
    datagram
}

impl Flow {
    /// Sends a datagram, and receives it at the other host. Returns false if it does not arrive.
    fn passes(&mut self) -> bool {
        self.sent += 1;
        let datagram = encrypted(self.sent);
        if self.sender.send_to(&datagram, RECEIVER).is_err() {
            return false;
        }
        let mut buffer = [0; 2000];
        loop {
            let Ok(len) = self.receiver.recv(&mut buffer) else {
                self.missing.push(datagram);
                return false;
            };
            if buffer[..len] == datagram {
                return true;
            }
            // Only the flow's own datagrams may arrive here. A late one may be one that the test
            // has given up.
            let late = self.missing.extract_if(.., |it| buffer[..len] == it[..]).count();
            assert_eq!(late, 1, "altered, or received twice: {:?}", &buffer[..len]);
        }
    }

    /// Sends this many datagrams, which must all arrive.
    fn goes_on(&mut self, count: u32) {
        for _ in 0..count {
            assert!(self.passes(), "datagram {} is lost", self.sent);
        }
    }

    /// Sends until a datagram arrives. The first ones may be lost while a link comes up.
    fn begins(&mut self) {
        until("through", || if self.passes() { Ok(()) } else { Err("no datagram arrives".into()) });
    }

    /// Sends until the agent's status is as wanted.
    fn until(&mut self, wanted: impl Fn(&Value) -> bool) {
        self.until_after(|flow| flow.goes_on(1), wanted);
    }

    /// Does a step until the agent's status is as wanted.
    fn until_after(&mut self, step: impl Fn(&mut Self), wanted: impl Fn(&Value) -> bool) {
        until("as wanted", || {
            step(self);
            let status = status(METRICS);
            if wanted(&status) { Ok(()) } else { Err(status.to_string()) }
        });
    }
}

fn is_assisted(status: &Value) -> bool {
    status["flows"][0]["assisted"] == true
}

/// This host has the agent's interface `near0`, the other one the proxy and the receiver.
fn hosts() -> (Flow, Daemon) {
    let (flow, proxy, ()) = hosts_with(|| ());
    (flow, proxy)
}

/// The same with what `other` opens on the other host.
fn hosts_with<T: Send + 'static>(other: impl FnOnce() -> T + Send + 'static) -> (Flow, Daemon, T) {
    let there = || {
        run("ip link set lo up");
        let proxy = Daemon::begin(&mut proxy("-i near0-peer --metrics off --json"));
        (bind(RECEIVER), proxy, other())
    };
    let (receiver, proxy, other) = link("near0", ("10.9.0.1/24", "10.9.0.2/24"), &[], there);
    receiver.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let sender = bind("10.9.0.1:4000");
    let mut flow = Flow { sender, receiver, sent: 0, missing: Vec::new() };
    flow.begins();
    (flow, proxy, other)
}

#[test]
fn a_flow_continues_whatever_happens_to_the_agent() {
    in_namespace(|| {
        let (mut flow, proxy) = hosts();
        let agent = started();
        let key = proxy.ready.trim_end().rsplit(' ').next().unwrap();
        flow.until(|status| {
            let flow = &status["flows"][0];
            let proxy = [&flow["proxy"], &flow["proxy_key"]];
            is_assisted(status) && proxy == ["10.9.0.2:5252", key]
        });

        agent.hold();
        flow.goes_on(500);
        agent.signal(Signal::SIGCONT);
        flow.until(|status| {
            is_assisted(status) && status["totals"]["captured"].as_u64() >= Some(500)
        });

        agent.signal(Signal::SIGKILL);
        flow.goes_on(100);
        drop(agent);
        let again = started();
        flow.until(is_assisted);

        let totals = again.stop().summary();
        assert_counts(&totals, [("lost", 0), ("unsent", 0)]);
        flow.goes_on(100);
    });
}

/// A quACK that waited together with the packets that it reports is valid. Otherwise the session
/// would end.
#[test]
fn a_backlog_ends_no_session() {
    in_namespace(|| {
        let (mut flow, proxy) = hosts();
        let agent = started();
        flow.until(is_assisted);
        for round in 1..=5 {
            agent.hold();
            flow.goes_on(1500);
            agent.signal(Signal::SIGCONT);
            flow.until(|status| {
                is_assisted(status) && status["totals"]["captured"].as_u64() >= Some(1500 * round)
            });
        }
        let totals = agent.stop().summary();
        assert_counts(&totals, [("lost", 0), ("capture_drops", 0)]);
        let summary = proxy.stop().summary();
        assert_counts(&summary, [("sessions", 1), ("epochs", 0)]);
    });
}

/// The agent reads the error of a link that goes down, and sleeps again.
#[test]
fn a_link_that_goes_down_costs_no_time() {
    in_namespace(|| {
        let (_flow, _proxy) = hosts();
        let agent = started();
        // Processor time in hundredths of a second.
        let used = || {
            // The processes of this namespace.
            let line = format!("mount -t proc proc /proc && cat /proc/{}/stat", agent.id());
            let mut command = Command::new("unshare");
            let output = command.args(["--mount", "--", "sh", "-c", &line]).output().unwrap();
            let stat = String::from_utf8(output.stdout).unwrap();
            assert!(stat.contains("(sidekick-agent"), "{stat}");
            let fields = stat.rsplit(')').next().unwrap().split_whitespace();
            fields.skip(11).take(2).map(|ticks| ticks.parse::<u32>().unwrap()).sum::<u32>()
        };
        let before = used();
        for _ in 0..5 {
            run("ip link set near0 down");
            await_interface(&agent, METRICS, false);
            run("ip link set near0 up");
            await_interface(&agent, METRICS, true);
        }
        let ticks = used() - before;
        assert!(ticks < 100, "{ticks} hundredths of a second for five times");
        agent.stop();
    });
}

#[test]
fn the_capture_shows_what_the_agent_sends() {
    in_namespace(|| {
        let (mut flow, _proxy) = hosts();
        let agent = Daemon::begin(&mut agent("-i near0 --json"));
        let sends = |flow: &mut Flow| {
            flow.sent += 1;
            flow.sender.send_to(&encrypted(flow.sent), RECEIVER).unwrap();
        };
        // The agent recognises its markers. Otherwise it would leave the flow alone.
        flow.until_after(sends, |status| {
            let number = |name: &str| status["totals"][name].as_u64().unwrap();
            let shown = status["interfaces"][0]["captured"].as_u64();
            number("markers") >= 3 && shown == Some(number("captured") + number("markers"))
        });
        let totals = agent.stop().summary();
        assert_eq!(totals["flows"], 1, "{totals}");
        // The last one may not have been read.
        assert!(totals["captured"].as_u64() <= Some(flow.sent.into()), "{totals}");
    });
}

/// A collector of metrics counts each line, and reports what is none.
#[test]
fn a_program_that_reads_markers_as_data_sees_only_its_own() {
    in_namespace(|| {
        let (flow, _proxy) = hosts();
        flow.receiver.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        for (only, is_helped) in [("", false), (" --only 7000", true)] {
            let agent = Daemon::begin(&mut agent(&format!("-i near0 --json{only}")));
            let line = |number: u32| format!("app.requests.latency:{number}|ms|@0.1");
            let mut read = Vec::new();
            let mut buffer = [0; 2000];
            for number in 0..200 {
                flow.sender.send_to(line(number).as_bytes(), RECEIVER).unwrap();
                let len = flow.receiver.recv(&mut buffer).unwrap();
                read.push(buffer[..len].to_vec());
            }
            while let Ok(len) = flow.receiver.recv(&mut buffer) {
                read.push(buffer[..len].to_vec());
            }
            let totals = agent.stop().summary();
            let own = (0..200).map(|number| line(number).into_bytes());
            assert_eq!(read == own.collect::<Vec<_>>(), !is_helped, "{totals}");
            let left = u64::from(!is_helped);
            assert_eq!((&totals["left"], &totals["flows"]), (&left.into(), &(1 - left).into()));
        }
    });
}

/// The log of -v tells when the help begins and ends, and why.
#[test]
fn a_flow_continues_without_its_proxy() {
    in_namespace(|| {
        let (mut flow, proxy) = hosts();
        let agent = Daemon::begin(&mut agent("-i near0 -v --proxy 10.9.0.2:5252"));
        flow.until(is_assisted);
        proxy.signal(Signal::SIGKILL);
        flow.until(|status| !is_assisted(status));
        flow.goes_on(100);
        let said = agent.stop().stderr;
        let mut lines = said.lines();
        for wanted in [
            " (encrypted): the agent asks for help",
            ": assisted by the proxy 10.9.0.2:5252 with the key ",
            ": unassisted: the proxy ended the session, or stopped answering",
            ": the help ends: the agent ends; sent ",
        ] {
            let wanted = format!("10.9.0.1:4000 to {RECEIVER}{wanted}");
            assert!(lines.any(|line| line.contains(&wanted)), "{wanted}: {said}");
        }
    });
}

/// The routes are those of a VPN that takes all packets but those of its own flow. The agent helps
/// that flow.
#[test]
fn messages_leave_by_the_interface_of_their_flow() {
    in_namespace(|| {
        let (mut flow, _proxy) = hosts();
        for line in [
            "ip link add side0 type veth peer name side0-peer",
            "ip link set side0-peer up",
            "ip link set side0 up",
            "ip route add default dev side0 table 100",
            "ip rule add pref 100 lookup 100",
            "ip rule add pref 90 ipproto udp dport 7000 lookup main",
            "sysctl -qw net.ipv4.conf.all.rp_filter=0",
            "sysctl -qw net.ipv4.conf.near0.rp_filter=0",
        ] {
            run(line);
        }
        let agent = started();
        flow.until(is_assisted);
        let totals = agent.stop().summary();
        assert_eq!(totals["unsent"], 0, "{totals}");
    });
}

/// The same with the sysfs of the namespace, which shows the devices below an interface.
fn agent_with_sysfs(arguments: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--", "sh", "-c", "mount -t sysfs sysfs /sys && exec \"$0\" \"$@\""]);
    command.arg(env!("CARGO_BIN_EXE_sidekick-agent")).args(arguments.split_whitespace());
    command.env_remove("RUST_LOG");
    command
}

/// On a port of a bridge, messages leave by the bridge.
#[test]
fn a_port_of_a_bridge_sends_messages_by_the_bridge() {
    in_namespace(|| {
        let (mut flow, _proxy) = hosts();
        for line in [
            "ip link add br0 type bridge",
            "ip link set near0 master br0",
            "ip address flush dev near0",
            "ip address add 10.9.0.1/24 dev br0",
            "ip link set br0 up",
        ] {
            run(line);
        }
        let both = Daemon::begin(&mut agent_with_sysfs("-i near0 -i br0 --metrics off"));
        let said = both.stop().stderr;
        assert!(said.contains("packets of br0 also pass near0"), "{said}");
        let agent = Daemon::begin(&mut agent_with_sysfs("-i near0 --proxy 10.9.0.2:5252"));
        flow.begins();
        flow.until(is_assisted);
        agent.stop();
    });
}

#[test]
fn help_returns_with_the_interface() {
    in_namespace(|| {
        let (mut flow, _proxy) = hosts();
        let agent = started();
        flow.until(is_assisted);
        run("ip link set near0 down");
        assert!(!flow.passes());
        await_interface(&agent, METRICS, false);
        run("ip link set near0 up");
        flow.begins();
        flow.until(is_assisted);
        // A packet socket follows an interface that gets another name.
        rename("near0", "other0");
        let is_captured = |status: &Value| !status["interfaces"][0]["backend"].is_null();
        let step = |flow: &mut Flow| {
            flow.passes();
        };
        flow.until_after(step, |status| !is_captured(status));
        rename("other0", "near0");
        flow.begins();
        flow.until(|status| is_captured(status) && is_assisted(status));
        let said = agent.stop().stderr;
        // Once, although the agent captures both directions.
        assert!(said.contains("near0 is down") && said.contains("near0 is up again"), "{said}");
        let before = said.split("near0 is up again").next().unwrap();
        assert_eq!(before.matches("near0 is down").count(), 1, "{said}");
        assert_eq!(said.matches("interface near0 is called other0 now: ").count(), 1, "{said}");
        assert_eq!(said.matches("near0 is back").count(), 1, "{said}");
    });
}

/// A changed file applies from SIGHUP on, and helped flows continue.
#[test]
fn a_changed_file_is_applied_without_losing_a_flow() {
    in_namespace(|| {
        const EXCLUDED: &str = "10.9.0.2:7001";
        let (mut flow, proxy, _receiver) = hosts_with(|| bind(EXCLUDED));
        let directory = tempfile::tempdir().unwrap();
        let (file, manager) = (directory.path().join("agent.toml"), Manager::new(directory.path()));
        let fixed = "interfaces = [\"near0\"]\nproxy = \"10.9.0.2:5252\"\n";
        let write = |text: &str| std::fs::write(&file, format!("{fixed}{text}")).unwrap();
        write("max-flows = 2\n");
        let mut command = agent(&format!("--config {} --json", file.display()));
        let agent = Daemon::begin(command.env("NOTIFY_SOCKET", &manager.path));
        assert_eq!(manager.hears(), "READY=1\n");
        let reload = |text: &str| {
            write(text);
            manager.reload(&agent);
        };
        let shows = |flows_max: u64, memory_max: u64| {
            move |status: &Value| {
                let limits = [&status["flows_max"], &status["memory_max"]];
                is_assisted(status) && limits == [flows_max, memory_max]
            }
        };
        flow.until(shows(2, 32 << 20));

        // Memory applies at once, and the rest to flows that begin later.
        reload("max-flows = 3\nmemory = \"5M\"\nexcept = [7000, 7001]\ntun = \"off\"\n");
        flow.until(shows(3, 5 << 20));
        let other = bind("10.9.0.1:4001");
        for number in 0..50 {
            other.send_to(&datagram(number, 1200), EXCLUDED).unwrap();
        }
        // Neither of these files applies.
        reload("max-flows = many\n");
        reload("memory = \"1024G\"\nlog = \"debug\"\n");
        flow.until(shows(3, 5 << 20));
        reload("idle-timeout = 1\n");
        status_until(METRICS, "without flows", |status| status["flows_open"] == 0);

        let ended = agent.stop();
        assert_eq!(ended.summary()["flows"], 1, "the other one is excluded: {ended:?}");
        assert!(ended.stderr.contains("agent.toml:3: max-flows: "), "{ended:?}");
        assert!(ended.stderr.contains("reduce buffer, memory or max-flows"), "{ended:?}");
        assert!(!ended.stderr.contains("DEBUG"), "the level, too, is as before: {ended:?}");
        assert!(ended.stderr.contains("a restart is required to change tun"), "{ended:?}");
        let said: Vec<_> =
            ended.stdout.lines().filter_map(|line| line.strip_prefix("reloaded: ")).collect();
        let first = "except = [\"7000\", \"7001\"], max-flows = 3, memory = \"5M\"";
        let second = "except = [], max-flows = 256, memory = \"32M\", idle-timeout = 1";
        assert_eq!(said, [first, second], "{ended:?}");
        assert_eq!(proxy.stop().summary()["sessions"], 1);
    });
}

#[test]
fn a_failed_start_is_one_sentence() {
    in_namespace(|| {
        let (status, out, error) = fails(&mut agent("-i nonesuch0"));
        assert_eq!((status.code(), out.as_str()), (Some(1), ""));
        assert!(error.contains("nonesuch0") && error.lines().count() == 1, "{error}");
        let program = env!("CARGO_BIN_EXE_sidekick-agent");
        let mut unprivileged = Command::new("setpriv");
        let nobody = ["--reuid", "65534", "--clear-groups", "--bounding-set", "-all"];
        unprivileged.args(nobody).args([program, "-i", "lo"]);
        let (_, _, error) = fails(&mut unprivileged);
        let remedy = format!("`setcap cap_net_raw,cap_net_admin+ep {program}`");
        assert!(error.contains(&remedy), "{error}");
    });
}

/// The next packet that leaves by a TUN device, with the protocol that the kernel knows before it.
fn read_packet(device: &SyncDevice) -> Vec<u8> {
    let mut fds = [PollFd::new(device.as_fd(), PollFlags::POLLIN)];
    let patience = PollTimeout::try_from(PATIENCE).unwrap();
    assert_eq!(poll(&mut fds, patience), Ok(1), "no packet leaves");
    let mut packet = vec![0; 2000];
    let len = device.recv(&mut packet).unwrap();
    packet.truncate(len);
    packet
}

/// Packets of a modem or a tunnel begin with the IP header. The agent's packets have the same
/// headers, and a protocol number, without which a PPP device drops them.
#[test]
fn bare_packets_leave_with_their_protocol() {
    in_namespace(|| {
        for (ours, theirs, protocol) in
            [("10.8.0.1/24", "10.8.0.2:7000", 0x0800_u16), ("fd08::1/64", "[fd08::2]:7000", 0x86dd)]
        {
            let builder = DeviceBuilder::new().name("tun0").packet_information(true);
            let device = builder.build_sync().unwrap();
            run(&format!("ip address add {ours} dev tun0 nodad"));
            run("ip link set tun0 up");
            let agent = Daemon::begin(&mut agent("-i tun0 --tun off --json"));
            let source = UdpSocket::bind((ours.split('/').next().unwrap(), 4000)).unwrap();
            let to: SocketAddr = theirs.parse().unwrap();
            source.connect(to).unwrap();
            let sent: Vec<_> = (0..8).map(encrypted).collect();
            for datagram in &sent {
                source.send(datagram).unwrap();
            }
            let (ip_len, next) = if to.is_ipv4() { (20, 9) } else { (40, 6) };
            let mut own = Vec::new();
            // A host sends other packets by a new interface, too.
            let marker = loop {
                let packet = read_packet(&device);
                let (before, ip) = packet.split_at(4);
                if ip[next] != 17 || ip[ip_len + 2..ip_len + 4] != 7000_u16.to_be_bytes() {
                    continue;
                }
                assert_eq!(before[2..], protocol.to_be_bytes());
                if Sender::is_marker(&ip[ip_len + 8..]) {
                    break ip.to_vec();
                }
                own.push(ip.to_vec());
            };
            let payloads: Vec<_> = own.iter().map(|ip| ip[ip_len + 8..].to_vec()).collect();
            assert_eq!(payloads, sent[..own.len()]);
            assert!(Marker::parse(&marker[ip_len + 8..]).is_ok());
            // Addresses and ports, and in IPv4 the hop limit.
            let addresses = if to.is_ipv4() { 12..24 } else { 8..44 };
            assert_eq!(marker[addresses.clone()], own[0][addresses]);
            let totals = agent.stop().summary();
            assert_counts(&totals, [("captured", 8), ("unsent", 0), ("flows", 1)]);
        }
    });
}
