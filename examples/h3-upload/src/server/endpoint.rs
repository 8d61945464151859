//! The QUIC endpoint: its settings, the admission of connections, and an orderly end.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use h3::error::Code;
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, IdleTimeout, ServerConfig, TransportConfig};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{debug, info};

use crate::connection::{Service, serve_connection};
use crate::identity::{Identity, RootFile};
use crate::limits::{Client, Limits};
use crate::transport::wire;

/// The control stream, QPACK's encoder and decoder, and a few for extensions or GREASE.
const UNIDIRECTIONAL_STREAMS: u32 = 8;
/// The most connection attempts that wait for the server, and their bytes.
const INCOMING: usize = 1024;
const INCOMING_BYTES: u64 = 4 * 1024 * 1024;
/// The longest wait until the clients have received the close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves until SIGINT or SIGTERM.
pub(crate) async fn serve(
    listen: SocketAddr,
    identity: Identity,
    identity_file: RootFile,
    idle: Duration,
    service: Service,
) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let endpoint = Endpoint::server(config(identity, idle, service.limits())?, listen)
        .with_context(|| {
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

    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            incoming = endpoint.accept() => match incoming {
                Some(incoming) => admit(incoming, &service, &mut connections),
                None => break,
            },
            // Removes each connection as it ends.
            Some(_) = connections.join_next() => {}
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
        }
    }
    info!(connections = connections.len(), "shutting down");
    endpoint.close(wire(Code::H3_NO_ERROR), b"the server is shutting down");
    // Unfinished uploads fail with their connections, and remove their files.
    let all_gone = async { while connections.join_next().await.is_some() {} };
    let _ = timeout(CLOSE_TIMEOUT, async { tokio::join!(all_gone, endpoint.wait_idle()) }).await;
    Ok(())
}

/// Accepts a connection if there is room for it.
fn admit(incoming: quinn::Incoming, service: &Service, connections: &mut JoinSet<()>) {
    let peer = incoming.remote_address();
    let client = Client::of(peer.ip());
    // A spoofed address must not occupy the places of others (RFC 9000, section 8.1.2).
    if !incoming.remote_address_validated() && service.connections().is_busy(client) {
        // quinn refuses a connection for which it cannot send a Retry.
        let _ = incoming.retry();
        return;
    }
    match service.connections().take(client) {
        Ok(place) => {
            connections.spawn(serve_connection(incoming, service.clone(), client, place));
        }
        Err(full) => {
            debug!(%peer, %full, "refusing a connection");
            incoming.refuse();
        }
    }
}

fn config(identity: Identity, idle: Duration, limits: &Limits) -> anyhow::Result<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .context("cannot set up TLS 1.3")?
        .with_no_client_auth()
        .with_single_cert(identity.chain, identity.key)
        .context("the key does not match the certificate")?;
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let crypto =
        QuicServerConfig::try_from(tls).context("the certificate cannot be used for QUIC")?;

    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(limits.window.into())
        .receive_window(limits.window.into())
        .send_window(limits.window.into())
        .max_concurrent_bidi_streams(limits.max_uploads_per_connection.into())
        .max_concurrent_uni_streams(UNIDIRECTIONAL_STREAMS.into())
        .datagram_receive_buffer_size(None)
        .max_idle_timeout(Some(IdleTimeout::try_from(idle)?))
        // Linux 6.1 refuses a batch of datagrams on an interface without checksum offload. quinn
        // then sends single ones, but takes the refused ones for lost, and that ends slow start.
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
