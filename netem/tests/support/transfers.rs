//! A server, a proxy and uploads as programs on the hosts of a path, and waits for what they do.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path as FilePath;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use sidekick_netem::programs::{Program, Programs};
use sidekick_netem::topology::{NEAR, PROXY_NEAR, PROXY_PORT, RECEIVER, SERVER_PORT, Topology};

/// The longest wait. Only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(60);
/// The interval between two checks of a condition.
const OFTEN: Duration = Duration::from_millis(10);

#[allow(clippy::disallowed_methods, reason = "real programs take real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Repeats a check until it succeeds. The program must not end before.
pub(crate) fn until(what: &str, program: &mut Program, mut so: impl FnMut() -> bool) {
    let begun = now();
    while !so() {
        assert!(now() - begun < PATIENCE, "no {what}");
        let ended = program.wait(OFTEN).unwrap();
        assert!(ended.is_none(), "{ended:?}");
    }
}

/// The server's name in its certificate, beside its address.
pub(crate) const NAME: &str = "upload.example";

/// Starts a server. Its store is the folder `store`, which this makes. Returns it with the path of
/// its CA certificate.
pub(crate) fn server(
    programs: &Programs,
    hosts: &Topology,
    directory: &FilePath,
) -> (Program, String) {
    let (store, ca) = (directory.join("store"), directory.join("ca.pem").display().to_string());
    std::fs::create_dir(&store).unwrap();
    let (store, host) = (store.display().to_string(), RECEIVER.to_string());
    let listen = SocketAddr::from((RECEIVER, SERVER_PORT)).to_string();
    let arguments = ["--dir", &store, "--listen", &listen, "--write-ca", &ca];
    let names = ["--self-signed", NAME, "--self-signed", &host];
    let arguments = [arguments.as_slice(), &names].concat().into_iter().map(str::to_owned);
    let arguments: Vec<_> = arguments.collect();
    let mut server =
        Program::start(programs, "h3-upload-server", &arguments, &hosts.receiver, directory)
            .unwrap();
    server.wait_until_ready().unwrap();
    (server, ca)
}

/// A proxy. Its drop kills it.
pub(crate) struct Proxy(pub(crate) Program);

impl Proxy {
    pub(crate) fn start(programs: &Programs, hosts: &Topology, directory: &FilePath) -> Self {
        let listen = SocketAddr::from((PROXY_NEAR, PROXY_PORT)).to_string();
        let arguments = ["--interface", NEAR, "--listen", &listen].map(str::to_owned);
        let mut proxy =
            Program::start(programs, "sidekick-proxy", &arguments, &hosts.proxy, directory)
                .unwrap();
        proxy.wait_until_ready().unwrap();
        Self(proxy)
    }

    /// Waits until the proxy counts `flows` flows, and `packets` packets of each.
    pub(crate) fn wait_for(&mut self, hosts: &Topology, flows: usize, packets: u64) {
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
pub(crate) struct Upload {
    pub(crate) program: Program,
    enough: Arc<AtomicBool>,
    filling: thread::JoinHandle<()>,
}

impl Upload {
    pub(crate) fn start(
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
    pub(crate) fn finish(mut self) -> Value {
        self.enough.store(true, Ordering::Relaxed);
        self.filling.join().unwrap();
        // The client must still send the bytes that it has read.
        let ended = self.program.wait(10 * PATIENCE).unwrap().unwrap();
        assert!(ended.status.success(), "{}", ended.last_words);
        serde_json::from_str(&ended.output).unwrap()
    }
}
