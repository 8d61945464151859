//! `tokio-quiche-client`: downloads a file by tokio-quiche's own HTTP/3 client, and prints what it
//! received. The lines with `sidekick` and `tuned` are all that the help takes.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Instant;

use anyhow::{Context as _, anyhow, bail};
use clap::Parser;
use quic_sidekick::tokio_quiche::assist;
use quic_sidekick::tune::Tune;
use quic_sidekick::{Assistance, Config, Mode};
use sha2::{Digest as _, Sha256};
use tokio::net::UdpSocket;
use tokio_quiche::ConnectionParams;
use tokio_quiche::http3::driver::{
    ClientH3Driver, ClientH3Event, H3Event, InboundFrame, IncomingH3Headers, NewClientRequest,
};
use tokio_quiche::http3::settings::Http3Settings;
use tokio_quiche::quic::connect_with_config;
use tokio_quiche::quiche::h3::Header;
use tokio_quiche::socket::{Socket, SocketCapabilitiesBuilder};

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
    /// The path of the file
    path: String,
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
    let tuned = Tune::client().choose();
    let (driver, mut controller) = ClientH3Driver::new(Http3Settings::default());
    let (driver, sidekick) = assist(driver, Config::discover(tuned.mode().unwrap_or(Mode::Auto)));
    let mut params = ConnectionParams::default();
    params.settings.verify_peer = true;
    tuned.apply_to_settings(&mut params.settings);
    let began = now();
    let connecting =
        connect_with_config(socket(cli.server).await?, Some(&cli.name), &params, driver);
    let connecting = sidekick.connect(tuned.connect(connecting));
    let _connection = connecting.await.map_err(|error| anyhow!("cannot connect: {error}"))?;

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
    let (mut hash, mut bytes, mut whole) = (Sha256::new(), 0, false);
    while !whole && let Some(frame) = body.recv().await {
        let InboundFrame::Body(piece, last) = frame else { continue };
        hash.update(&piece);
        bytes += piece.len();
        whole = last;
    }
    if !whole {
        bail!("the connection ended after {bytes} bytes");
    }
    let seconds = (now() - began).as_secs_f64();
    let sha256: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let status = sidekick.status();
    let report = serde_json::json!({
        "bytes": bytes,
        "sha256": sha256,
        "goodput_mbit_s": bytes as f64 * 8.0 / seconds / 1e6,
        "assisted": status.assistance == Assistance::Assisted,
        "repeats_received": status.stats.repeats_received,
    });
    println!("{report}");
    Ok(())
}

async fn socket(
    server: SocketAddr,
) -> anyhow::Result<Socket<std::sync::Arc<UdpSocket>, std::sync::Arc<UdpSocket>>> {
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let udp = UdpSocket::bind(any).await?;
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
