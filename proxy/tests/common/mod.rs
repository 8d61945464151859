//! Common parts of the daemon's tests: a network namespace for each test, the daemon itself, and a
//! minimal sender.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "each program of tests or benchmarks uses its own part of this"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

pub mod download;
pub mod link;
pub mod manager;
mod namespace;
mod programs;
pub mod script;
mod until;

use std::cell::{Cell, RefCell};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::num::NonZeroU16;
use std::os::fd::AsFd;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

pub use namespace::in_namespace;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
pub use programs::{agent, assert_fails, assert_sentence, fails, proxy, ran};
use serde_json::Value;
use sidekick_protocol::keys::{Initiator, Link, Plain, Seal};
use sidekick_protocol::wire::discovery::NONCE_LEN;
use sidekick_protocol::wire::{
    Cookie, Datagram, Hello, Keep, Message, Pattern, Poll, Range, Ranges, Request, SessionNumber,
};
use sidekick_protocol::{
    Flow, HANDLE_LEN, Identification, MAX_DATAGRAM_LEN, Payload, PublicKey, Terms,
};
pub use until::{PATIENCE, until};

/// Runs a command line, which must succeed.
pub fn run(line: &str) {
    let mut words = line.split_whitespace();
    let status = Command::new(words.next().unwrap()).args(words).status().unwrap();
    assert!(status.success(), "{line}: {status}");
}

/// Whether a benchmark runs in a network namespace of its own, where loopback is up. If not, this
/// runs the benchmark again in one, under unshare(1), and expects it to succeed.
pub fn is_in_namespace() -> bool {
    const INSIDE: &str = "SIDEKICK_BENCH_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        run("ip link set lo up");
        return true;
    }
    let status = Command::new("unshare")
        .args(["--net", "--mount-proc", "--pid", "--fork", "--kill-child=SIGKILL", "--"])
        .arg(std::env::current_exe().unwrap())
        .env(INSIDE, "1")
        .status()
        .expect("unshare(1) of util-linux");
    assert!(status.success(), "{status}");
    false
}

/// Waits until a daemon has noticed that its first interface is up, or that it is down, and until
/// the status at this address says so.
pub fn await_interface(daemon: &Daemon, metrics: &str, up: bool) {
    let what = if up { "up" } else { "down" };
    daemon.await_log(if up { " is up again" } else { " is down: " });
    status_until(metrics, what, |status| status["interfaces"][0]["up"] == up);
}

/// Waits until the status at this address is as wanted, and returns it.
pub fn status_until(metrics: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    until(what, || {
        let status = status(metrics);
        if wanted(&status) { Ok(status) } else { Err(status.to_string()) }
    })
}

/// The status at this address.
pub fn status(metrics: &str) -> Value {
    serde_json::from_str(&get(metrics, "/status").2).unwrap()
}

/// Waits until a page at this address is as wanted, and returns its text.
pub fn page_until(at: &str, path: &str, wanted: impl Fn(u16, &str) -> bool) -> String {
    until("as wanted", || {
        let (status, _, body) = get(at, path);
        if wanted(status, &body) { Ok(body) } else { Err(format!("{path}: {status}: {body}")) }
    })
}

/// Waits until this host receives packets to `ip`. A worker of the kernel adds the route of an IPv6
/// address, often after ip(8) has returned.
pub fn await_route_to_own(ip: &str) {
    until("local", || {
        let route = Command::new("ip").args(["route", "get", ip]).output().unwrap();
        if route.stdout.starts_with(b"local") { Ok(()) } else { Err(format!("{route:?}")) }
    });
}

