//! An attacker who knows the ports forges every kind of ICMP error. It forges them for all sockets
//! of a path's three hosts, from before the handshakes on. The call has its own test, beside its
//! programs.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::Path as FilePath;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use sidekick_netem::namespace::Namespace;
use sidekick_netem::path::{Backend, Path};
use sidekick_netem::programs::{Program, Programs};
use sidekick_netem::scenario::Scenario;
use sidekick_netem::source::{SourceFile, sha256};
use sidekick_netem::topology::{PROXY_NEAR, PROXY_PORT, RECEIVER, SERVER_PORT};

use crate::support::enclosed::in_enclosure;
use crate::support::example_in_c::build;
use crate::support::transfers::{NAME, Proxy, server};

/// The longest wait. Only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(120);

/// Forges errors on one host until its drop.
struct Forger(Child, BufReader<ChildStdout>);

impl Forger {
    /// Forges errors of `kinds`, or of all kinds. Returns after the first round.
    fn start(host: &Namespace, kinds: Option<&str>) -> Self {
        let script =
            FilePath::new(env!("CARGO_MANIFEST_DIR")).join("../proxy/tests/common/forge.py");
        let mut python = Command::new("python3");
        python.arg(script).args(kinds).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut python = host.enter(move || python.spawn()).unwrap().unwrap();
        let mut rounds = BufReader::new(python.stdout.take().unwrap());
        assert!(rounds.read_line(&mut String::new()).unwrap() > 0, "no round");
        Self(python, rounds)
    }

    /// Stops it. Returns how often it has forged every error.
    fn stop(mut self) -> usize {
        drop(self.0.stdin.take());
        let mut rounds = String::new();
        self.1.read_to_string(&mut rounds).unwrap();
        assert!(self.0.wait().unwrap().success());
        1 + rounds.lines().count()
    }
}

impl Drop for Forger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn forged_errors_end_no_upload() {
    in_enclosure(|| {
        let scenario = Scenario::with("upload-paper", &["near.loss_percent=1"]).unwrap();
        let path = Path::build(Backend::User, &scenario, 7).unwrap();
        let hosts = path.topology();
        let directory = tempfile::tempdir().unwrap();
        let beside = FilePath::new(env!("CARGO_BIN_EXE_sidekick-lab")).parent().unwrap();
        build(beside, directory.path());
        let (ours, in_c) = (
            Programs::find(Some(beside)).unwrap(),
            Programs::find(Some(directory.path())).unwrap(),
        );
        let start = |programs, name, arguments: &[&str], host| {
            let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
            Program::start(programs, name, &arguments, host, directory.path()).unwrap()
        };
        let (mut serving, ca) = server(&ours, hosts, directory.path());
        let mut proxy = Proxy::start(&ours, hosts, directory.path());
        let store = directory.path().join("store");
        let [server, known] = [(RECEIVER, SERVER_PORT), (PROXY_NEAR, PROXY_PORT)]
            .map(|at| SocketAddr::from(at).to_string());
        let host = RECEIVER.to_string();
        let file = SourceFile::generate(&directory.path().join("file"), 1_000_000, 7).unwrap();
        let (text, port) = (file.path.display().to_string(), SERVER_PORT.to_string());

        let forgers =
            [&hosts.sender, &hosts.proxy, &hosts.receiver].map(|host| Forger::start(host, None));
        let url = format!("https://{server}/h3-upload");
        let trust = ["--cafile", &ca, "--sidekick", "pacubic", "--proxy", &known];
        let in_h3_upload = [&[text.as_str(), &url, "--json", "--quiet"][..], &trust].concat();
        let in_interop =
            [&["--server", &server, "--name", NAME], &trust[..], &["put", &text]].concat();
        let line_in_c =
            ["-c", &ca, "-n", NAME, "-m", "pacubic", "-p", &known, &text, &host, &port, "/upload"];
        for (programs, name, line, stored) in [
            (&ours, "h3-upload", &in_h3_upload[..], "h3-upload"),
            (&ours, "interop-client", &in_interop, ""),
            (&in_c, "upload", &line_in_c, "upload"),
        ] {
            let mut upload = start(programs, name, line, &hosts.sender);
            let ended = upload.wait(PATIENCE).unwrap().unwrap();
            println!("{name}: {} {}", ended.output, ended.last_words);
            assert!(ended.status.success(), "{name}: {}", ended.last_words);
            if !stored.is_empty() {
                assert_eq!(sha256(&store.join(stored)).unwrap(), file.sha256, "{name}");
            }
            match serde_json::from_str::<Value>(ended.output.lines().last().unwrap_or_default()) {
                Ok(report) if name != "upload" => {
                    assert_eq!(
                        (&report["assisted"], &report["sha256"]),
                        (&true.into(), &file.sha256.clone().into())
                    );
                    assert!(report["socket_errors"].is_u64(), "{report}");
                }
                _ => {
                    // The socket of its connection is connected, so the kernel reports errors to
                    // it.
                    assert!(
                        ended.last_words.contains("assisted by the proxy"),
                        "{}",
                        ended.last_words
                    );
                    assert!(
                        !ended.last_words.ends_with(" 0 socket errors"),
                        "{}",
                        ended.last_words
                    );
                }
            }
        }
        for forger in forgers {
            let rounds = forger.stop();
            println!("{rounds} rounds");
            assert!(rounds > 1);
        }

        // If a server answers, it listens, even if the network reports errors during the handshake.
        let forger = Forger::start(&hosts.sender, Some("refusals"));
        let url = format!("https://{server}/in-spite-of-refusals");
        let line = [text.as_str(), &url, "--quiet", "--cafile", &ca];
        let ended =
            start(&ours, "h3-upload", &line, &hosts.sender).wait(PATIENCE).unwrap().unwrap();
        assert!(ended.status.success(), "{}", ended.last_words);
        assert!(forger.stop() > 1);
        assert_eq!(proxy.0.ended().unwrap(), None, "the proxy still runs");
        assert_eq!(serving.ended().unwrap(), None, "the server still runs");
    });
}
