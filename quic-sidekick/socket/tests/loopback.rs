//! Real sockets on loopback, with a path between them that loses datagrams, and a proxy on it.
#![cfg(all(feature = "quinn", feature = "tokio"))]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use quinn::{ClientConfig, Endpoint, ServerConfig};
use rustls::RootCertStore;
use sidekick_protocol::{Flow, MAX_DATAGRAM_LEN, Observer, ObserverConfig, Payload, Route};
use sidekick_socket::{Assistance, Config, quinn::Runtime};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;
use tokio::time::{sleep_until, timeout};

const LOCAL: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);
/// One way behind the proxy.
const FAR: Duration = Duration::from_millis(15);
/// The near segment loses one datagram of so many, out and in.
const LOSES: [u32; 2] = [13, 17];
/// How long a test may take.
const PATIENCE: Duration = Duration::from_secs(60);

#[allow(clippy::disallowed_methods, reason = "the edge of a test with real sockets")]
fn now() -> Instant {
    Instant::now()
}

/// A path to a server.
struct Path {
    /// Where it begins, for the client.
    address: SocketAddr,
    /// The proxy's port.
    proxy: SocketAddr,
    task: JoinHandle<()>,
}

impl Path {
    async fn to(server: SocketAddr) -> Self {
        let [front, back, port] = [
            UdpSocket::bind(LOCAL).await,
            UdpSocket::bind(LOCAL).await,
            UdpSocket::bind(LOCAL).await,
        ]
        .map(Result::unwrap);
        back.connect(server).await.unwrap();
        let [address, proxy] = [&front, &port].map(|socket| socket.local_addr().unwrap());
        Self { address, proxy, task: tokio::spawn(relay(front, back, port)) }
    }