/// A command that runs this program with these arguments as on a kernel without IPv6.
pub fn without_ipv6(program: &str, arguments: &str) -> Command {
    let mut command = Command::new("python3");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/no_ipv6.py")).arg(program);
    command.args(arguments.split_whitespace()).env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// A running daemon, which is killed unless the test ends it.
pub struct Daemon {
    child: Child,
    stdout: BufReader<ChildStdout>,
    log: RefCell<Log>,
    /// The line that the daemon printed when it was ready.
    pub ready: String,
}

/// What a daemon writes to stderr.
struct Log {
    stderr: ChildStderr,
    /// The text so far.
    text: Vec<u8>,
    /// The length of its part that the test has awaited.
    awaited: usize,
}

/// How a daemon ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    /// The daemon's output after that line.
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// The summary that `--json` asks for.
    pub fn summary(&self) -> Value {
        let line = self.stdout.lines().last().unwrap_or_default();
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Daemon {
    /// Starts a daemon, and waits until it is ready.
    pub fn start(arguments: &str) -> Self {
        Self::begin(&mut proxy(arguments))
    }

    /// Starts this command, and waits until the daemon is ready.
    pub fn begin(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut ready = String::new();
        stdout.read_line(&mut ready).unwrap();
        let stderr = child.stderr.take().unwrap();
        let log = RefCell::new(Log { stderr, text: Vec::new(), awaited: 0 });
        let mut daemon = Self { child, stdout, log, ready };
        if !daemon.ready.starts_with("ready: ") {
            daemon.child.kill().unwrap();
            panic!("not ready: {:?}", daemon.wait());
        }
        daemon
    }

    /// The address on which the daemon listens, as it printed.
    pub fn address(&self) -> SocketAddr {
        let rest = self.ready.strip_prefix("ready: listening on ").unwrap();
        rest.split(',').next().unwrap().parse().unwrap()
    }

    /// The daemon's process number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The daemon's port at this address.
    pub fn address_on(&self, ip: &str) -> SocketAddr {
        SocketAddr::new(ip.parse().unwrap(), self.address().port())
    }

    /// Sends a signal to the daemon.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    /// Stops the daemon, and returns when it has stopped.
    pub fn hold(&self) {
        self.signal(Signal::SIGSTOP);
        let process = Pid::from_raw(self.child.id().try_into().unwrap());
        let status = waitpid(process, Some(WaitPidFlag::WUNTRACED)).unwrap();
        assert!(matches!(status, WaitStatus::Stopped(..)), "{status:?}");
    }

    /// Waits until the daemon's log has these words, after those that the test has awaited before.
    pub fn await_log(&self, words: &str) {
        let Log { stderr, text, awaited } = &mut *self.log.borrow_mut();
        loop {
            let mut places = text[*awaited..].windows(words.len());
            if let Some(place) = places.position(|window| window == words.as_bytes()) {
                *awaited += place + words.len();
                return;
            }
            let timeout = PollTimeout::try_from(PATIENCE).unwrap();
            let ready = poll(&mut [PollFd::new(stderr.as_fd(), PollFlags::POLLIN)], timeout);
            let mut more = [0; 4096];
            let len = if ready == Ok(1) { stderr.read(&mut more).unwrap() } else { 0 };
            assert!(len > 0, "no {words:?}: {}", String::from_utf8_lossy(text));
            text.extend(&more[..len]);
        }
    }

    /// Waits until the daemon ends.
    pub fn wait(&mut self) -> Ended {
        let mut stdout = String::new();
        self.stdout.read_to_string(&mut stdout).unwrap();
        let Log { stderr, text, .. } = self.log.get_mut();
        stderr.read_to_end(text).unwrap();
        let stderr = String::from_utf8(std::mem::take(text)).unwrap();
        Ended { status: self.child.wait().unwrap(), stdout, stderr }
    }

    /// Ends the daemon as an operator does, and expects success.
    pub fn stop(mut self) -> Ended {
        self.signal(Signal::SIGTERM);
        let ended = self.wait();
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        ended
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // This fails if the daemon has ended already, as it should.
        if self.child.kill().is_ok() {
            drop(self.child.wait());
        }
    }
}

/// A received quACK.
#[derive(Debug, PartialEq, Eq)]
pub struct Report {
    pub token: u16,
    pub first: u32,
    pub last: u32,
    pub count: u32,
    pub sums: Vec<u32>,
}

impl Report {
    fn of(message: &Message<'_>) -> Option<Self> {
        let Message::Quack(quack) = message else { return None };
        let (token, first, last, count) = (quack.token, quack.first, quack.last, quack.count);
        Some(Self { token, first, last, count, sums: quack.sums.iter().collect() })
    }
}

/// The sender's end of a session. The test decides which messages it sends and expects.
pub struct Peer {
    socket: UdpSocket,
    session: SessionNumber,
    seal: RefCell<Seal>,
    /// The current epoch, as far as the sender knows.
    epoch: Cell<u16>,
    /// The token of the latest poll that was answered; 0 for none.
    answered: Cell<u16>,
    /// The proxy's public key.
    pub key: PublicKey,
}

/// The number that every peer chooses for its session.
const NUMBER: SessionNumber = SessionNumber(0x5157_0001);

/// The proxy's next message on a connected socket.
fn hear<'a>(socket: &UdpSocket, buffer: &'a mut [u8]) -> Datagram<'a> {
    let len = socket.recv(buffer).expect("an answer of the proxy");
    Datagram::parse(&buffer[..len]).unwrap()
}

