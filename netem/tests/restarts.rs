//! A proxy that is killed and restarted repeatedly during two uploads of real programs.
//!
//! The test asserts nothing about times, which depend on the machine. It prints them.
//! `SIDEKICK_RESTARTS=900 cargo test -p sidekick-netem --test restarts -- --nocapture` runs for
//! twelve minutes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/enclosed.rs"]
mod enclosed;

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path as FilePath;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use enclosed::enclosed;
use serde_json::Value;
use sidekick_netem::path::{Backend, Path};
use sidekick_netem::programs::{Program, Programs};
use sidekick_netem::scenario::{FlowKind, Scenario};
use sidekick_netem::topology::{NEAR, PROXY_NEAR, PROXY_PORT, RECEIVER, SERVER_PORT, Topology};

/// The longest wait. Only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(20);
/// The interval between two checks of a condition.
const OFTEN: Duration = Duration::from_millis(10);
/// Packets of each upload that a proxy counts before it is killed. At 10 Mbit/s, they take half a
/// second.
const COUNTED: u64 = 200;
/// Packets that pass while every other proxy is away. They are too many for one sum.
const AWAY: u64 = 200;

#[test]
fn senders_use_a_restarted_proxy_again_without_false_losses() {
    enclosed("senders_use_a_restarted_proxy_again_without_false_losses", || {
        let restarts =
            std::env::var("SIDEKICK_RESTARTS").map_or(4, |restarts| restarts.parse().unwrap());
        kill_again_and_again(restarts);
    });
}

fn kill_again_and_again(restarts: usize) {
    let mut scenario = Scenario::load("upload-paper").unwrap();
    scenario.apply(&["near.loss_percent=0"]).unwrap();
    let mut path = Path::build(Backend::User, &scenario, 7).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let programs =
        Programs::find(FilePath::new(env!("CARGO_BIN_EXE_sidekick-lab")).parent()).unwrap();
    let (_server, ca) = server(&programs, path.topology(), directory.path());
    let mut proxy = Proxy::start(&programs, path.topology(), directory.path());
    let mut uploads: Vec<_> = [("pacubic", "cubic-rfc9438"), ("path-aware-bbr", "bbr2")]
        .map(|modes| Upload::start(&programs, path.topology(), directory.path(), &ca, modes))
        .into();
    let mut waits = Vec::new();
    for restart in 0..restarts {
        proxy.wait_for(path.topology(), uploads.len(), COUNTED);
        drop(proxy);
        if restart % 2 == 1 {
            let gone = path.arrived(FlowKind::Upload).unwrap().0 + AWAY;
            let upload = &mut uploads[0].program;
            until("packets on the path", upload, || {
                path.arrived(FlowKind::Upload).unwrap().0 >= gone
            });
        }
        proxy = Proxy::start(&programs, path.topology(), directory.path());
        let back = now();
        proxy.wait_for(path.topology(), uploads.len(), 1);
        waits.push(now() - back);
    }
    proxy.wait_for(path.topology(), uploads.len(), COUNTED);
    let reports: Vec<Value> = uploads.into_iter().map(Upload::finish).collect();
    let links = path.counters().unwrap();
    let [near, far] = [links.near, links.far].map(|segment| segment.to_receiver.link.lost());
    waits.sort();
    println!(
        "{restarts} restarts; both senders were counted again after {} ms, at most {} ms",
        waits[waits.len() / 2].as_millis(),
        waits[waits.len() - 1].as_millis()
    );
    println!("{near} packets were lost on the near segment, {far} on the far one");
    for report in reports {
        println!("{report}");
        assert_eq!(report["assisted"], true, "{report}");
        let [sent, spurious] =
            ["sent", "spurious"].map(|packets| report["packets"][packets].as_u64().unwrap());
        // One packet in 2^24 has the identifier of a remembered packet, so the proxy does not count
        // it (SPEC.md, section 8). A million packets may have one. The few thousand of a short run
        // have none.
        assert!(spurious <= sent / 500_000, "declared lost, and acknowledged: {report}");
        let early = report["packets"]["lost_early"].as_u64().unwrap();
        assert!(
            early <= near + spurious,
            "{early} declared lost on the near segment, and {near} were"
        );
    }
}

#[allow(clippy::disallowed_methods, reason = "real programs take real time")]
fn now() -> Instant {
    Instant::now()
}

