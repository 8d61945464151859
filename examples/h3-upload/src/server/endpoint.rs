//! The QUIC endpoint: its settings, its connections, and an orderly end.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, IdleTimeout, ServerConfig, TransportConfig, VarInt};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{debug, info};

use crate::identity::{Identity, RootFile};
use crate::request;
use crate::store::Store;

/// What one upload may have on its way: 100 Mbit/s at more than a second of round trip.
const STREAM_WINDOW: u32 = 16 * 1024 * 1024;
/// The same for all uploads of a connection together.
const CONNECTION_WINDOW: u32 = 64 * 1024 * 1024;
const CONCURRENT_UPLOADS: u32 = 100;
/// How long the clients may take to hear that the server is going.
const GOODBYE: Duration = Duration::from_secs(1);
/// H3_NO_ERROR (RFC 9114, section 8.1).
const H3_NO_ERROR: VarInt = VarInt::from_u32(0x100);

/// Serves until SIGINT or SIGTERM.
pub(crate) async fn serve(
    listen: SocketAddr,
    identity: Identity,
    identity_file: RootFile,
    idle: Duration,
    store: Store,
) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let endpoint = Endpoint::server(config(identity, idle)?, listen)
        .with_context(|| format!("cannot listen on {listen}: choose another address with --listen"))?;
    // Only now: another server's clients may still need the file that was there.
    identity_file.write()?;
    let address = endpoint.local_addr().context("cannot tell the port")?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "ready: listening on {address}")
        .and_then(|()| out.flush())
        .context("cannot say on standard output that the server is ready")?;
    drop(out);

    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            incoming = endpoint.accept() => match incoming {
                Some(incoming) => { connections.spawn(connection(incoming, store.clone())); }
                None => break,
            },
            // Finished connections are forgotten as they finish.
            Some(_) = connections.join_next() => {}
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
        }
    }
    info!(connections = connections.len(), "going down");
    endpoint.close(H3_NO_ERROR, b"the server is going down");
    // Uploads that were under way fail with their connections, and remove what they had.
    let all_gone = async { while connections.join_next().await.is_some() {} };
    let _ = timeout(GOODBYE, async { tokio::join!(all_gone, endpoint.wait_idle()) }).await;
    Ok(())
}

fn config(identity: Identity, idle: Duration) -> anyhow::Result<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .context("cannot set up TLS 1.3")?
        .with_no_client_auth()
        .with_single_cert(identity.chain, identity.key)
        .context("the certificate and the key do not fit together")?;
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let crypto = QuicServerConfig::try_from(tls).context("the certificate cannot be used for QUIC")?;

    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(STREAM_WINDOW.into())
        .receive_window(CONNECTION_WINDOW.into())
        .max_concurrent_bidi_streams(CONCURRENT_UPLOADS.into())
        .max_idle_timeout(Some(IdleTimeout::try_from(idle)?))
        // The server sends little but acknowledgements: nothing to gain from larger packets.
        .mtu_discovery_config(None);
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    config.transport_config(Arc::new(transport));
    Ok(config)
}

/// One connection, from handshake to the end of its last request.
async fn connection(incoming: quinn::Incoming, store: Store) {
    let peer = incoming.remote_address();
    let quic = match incoming.await {
        Ok(quic) => quic,
        Err(error) => return debug!(%peer, %error, "no connection"),
    };
    let mut http = match h3::server::Connection::<_, Bytes>::new(h3_quinn::Connection::new(quic)).await {
        Ok(http) => http,
        Err(error) => return debug!(%peer, %error, "no HTTP/3"),
    };
    let mut requests = JoinSet::new();
    loop {
        tokio::select! {
            accepted = http.accept() => match accepted {
                Ok(Some(resolver)) => { requests.spawn(request::serve(resolver, store.clone(), peer)); }
                Ok(None) => break,
                Err(error) => {
                    debug!(%peer, %error, "connection ended");
                    break;
                }
            },
            Some(_) = requests.join_next() => {}
        }
    }
    // What was received whole is still stored; what was not fails by itself now.
    while requests.join_next().await.is_some() {}
}
