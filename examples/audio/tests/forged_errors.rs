//! An attacker who knows the ports of a call forges ICMP errors of every kind, for all its sockets,
//! while the call runs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use audio::{ListenerReport, TalkerReport};
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::UdpSocket;
use std::process::{Child, ChildStdout, Command, Stdio};

/// The variable that is set when the test runs in a namespace of its own.
const MARK: &str = "AUDIO_TEST_NAMESPACE";

/// Runs the test of this name again, in a network namespace of its own. All its processes end with
/// the namespace.
fn in_namespace(name: &str, body: impl FnOnce()) {
    if std::env::var_os(MARK).is_some() {
        assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
        return body();
    }
    let mut unshare = Command::new("unshare");
    if !nix::unistd::geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    unshare.args(["--net", "--pid", "--fork", "--kill-child=SIGKILL", "--"]);
    unshare
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(MARK, "1");
    let output = unshare.output().unwrap();
    let (said, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("1 passed"), "{said}\n{errors}");
}

/// A program that forges errors until it is dropped.
struct Forger(Child, BufReader<ChildStdout>);

impl Forger {
    fn start() -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proxy/tests/common/forge.py");
        let mut python = Command::new("python3");
        python.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = python.spawn().unwrap();
        let mut rounds = BufReader::new(child.stdout.take().unwrap());
        // It has forged all errors once before the call begins.
        rounds.read_line(&mut String::new()).unwrap();
        Self(child, rounds)
    }

    /// Stops it. Returns how many times it has forged all errors since the first.
    fn stop(&mut self) -> usize {
        drop(self.0.stdin.take());
        let mut rounds = String::new();
        self.1.read_to_string(&mut rounds).unwrap();
        assert!(self.0.wait().unwrap().success());
        rounds.lines().count()
    }
}

impl Drop for Forger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A call of two seconds over the loopback interface at this address.
fn call(host: &str) -> (TalkerReport, ListenerReport) {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_audio-receive"));
    command.args(["--listen", &format!("{host}:0"), "--json", "--raw", "--write-sdp", "call.sdp"]);
    let mut receiver = command.current_dir(&directory).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(receiver.stdout.take().unwrap());
    let mut text = String::new();
    stdout.read_line(&mut text).unwrap();
    // A proxy that does not answer.
    let ear = UdpSocket::bind(format!("{host}:0")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_audio-send"));
    command.args([
        "--json",
        "--sdp",
        "call.sdp",
        "--raw",
        "--seconds",
        "2",
        "--sidekick",
        "reinject",
    ]);
    command.args(["--proxy", &ear.local_addr().unwrap().to_string()]).current_dir(&directory);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    text.clear();
    stdout.read_to_string(&mut text).unwrap();
    assert!(receiver.wait().unwrap().success(), "{text}");
    (serde_json::from_slice(&output.stdout).unwrap(), serde_json::from_str(&text).unwrap())
}

#[test]
fn forged_errors_end_no_call_and_cost_it_nothing() {
    in_namespace("forged_errors_end_no_call_and_cost_it_nothing", || {
        for host in ["127.0.0.1", "[::1]"] {
            let mut figures = Vec::new();
            for forged in [false, true] {
                let mut forger = forged.then(Forger::start);
                let (talker, listener) = call(host);
                let rounds = forger.as_mut().map_or(0, Forger::stop);
                let errors = [talker.socket_errors, listener.socket_errors];
                println!("{host}: {rounds} rounds of forged errors, {errors:?} reported");
                assert_eq!((rounds > 1, errors[0] > 1), (forged, forged), "{host}: {talker:?}");
                let first = talker.packets.sent - talker.packets.retransmitted_nack;
                // The packets played, and their lateness, also depend on the machine.
                figures.push((talker.ending, first, listener.complete));
            }
            assert_eq!(figures[0], figures[1], "{host}");
        }
    });
}
