//! A path on loopback, with a proxy on it.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::{ClientConfig, ServerConfig};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use sidekick_protocol::{
    Addresses, Flow, MAX_DATAGRAM_LEN, Observer, ObserverConfig, Payload, Route,
};
use sidekick_socket::Config;
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;
use tokio::time::sleep_until;

pub(crate) const LOCAL: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);
/// One way behind the proxy.
const FAR: Duration = Duration::from_millis(15);
/// The near segment loses one datagram of so many, out and in.
const LOSES: [u32; 2] = [13, 17];
/// How long a test may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The number of the proxy's interface.
const INTERFACE: u32 = 0;
/// The near end of a path, and its far end.
const NEAR: usize = 0;
const BEYOND: usize = 1;

#[allow(clippy::disallowed_methods, reason = "the edge of a test with real sockets")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// A path to a server.
pub(crate) struct Path {
    /// Where it begins, for the client.
    pub(crate) address: SocketAddr,
    /// The proxy's port.
    proxy: SocketAddr,
    task: JoinHandle<()>,
}

impl Path {
    /// A path between the proxy's end and the far one, of which the client's address is not known.
    pub(crate) async fn begin(ends: [Option<SocketAddr>; 2]) -> Self {
        let [near, beyond, port] = [
            UdpSocket::bind(LOCAL).await,
            UdpSocket::bind(LOCAL).await,
            UdpSocket::bind(LOCAL).await,
        ]
        .map(Result::unwrap);
        let client = if ends[NEAR].is_none() { &near } else { &beyond };
        let [address, proxy] = [client, &port].map(|socket| socket.local_addr().unwrap());
        Self { address, proxy, task: tokio::spawn(relay([near, beyond], port, ends)) }
    }

    #[allow(dead_code, reason = "a test's")]
    pub(crate) fn config(&self) -> Config {
        Config { proxy: Some(self.proxy), ..Config::default() }
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Carries datagrams between both ends, beside a proxy at `port`. An end that is not known is that
/// of the first datagram.
async fn relay(sockets: [UdpSocket; 2], port: UdpSocket, mut ends: [Option<SocketAddr>; 2]) {
    let terms = ObserverConfig { keep_bytes: 64 << 20, ..ObserverConfig::default() };
    let mut proxy = Observer::new(terms, [3; 32]).unwrap();
    let announced = vec![(INTERFACE, port.local_addr().unwrap())];
    let loopback = vec![INTERFACE];
    proxy.set_addresses(Addresses { announced, loopback, ..Addresses::default() });
    let here = sockets[NEAR].local_addr().unwrap();
    let mut far: [VecDeque<(Instant, Vec<u8>)>; 2] = Default::default();
    let mut passed = [0; 2];
    let mut loses = |way: usize| {
        passed[way] += 1;
        passed[way] % LOSES[way] == 0
    };
    let mut buffers = [[0; 2048]; 3];
    let [out, back, message] = &mut buffers;
    loop {
        let due = far.iter().filter_map(|queue| queue.front()).map(|(at, _)| *at);
        let due = due.chain(proxy.poll_timeout()).min().unwrap_or(now() + PATIENCE);
        tokio::select! {
            biased;
            Ok((len, from)) = sockets[NEAR].recv_from(out) => {
                ends[NEAR] = Some(from);
                if !loses(0) {
                    let flow = Flow { source: from, destination: here };
                    proxy.observe(&flow, INTERFACE, Payload::whole(&out[..len]), now());
                    far[0].push_back((now() + FAR, out[..len].to_vec()));
                }
            }
            Ok((len, from)) = sockets[BEYOND].recv_from(back) => {
                ends[BEYOND] = Some(from);
                far[1].push_back((now() + FAR, back[..len].to_vec()));
            }
            received = port.recv_from(message) => {
                let (len, from) = received.unwrap();
                if !loses(0) {
                    let _ = proxy.handle_input(from, &message[..len], now());
                }
            }
            () = sleep_until(due.into()) => proxy.on_timeout(now()),
        }
        let is_due = |queue: &VecDeque<(Instant, _)>| queue.front().is_some_and(|it| it.0 <= now());
        while is_due(&far[0]) {
            let (_, datagram) = far[0].pop_front().unwrap();
            if let Some(end) = ends[BEYOND] {
                let _ = sockets[BEYOND].send_to(&datagram, end).await;
            }
        }
        while is_due(&far[1]) {
            let (_, datagram) = far[1].pop_front().unwrap();
            let Some(end) = ends[NEAR] else { continue };
            proxy.keep(&Flow { source: here, destination: end }, INTERFACE, &datagram, now());
            if !loses(1) {
                let _ = sockets[NEAR].send_to(&datagram, end).await;
            }
        }
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        while let Some(transmit) = proxy.poll_transmit(&mut buffer) {
            let socket = match transmit.route {
                Route::Path { .. } => &sockets[NEAR],
                Route::Session | Route::SecondLink | Route::Stranger { .. } => &port,
            };
            if !loses(1) {
                let _ = socket.send_to(&buffer[..transmit.size], transmit.destination).await;
            }
        }
    }
}

/// The settings of a server for localhost, and its certificate.
pub(crate) fn tls() -> (ServerConfig, CertificateDer<'static>) {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    let certificate = own.cert.der().clone();
    (ServerConfig::with_single_cert(vec![certificate.clone()], key.into()).unwrap(), certificate)
}

/// The settings of a client that trusts this certificate.
pub(crate) fn trusting(certificate: CertificateDer<'static>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    ClientConfig::with_root_certificates(Arc::new(roots)).unwrap()
}