/// A HELLO of this handshake message.
fn hello_with(flow: Flow, cookie: Cookie, handshake: &[u8]) -> Vec<u8> {
    let (session, pattern) = (NUMBER, Pattern::Unpinned);
    let mut buffer = [0; MAX_DATAGRAM_LEN];
    let hello = Hello { session, flow, cookie, pattern, handshake };
    let len = Datagram::Hello(hello).emit(&mut buffer).unwrap();
    buffer[..len].to_vec()
}

/// A HELLO without a cookie, to which the proxy answers with one.
pub fn hello(source_port: u16, destination: SocketAddr) -> Vec<u8> {
    let flow = Flow { source: ([0; 4], source_port).into(), destination };
    let (_, handshake) = Initiator::begin(None, NUMBER, &flow, &Terms::default(), [9; 32]).unwrap();
    hello_with(flow, Cookie::NONE, handshake.bytes())
}

/// Requests a session by two HELLOs. The second has the cookie from the answer to the first.
/// Returns `Err` if the proxy refuses.
fn ask(
    socket: &UdpSocket,
    source_port: u16,
    destination: SocketAddr,
    terms: &Terms,
) -> Result<(SessionNumber, Seal, PublicKey), ()> {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let any: SocketAddr = if destination.is_ipv4() {
        ([0; 4], source_port).into()
    } else {
        ([0u16; 8], source_port).into()
    };
    let flow = Flow { source: any, destination };
    let (mut initiator, handshake) = Initiator::begin(None, NUMBER, &flow, terms, [9; 32]).unwrap();
    let mut buffer = [0; MAX_DATAGRAM_LEN];
    let mut cookie = Cookie::NONE;
    loop {
        socket.send(&hello_with(flow, cookie, handshake.bytes())).unwrap();
        match hear(socket, &mut buffer) {
            Datagram::Retry { cookie: given, .. } if cookie == Cookie::NONE => cookie = given,
            Datagram::Accept { handshake, .. } => {
                let accept = initiator.read(handshake).unwrap();
                let (seal, key) = initiator.finish().unwrap();
                return Ok((accept.session, seal, key));
            }
            Datagram::Refuse { .. } => return Err(()),
            other => panic!("{other:?}"),
        }
    }
}

impl Peer {
    /// Opens a session for the flow from `source_port` to `destination`. `socket` is connected to
    /// the proxy.
    pub fn open(
        socket: UdpSocket,
        source_port: u16,
        destination: SocketAddr,
        terms: Terms,
    ) -> Self {
        let (session, seal, key) =
            ask(&socket, source_port, destination, &terms).expect("a session");
        let peer = Self {
            socket,
            session,
            seal: RefCell::new(seal),
            epoch: Cell::new(1),
            answered: Cell::new(0),
            key,
        };
        // A sealed message proves the address. The proxy counts no packets before.
        assert_eq!(peer.poll(1).count, 0);
        peer
    }

