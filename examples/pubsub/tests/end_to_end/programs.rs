//! Runs the real binary.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
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

/// A running broker.
pub(crate) struct Broker {
    pub(crate) child: Ends,
    /// The directory of its certificate for 127.0.0.1, and the key.
    identity: TempDir,
    pub(crate) port: u16,
}

impl Broker {
    /// A broker at any port.
    pub(crate) fn start(options: &[&str]) -> Self {
        let identity = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(identity.path().join("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(identity.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        Self::at(0, identity, options)
    }

    fn at(port: u16, identity: TempDir, options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pubsub"));
        command.arg("broker").args(["--listen", &format!("127.0.0.1:{port}")]);
        command.args(["--cert", "cert.pem", "--key", "key.pem"]).current_dir(&identity);
        command.args(options).stdout(Stdio::piped()).env("RUST_LOG", "error");
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
        self.identity.path().join("cert.pem")
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

    /// A subscriber that the broker has accepted.
    pub(crate) fn subscriber(&self, protocol: &str, topic: &str) -> Subscriber {
        Subscriber::start(self.client("subscribe", protocol), topic)
    }

    pub(crate) fn publisher(&self, protocol: &str, topic: &str) -> Publisher {
        Publisher::start(self.client("publish", protocol), topic)
    }

    /// Publishes these messages to `topic`, all of which the broker must acknowledge.
    pub(crate) fn publish(&self, protocol: &str, topic: &str, messages: &[&str]) {
        let mut publisher = self.publisher(protocol, topic);
        for message in messages {
            publisher.say(message);
        }
        publisher.succeed();
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

    /// Ends the messages, and waits for the program, which must succeed. Returns what it wrote to
    /// standard error.
    pub(crate) fn succeed(self) -> String {
        drop(self.lines);
        let output = self.child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{errors}");
        errors
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

    /// Receives these messages next, the first of which has this number.
    pub(crate) fn expect(&mut self, first: u64, texts: &[&str]) {
        for (number, text) in (first..).zip(texts) {
            let line = self.line();
            assert_eq!((&line["sequence"], &line["message"]), (&number.into(), &(*text).into()));
        }
    }
}

/// Asserts that the program failed with exit code 1 and without another try, and that the last line
/// on standard error has `words`.
pub(crate) fn assert_complains(output: &Output, words: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(!errors.contains("reconnecting") && !errors.contains("panicked"), "{errors}");
    let last = errors.trim_end().lines().last().unwrap_or_default();
    assert!(last.starts_with("pubsub: ") && last.contains(words), "no {words:?} in: {errors}");
}