/// Repeats a check until it succeeds. The program must not end before.
fn until(what: &str, program: &mut Program, mut so: impl FnMut() -> bool) {
    let begun = now();
    while !so() {
        assert!(now() - begun < PATIENCE, "no {what}");
        let ended = program.wait(OFTEN).unwrap();
        assert!(ended.is_none(), "{ended:?}");
    }
}

fn server(programs: &Programs, hosts: &Topology, directory: &FilePath) -> (Program, String) {
    let (store, ca) = (directory.join("store"), directory.join("ca.pem").display().to_string());
    std::fs::create_dir(&store).unwrap();
    let (store, host) = (store.display().to_string(), RECEIVER.to_string());
    let listen = SocketAddr::from((RECEIVER, SERVER_PORT)).to_string();
    let arguments =
        ["--dir", &store, "--listen", &listen, "--self-signed", &host, "--write-ca", &ca];
    let arguments = arguments.map(str::to_owned);
    let mut server =
        Program::start(programs, "h3-upload-server", &arguments, &hosts.receiver, directory)
            .unwrap();
    server.wait_until_ready().unwrap();
    (server, ca)
}

/// A proxy. Its drop kills it.
struct Proxy(Program);

impl Proxy {
    fn start(programs: &Programs, hosts: &Topology, directory: &FilePath) -> Self {
        let listen = SocketAddr::from((PROXY_NEAR, PROXY_PORT)).to_string();
        let arguments = ["--interface", NEAR, "--listen", &listen].map(str::to_owned);
        let mut proxy =
            Program::start(programs, "sidekick-proxy", &arguments, &hosts.proxy, directory)
                .unwrap();
        proxy.wait_until_ready().unwrap();
        Self(proxy)
    }

    /// Waits until the proxy counts `flows` flows, and `packets` packets of each.
    fn wait_for(&mut self, hosts: &Topology, flows: usize, packets: u64) {
        until("help", &mut self.0, || {
            let status = status(hosts);
            let sessions = status["sessions"].as_array().unwrap();
            let enough = |session: &&Value| session["counted"].as_u64().unwrap() >= packets;
            sessions.iter().filter(enough).count() == flows
        });
    }
}

/// The proxy's status page.
fn status(hosts: &Topology) -> Value {
    let ask = || {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, 9252)).unwrap();
        stream.write_all(b"GET /status HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let answer = hosts.proxy.enter(ask).unwrap();
    let (_, page) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(page).unwrap()
}

/// An upload from a pipe, which a thread fills until `enough` is set.
struct Upload {
    program: Program,
    enough: Arc<AtomicBool>,
    filling: thread::JoinHandle<()>,
}

impl Upload {
    fn start(
        programs: &Programs,
        hosts: &Topology,
        directory: &FilePath,
        ca: &str,
        (mode, cc): (&str, &str),
    ) -> Self {
        let own = directory.join(mode);
        std::fs::create_dir(&own).unwrap();
        let pipe = own.join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let (file, url) =
            (pipe.display().to_string(), format!("https://{RECEIVER}:{SERVER_PORT}/{mode}"));
        let proxy = SocketAddr::from((PROXY_NEAR, PROXY_PORT)).to_string();
        let line = [
            "--cafile",
            ca,
            "--json",
            "--quiet",
            "--cc",
            cc,
            "--sidekick",
            mode,
            "--proxy",
            &proxy,
        ];
        let arguments: Vec<String> =
            [&file, &url].into_iter().cloned().chain(line.map(str::to_owned)).collect();
        let program =
            Program::start(programs, "h3-upload", &arguments, &hosts.sender, &own).unwrap();
        let enough = Arc::new(AtomicBool::new(false));
        let filling = thread::spawn({
            let enough = Arc::clone(&enough);
            move || {
                let mut pipe = OpenOptions::new().write(true).open(pipe).unwrap();
                // A failed upload has closed its end, and reports the reason.
                while !enough.load(Ordering::Relaxed) && pipe.write_all(&[0x5a; 4096]).is_ok() {}
            }
        });
        Self { program, enough, filling }
    }

    /// Lets the upload end, and returns its report. The client has compared its file with the
    /// stored one.
    fn finish(mut self) -> Value {
        self.enough.store(true, Ordering::Relaxed);
        self.filling.join().unwrap();
        // The client must still send the bytes that it has read.
        let ended = self.program.wait(10 * PATIENCE).unwrap().unwrap();
        assert!(ended.status.success(), "{}", ended.last_words);
        serde_json::from_str(&ended.output).unwrap()
    }
}
