//! The client of a transfer.

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use quinn::{Endpoint, EndpointConfig, SendStream, TokioRuntime};
use sidekick_socket::{Assistance, Config, quinn::Runtime};

use crate::network::{IS_COUNTED, Network, PROXY};
use crate::relay::{LOCAL, now, trusting};
use crate::{PLAIN, PROXIED, report};

/// Sends so many bytes, and ends the stream.
pub(crate) async fn send(stream: &mut SendStream, mut bytes: u64) {
    let zeros = vec![0; 1 << 16];
    while bytes > 0 {
        let len = usize::try_from(bytes).unwrap().min(zeros.len());
        stream.write_all(&zeros[..len]).await.unwrap();
        bytes -= len as u64;
    }
    stream.finish().unwrap();
}

/// Sends so many bytes, asks the server for others, and waits until all have arrived.
pub(crate) async fn exchange(connection: &quinn::Connection, sent: u64, asked: u64) {
    let (mut sending, mut receiving) = connection.open_bi().await.unwrap();
    sending.write_all(&asked.to_be_bytes()).await.unwrap();
    send(&mut sending, sent).await;
    let mut got = 0;
    while let Some(chunk) = receiving.read_chunk(1 << 20, true).await.unwrap() {
        got += chunk.bytes.len() as u64;
    }
    assert_eq!(got, asked + 1);
}

pub(crate) fn transfer(below: &str, way: &str, bytes: u64, server: SocketAddr, certificate: &str) {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _guard = tokio.enter();
    let (network, counts) = Network::over(Arc::new(TokioRuntime), below == PROXIED);
    let config = Config { proxy: (below == PROXIED).then_some(PROXY), ..Config::default() };
    let help = Arc::new(Runtime::over(Arc::clone(&network), config));
    let runtime = if below == PLAIN { network } else { Arc::<Runtime>::clone(&help) };
    let socket = std::net::UdpSocket::bind(LOCAL).unwrap();
    let endpoint = Endpoint::new(EndpointConfig::default(), None, socket, runtime).unwrap();
    let connecting = endpoint.connect_with(
        trusting(std::fs::read(certificate).unwrap().into()),
        server,
        "localhost",
    );
    let connection = tokio.block_on(connecting.unwrap()).unwrap();
    // The search for a proxy, and the controller's start, are not what it costs in the long run.
    tokio.block_on(exchange(&connection, 1 << 20, 1 << 20));
    counts.reset();
    let packets = || {
        let stats = connection.stats();
        stats.udp_tx.datagrams + stats.udp_rx.datagrams
    };
    let (sent, asked) = if way == "up" { (bytes, 0) } else { (0, bytes) };
    let (before, start) = (packets(), now());
    counted_work(&mut || tokio.block_on(exchange(&connection, sent, asked)));
    let seconds = start.elapsed().as_secs_f64();
    let helped = help.status().into_iter().next().map(|flow| flow.assistance);
    assert_eq!(helped == Some(Assistance::Assisted), below == PROXIED, "{helped:?}");
    let [sent, received] = counts.at_once();
    let goodput = bytes as f64 * 8.0 / 1e6 / seconds;
    report(&[goodput, sent, received, (packets() - before) as f64]);
}

#[inline(never)]
fn counted_work(work: &mut dyn FnMut()) {
    IS_COUNTED.store(true, Relaxed);
    black_box(work)();
    IS_COUNTED.store(false, Relaxed);
}
