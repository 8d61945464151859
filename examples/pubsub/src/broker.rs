//! The broker: topics in memory, and their publishers and subscribers over HTTP/3 and MQTT.

pub(crate) mod http;
mod mqtt;
pub(crate) mod topics;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use h3_server::connection::{handshake, serve_requests};
use h3_server::quota::{Client, Full, Place, Quota};
use h3_server::{endpoint, identity};
use mqtt5_protocol::ReasonCode;
use quinn::crypto::rustls::HandshakeData;
use thiserror::Error;
use tracing::debug;

use crate::cli::BrokerCli;
use crate::mqtt::ALPN as MQTT;
use crate::name::NameError;
use crate::topic::publishers::{JoinError, NumberError};
use ::http::StatusCode;
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

/// The broker has as many topics as it may.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the broker already has {0} topics: use one of them, or raise its --max-topics")]
pub(crate) struct TooManyTopics(u32);

/// Why the broker refuses a publisher or a subscriber.
#[derive(Clone, Debug, Error)]
pub(crate) enum Refusal {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(transparent)]
    Full(#[from] Full),
    #[error(transparent)]
    Topics(#[from] TooManyTopics),
    #[error(transparent)]
    Join(#[from] JoinError),
    #[error(transparent)]
    Message(#[from] NumberError),
    #[error("your connection already has {0} {1}: use another connection")]
    Connection(u32, &'static str),
    #[error("only GET subscribes to a topic, and POST publishes")]
    Method,
    #[error("there is nothing at this path: topics are at /topics/NAME")]
    Path,
    #[error("the query has a {0} that is no number")]
    Number(&'static str),
    /// A packet of MQTT that the broker does not accept.
    #[error("{1}")]
    Packet(ReasonCode, String),
}

impl Refusal {
    /// The status of an answer of HTTP.
    fn status(&self) -> StatusCode {
        match self {
            Self::Name(_) | Self::Number(_) | Self::Message(_) | Self::Packet(..) => {
                StatusCode::BAD_REQUEST
            }
            Self::Join(JoinError::Taken) => StatusCode::FORBIDDEN,
            Self::Full(Full::Client(..)) | Self::Connection(..) => StatusCode::TOO_MANY_REQUESTS,
            Self::Full(_) | Self::Topics(_) | Self::Join(JoinError::Full(_)) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Path => StatusCode::NOT_FOUND,
        }
    }

    /// The reason code of a packet of MQTT.
    pub(crate) fn code(&self) -> ReasonCode {
        match self {
            Self::Packet(code, _) => *code,
            Self::Name(_) => ReasonCode::TopicNameInvalid,
            Self::Join(JoinError::Taken) => ReasonCode::NotAuthorized,
            Self::Full(_) | Self::Connection(..) | Self::Topics(_) | Self::Join(_) => {
                ReasonCode::QuotaExceeded
            }
            Self::Method | Self::Path | Self::Number(_) | Self::Message(_) => {
                ReasonCode::ImplementationSpecificError
            }
        }
    }
}
