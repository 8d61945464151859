//! `quinn-server`: the server of the matrix on quinn and h3.
//!
//! | file | what it does |
//! |---|---|
//! | `main.rs` | the command line, the endpoint and its connections |
//! | `request.rs` | one request |
//! | `bin/quinn-client.rs` | a program of its own: a client that downloads or uploads |

mod request;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use clap::{Parser, ValueEnum};
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{ConnectionId, ConnectionIdGenerator, Endpoint, EndpointConfig, ServerConfig};
use rustls::CipherSuite;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::signal::unix::{SignalKind, signal};

/// The bytes of bodies after which `--key-update` updates the keys.
const KEY_UPDATE_AFTER: usize = 256 * 1024;

/// An HTTP/3 server on quinn and h3. It answers PUT and POST with the body's length and hash, and
/// GET with a file
#[derive(Debug, Parser)]
#[command(name = "quinn-server", version)]
struct Cli {
    /// The address to listen on (UDP)
    #[arg(long, value_name = "ADDR:PORT")]
    listen: SocketAddr,
    /// The certificate, followed by its intermediates (PEM)
    #[arg(long, value_name = "FILE")]
    cert: PathBuf,
    /// Its private key (PEM)
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// The directory of the files to serve
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// The length of this end's connection IDs
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u8).range(0..=20))]
    cid_length: Option<u8>,
    /// The cipher to offer, in addition to AES-128
    #[arg(long, value_enum)]
    cipher: Option<Cipher>,
    /// Update the keys in the middle of the first transfer of a connection
    #[arg(long)]
    key_update: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Cipher {
    Aes128,
    #[value(name = "chacha20")]
    ChaCha20,
}

fn main() -> ExitCode {
    match serve(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("quinn-server: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn serve(cli: Cli) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let endpoint = endpoint(&cli)?;
    let mut out = std::io::stdout();
    writeln!(out, "ready: listening on {}", endpoint.local_addr()?)?;
    out.flush()?;
    let root: Arc<std::path::Path> = cli.root.into();
    loop {
        tokio::select! {
            incoming = endpoint.accept() => {
                let Some(incoming) = incoming else { return Ok(()) };
                tokio::spawn(connection(incoming, Arc::clone(&root), cli.key_update));
            }
            _ = terminate.recv() => return Ok(()),
        }
    }
}

fn endpoint(cli: &Cli) -> anyhow::Result<Endpoint> {
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites.retain(|suite| match (cli.cipher, suite.suite()) {
        // quinn needs this one for Initial packets.
        (_, CipherSuite::TLS13_AES_128_GCM_SHA256) => true,
        (None, _) => true,
        (Some(Cipher::Aes128), _) => false,
        (Some(Cipher::ChaCha20), suite) => suite == CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    });
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(&cli.cert)
        .and_then(Iterator::collect)
        .with_context(|| format!("cannot read certificates from {}", cli.cert.display()))?;
    let key = PrivateKeyDer::from_pem_file(&cli.key)
        .with_context(|| format!("cannot read a private key from {}", cli.key.display()))?;
    let mut tls = rustls::ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .context("the key does not match the certificate")?;
    tls.alpn_protocols = vec![b"h3".to_vec()];
    // The only value that QUIC allows (RFC 9001, section 4.6.1).
    tls.max_early_data_size = u32::MAX;
    let server = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    let mut config = EndpointConfig::default();
    if let Some(length) = cli.cid_length {
        config.cid_generator(move || Box::new(OfLength(length.into())));
    }
    let socket = std::net::UdpSocket::bind(cli.listen).with_context(|| {
        format!("cannot listen on {}: choose another address with --listen", cli.listen)
    })?;
    let runtime = quinn::default_runtime().context("there is no runtime")?;
    Ok(Endpoint::new(config, Some(server), socket, runtime)?)
}

/// Random connection IDs of one length.
struct OfLength(usize);

impl ConnectionIdGenerator for OfLength {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = vec![0; self.0];
        // Without randomness rustls makes no keys, so there is no connection either.
        let _ = getrandom::fill(&mut id);
        ConnectionId::new(&id)
    }

    fn cid_len(&self) -> usize {
        self.0
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}

/// One connection, from its handshake to the end of its last request.
async fn connection(incoming: quinn::Incoming, root: Arc<std::path::Path>, key_update: bool) {
    // The server answers 0-RTT requests after the handshake. `into_0rtt` would answer at once, but
    // h3 0.0.8 then leaves requests of other connections unanswered.
    let connection = match incoming.await {
        Ok(connection) => connection,
        Err(error) => return eprintln!("quinn-server: the handshake failed: {error}"),
    };
    let update =
        request::KeyUpdate::new(connection.clone(), key_update.then_some(KEY_UPDATE_AFTER));
    let http = h3::server::Connection::<_, Bytes>::new(h3_quinn::Connection::new(connection)).await;
    let Ok(mut http) = http else { return };
    while let Ok(Some(resolver)) = http.accept().await {
        tokio::spawn(request::serve(resolver, Arc::clone(&root), update.clone()));
    }
}
