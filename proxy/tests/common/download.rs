//! A download past the proxy, which routes between two links, and a client that asks for copies.

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use sidekick_protocol::{Flow, MAX_DATAGRAM_LEN, Payload, Route, Sender, SenderConfig};

use super::link::{bind, link};
use super::{PATIENCE, run};

/// The addresses of a topology.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// The router's on the near link, and the client's.
    pub near: (&'static str, &'static str),
    /// The router's on the far link, and the server's.
    pub far: (&'static str, &'static str),
}

pub const V4: Addresses =
    Addresses { near: ("10.9.0.1", "10.9.0.2"), far: ("10.8.0.1", "10.8.0.2") };
pub const V6: Addresses = Addresses { near: ("fd09::1", "fd09::2"), far: ("fd08::1", "fd08::2") };

fn with_port(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

/// The address as `ip` takes it, for a link. An IPv6 address is usable at once.
pub fn prefix(ip: &str) -> String {
    if ip.contains(':') { format!("{ip}/64 nodad") } else { format!("{ip}/24") }
}

/// Lets this host forward packets.
pub fn forward() {
    for switch in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        std::fs::write(format!("/proc/sys/net/{switch}"), "1").unwrap();
    }
}

/// Makes the proxy's host a router between `near0`, where clients are, and `far0`, where the server
/// is. Returns the sockets of this many clients, and the server's.
pub fn router(addresses: Addresses, clients: u16) -> (Vec<(UdpSocket, UdpSocket)>, UdpSocket) {
    forward();
    let sockets = near(addresses, clients);
    let server = far(addresses);
    (sockets, server)
}

/// Creates the far link. Returns the server's socket.
pub fn far(addresses: Addresses) -> UdpSocket {
    let (ours, theirs) = addresses.far;
    link("far0", (&prefix(ours), &prefix(theirs)), &[], move || {
        run(&default_route(ours));
        bind(&with_port(theirs, 443).to_string())
    })
}

/// Creates the near link. Returns the sockets of this many clients.
pub fn near(addresses: Addresses, clients: u16) -> Vec<(UdpSocket, UdpSocket)> {
    let (ours, theirs) = addresses.near;
    link("near0", (&prefix(ours), &prefix(theirs)), &[], move || {
        run(&default_route(ours));
        let at = |port| bind(&with_port(theirs, port).to_string());
        (0..clients).map(|n| (at(4000 + 2 * n), at(4001 + 2 * n))).collect()
    })
}

pub fn default_route(gateway: &str) -> String {
    let family = if gateway.contains(':') { "-6" } else { "-4" };
    format!("ip {family} route add default via {gateway}")
}

/// A client that downloads, with the sender of the protocol.
pub struct Client {
    pub sender: Sender,
    flow: Flow,
    socket: UdpSocket,
    adjacent: UdpSocket,
    /// The datagrams that arrived from the server.
    pub arrived: Vec<Vec<u8>>,
    /// Copies that the proxy sent.
    pub copies: Vec<Vec<u8>>,
    /// Datagrams that parity rebuilt.
    pub rebuilt: Vec<Vec<u8>>,
    /// Whether the client loses a datagram, for parity to rebuild it.
    pub loses: fn(&[u8]) -> bool,
    /// Gaps for which the proxy has no copy.
    pub unfilled: BTreeSet<u64>,
    next_gap: u64,
}

impl Client {
    /// A client that asks the proxy at this address to keep copies.
    pub fn new(
        (socket, adjacent): (UdpSocket, UdpSocket),
        server: SocketAddr,
        proxy: SocketAddr,
        keep: Option<Duration>,
    ) -> Self {
        let flow = Flow { source: socket.local_addr().unwrap(), destination: server };
        adjacent.connect(proxy).unwrap();
        adjacent.set_nonblocking(true).unwrap();
        socket.set_nonblocking(true).unwrap();
        // Each client has keys and numbers of its own.
        static CLIENTS: AtomicU8 = AtomicU8::new(1);
        let seed = [CLIENTS.fetch_add(1, Ordering::Relaxed); 32];
        let mut sender = Sender::new(SenderConfig { keep, ..SenderConfig::of(proxy) }, seed);
        sender.set_adjacent_port(adjacent.local_addr().unwrap().port());
        sender.start(flow, now());
        Self {
            sender,
            flow,
            socket,
            adjacent,
            arrived: Vec::new(),
            copies: Vec::new(),
            rebuilt: Vec::new(),
            loses: |_| false,
            unfilled: BTreeSet::new(),
            next_gap: 0,
        }
    }

    /// The client's address, to which the server sends.
    pub fn address(&self) -> SocketAddr {
        self.flow.source
    }

