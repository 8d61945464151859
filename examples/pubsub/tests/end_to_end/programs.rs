//! Runs the real binary.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::Receiver;

use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::child::{Ends, PATIENCE, lines, send, wait_for_port};

/// Both protocols.
pub(crate) const PROTOCOLS: [&str; 2] = ["http3", "mqtt"];

/// A certificate for 127.0.0.1 that outlives a broker.
pub(crate) struct Identity {
    scratch: TempDir,
}

impl Identity {
    pub(crate) fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(scratch.path().join("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(scratch.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        Self { scratch }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }
}

/// A running broker.
pub(crate) struct Broker {
    pub(crate) child: Ends,
    identity: Identity,
    pub(crate) port: u16,
}

impl Broker {
    /// A broker at any port.
    pub(crate) fn start(options: &[&str]) -> Self {
        Self::at(0, Identity::new(), options)
    }

    fn at(port: u16, identity: Identity, options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pubsub"));
        command.arg("broker").args(["--listen", &format!("127.0.0.1:{port}")]);
        command.arg("--cert").arg(identity.file("cert.pem"));
        command.arg("--key").arg(identity.file("key.pem")).args(options);
        command.stdout(Stdio::piped()).env("RUST_LOG", "error");
        let mut child = command.spawn().unwrap();
        let port = wait_for_port(&mut child);
        Self { child: Ends(child), identity, port }
    }

    /// Stops this broker by `signal`, and starts another at its port.
    pub(crate) fn restart(mut self, signal: Signal, options: &[&str]) -> Self {
        send(&self.child, signal);
        self.child.wait().unwrap();
        Self::at(self.port, self.identity, options)
    }

    /// Stops this broker, and returns when all its threads have stopped.
    pub(crate) fn hold(&self) {
        send(&self.child, Signal::SIGSTOP);
        let process = Pid::from_raw(self.child.id().try_into().unwrap());
        let status = waitpid(process, Some(WaitPidFlag::WUNTRACED)).unwrap();
        assert!(matches!(status, WaitStatus::Stopped(..)), "{status:?}");
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.identity.file("cert.pem")
    }

    /// A client that trusts this broker, and reaches it through `port`.
    pub(crate) fn client_through(&self, port: u16, kind: &str, protocol: &str) -> Command {
        let mut command = client(kind, port, protocol);
        command.arg("--ca").arg(self.ca());
        command
    }

    /// A client that trusts this broker.
    pub(crate) fn client(&self, kind: &str, protocol: &str) -> Command {
        self.client_through(self.port, kind, protocol)
    }

    /// Publishes these messages to `topic`, all of which the broker must acknowledge.
    pub(crate) fn publish(&self, protocol: &str, topic: &str, messages: &[&str]) {
        let mut publisher = Publisher::start(self.client("publish", protocol), topic);
        for message in messages {
            publisher.say(message);
        }
        let output = publisher.end();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
    }
}

/// `pubsub KIND` for a broker at this port of this machine.
pub(crate) fn client(kind: &str, port: u16, protocol: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pubsub"));
    let broker = format!("https://127.0.0.1:{port}/");
    command.args([kind, "--protocol", protocol, "--broker", &broker]).stdin(Stdio::null());
    command
}

/// A publisher of the lines that a test writes.
pub(crate) struct Publisher {
    pub(crate) child: Child,
    lines: ChildStdin,
}

impl Publisher {
    pub(crate) fn start(mut command: Command, topic: &str) -> Self {
        command.arg(topic).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = child.stdin.take().unwrap();
        Self { child, lines }
    }

    pub(crate) fn say(&mut self, message: &str) {
        self.lines.write_all(format!("{message}\n").as_bytes()).unwrap();
    }

    /// Ends the messages, and waits for the program.
    pub(crate) fn end(self) -> Output {
        drop(self.lines);
        self.child.wait_with_output().unwrap()
    }

    /// Waits for the program, which must end before its messages do.
    pub(crate) fn fail(self) -> Output {
        let Self { child, lines } = self;
        let output = child.wait_with_output().unwrap();
        drop(lines);
        output
    }
}

/// A subscriber whose lines of JSON a test reads.
pub(crate) struct Subscriber {
    pub(crate) child: Ends,
    lines: Receiver<String>,
}

impl Subscriber {
    /// A subscriber that the broker has accepted.
    pub(crate) fn start(mut command: Command, topic: &str) -> Self {
        command.args(["--json", topic]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut first = String::new();
        errors.read_line(&mut first).unwrap();
        assert_eq!(first, format!("pubsub: subscribed to {topic}\n"));
        // The rest must not fill the pipe.
        std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        let lines = lines(child.stdout.take().unwrap());
        Self { child: Ends(child), lines }
    }

    /// The next line.
    pub(crate) fn line(&mut self) -> Value {
        let line = self.lines.recv_timeout(PATIENCE).expect("the subscriber prints no line");
        serde_json::from_str(&line).unwrap()
    }

    /// The next `count` messages, with their numbers.
    pub(crate) fn messages(&mut self, count: usize) -> Vec<(u64, String)> {
        let lines = std::iter::repeat_with(|| self.line()).take(count);
        lines.map(|line| message(&line)).collect()
    }
}

/// The number and the text of a message.
pub(crate) fn message(line: &Value) -> (u64, String) {
    let text = line["message"].as_str().unwrap_or_else(|| panic!("no message: {line}"));
    (line["sequence"].as_u64().unwrap(), text.to_owned())
}

/// These texts, numbered from `first`.
pub(crate) fn numbered(first: u64, texts: &[&str]) -> Vec<(u64, String)> {
    (first..).zip(texts.iter().map(|&text| text.to_owned())).collect()
}

/// Asserts that the program failed with exit code 1, and that the last line on standard error has
/// `words`.
pub(crate) fn assert_complains(output: &Output, words: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    let last = errors.trim_end().lines().last().unwrap_or_default();
    assert!(last.starts_with("pubsub: ") && last.contains(words), "no {words:?} in: {errors}");
}

/// A file of this text.
pub(crate) fn file(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    path
}
