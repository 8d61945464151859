//! A running agent: whatever happens to it, to its interface or to the proxy, flows go on.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

mod common;

use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};

use common::link::{bind, link};
use common::{Daemon, PATIENCE, datagram, fails, get, in_namespace, proxy, run};
use nix::sys::signal::Signal;
use serde_json::Value;

const METRICS: &str = "127.0.0.1:9253";
/// The receiver of the flow, on the proxy's host.
const RECEIVER: &str = "10.9.0.2:7000";

/// A command that runs the agent with these arguments.
fn agent(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sidekick-agent"));
    command.args(arguments.split_whitespace()).env_remove("RUST_LOG");
    command
}

/// An agent that knows the proxy: a proxy answers no marker of a flow to its own host.
fn started() -> Daemon {
    Daemon::begin(&mut agent("-i near0 --json --proxy 10.9.0.2:5252"))
}

/// A flow from this host to the other.
struct Flow {
    sender: UdpSocket,
    receiver: UdpSocket,
    sent: u32,
}

impl Flow {
    /// Sends a datagram, and receives it at the other host. Returns false if it does not arrive.
    fn passes(&mut self) -> bool {
        self.sent += 1;
        let datagram = datagram(self.sent, 1200);
        if self.sender.send_to(&datagram, RECEIVER).is_err() {
            return false;
        }
        let mut buffer = [0; 2000];
        let Ok(len) = self.receiver.recv(&mut buffer) else { return false };
        // Nothing but the flow's own datagrams ever arrives here.
        assert_eq!(buffer[..len], datagram);
        true
    }

    /// Sends so many datagrams, which must all arrive.
    fn goes_on(&mut self, count: u32) {
        for _ in 0..count {
            assert!(self.passes(), "datagram {} is lost", self.sent);
        }
    }

    /// Sends until the agent's status is as wanted.
    #[allow(clippy::disallowed_methods, reason = "it has to end where it fails")]
    fn until(&mut self, wanted: impl Fn(&Value) -> bool) {
        let begun = Instant::now();
        loop {
            self.goes_on(1);
            let status: Value = serde_json::from_str(&get(METRICS, "/status").2).unwrap();
            if wanted(&status) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{status}");
        }
    }
}

fn is_assisted(status: &Value) -> bool {
    status["flows"][0]["assisted"] == true
}

/// This host has the agent's interface `near0`, the other one the proxy and the receiver.
fn hosts() -> (Flow, Daemon) {
    let there = || {
        run("ip link set lo up");
        let proxy = Daemon::begin(&mut proxy("-i near0-peer --metrics off"));
        (bind(RECEIVER), proxy)
    };
    let (receiver, proxy) = link("near0", ("10.9.0.1/24", "10.9.0.2/24"), &[], there);
    receiver.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    (Flow { sender: bind("10.9.0.1:4000"), receiver, sent: 0 }, proxy)
}

#[test]
fn whatever_happens_to_the_agent_the_flow_goes_on() {
    in_namespace("whatever_happens_to_the_agent_the_flow_goes_on", || {
        let (mut flow, _proxy) = hosts();
        let agent = started();
        flow.until(is_assisted);

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
        assert_eq!((&totals["lost"], &totals["unsent"]), (&0.into(), &0.into()), "{totals}");
        flow.goes_on(100);
    });
}

#[test]
fn without_its_proxy_a_flow_goes_on() {
    in_namespace("without_its_proxy_a_flow_goes_on", || {
        let (mut flow, proxy) = hosts();
        let agent = started();
        flow.until(is_assisted);
        proxy.signal(Signal::SIGKILL);
        flow.until(|status| !is_assisted(status));
        flow.goes_on(100);
        agent.stop();
    });
}

#[test]
fn help_returns_with_the_interface() {
    in_namespace("help_returns_with_the_interface", || {
        let (mut flow, _proxy) = hosts();
        let agent = started();
        flow.until(is_assisted);
        run("ip link set near0 down");
        assert!(!flow.passes());
        run("ip link set near0 up");
        // The first packets may be lost while the link comes up.
        while !flow.passes() {}
        flow.until(is_assisted);
        agent.stop();
    });
}

#[test]
fn what_an_agent_cannot_do_is_one_sentence() {
    in_namespace("what_an_agent_cannot_do_is_one_sentence", || {
        let (status, out, error) = fails(&mut agent("-i nonesuch0"));
        assert_eq!((status.code(), out.as_str()), (Some(1), ""));
        assert!(error.contains("nonesuch0") && error.lines().count() == 1, "{error}");
        let program = env!("CARGO_BIN_EXE_sidekick-agent");
        let mut unprivileged = Command::new("setpriv");
        let nobody = ["--reuid", "65534", "--clear-groups", "--bounding-set", "-all"];
        unprivileged.args(nobody).args([program, "-i", "lo"]);
        let (_, _, error) = fails(&mut unprivileged);
        assert!(error.contains("setcap") || error.contains("root"), "{error}");
        // Its packets begin with the IP header.
        run("ip tuntap add dev tun0 mode tun");
        run("ip link set tun0 up");
        let totals = Daemon::begin(&mut agent("-i tun0 --json")).stop().summary();
        assert_eq!(totals["captured"], 0);
    });
}
