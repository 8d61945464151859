//! The broker: topics in memory, and their publishers and subscribers over HTTP/3 and MQTT.

pub(crate) mod http;
mod limits;
mod mqtt;
pub(crate) mod topics;

#[cfg(test)]
pub(crate) mod tests;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use h3_server::connection::{handshake, serve_requests};
use h3_server::quota::{Client, Place, Quota};
use h3_server::{endpoint, identity};
use mqtt5_protocol::ReasonCode;
use quinn::crypto::rustls::HandshakeData;
use tracing::debug;

pub(crate) use limits::Limits;

use crate::cli::BrokerCli;
use crate::mqtt::ALPN as MQTT;
use crate::topic::Start;
use crate::topic::publishers::{JoinError, NumberError};
use topics::Topics;

/// The application protocols. A client that offers both gets HTTP/3.
const PROTOCOLS: [&[u8]; 2] = [b"h3", MQTT];
/// The longest time for the handshake, for a request's headers, and for MQTT's CONNECT. A
/// connection of HTTP/3 may also be without a request for this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// The state that all connections share.
#[derive(Debug)]
pub(crate) struct Broker {
    pub(crate) topics: Topics,
    pub(crate) limits: Limits,
    pub(crate) publishers: Arc<Quota>,
    pub(crate) subscribers: Arc<Quota>,
}

impl Broker {
    pub(crate) fn new(limits: Limits) -> anyhow::Result<Self> {
        let each = |total: u32| total.min(limits.max_per_client);
        let (publishers, subscribers) = (limits.max_publishers, limits.max_subscribers);
        Ok(Self {
            topics: Topics::new(limits.bounds(), limits.max_topics)?,
            publishers: Quota::new("publishers", publishers, each(publishers)),
            subscribers: Quota::new("subscribers", subscribers, each(subscribers)),
            limits,
        })
    }
}

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

/// Where a subscriber begins that resumes `from` a number. The number belongs to this life of the
/// broker or to another.
pub(crate) fn start(topics: &Topics, from: Option<u64>, instance: Option<u64>) -> Start {
    match (from, instance) {
        (None, _) => Start::Last,
        // The number belongs to another life, so all messages of this life are new to the
        // subscriber.
        (Some(_), Some(instance)) if instance != topics.instance() => Start::From(1),
        (Some(from), _) => Start::From(from),
    }
}

/// Why the broker refuses a publisher or a subscriber.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(transparent)]
    Name(#[from] crate::name::NameError),
    #[error(transparent)]
    Full(#[from] h3_server::quota::Full),
    #[error(transparent)]
    Topics(#[from] topics::TooManyTopics),
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
}

impl Refusal {
    /// The status of an answer of HTTP.
    fn status(&self) -> ::http::StatusCode {
        use ::http::StatusCode;
        match self {
            Self::Name(_) | Self::Number(_) | Self::Message(_) => StatusCode::BAD_REQUEST,
            Self::Join(JoinError::Taken) => StatusCode::FORBIDDEN,
            Self::Full(h3_server::quota::Full::Client(..)) | Self::Connection(..) => {
                StatusCode::TOO_MANY_REQUESTS
            }
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
            Self::Name(_) => ReasonCode::TopicNameInvalid,
            Self::Join(JoinError::Taken) => ReasonCode::NotAuthorized,
            Self::Full(_)
            | Self::Connection(..)
            | Self::Topics(_)
            | Self::Join(JoinError::Full(_)) => ReasonCode::QuotaExceeded,
            Self::Method | Self::Path | Self::Number(_) | Self::Message(_) => {
                ReasonCode::ImplementationSpecificError
            }
        }
    }
}