    /// Sends a datagram to the server, as a request or an acknowledgement.
    pub fn send(&mut self, number: u64, datagram: &[u8]) {
        self.socket.send_to(datagram, self.flow.destination).unwrap();
        self.sender.on_sent(number, Payload::whole(datagram), now());
    }

    /// Receives and sends until `done`. Panics if that takes too long.
    pub fn run_until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        assert!(self.runs(PATIENCE, &mut done), "never {what}: {:?}", self.sender.stats());
    }

    /// Receives and sends until `done`, and returns whether that was within this time.
    pub fn runs(&mut self, within: Duration, mut done: impl FnMut(&Self) -> bool) -> bool {
        let end = now() + within;
        loop {
            self.receive();
            self.sender.on_timeout(now());
            self.transmit();
            if done(self) {
                return true;
            }
            let now = now();
            if now >= end {
                return false;
            }
            let until = self.sender.poll_timeout().map_or(end, |at| at.min(end));
            let sockets = [self.socket.as_fd(), self.adjacent.as_fd()];
            let mut fds = sockets.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            let wait = until.saturating_duration_since(now);
            ppoll(&mut fds, Some(TimeSpec::from_duration(wait)), None).unwrap();
        }
    }

    fn receive(&mut self) {
        let mut buffer = [0; 65536];
        while let Ok((len, from)) = self.socket.recv_from(&mut buffer) {
            assert_eq!(from, self.flow.destination, "the path's answers have its address");
            if Sender::is_answer(&buffer[..len]) {
                let _ = self.sender.handle_on_path(&buffer[..len], now());
            } else {
                self.arrived.push(buffer[..len].to_vec());
                if !(self.loses)(&buffer[..len]) {
                    self.sender.on_arrival(&buffer[..len]);
                    self.sender.on_received(len, now());
                }
                self.sender.on_progress(name(&buffer[..len]), now());
            }
        }
        while let Ok((len, from)) = self.adjacent.recv_from(&mut buffer) {
            let handled = self.sender.handle_input(from, &buffer[..len], now());
            if let Ok(Some(copy)) = handled {
                self.copies.push(copy.bytes(&buffer).to_vec());
            }
            let mut rebuilt = Vec::new();
            while self.sender.next_rebuilt(&mut rebuilt, now()) {
                self.rebuilt.push(rebuilt.clone());
            }
        }
        let mut unfilled = Vec::new();
        self.sender.drain_unfilled(&mut unfilled);
        self.unfilled.extend(unfilled);
    }

    fn transmit(&mut self) {
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        while let Some(transmit) = self.sender.poll_transmit(&mut buffer) {
            let datagram = &buffer[..transmit.size];
            let _ = match transmit.route {
                Route::Path { .. } => self.socket.send_to(datagram, transmit.destination),
                Route::Session | Route::SecondLink | Route::Stranger { .. } => {
                    self.adjacent.send(datagram)
                }
            };
        }
    }

    /// Requests what passed between two datagrams that arrived. Returns the gap's number.
    pub fn request(&mut self, after: &[u8], before: &[u8]) -> u64 {
        let gap = self.next_gap;
        self.next_gap += 1;
        let until = now() + Duration::from_secs(1);
        assert!(
            self.sender.request_copies(gap, Some(name(after)), name(before), until, now()),
            "no proxy keeps copies"
        );
        gap
    }

    /// Waits until the proxy keeps copies. The proxy grants them only after it has opened a capture
    /// for them, so it has copies of the first datagrams that pass from then on.
    pub fn begin(&mut self, server: &UdpSocket) {
        self.send(0, &[0x41; 100]);
        self.run_until("kept", |client| client.sender.is_kept());
        let three = [0, 1, 2].map(|n| numbered(0x7000_0000 + n, 100));
        for datagram in &three {
            server.send_to(datagram, self.address()).unwrap();
        }
        self.run_until("arrived", |client| client.arrived.contains(&three[2]));
        let gap = self.request(&three[0], &three[2]);
        self.run_until("copied", |client| client.copies.contains(&three[1]));
        self.sender.close_gap(gap);
        self.arrived.clear();
        self.copies.clear();
    }
}

/// The identifier of a datagram of the reverse flow.
pub fn name(datagram: &[u8]) -> u32 {
    u32::from_be_bytes(*datagram.last_chunk().unwrap())
}

/// A datagram of this length, which ends with its number.
pub fn numbered(number: u32, len: usize) -> Vec<u8> {
    let mut datagram: Vec<u8> =
        (0..len).map(|n| n.to_le_bytes()[0].wrapping_mul(31) ^ 0x41).collect();
    datagram[0] = 0x41;
    datagram[len - 4..].copy_from_slice(&number.to_be_bytes());
    datagram
}

#[allow(clippy::disallowed_methods, reason = "a client in real time")]
pub fn now() -> Instant {
    Instant::now()
}
