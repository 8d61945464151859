//! A path between the two programs: a near segment that loses packets, a Sidekick proxy, and a long
//! far segment.

use std::collections::VecDeque;
use std::future::pending;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use sidekick_protocol::{
    Addresses, Flow, MAX_DATAGRAM_LEN, Observer, ObserverConfig, Payload, Route,
};
use tokio::net::UdpSocket;
use tokio::runtime::Runtime;

/// The one-way delay of the far segment, so that the proxy reports well before the receiver.
const FAR: Duration = Duration::from_millis(25);
/// The first packets, of the handshake and the beginning of assistance, are not lost.
const SPARED: u64 = 30;

/// A running path. It ends when dropped.
pub(crate) struct Relay {
    /// The server's port, for the client.
    pub(crate) port: u16,
    pub(crate) proxy: SocketAddr,
    _runtime: Runtime,
}

impl Relay {
    /// Starts a path to the server at this port, whose near segment loses every `nth` packet of the
    /// client.
    pub(crate) fn start(server: u16, nth: u64) -> Self {
        Self::with_losses(server, Some(nth), None)
    }

    /// Starts a path to the server at this port, whose near segment loses every `nth` packet of the
    /// server. The proxy keeps copies.
    pub(crate) fn for_downloads(server: u16, nth: u64) -> Self {
        Self::with_losses(server, None, Some(nth))
    }

    fn with_losses(server: u16, up: Option<u64>, down: Option<u64>) -> Self {
        let runtime = Runtime::new().unwrap();
        let local = (Ipv4Addr::LOCALHOST, 0);
        let (near, far, adjacent) = runtime.block_on(async {
            let far = UdpSocket::bind(local).await.unwrap();
            far.connect((Ipv4Addr::LOCALHOST, server)).await.unwrap();
            (UdpSocket::bind(local).await.unwrap(), far, UdpSocket::bind(local).await.unwrap())
        });
        let port = near.local_addr().unwrap().port();
        let proxy = adjacent.local_addr().unwrap();
        let config = ObserverConfig { keep_bytes: 64 << 20, ..ObserverConfig::default() };
        let mut observer = Observer::new(config, [7; 32]).unwrap();
        // A proxy proves the path by an answer along it, which names an address.
        observer.set_addresses(Addresses::announcing(0, proxy));
        let path = Path {
            near,
            far,
            adjacent,
            observer,
            up: Losses { nth: up, packets: 0 },
            down: Losses { nth: down, packets: 0 },
            client: None,
            flying: VecDeque::new(),
        };
        runtime.spawn(path.run());
        Self { port, proxy, _runtime: runtime }
    }
}

/// The losses of the near segment in one direction.
struct Losses {
    nth: Option<u64>,
    packets: u64,
}

impl Losses {
    fn loses(&mut self, datagram: &[u8]) -> bool {
        self.packets += 1;
        let short_header = datagram[0] & 0x80 == 0;
        let nth = self.nth.is_some_and(|nth| self.packets.is_multiple_of(nth));
        short_header && self.packets > SPARED && nth
    }
}

struct Path {
    near: UdpSocket,
    far: UdpSocket,
    adjacent: UdpSocket,
    observer: Observer,
    up: Losses,
    down: Losses,
    client: Option<SocketAddr>,
    /// Datagrams on the far segment: arrival time, whether the server receives it, and bytes.
    flying: VecDeque<(Instant, bool, Vec<u8>)>,
}

impl Path {
    async fn run(mut self) {
        let (mut up, mut down, mut message) = ([0; 2048], [0; 2048], [0; 2048]);
        loop {
            let deadline = self.observer.poll_timeout();
            tokio::select! {
                Ok((len, from)) = self.near.recv_from(&mut up) => self.forward(&up[..len], from),
                // An error is an ICMP message about a peer that ended.
                Ok(len) = self.far.recv(&mut down) => {
                    self.flying.push_back((now() + FAR, false, down[..len].to_vec()));
                }
                Ok((len, from)) = self.adjacent.recv_from(&mut message) => {
                    let _ = self.observer.handle_input(from, &message[..len], now());
                }
                () = until(deadline) => self.observer.on_timeout(now()),
                () = until(self.flying.front().map(|(arrives, ..)| *arrives)) => self.arrive().await,
            }
            let mut out = [0; MAX_DATAGRAM_LEN];
            while let Some(transmit) = self.observer.poll_transmit(&mut out) {
                let socket = match transmit.route {
                    // A datagram that must come along the path has the server's address as its
                    // source.
                    Route::Path { .. } => &self.near,
                    Route::Session | Route::SecondLink | Route::Stranger { .. } => &self.adjacent,
                };
                let _ = socket.send_to(&out[..transmit.size], transmit.destination).await;
            }
        }
    }

    fn forward(&mut self, datagram: &[u8], from: SocketAddr) {
        self.client = Some(from);
        if self.up.loses(datagram) {
            return;
        }
        let flow = Flow { source: from, destination: self.near.local_addr().unwrap() };
        self.observer.observe(&flow, 0, Payload::whole(datagram), now());
        self.flying.push_back((now() + FAR, true, datagram.to_vec()));
    }

    async fn arrive(&mut self) {
        let Some((_, at_server, datagram)) = self.flying.pop_front() else { return };
        let Some(client) = self.client.filter(|_| !at_server) else {
            let _ = self.far.send(&datagram).await;
            return;
        };
        let flow = Flow { source: self.near.local_addr().unwrap(), destination: client };
        self.observer.keep(&flow, 0, &datagram, now());
        if !self.down.loses(&datagram) {
            let _ = self.near.send_to(&datagram, client).await;
        }
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => pending().await,
    }
}

#[allow(clippy::disallowed_methods, reason = "the programs at both ends run on the real clock")]
fn now() -> Instant {
    Instant::now()
}
