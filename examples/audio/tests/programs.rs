//! The real programs on the loopback interface. They are judged by what they count, not by the time they take.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use audio::{ListenerReport, TalkerReport};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::UdpSocket;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

/// A running `audio-receive`.
struct Receiver {
    child: Child,
    stdout: BufReader<ChildStdout>,
    address: String,
}

impl Receiver {
    fn start() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_audio-receive"));
        command.args(["--listen", "127.0.0.1:0", "--json"]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut ready = String::new();
        stdout.read_line(&mut ready).unwrap();
        let address = ready.strip_prefix("ready: listening on ").unwrap().trim_end().to_owned();
        Self { child, stdout, address }
    }

    fn report(mut self) -> ListenerReport {
        let mut text = String::new();
        self.stdout.read_to_string(&mut text).unwrap();
        assert!(self.child.wait().unwrap().success(), "{text}");
        serde_json::from_str(&text).unwrap()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn interrupt(child: &Child) {
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGINT).unwrap();
}

fn sender(dest: &str, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_audio-send"));
    command.args([dest, "--json"]).args(options).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn talker_report(output: &Output) -> TalkerReport {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn a_call_is_played_to_its_end() {
    let receiver = Receiver::start();
    let output = sender(&receiver.address, &["--seconds", "1", "--interval-ms", "5", "--bytes", "100"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let (talker, listener) = (talker_report(&output), receiver.report());
    assert_eq!((talker.mode.as_str(), talker.acknowledged, talker.assistance.as_str()), ("off", true, "off"));
    assert_eq!((listener.complete, listener.played, listener.late), (true, 200, 0));
    let again = talker.packets.retransmitted_nack;
    assert_eq!((talker.packets.sent, talker.bytes), (200 + again, 100 * (200 + again)));
}

#[test]
fn without_a_proxy_the_call_goes_on_unassisted() {
    // A socket that nobody reads from.
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
    let proxy = nobody.local_addr().unwrap().to_string();
    let receiver = Receiver::start();
    let options = ["--seconds", "0.5", "--sidekick", "reinject", "--proxy", &proxy];
    let output = sender(&receiver.address, &options).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let (talker, listener) = (talker_report(&output), receiver.report());
    assert_eq!((talker.mode.as_str(), talker.assisted), ("reinject", false));
    assert!(talker.assistance.starts_with("unassisted: "), "{}", talker.assistance);
    assert_eq!((listener.complete, listener.played, listener.late), (true, 25, 0));
}

#[test]
fn ctrl_c_ends_both_with_their_reports() {
    let receiver = Receiver::start();
    let heard = UdpSocket::bind("127.0.0.1:0").unwrap();
    let proxy = heard.local_addr().unwrap().to_string();
    let options = ["--seconds", "86400", "--sidekick", "reinject", "--proxy", &proxy];
    let talking = sender(&receiver.address, &options).spawn().unwrap();
    // Its HELLO says that it talks.
    heard.recv(&mut [0; 1500]).unwrap();
    interrupt(&talking);
    let output = talking.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let talker = talker_report(&output);
    assert!(talker.acknowledged);
    let listener = receiver.report();
    assert!(listener.complete);
    assert_eq!(listener.played + listener.late, talker.packets.sent - talker.packets.retransmitted_nack);

    let idle = Receiver::start();
    interrupt(&idle.child);
    let listener = idle.report();
    assert_eq!((listener.complete, listener.played), (false, 0));
}

#[test]
fn a_receiver_that_is_not_there_is_named() {
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
    let dest = nobody.local_addr().unwrap().to_string();
    drop(nobody);
    let output = sender(&dest, &["--seconds", "0.1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains(&dest) && said.contains("audio-receive") && said.trim_end().lines().count() == 1,
        "{said}"
    );
    assert!(!talker_report(&output).acknowledged);
}
