//! What a connection tells its client, in either protocol.

use thiserror::Error;

use crate::name::Secret;
use crate::topic::Message;

/// The longest message that a client accepts or sends, in bytes. Brokers allow fewer by default.
pub(crate) const LONGEST_MESSAGE: usize = 16 << 20;

/// A position in a topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// The number of the next message; `None` to begin with the last value.
    pub(crate) from: Option<u64>,
    /// The life of the broker to which the number belongs.
    pub(crate) instance: Option<u64>,
}

/// The role of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    /// A publisher whose name belongs to this secret.
    Publisher(Secret),
    /// A subscriber that begins at this position.
    Subscriber(Place),
}

/// An event of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The broker accepted the subscriber, which begins at this position.
    Began(Place),
    /// The broker has all messages up to this number of the publisher's.
    Acknowledged(u64),
    /// A message. Other MQTT brokers do not number messages.
    Message(Message),
    /// The broker no longer has this many messages.
    Missed(u64),
}

/// Why a client ends a connection.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{reason}")]
pub(crate) struct Refused {
    pub(crate) reason: String,
    /// Whether the broker has reached a limit. It may not have detected yet that this client's
    /// former connection is lost. Otherwise a new connection would fail, too: the broker refuses,
    /// or speaks another protocol, or this program cannot read its input or write its output.
    pub(crate) busy: bool,
}

/// A refusal of every connection.
impl From<String> for Refused {
    fn from(reason: String) -> Self {
        Self { reason, busy: false }
    }
}
