//! A server, plain or with help, and a thousand clients.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use quinn::{ClientConfig, Connection, Endpoint, EndpointConfig, TokioRuntime, TransportConfig};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sidekick_socket::{Assistance, Config, quinn::Runtime};
use tokio::io::AsyncReadExt as _;
use tokio::task::JoinSet;

use crate::relay::{LOCAL, Path, tls, trusting};
use crate::transfer::{exchange, send};
use crate::{PLAIN, SOCKET, Served, report};

const CLIENTS: usize = 1000;
/// How many begin at once.
const WAVE: usize = 50;
/// Those of them that reach the server past a proxy.
const BEHIND: usize = 10;
/// What each sends, and what it asks for.
const BYTES: [u64; 2] = [20_000, 200_000];

/// Serves until standard input ends. Then it reports its memory in MiB, the processor time in ms,
/// and how many flows have help.
pub(crate) fn serve(below: &str) {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let files = tempfile::tempdir().unwrap();
    tokio.block_on(async {
        let (config, certificate) = tls();
        let path = files.path().join("certificate");
        std::fs::write(&path, certificate).unwrap();
        let socket = UdpSocket::bind(LOCAL).unwrap();
        let help = Arc::new(Runtime::new(Config::default()).unwrap());
        let runtime: Arc<dyn quinn::Runtime> =
            if below == PLAIN { Arc::new(TokioRuntime) } else { Arc::<Runtime>::clone(&help) };
        let endpoint =
            Endpoint::new(EndpointConfig::default(), Some(config), socket, runtime).unwrap();
        println!("{} {}", endpoint.local_addr().unwrap(), path.display());
        let accepting = endpoint.clone();
        tokio::spawn(async move {
            while let Some(incoming) = accepting.accept().await {
                tokio::spawn(async move { answer(incoming.await.unwrap()).await });
            }
        });
        let mut until = Vec::new();
        tokio::io::stdin().read_to_end(&mut until).await.unwrap();
        let flows = help.status().into_iter();
        let helped = flows.filter(|flow| flow.assistance == Assistance::Assisted).count();
        let (memory, ticks) = usage();
        report(&[memory, ticks, helped as f64]);
    });
}

/// Sends what a client asks for, and one byte more once everything has arrived.
async fn answer(connection: Connection) {
    while let Ok((mut sending, mut receiving)) = connection.accept_bi().await {
        let mut asked = [0; 8];
        receiving.read_exact(&mut asked).await.unwrap();
        while receiving.read_chunk(1 << 20, true).await.unwrap().is_some() {}
        send(&mut sending, u64::from_be_bytes(asked) + 1).await;
    }
}

/// This process's greatest memory in MiB, and its processor time in ms.
fn usage() -> (f64, f64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kibibytes: f64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    let times = std::fs::read_to_string("/proc/self/schedstat").unwrap();
    let nanoseconds: f64 = times.split_whitespace().next().unwrap().parse().unwrap();
    (kibibytes / 1024.0, nanoseconds / 1e6)
}

/// A connection over which a client has sent and received what it wanted.
async fn exchanged(mut config: ClientConfig, server: SocketAddr) -> Connection {
    let mut transport = TransportConfig::default();
    transport.max_idle_timeout(None);
    config.transport_config(Arc::new(transport));
    let endpoint = Endpoint::client(LOCAL.into()).unwrap();
    let connecting = endpoint.connect_with(config, server, "localhost").unwrap();
    let connection = connecting.await.unwrap();
    exchange(&connection, BYTES[0], BYTES[1]).await;
    connection
}

/// What a server reports that has served a thousand clients, all connected at once.
pub(crate) fn with_clients(below: &str) -> Vec<f64> {
    // Each client has a socket.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = Served::start(below);
    let address = server.address.parse().unwrap();
    let config = trusting(std::fs::read(&server.certificate).unwrap().into());
    tokio.block_on(async {
        let mut paths = Vec::new();
        for _ in 0..BEHIND {
            paths.push(Path::begin([Some(address), None]).await);
        }
        let mut connected = Vec::new();
        for wave in (0..CLIENTS).step_by(WAVE) {
            let mut clients = JoinSet::new();
            for number in wave..wave + WAVE {
                let behind = number.checked_sub(CLIENTS - BEHIND);
                let to = behind.and_then(|at| paths.get(at)).map_or(address, |path| path.address);
                clients.spawn(exchanged(config.clone(), to));
            }
            connected.extend(clients.join_all().await);
        }
        let reported = server.end();
        let helped = if below == SOCKET { BEHIND } else { 0 };
        assert_eq!(reported[2].to_string(), helped.to_string());
        drop(connected);
        reported
    })
}