    fn config(&self) -> Config {
        Config { proxy: Some(self.proxy), ..Config::default() }
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Carries datagrams between a client at `front` and a server at `back`, beside a proxy at `port`.
async fn relay(front: UdpSocket, back: UdpSocket, port: UdpSocket) {
    let terms = ObserverConfig { keep_bytes: 64 << 20, ..ObserverConfig::default() };
    let mut proxy = Observer::new(terms, [3; 32]).unwrap();
    let here = front.local_addr().unwrap();
    let mut client = here;
    let mut far: [VecDeque<(Instant, Vec<u8>)>; 2] = Default::default();
    let mut passed = [0; 2];
    let mut loses = |way: usize| {
        passed[way] += 1;
        passed[way] % LOSES[way] == 0
    };
    let (mut out, mut back_in, mut message) = ([0; 2048], [0; 2048], [0; 2048]);
    loop {
        let due = far.iter().filter_map(|queue| queue.front()).map(|(at, _)| *at);
        let due = due.chain(proxy.poll_timeout()).min().unwrap_or(now() + PATIENCE);
        tokio::select! {
            biased;
            received = front.recv_from(&mut out) => {
                let (len, from) = received.unwrap();
                client = from;
                if !loses(0) {
                    let flow = Flow { source: from, destination: here };
                    proxy.observe(&flow, 0, Payload::whole(&out[..len]), now());
                    far[0].push_back((now() + FAR, out[..len].to_vec()));
                }
            }
            Ok(len) = back.recv(&mut back_in) => {
                far[1].push_back((now() + FAR, back_in[..len].to_vec()));
            }
            received = port.recv_from(&mut message) => {
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
            let _ = back.send(&datagram).await;
        }
        while is_due(&far[1]) {
            let (_, datagram) = far[1].pop_front().unwrap();
            proxy.keep(&Flow { source: here, destination: client }, 0, &datagram, now());
            if !loses(1) {
                front.send_to(&datagram, client).await.unwrap();
            }
        }
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        while let Some(transmit) = proxy.poll_transmit(&mut buffer) {
            let socket = match transmit.route {
                Route::Path { .. } => &front,
                Route::Session | Route::Stranger { .. } => &port,
            };
            if !loses(1) {
                let _ = socket.send_to(&buffer[..transmit.size], transmit.destination).await;
            }
        }
    }
}

/// A datagram that looks like one of QUIC.
fn datagram(number: u32) -> Vec<u8> {
    let first = if number == 0 { 0xc3 } else { 0x41 };
    let tag = number.wrapping_mul(0x9e37_79b9).to_be_bytes();
    [&[first, 0, 0, 0, 1][..], &number.to_be_bytes(), &[7; 100], &tag].concat()
}

/// Sends datagrams by a socket to one that echoes, and checks that nearly all come back.
async fn echoed(path: &Path, echo: UdpSocket, socket: sidekick_socket::tokio::UdpSocket) {
    const SENT: u32 = 2000;
    let echoes = tokio::spawn(async move {
        let mut buffer = [0; 2048];
        loop {
            let (len, from) = echo.recv_from(&mut buffer).await.unwrap();
            echo.send_to(&buffer[..len], from).await.unwrap();
        }
    });
    let socket = Arc::new(socket);
    let (sending, to) = (Arc::clone(&socket), path.address);
    let sends = tokio::spawn(async move {
        let mut every = tokio::time::interval(Duration::from_millis(1));
        for number in 0..SENT {
            every.tick().await;
            sending.send_to(&datagram(number), to).await.unwrap();
        }
    });
    let (mut buffer, mut got) = ([0; 2048], 0);
    while let Ok(received) = timeout(Duration::from_secs(1), socket.recv_from(&mut buffer)).await {
        assert_eq!(received.unwrap().1, to);
        got += 1;
    }
    sends.await.unwrap();
    echoes.abort();
    let status = socket.status().remove(0);
    assert_eq!(status.assistance, Assistance::Assisted, "{status:?}");
    // Without help, 13 % of them are lost.
    assert!(
        got > SENT * 97 / 100 && status.resent > 50 && status.delivered > 50,
        "{got} {status:?}"
    );
}

#[tokio::test]
async fn datagrams_by_tokio() {
    let echo = UdpSocket::bind(LOCAL).await.unwrap();
    let path = Path::to(echo.local_addr().unwrap()).await;
    let socket = std::net::UdpSocket::bind(LOCAL).unwrap();
    let socket = sidekick_socket::tokio::UdpSocket::wrap(socket, path.config()).unwrap();
    timeout(PATIENCE, echoed(&path, echo, socket)).await.unwrap();
}

/// Both ends of quinn, whose certificate is for localhost.
fn tls() -> (ServerConfig, ClientConfig) {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    let certificate = own.cert.der().clone();
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let server = ServerConfig::with_single_cert(vec![certificate], key.into()).unwrap();
    (server, ClientConfig::with_root_certificates(Arc::new(roots)).unwrap())
}

#[tokio::test]
async fn a_transfer_by_quinn_both_ways() {
    const BYTES: usize = 2 << 20;
    let (server_tls, client_tls) = tls();
    let server = Endpoint::server(server_tls, LOCAL.into()).unwrap();
    let path = Path::to(server.local_addr().unwrap()).await;
    let serves = tokio::spawn(async move {
        let connection = server.accept().await.unwrap().await.unwrap();
        let (mut sending, mut receiving) = connection.accept_bi().await.unwrap();
        let got = receiving.read_to_end(BYTES).await.unwrap();
        sending.write_all(&got).await.unwrap();
        sending.finish().unwrap();
        connection.closed().await;
    });
    let help = Arc::new(Runtime::new(path.config()).unwrap());
    let socket = std::net::UdpSocket::bind(LOCAL).unwrap();
    let runtime = Arc::<Runtime>::clone(&help);
    let client = Endpoint::new(Default::default(), None, socket, runtime).unwrap();
    let transfer = async {
        let connecting = client.connect_with(client_tls, path.address, "localhost").unwrap();
        let connection = connecting.await.unwrap();
        let (mut sending, mut receiving) = connection.open_bi().await.unwrap();
        let content: Vec<u8> = (0..=250).cycle().take(BYTES).collect();
        sending.write_all(&content).await.unwrap();
        sending.finish().unwrap();
        assert!(receiving.read_to_end(BYTES).await.unwrap() == content);
        let lost = connection.stats().path.lost_packets;
        connection.close(0_u8.into(), b"");
        lost
    };
    let lost = timeout(PATIENCE, transfer).await.unwrap();
    let status = help.status().remove(0);
    assert_eq!(status.assistance, Assistance::Assisted, "{status:?}");
    assert!(status.resent > 50 && status.delivered > 50, "{status:?}");
    assert!(lost < status.lost / 2, "quinn found {lost} lost: {status:?}");
    client.wait_idle().await;
    serves.await.unwrap();
}

/// The socket of the standard library never blocks, and its status names the reason without a
/// proxy.
#[test]
fn a_plain_socket_without_a_proxy() {
    let peer = std::net::UdpSocket::bind(LOCAL).unwrap();
    let socket = sidekick_socket::UdpSocket::bind(LOCAL).unwrap();
    socket.send_to(b"hello", peer.local_addr().unwrap()).unwrap();
    let mut buffer = [0; 2048];
    let (len, from) = peer.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..len], from), (&b"hello"[..], socket.local_addr().unwrap()));
    let nothing = socket.recv_from(&mut buffer).unwrap_err();
    assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
    let status = socket.status().remove(0);
    assert_eq!(status.to_string(), Assistance::Seeking.to_string());
    static DONE: AtomicBool = AtomicBool::new(false);
    std::thread::spawn(move || {
        while !DONE.load(Ordering::Relaxed) {
            let _ = peer.send_to(b"again", from);
        }
    });
    while socket.recv_from(&mut buffer).is_err() {}
    DONE.store(true, Ordering::Relaxed);
    let connected = std::net::UdpSocket::bind(LOCAL).unwrap();
    connected.connect(from).unwrap();
    let refused = sidekick_socket::UdpSocket::wrap(connected, Config::default()).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
}