    /// The socket, which is connected to the proxy.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    fn send(&self, message: Message<'_>) {
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        let len =
            self.seal.borrow_mut().seal(Link::First, self.session, &message, &mut buffer).unwrap();
        self.socket.send(&buffer[..len]).unwrap();
    }

    /// The first message for which `wanted` returns a value. A repeated poll may have a second
    /// answer, which this skips.
    fn receive<T>(&self, wanted: impl Fn(&Message<'_>) -> Option<T>) -> T {
        let (mut buffer, mut plain) = ([0; MAX_DATAGRAM_LEN], Plain::default());
        loop {
            let Datagram::Sealed { session, sequence, ciphertext } =
                hear(&self.socket, &mut buffer)
            else {
                panic!("not sealed")
            };
            assert_eq!(session, NUMBER);
            let mut seal = self.seal.borrow_mut();
            let message = seal.open(sequence, ciphertext, &mut plain).unwrap();
            if let Message::Epoch { epoch } = message {
                self.epoch.set(epoch);
            }
            if let Message::Quack(quack) = &message
                && quack.token != 0
                && quack.token == self.answered.get()
            {
                continue;
            }
            if let Some(found) = wanted(&message) {
                return found;
            }
        }
    }

    /// The first quACK that `wanted` accepts.
    pub fn report(&self, wanted: impl Fn(&Report) -> bool) -> Report {
        self.receive(|message| Report::of(message).filter(&wanted))
    }

    /// The next message, if it is a quACK.
    pub fn next_report(&self) -> Option<Report> {
        self.receive(|message| Some(Report::of(message)))
    }

    /// The number of packets, modulo 2^16, that the next quACK reports, whether whole or short.
    pub fn count(&self) -> u16 {
        self.receive(|message| match message {
            Message::Quack(quack) => u16::try_from(quack.count & 0xffff).ok(),
            Message::ShortQuack(quack) => Some(quack.count),
            _ => None,
        })
    }

    /// Polls for a quACK with as many sums as the threshold. Repeats the poll if there is no
    /// answer: a link may lose polls, and a proxy without processor time drops them. Repeats it
    /// also after a new epoch.
    pub fn poll(&self, token: u16) -> Report {
        // A second answer to an earlier poll with this token is as good.
        self.answered.set(0);
        loop {
            let asked = (0..20).any(|_| {
                self.send(Message::Poll(Poll { epoch: self.epoch.get(), token, sums: 0 }));
                self.has_word(PATIENCE / 20)
            });
            assert!(asked, "no answer to any poll");
            let answer = self.receive(|message| match message {
                Message::Epoch { .. } => Some(None),
                _ => Report::of(message).filter(|report| report.token == token).map(Some),
            });
            if let Some(report) = answer {
                self.answered.set(token);
                return report;
            }
        }
    }

    /// Whether the proxy sends a message within this time.
    pub fn has_word(&self, within: Duration) -> bool {
        self.socket.set_read_timeout(Some(within)).unwrap();
        let has = self.socket.peek(&mut [0]).is_ok();
        self.socket.set_read_timeout(Some(PATIENCE)).unwrap();
        has
    }

    /// Asks the proxy to keep copies, without a proof.
    pub fn send_keep(&self, age_ms: u16) {
        let (cookie, handle, nonce) = (Cookie::NONE, [1; HANDLE_LEN], [2; NONCE_LEN]);
        self.send(Message::Keep(Keep { age_ms, handle, nonce, cookie }));
    }

    /// Asks the proxy to keep copies, and returns the age that it grants.
    pub fn keep(&self, age_ms: u16) -> u16 {
        self.send_keep(age_ms);
        self.receive(|message| match message {
            Message::Kept { age_ms } => Some(*age_ms),
            _ => None,
        })
    }

    /// Requests copies of all datagrams that the proxy keeps.
    pub fn request_all(&self, number: u16) {
        let ranges = [Range::new(None, None)];
        let ranges = Ranges::new(&ranges);
        self.send(Message::Request(Request { number, ranges }));
    }

    /// Polls in the old epoch, and returns the new one from the answer.
    pub fn new_epoch(&self) -> u16 {
        self.send(Message::Poll(Poll { epoch: self.epoch.get(), token: 1, sums: 0 }));
        self.receive(|message| matches!(message, Message::Epoch { .. }).then_some(()));
        self.epoch.get()
    }

    /// Waits for the proxy's BYE.
    pub fn wait_for_bye(&self) {
        self.receive(|message| matches!(message, Message::Bye).then_some(()));
    }
}

