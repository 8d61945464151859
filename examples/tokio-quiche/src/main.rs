//! `tokio-quiche-client`: downloads a file by tokio-quiche's own HTTP/3 client, and prints what it
//! received. The lines with `sidekick` and `tuned` are all that the plugin takes, and `helped` is
//! all that the socket does.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Instant;

use anyhow::{Context as _, anyhow, bail};
use clap::{Parser, ValueEnum};
use quic_sidekick::tokio_quiche::assist;
use quic_sidekick::tune::Tune;
use quic_sidekick::{Assistance, Config, Mode};
use sha2::{Digest as _, Sha256};
use sidekick_socket::datagram_socket::Connected;
use tokio::net::UdpSocket;
use tokio_quiche::http3::driver::{
    ClientH3Controller, ClientH3Driver, ClientH3Event, H3Event, InboundFrame, IncomingH3Headers,
    NewClientRequest,
};
use tokio_quiche::http3::settings::Http3Settings;
use tokio_quiche::quic::connect_with_config;
use tokio_quiche::quiche::h3::Header;
use tokio_quiche::socket::{Socket, SocketCapabilities, SocketCapabilitiesBuilder};
use tokio_quiche::{BoxError, ConnectionParams};

/// Download a file by tokio-quiche's own HTTP/3 client, and print a line of JSON
///
/// BoringSSL trusts the certificates of the system, or of the file that SSL_CERT_FILE names.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    /// The server
    #[arg(long, value_name = "ADDRESS:PORT")]
    server: SocketAddr,
    /// The server's name, which its certificate must have
    #[arg(long)]
    name: String,
    /// What gets help from proxies on the path: quiche, by the plugin, or the UDP socket
    #[arg(long, value_name = "WHAT", default_value = "plugin")]
    sidekick: Help,
    /// The path of the file
    path: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Help {
    Plugin,
    Socket,
}

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(download(&Cli::parse()))
}

#[allow(clippy::disallowed_methods, reason = "a program's edge: it reads the real clock")]
fn now() -> Instant {
    Instant::now()
}

async fn download(cli: &Cli) -> anyhow::Result<()> {
    let (driver, controller) = ClientH3Driver::new(Http3Settings::default());
    let mut params = ConnectionParams::default();
    params.settings.verify_peer = true;
    let began = now();
    match cli.sidekick {
        Help::Plugin => {
            let tuned = Tune::client().choose();
            let mode = tuned.mode().unwrap_or(Mode::Auto);
            let (driver, sidekick) = assist(driver, Config::discover(mode));
            tuned.apply_to_settings(&mut params.settings);
            let socket = socket(cli.server).await?;
            let connecting = connect_with_config(socket, Some(&cli.name), &params, driver);
            let _connection = sidekick.connect(tuned.connect(connecting)).await.map_err(refused)?;
            let file = fetch(cli, controller).await?;
            let status = sidekick.status();
            report(&file, began, status.assistance, status.stats.repeats_received);
        }
        Help::Socket => {
            let socket = sidekick_socket::tokio::UdpSocket::bind(any(cli.server)).await?;
            let helped = Connected::new(socket, cli.server);
            let socket = Socket {
                send: helped.clone(),
                recv: helped.clone(),
                local_addr: helped.local_addr()?,
                peer_addr: cli.server,
                capabilities: SocketCapabilities::default(),
            };
            let connecting = connect_with_config(socket, Some(&cli.name), &params, driver);
            let _connection = connecting.await.map_err(refused)?;
            let file = fetch(cli, controller).await?;
            for status in helped.status() {
                report(&file, began, status.assistance, status.delivered);
            }
        }
    }
    Ok(())
}

fn refused(error: BoxError) -> anyhow::Error {
    anyhow!("cannot connect: {error}")
}

/// What arrived of a file.
#[derive(Default)]
struct File {
    bytes: usize,
    hash: Sha256,
}

async fn fetch(cli: &Cli, mut controller: ClientH3Controller) -> anyhow::Result<File> {
    let headers = vec![
        Header::new(b":method", b"GET"),
        Header::new(b":scheme", b"https"),
        Header::new(b":authority", cli.name.as_bytes()),
        Header::new(b":path", cli.path.as_bytes()),
    ];
    let request = NewClientRequest { request_id: 0, headers, body_writer: None };
    controller.request_sender().send(request).ok().context("the connection has ended")?;
    let mut body = loop {
        match controller.event_receiver_mut().recv().await {
            Some(ClientH3Event::Core(H3Event::IncomingHeaders(IncomingH3Headers {
                recv, ..
            }))) => break recv,
            Some(ClientH3Event::Core(
                H3Event::ResetStream { .. } | H3Event::ConnectionError(_),
            ))
            | None => bail!("the server sent no answer"),
            Some(_) => {}
        }
    };
    let (mut file, mut whole) = (File::default(), false);
    while !whole && let Some(frame) = body.recv().await {
        let InboundFrame::Body(piece, last) = frame else { continue };
        file.hash.update(&piece);
        file.bytes += piece.len();
        whole = last;
    }
    if !whole {
        bail!("the connection ended after {} bytes", file.bytes);
    }
    Ok(file)
}

fn report(file: &File, began: Instant, assistance: Assistance, repeats: u64) {
    let seconds = (now() - began).as_secs_f64();
    let hash = file.hash.clone().finalize();
    let sha256: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let report = serde_json::json!({
        "bytes": file.bytes,
        "sha256": sha256,
        "goodput_mbit_s": file.bytes as f64 * 8.0 / seconds / 1e6,
        "assisted": assistance == Assistance::Assisted,
        "repeats_received": repeats,
    });
    println!("{report}");
}

/// Any address of the server's family.
fn any(server: SocketAddr) -> SocketAddr {
    match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

async fn socket(
    server: SocketAddr,
) -> anyhow::Result<Socket<std::sync::Arc<UdpSocket>, std::sync::Arc<UdpSocket>>> {
    let udp = UdpSocket::bind(any(server)).await?;
    udp.connect(server).await.context("there is no route to the server")?;
    let mut capabilities = SocketCapabilitiesBuilder::new(&udp);
    // tokio-quiche paces only on a socket that claims to carry a packet's release time.
    capabilities.txtime()?;
    match server {
        SocketAddr::V4(_) => capabilities.ip_mtu_discover_probe()?,
        SocketAddr::V6(_) => capabilities.ipv6_mtu_discover_probe()?,
    }
    let capabilities = capabilities.finish();
    let mut socket = Socket::try_from(udp)?;
    socket.capabilities = capabilities;
    Ok(socket)
}
