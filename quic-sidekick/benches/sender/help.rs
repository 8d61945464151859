//! Who helps an upload: nobody, or the plugin and its proxy. With the link that it crosses.

use crate::{hooked, stock, unwatched, watched};
use quic_sidekick::{AdjacentSocket, Config, Driver, MAX_DATAGRAM_LEN, Mode, Status, quiche};
use sidekick_protocol::{Flow, Observer, ObserverConfig, Payload};
use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::time::Instant;

/// What an upload crosses, and how long it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    /// The bytes of the upload.
    pub(crate) bytes: usize,
    /// How far the application writes ahead of what the receiver has.
    pub(crate) ahead: usize,
    /// The reciprocal of the bottleneck's rate.
    pub(crate) ns_per_byte: u64,
    /// The bytes that the queue before the bottleneck holds.
    pub(crate) queue_bytes: u32,
    /// Of how many packets the near segment loses one.
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

/// No proxy, no plugin.
pub(crate) struct Nobody;

macro_rules! nobody {
    ($upload:path, $connection:ty) => {
        impl $upload for Nobody {
            fn attach(&mut self, _: &mut $connection) {}
            fn receive(&mut self, _: &mut $connection, _: Option<Vec<u8>>) -> bool {
                false
            }
            fn on_sent(&mut self, _: &mut $connection, _: &mut Vec<Vec<u8>>) {}
            fn next_timeout(&self) -> Option<Instant> {
                None
            }
            fn proxy(&mut self, _: Option<&[u8]>, _: &[Vec<u8>]) -> Vec<Vec<u8>> {
                Vec::new()
            }
            fn proxy_deadline(&self) -> Option<Instant> {
                None
            }
        }
    };
}

nobody!(hooked::upload::Help, quiche::Connection);
nobody!(stock::upload::Help, pristine::Connection);

/// What goes wrong after a thousand packets, so that the plugin has to keep more than usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "what is measured in instructions has none")]
pub(crate) enum Trouble {
    None,
    /// The proxy sees no more packets.
    Deaf,
    /// The application sends without a call of the plugin.
    Forgotten,
}

/// The plugin and its proxy.
pub(crate) struct Helped {
    trouble: Trouble,
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
        // Nobody watched who made it, either.
        unwatched(|| drop(datagram));
        Ok((len, self.proxy))
    }
}

impl Helped {
    pub(crate) fn new(mode: Mode, every: Option<NonZeroU16>) -> Self {
        let [client, server, proxy, adjacent] =
            ["192.0.2.1:4000", "198.51.100.7:443", "192.0.2.254:5252", "192.0.2.1:5000"]
                .map(|address| address.parse::<SocketAddr>().unwrap());
        let mut config = Config::new(proxy, mode);
        config.every_packets = every.or(config.every_packets);
        Self {
            trouble: Trouble::None,
            packets: 0,
            driver: watched(|| Driver::with_seed(config, [7; 32])),
            observer: Observer::new(ObserverConfig::default(), [3; 32]).unwrap(),
            flow: Flow { source: client, destination: server },
            proxy,
            adjacent,
        }
    }

    #[allow(dead_code, reason = "what is measured in instructions has none")]
    pub(crate) fn with(self, trouble: Trouble) -> Self {
        Self { trouble, ..self }
    }

    pub(crate) fn status(&self) -> Status {
        self.driver.status()
    }

    fn suffers(&self, trouble: Trouble) -> bool {
        self.trouble == trouble && self.packets > 1000
    }
}

#[allow(clippy::disallowed_methods, reason = "it is the virtual clock that answers")]
fn now() -> Instant {
    Instant::now()
}

impl hooked::upload::Help for Helped {
    fn attach(&mut self, client: &mut quiche::Connection) {
        let (address, proxy) = (self.adjacent, self.proxy);
        let (received, sent) = (Cell::default(), RefCell::default());
        self.driver.attach_with(client, Memory { address, proxy, received, sent });
    }

    fn receive(&mut self, client: &mut quiche::Connection, message: Option<Vec<u8>>) -> bool {
        if self.suffers(Trouble::Forgotten) {
            unwatched(|| drop(message));
            return false;
        }
        self.driver.socket().unwrap().received.set(message);
        self.driver.receive(client, now())
    }

    fn on_sent(&mut self, client: &mut quiche::Connection, messages: &mut Vec<Vec<u8>>) {
        if self.suffers(Trouble::Forgotten) {
            return;
        }
        self.driver.on_sent(client, now());
        let socket = self.driver.socket().unwrap();
        unwatched(|| messages.append(&mut socket.sent.borrow_mut()));
    }

    fn next_timeout(&self) -> Option<Instant> {
        if self.suffers(Trouble::Forgotten) {
            return None;
        }
        self.driver.poll_timeout()
    }

    fn proxy(&mut self, datagram: Option<&[u8]>, messages: &[Vec<u8>]) -> Vec<Vec<u8>> {
        self.packets += u64::from(datagram.is_some());
        if let Some(datagram) = datagram.filter(|_| !self.suffers(Trouble::Deaf)) {
            self.observer.observe(&self.flow, 0, Payload::whole(datagram), now());
        }
        for message in messages {
            // The proxy's messages show the outcome.
            let _ = self.observer.handle_input(self.adjacent, message, now());
        }
        self.observer.on_timeout(now());
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        let mut sent = Vec::new();
        while let Some(transmit) = self.observer.poll_transmit(&mut buffer) {
            sent.push(buffer[..transmit.size].to_vec());
        }
        sent
    }

    fn proxy_deadline(&self) -> Option<Instant> {
        self.observer.poll_timeout()
    }
}
