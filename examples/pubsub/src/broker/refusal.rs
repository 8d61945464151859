//! Why the broker refuses a request, in both protocols.

use h3_server::quota::Full;
use http::StatusCode;
use mqtt5_protocol::ReasonCode;
use thiserror::Error;

use crate::name::NameError;
use crate::topic::publishers::{JoinError, NumberError};

/// The broker has as many topics as it may.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the broker already has {0} topics: use one of them, or raise its --max-topics")]
pub(crate) struct TooManyTopics(pub(super) u32);

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
    pub(super) fn status(&self) -> StatusCode {
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