/// Terms for a quACK of `threshold` sums after every `packets`, and none by time.
pub fn every_packets(packets: u16, threshold: u8) -> Terms {
    Terms { threshold, every_packets: NonZeroU16::new(packets), every: None, ..Terms::default() }
}

/// A datagram like one of QUIC with a short header, and an identifier made from `number`.
pub fn datagram(number: u32, len: usize) -> Vec<u8> {
    let identifier = number.wrapping_mul(0x9e37_79b1).wrapping_add(0x7f4a_7c15);
    let mut bytes = vec![0x40; len];
    bytes[21..25].copy_from_slice(&identifier.to_be_bytes());
    assert_eq!(Identification::default().identifier(Payload::whole(&bytes)), Some(identifier));
    bytes
}

/// The power sums of these datagrams' identifiers, by their definition.
pub fn naive_sums(datagrams: &[Vec<u8>], threshold: usize) -> Vec<u32> {
    const MODULUS: u128 = 4_294_967_291;
    let identifiers = datagrams.iter().map(|d| u32::from_be_bytes(d[21..25].try_into().unwrap()));
    let mut sums = vec![0_u128; threshold];
    for identifier in identifiers {
        let mut power = 1;
        for sum in &mut sums {
            power = power * u128::from(identifier) % MODULUS;
            *sum = (*sum + power) % MODULUS;
        }
    }
    sums.into_iter().map(|sum| u32::try_from(sum).unwrap()).collect()
}

/// Sends a message of a session that does not exist, and waits for the proxy's answer.
pub fn probe(socket: &UdpSocket) {
    let (mut buffer, session) = ([0; MAX_DATAGRAM_LEN], SessionNumber(0xabcd));
    let sealed = Datagram::Sealed { session, sequence: 0, ciphertext: &[0; 30] };
    let len = sealed.emit(&mut buffer).unwrap();
    socket.send(&buffer[..len]).unwrap();
    assert_eq!(hear(socket, &mut buffer), Datagram::UnknownSession { session });
}

/// Whether the proxy refuses a session for this flow.
pub fn is_refused(socket: &UdpSocket, source_port: u16, destination: SocketAddr) -> bool {
    ask(socket, source_port, destination, &Terms::default()).is_err()
}

/// Fetches a page over HTTP. Returns its status, head and body.
pub fn get(address: &str, path: &str) -> (u16, String, String) {
    let host = address;
    exchange(address, format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes())
}

/// Sends these bytes over TCP, and reads the answer, which must be one of HTTP.
pub fn exchange(address: &str, request: &[u8]) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request).unwrap();
    let mut bytes = Vec::new();
    let outcome = stream.read_to_end(&mut bytes);
    let answer = String::from_utf8(bytes).unwrap();
    let (head, body) =
        answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{outcome:?}: {answer:?}"));
    let status =
        head.strip_prefix("HTTP/1.1 ").unwrap().split(' ').next().unwrap().parse().unwrap();
    (status, head.to_owned(), body.to_owned())
}

/// Checks counts of a summary.
#[track_caller]
pub fn assert_counts<const N: usize>(summary: &Value, counts: [(&str, u64); N]) {
    for (name, count) in counts {
        assert_eq!(summary[name], count, "{name} in {summary}");
    }
}

/// The value of a series in a page of metrics. The name includes the labels.
pub fn number(page: &str, series: &str) -> f64 {
    let mut of = page.lines().filter_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    let number = of.next().unwrap_or_else(|| panic!("no {series} in {page}"));
    number.parse().unwrap()
}
