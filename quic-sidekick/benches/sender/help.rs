//! The help for a transfer: none, or the plugin and its proxy. Also the link that the transfer
//! crosses.

use crate::{hooked, stock, unwatched, watched};
use quic_sidekick::{
    AdjacentSocket, Config, Driver, MAX_DATAGRAM_LEN, Mode, ReceiveRepair, Status, quiche,
};
use sidekick_protocol::{Flow, Observer, ObserverConfig, Payload, Route};
use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::time::Instant;

/// Which end has the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "only the benchmark of instructions downloads")]
pub(crate) enum Direction {
    /// The client, which has the help.
    Up,
    Down,
}

/// The link that a transfer crosses, and the length of the transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) direction: Direction,
    /// The bytes of the file.
    pub(crate) bytes: usize,
    /// The bytes that the sending end writes before the other end has received them.
    pub(crate) ahead: usize,
    /// The reciprocal of the bottleneck's rate.
    pub(crate) ns_per_byte: u64,
    /// The bytes that the queue before the bottleneck holds.
    pub(crate) queue_bytes: u32,
    /// The near segment loses one packet of this many of an upload.
    pub(crate) loses_every: Option<u64>,
}

/// The server's certificate and key, in files.
pub(crate) struct Certificate {
    dir: tempfile::TempDir,
}

impl Certificate {
    pub(crate) fn new() -> Self {
        let key = rcgen::generate_simple_self_signed(["example.org".to_owned()]).unwrap();
        let certificate = Self { dir: tempfile::tempdir().unwrap() };
        let files = certificate.files();
        std::fs::write(&files.0, key.cert.pem()).unwrap();
        std::fs::write(&files.1, key.signing_key.serialize_pem()).unwrap();
        certificate
    }

    pub(crate) fn files(&self) -> (String, String) {
        let path = |name: &str| self.dir.path().join(name).display().to_string();
        (path("cert.pem"), path("key.pem"))
    }
}

/// The datagrams that the proxy sends, by route.
#[derive(Default)]
pub(crate) struct ProxyOutput {
    /// To the adjacent socket.
    pub(crate) messages: Vec<Vec<u8>>,
    /// Along the path, in the server's name.
    pub(crate) on_path: Vec<Vec<u8>>,
}

impl ProxyOutput {
    pub(crate) fn extend(&mut self, more: Self) {
        self.messages.extend(more.messages);
        self.on_path.extend(more.on_path);
    }
}

/// No proxy, no plugin.
pub(crate) struct NoHelp;

macro_rules! no_help {
    ($upload:path, $connection:ty) => {
        impl $upload for NoHelp {
            fn attach(&mut self, _: &mut $connection) {}
            fn receive(&mut self, _: &mut $connection, _: Option<Vec<u8>>) -> bool {
                false
            }
            fn on_sent(&mut self, _: &mut $connection, _: &mut Vec<Vec<u8>>) {}
            fn next_timeout(&self) -> Option<Instant> {
                None
            }
            fn proxy(&mut self, _: Option<&[u8]>, _: &[Vec<u8>]) -> ProxyOutput {
                ProxyOutput::default()
            }
            fn keep(&mut self, _: &[u8]) -> ProxyOutput {
                ProxyOutput::default()
            }
            fn proxy_deadline(&self) -> Option<Instant> {
                None
            }
        }
    };
}

no_help!(hooked::transfer::Help, quiche::Connection);
no_help!(stock::transfer::Help, pristine::Connection);

/// A fault after a thousand packets, so that the plugin must keep more than usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "the benchmark of instructions has no faults")]
pub(crate) enum Fault {
    None,
    /// The proxy sees no more packets.
    BlindProxy,
    /// The application no longer calls the plugin.
    IdlePlugin,
    /// There is no proxy, from the first packet on.
    NoProxy,
}

/// The proxy's address.
const PROXY: &str = "192.0.2.254:5252";

/// The plugin and its proxy.
pub(crate) struct Helped {
    fault: Fault,
    /// The packets that reached the proxy.
    packets: u64,
    driver: Driver<Memory>,
    observer: Observer,
    flow: Flow,
    proxy: SocketAddr,
    adjacent: SocketAddr,
}

/// An adjacent socket without a system behind it.
struct Memory {
    address: SocketAddr,
    proxy: SocketAddr,
    received: Cell<Option<Vec<u8>>>,
    sent: RefCell<Vec<Vec<u8>>>,
}

impl AdjacentSocket for Memory {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }

    fn send_to(&self, datagram: &[u8], _: SocketAddr) -> io::Result<usize> {
        unwatched(|| self.sent.borrow_mut().push(datagram.to_vec()));
        Ok(datagram.len())
    }

    fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let datagram = self.received.take().ok_or(io::ErrorKind::WouldBlock)?;
        let len = datagram.len();
        buffer[..len].copy_from_slice(&datagram);
        // Its allocation did not count, so its release does not count either.
        unwatched(|| drop(datagram));
        Ok((len, self.proxy))
    }
}

