//! `quinn-client`: an HTTP/3 client on quinn and h3 that downloads, or uploads a file. It changes
//! no default of either. It is the lab's example of an unmodified program, and with
//! `--sidekick socket` of one that changed nothing but its socket.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, anyhow, bail, ensure};
use bytes::{Buf as _, Bytes};
use clap::{Parser, ValueEnum};
use http::{Request, Uri};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, Endpoint, EndpointConfig};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use sidekick_socket::quinn::Runtime;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// The size of a read of the file, in bytes.
const CHUNK: usize = 64 * 1024;
/// The most bytes of an answer that are read.
const MAX_ANSWER: usize = 64 * 1024;
/// The port of a URL that names none.
const HTTPS: u16 = 443;

type Stream = h3::client::RequestStream<h3_quinn::BidiStream<Bytes>, Bytes>;

/// Download by HTTP/3 with quinn and h3, or upload a file and check the server's receipt, and print
/// one JSON object
#[derive(Debug, Parser)]
#[command(name = "quinn-client", version)]
struct Cli {
    /// The root certificates to trust (PEM)
    #[arg(long, value_name = "FILE")]
    cafile: PathBuf,
    /// Upload this file by a PUT request, and do not download
    #[arg(long, value_name = "FILE")]
    upload: Option<PathBuf>,
    /// Write what is downloaded to this file
    #[arg(long, value_name = "FILE", conflicts_with = "upload")]
    output: Option<PathBuf>,
    /// What gets help from proxies on the path
    #[arg(long, value_name = "WHAT", default_value = "off")]
    sidekick: Help,
    /// The URL of the request
    #[arg(value_name = "https://HOST[:PORT]/NAME")]
    url: Uri,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Help {
    /// Nothing
    Off,
    /// The endpoint's UDP socket
    Socket,
}

/// A body: what was sent or received, or what arrived by the server's answer.
#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Receipt {
    bytes: u64,
    sha256: String,
}

/// The report of a transfer.
#[derive(Debug, Serialize)]
struct Report {
    /// The length of the file.
    bytes: u64,
    /// From before the handshake to the end of the answer, in seconds.
    time_s: f64,
    /// The bytes of the file in this time, in Mbit/s.
    goodput_mbit_s: f64,
    /// The SHA-256 of the file.
    sha256: String,
    packets_sent: u64,
    /// Packets that quinn declared lost.
    packets_lost: u64,
    /// Times that quinn's congestion controller reduced its window.
    congestion_events: u64,
    /// What the socket did, with `--sidekick socket`.
    #[serde(flatten)]
    helped: Option<Helped>,
}

/// The help for the connection's datagrams.
#[derive(Debug, Serialize)]
struct Helped {
    assistance: String,
    /// Datagrams lost before the proxy, and those sent again.
    lost: u64,
    resent: u64,
    /// Arriving datagrams that were lost behind the proxy, and copies of them.
    missed: u64,
    delivered: u64,
}

fn main() -> ExitCode {
    match transfer(&Cli::parse()) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("quinn-client: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn transfer(cli: &Cli) -> anyhow::Result<String> {
    let host = cli.url.host().context("the URL names no host: use https://HOST[:PORT]/NAME")?;
    // An IPv6 address stands in brackets, which are not part of it.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = cli.url.port_u16().unwrap_or(HTTPS);
    let mut addresses = tokio::net::lookup_host((host, port))
        .await
        .with_context(|| format!("cannot find the address of {host}"))?;
    let address = addresses.next().with_context(|| format!("{host} has no address"))?;
    let any = if address.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    let help = match cli.sidekick {
        Help::Off => None,
        Help::Socket => Some(Arc::new(Runtime::new(sidekick_socket::Config::default())?)),
    };
    let endpoint = endpoint(any.parse()?, help.as_ref()).context("cannot open a UDP socket")?;
    let config = trusting(&cli.cafile)?;

    let start = now();
    let connection = endpoint
        .connect_with(config, address, host)?
        .await
        .with_context(|| format!("cannot connect to {address}"))?;
    let Receipt { bytes, sha256 } = request(connection.clone(), cli).await?;
    let time_s = start.elapsed().as_secs_f64();
    let path = connection.stats().path;
    let status = help.iter().flat_map(|help| help.status()).next();
    let helped = status.map(|flow| Helped {
        assistance: flow.to_string(),
        lost: flow.lost,
        resent: flow.resent,
        missed: flow.missed,
        delivered: flow.delivered,
    });
    // This waits until quinn has sent the close of the connection.
    endpoint.wait_idle().await;

    let goodput_mbit_s = bytes as f64 * 8.0 / 1e6 / time_s;
    Ok(serde_json::to_string(&Report {
        bytes,
        time_s,
        goodput_mbit_s,
        sha256,
        packets_sent: path.sent_packets,
        packets_lost: path.lost_packets,
        congestion_events: path.congestion_events,
        helped,
    })?)
}

fn endpoint(address: SocketAddr, help: Option<&Arc<Runtime>>) -> io::Result<Endpoint> {
    let Some(help) = help else { return Endpoint::client(address) };
    let socket = UdpSocket::bind(address)?;
    Endpoint::new(EndpointConfig::default(), None, socket, Arc::<Runtime>::clone(help))
}

#[allow(clippy::disallowed_methods, reason = "the edge: how long a transfer takes")]
fn now() -> Instant {
    Instant::now()
}

/// quinn's default configuration, with HTTP/3 and these roots.
fn trusting(roots: &Path) -> anyhow::Result<ClientConfig> {
    let unreadable = || format!("cannot read certificates from {}", roots.display());
    let mut trusted = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(roots).with_context(unreadable)? {
        trusted.add(certificate.with_context(unreadable)?).with_context(unreadable)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(trusted)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    Ok(ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?)))
}

