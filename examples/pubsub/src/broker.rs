//! The broker: topics in memory, and their publishers and subscribers over HTTP/3 and MQTT.

pub(crate) mod http;
mod mqtt;
pub(crate) mod refusal;
pub(crate) mod topics;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use h3_server::connection::{handshake, serve_requests};
use h3_server::quota::{Client, Place, Quota};
use h3_server::{endpoint, identity};
use quinn::crypto::rustls::HandshakeData;
use tracing::debug;

use crate::cli::BrokerCli;
use crate::mqtt::ALPN as MQTT;
use topics::Broker;

/// The application protocols. A client that offers both gets HTTP/3.
const PROTOCOLS: [&[u8]; 2] = [b"h3", MQTT];
/// The longest time for the handshake, for a request's headers, and for MQTT's CONNECT. A
/// connection of HTTP/3 may also be without a request for this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs the broker until a signal.
pub(crate) fn run(cli: BrokerCli) -> anyhow::Result<ExitCode> {
    h3_server::log("pubsub");
    let limits = cli.limits;
    limits.check()?;
    let (identity, root) = identity::load("pubsub broker", &cli.identity)?;
    let settings = endpoint::Settings {
        listen: cli.listen,
        protocols: &PROTOCOLS,
        receive_window: limits.window(),
        send_window: limits.window(),
        streams: limits.max_requests,
        idle: Duration::from_secs(cli.idle_timeout.into()),
    };
    let connections = limits.max_connections;
    let connections =
        Quota::new("connections", connections, connections.min(limits.max_per_client));
    let broker = Arc::new(Broker::new(limits)?);
    let runtime =
        tokio::runtime::Runtime::new().context("cannot start the asynchronous runtime")?;
    runtime.block_on(endpoint::serve(
        settings,
        identity,
        root,
        &connections,
        |incoming, client, place| serve(incoming, Arc::clone(&broker), client, place),
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Serves one connection, which keeps its `place` until it ends.
async fn serve(incoming: quinn::Incoming, broker: Arc<Broker>, client: Client, place: Place) {
    let Some(quic) = handshake(incoming, PATIENCE).await else { return };
    let peer = quic.remote_address();
    let chosen = quic.handshake_data().and_then(|data| data.downcast::<HandshakeData>().ok());
    if chosen.and_then(|data| data.protocol).as_deref() == Some(MQTT) {
        mqtt::serve(&quic, &broker, client).await;
    } else {
        let requests = serve_requests(quic, PATIENCE, move |request, stream| {
            http::serve(request, stream, Arc::clone(&broker), client)
        });
        // Without their connection, subscriptions would wait forever.
        drop(requests.await);
    }
    debug!(%peer, "a client left");
    drop(place);
}