impl Helped {
    pub(crate) fn new(mode: Mode, every: Option<NonZeroU16>) -> Self {
        let mut config = Config::new(PROXY.parse().unwrap(), mode);
        config.every_packets = every.or(config.every_packets);
        Self::of(config, ObserverConfig::default())
    }

    /// A client that receives, and a proxy that keeps copies.
    #[allow(dead_code, reason = "its memory is not measured")]
    pub(crate) fn receiving(repair: ReceiveRepair) -> Self {
        let config = Config::new(PROXY.parse().unwrap(), Mode::Receive);
        let config = Config { receive_repair: repair, ..config };
        Self::of(config, ObserverConfig { keep_bytes: 64 << 20, ..ObserverConfig::default() })
    }

    /// A client that searches for a proxy, and finds none.
    #[allow(dead_code, reason = "its memory is not measured")]
    pub(crate) fn without_proxy(mode: Mode) -> Self {
        let helped = Self::of(Config::discover(mode), ObserverConfig::default());
        Self { fault: Fault::NoProxy, ..helped }
    }

    fn of(config: Config, observer: ObserverConfig) -> Self {
        let [client, server, proxy, adjacent] =
            ["192.0.2.1:4000", "198.51.100.7:443", PROXY, "192.0.2.1:5000"]
                .map(|address| address.parse::<SocketAddr>().unwrap());
        Self {
            fault: Fault::None,
            packets: 0,
            driver: watched(|| Driver::with_seed(config, [7; 32])),
            observer: Observer::new(observer, [3; 32]).unwrap(),
            flow: Flow { source: client, destination: server },
            proxy,
            adjacent,
        }
    }

    #[allow(dead_code, reason = "the benchmark of instructions has no faults")]
    pub(crate) fn with(self, fault: Fault) -> Self {
        Self { fault, ..self }
    }

    pub(crate) fn status(&self) -> Status {
        self.driver.status()
    }

    fn output(&mut self) -> ProxyOutput {
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        let mut output = ProxyOutput::default();
        while let Some(transmit) = self.observer.poll_transmit(&mut buffer) {
            let datagram = buffer[..transmit.size].to_vec();
            match transmit.route {
                Route::Path { .. } => output.on_path.push(datagram),
                Route::Session | Route::SecondLink | Route::Stranger { .. } => {
                    output.messages.push(datagram);
                }
            }
        }
        output
    }

    fn has_fault(&self, fault: Fault) -> bool {
        self.fault == fault && self.packets > 1000
    }
}

#[allow(clippy::disallowed_methods, reason = "the virtual clock answers")]
fn now() -> Instant {
    Instant::now()
}

impl hooked::transfer::Help for Helped {
    fn attach(&mut self, client: &mut quiche::Connection) {
        let (address, proxy) = (self.adjacent, self.proxy);
        let (received, sent) = (Cell::default(), RefCell::default());
        self.driver.attach_with(client, Memory { address, proxy, received, sent });
    }

    fn receive(&mut self, client: &mut quiche::Connection, message: Option<Vec<u8>>) -> bool {
        if self.has_fault(Fault::IdlePlugin) {
            unwatched(|| drop(message));
            return false;
        }
        self.driver.socket().unwrap().received.set(message);
        self.driver.receive(client, now())
    }

    fn on_sent(&mut self, client: &mut quiche::Connection, messages: &mut Vec<Vec<u8>>) {
        if self.has_fault(Fault::IdlePlugin) {
            return;
        }
        let _ = self.driver.on_sent(client, now());
        let socket = self.driver.socket().unwrap();
        unwatched(|| messages.append(&mut socket.sent.borrow_mut()));
    }

    fn next_timeout(&self) -> Option<Instant> {
        if self.has_fault(Fault::IdlePlugin) {
            return None;
        }
        self.driver.poll_timeout()
    }

    fn keep(&mut self, datagram: &[u8]) -> ProxyOutput {
        self.observer.keep(&self.flow.reversed(), 0, datagram, now());
        self.output()
    }

    fn proxy(&mut self, datagram: Option<&[u8]>, messages: &[Vec<u8>]) -> ProxyOutput {
        if self.fault == Fault::NoProxy {
            return ProxyOutput::default();
        }
        self.packets += u64::from(datagram.is_some());
        if let Some(datagram) = datagram.filter(|_| !self.has_fault(Fault::BlindProxy)) {
            self.observer.observe(&self.flow, 0, Payload::whole(datagram), now());
        }
        for message in messages {
            // The proxy's messages show the outcome.
            let _ = self.observer.handle_input(self.adjacent, message, now());
        }
        self.observer.on_timeout(now());
        self.output()
    }

    fn proxy_deadline(&self) -> Option<Instant> {
        self.observer.poll_timeout()
    }
}