/// Uploads or downloads, and returns what was transferred.
async fn request(connection: Connection, cli: &Cli) -> anyhow::Result<Receipt> {
    let (mut driver, mut requests) = h3::client::new(h3_quinn::Connection::new(connection)).await?;
    let request = async {
        let Some(file) = &cli.upload else {
            let mut stream = requests.send_request(Request::get(&cli.url).body(())?).await?;
            stream.finish().await?;
            return content(&mut stream, cli.output.as_deref()).await;
        };
        let mut stream = requests.send_request(Request::put(&cli.url).body(())?).await?;
        let sent = send(&mut stream, file).await?;
        let receipt = receipt(&mut stream).await?;
        ensure!(
            receipt == sent,
            "the server has received other content than was sent: {receipt:?} in place of {sent:?}"
        );
        Ok(sent)
    };
    tokio::select! {
        ended = request => ended,
        error = driver.wait_idle() => Err(anyhow!(error).context("the connection broke")),
    }
}

/// Sends the body.
async fn send(stream: &mut Stream, path: &Path) -> anyhow::Result<Receipt> {
    let unreadable = || format!("cannot read {}", path.display());
    let mut file = tokio::fs::File::open(path).await.with_context(unreadable)?;
    let (mut bytes, mut hash) = (0, Sha256::new());
    loop {
        let mut chunk = Vec::with_capacity(CHUNK);
        (&mut file).take(CHUNK as u64).read_to_end(&mut chunk).await.with_context(unreadable)?;
        if chunk.is_empty() {
            break;
        }
        hash.update(&chunk);
        bytes += chunk.len() as u64;
        stream.send_data(chunk.into()).await?;
    }
    stream.finish().await?;
    Ok(Receipt { bytes, sha256: hex(hash) })
}

/// Reads the answer to a download.
async fn content(stream: &mut Stream, output: Option<&Path>) -> anyhow::Result<Receipt> {
    let status = stream.recv_response().await?.status();
    ensure!(status.is_success(), "the server refused the download ({status})");
    let mut file = match output {
        Some(path) => {
            let unwritable = || format!("cannot write {}", path.display());
            Some(tokio::fs::File::create(path).await.with_context(unwritable)?)
        }
        None => None,
    };
    let (mut bytes, mut hash) = (0, Sha256::new());
    while let Some(mut data) = stream.recv_data().await? {
        while data.has_remaining() {
            let chunk = data.chunk();
            hash.update(chunk);
            if let Some(file) = &mut file {
                file.write_all(chunk).await.context("cannot write the file")?;
            }
            let len = chunk.len();
            bytes += len as u64;
            data.advance(len);
        }
    }
    if let Some(mut file) = file {
        file.flush().await.context("cannot write the file")?;
    }
    Ok(Receipt { bytes, sha256: hex(hash) })
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads the answer to an upload.
async fn receipt(stream: &mut Stream) -> anyhow::Result<Receipt> {
    let status = stream.recv_response().await?.status();
    let mut text = Vec::new();
    while let Some(mut data) = stream.recv_data().await? {
        ensure!(text.len() + data.remaining() <= MAX_ANSWER, "the server's answer is too long");
        text.extend_from_slice(&data.copy_to_bytes(data.remaining()));
    }
    if !status.is_success() {
        let reason = String::from_utf8_lossy(&text);
        bail!("the server refused the upload ({status}): {}", reason.trim().escape_debug());
    }
    serde_json::from_slice(&text).context("the server's answer is no receipt")
}
