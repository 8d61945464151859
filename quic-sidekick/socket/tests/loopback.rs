//! Real sockets on loopback, with a path between them that loses datagrams, and a proxy on it.
#![cfg(all(feature = "quinn", feature = "tokio"))]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod relay;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quinn::Endpoint;
use relay::{LOCAL, PATIENCE, Path, tls, trusting};
use rustls::pki_types::CertificateDer;
use sidekick_socket::{Assistance, Config, FlowStatus, quinn::Runtime};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// What a transfer has, each way.
const BYTES: usize = 2 << 20;

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
    let path = Path::begin([None, Some(echo.local_addr().unwrap())]).await;
    let socket = std::net::UdpSocket::bind(LOCAL).unwrap();
    let socket = sidekick_socket::tokio::UdpSocket::wrap(socket, path.config()).unwrap();
    timeout(PATIENCE, echoed(&path, echo, socket)).await.unwrap();
}

/// A server that echoes a stream of [`BYTES`].
fn echo_server() -> (Endpoint, CertificateDer<'static>, JoinHandle<()>) {
    let (config, certificate) = tls();
    let server = Endpoint::server(config, LOCAL.into()).unwrap();
    let accepting = server.clone();
    let serves = tokio::spawn(async move {
        let connection = accepting.accept().await.unwrap().await.unwrap();
        let (mut sending, mut receiving) = connection.accept_bi().await.unwrap();
        let got = receiving.read_to_end(BYTES).await.unwrap();
        sending.write_all(&got).await.unwrap();
        sending.finish().unwrap();
        connection.closed().await;
    });
    (server, certificate, serves)
}

/// Echoes [`BYTES`] over a path with a proxy, from another socket after half of them if the client
/// `migrates`. Returns the help's status, and the packets that quinn took for lost.
async fn transfer(migrates: bool) -> (FlowStatus, u64) {
    let (server, certificate, serves) = echo_server();
    let path = Path::begin([None, Some(server.local_addr().unwrap())]).await;
    let help = Arc::new(Runtime::new(path.config()).unwrap());
    let socket = || std::net::UdpSocket::bind(LOCAL).unwrap();
    let runtime = Arc::<Runtime>::clone(&help);
    let client = Endpoint::new(Default::default(), None, socket(), runtime).unwrap();
    let connecting = client.connect_with(trusting(certificate), path.address, "localhost");
    let connection = connecting.unwrap().await.unwrap();
    let (mut sending, mut receiving) = connection.open_bi().await.unwrap();
    let content: Vec<u8> = (0..=250).cycle().take(BYTES).collect();
    let (first, second) = content.split_at(BYTES / 2);
    sending.write_all(first).await.unwrap();
    if migrates {
        client.rebind(socket()).unwrap();
    }
    sending.write_all(second).await.unwrap();
    sending.finish().unwrap();
    assert!(receiving.read_to_end(BYTES).await.unwrap() == content);
    let lost = connection.stats().path.lost_packets;
    connection.close(0_u8.into(), b"");
    client.wait_idle().await;
    serves.await.unwrap();
    // The latest socket is the last.
    (help.status().pop().unwrap(), lost)
}

#[tokio::test]
async fn a_transfer_by_quinn_both_ways() {
    let (status, lost) = timeout(PATIENCE, transfer(false)).await.unwrap();
    assert_eq!(status.assistance, Assistance::Assisted, "{status:?}");
    assert!(status.resent > 50 && status.delivered > 50, "{status:?}");
    assert!(lost < status.lost / 2, "quinn found {lost} lost: {status:?}");
}

/// The help starts again at the second socket, and the status is that one's.
#[tokio::test]
async fn a_transfer_by_quinn_that_migrates() {
    let (status, _) = timeout(PATIENCE, transfer(true)).await.unwrap();
    assert_eq!(status.assistance, Assistance::Assisted, "{status:?}");
    assert!(status.resent > 20 && status.delivered > 20, "{status:?}");
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
