//! The QUIC endpoint: its settings, the admission of connections, and an orderly end.

use std::future::Future;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use h3::error::Code;
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, IdleTimeout, Incoming, ServerConfig, TransportConfig};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{debug, info};

use crate::identity::{Identity, RootFile};
use crate::quota::{Client, Place, Quota};
use crate::transport::wire;

/// The control stream, QPACK's encoder and decoder, and a few for extensions or GREASE.
const UNIDIRECTIONAL_STREAMS: u32 = 8;
/// The most connection attempts that wait for the server, and their bytes.
const INCOMING: usize = 1024;
const INCOMING_BYTES: u64 = 4 * 1024 * 1024;
/// The longest wait until the clients have received the close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// How the endpoint speaks QUIC.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The application protocols (ALPN), most preferred first.
    pub protocols: &'a [&'a [u8]],
    /// Bytes that a client may send before the server reads them, on a stream and on its
    /// connection.
    pub receive_window: u32,
    /// Bytes of a connection that wait for acknowledgements.
    pub send_window: u32,
    /// Simultaneous requests of a connection.
    pub streams: u32,
    /// How long a connection may be without a packet.
    pub idle: Duration,
}

/// Serves until SIGINT or SIGTERM. `serve` gets each connection attempt for which `connections` has
/// a place.
///
/// # Errors
/// The address is taken, or the identity or the settings cannot be used.
pub async fn serve<F>(
    settings: Settings<'_>,
    identity: Identity,
    identity_file: RootFile,
    connections: &Arc<Quota>,
    serve: impl Fn(Incoming, Client, Place) -> F,
) -> anyhow::Result<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let listen = settings.listen;
    let endpoint = Endpoint::server(config(identity, &settings)?, listen).with_context(|| {
        format!("cannot listen on {listen}: choose another address with --listen")
    })?;
    // Not before: if another server has the port, its clients may need the present file.
    identity_file.write()?;
    let address = endpoint.local_addr().context("cannot find the port")?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "ready: listening on {address}")
        .and_then(|()| out.flush())
        .context("cannot write to standard output that the server is ready")?;
    drop(out);

    let mut served = JoinSet::new();
    loop {
        tokio::select! {
            incoming = endpoint.accept() => match incoming {
                Some(incoming) => {
                    if let Some((incoming, client, place)) = admit(incoming, connections) {
                        served.spawn(serve(incoming, client, place));
                    }
                }
                None => break,
            },
            // Removes each connection as it ends.
            Some(_) = served.join_next() => {}
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
        }
    }
    info!(connections = served.len(), "shutting down");
    endpoint.close(wire(Code::H3_NO_ERROR), b"the server is shutting down");
    // Unfinished requests fail with their connections.
    let all_gone = async { while served.join_next().await.is_some() {} };
    let _ = timeout(CLOSE_TIMEOUT, async { tokio::join!(all_gone, endpoint.wait_idle()) }).await;
    Ok(())
}

/// Returns a connection attempt with its place, if there is room for it.
fn admit(incoming: Incoming, connections: &Arc<Quota>) -> Option<(Incoming, Client, Place)> {
    let peer = incoming.remote_address();
    let client = Client::of(peer.ip());
    // A spoofed address must not occupy the places of others (RFC 9000, section 8.1.2).
    if !incoming.remote_address_validated() && connections.is_busy(client) {
        // quinn refuses a connection for which it cannot send a Retry.
        let _ = incoming.retry();
        return None;
    }
    match connections.take(client) {
        Ok(place) => Some((incoming, client, place)),
        Err(full) => {
            debug!(%peer, %full, "refusing a connection");
            incoming.refuse();
            None
        }
    }
}

fn config(identity: Identity, settings: &Settings<'_>) -> anyhow::Result<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .context("cannot set up TLS 1.3")?
        .with_no_client_auth()
        .with_single_cert(identity.chain, identity.key)
        .context("the key does not match the certificate")?;
    tls.alpn_protocols = settings.protocols.iter().map(|name| name.to_vec()).collect();
    let crypto =
        QuicServerConfig::try_from(tls).context("the certificate cannot be used for QUIC")?;

    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(settings.receive_window.into())
        .receive_window(settings.receive_window.into())
        .send_window(settings.send_window.into())
        .max_concurrent_bidi_streams(settings.streams.into())
        .max_concurrent_uni_streams(UNIDIRECTIONAL_STREAMS.into())
        .datagram_receive_buffer_size(None)
        .max_idle_timeout(Some(IdleTimeout::try_from(settings.idle)?))
        // Linux 6.1 refuses a batch of datagrams on an interface without checksum offload. quinn
        // then sends single ones. But it declares the refused ones lost, which ends slow start.
        .enable_segmentation_offload(false)
        // Packets of 1200 bytes pass every path, and larger ones would hardly speed up downloads.
        .mtu_discovery_config(None);
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    config
        .transport_config(Arc::new(transport))
        .max_incoming(INCOMING)
        .incoming_buffer_size_total(INCOMING_BYTES);
    Ok(config)
}
