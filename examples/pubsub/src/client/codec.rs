//! The bytes that a client sends and receives, in either protocol, without I/O.

use bytes::{Bytes, BytesMut};
use thiserror::Error;

use crate::frame::{Frame, Frames};
use crate::mqtt::client::Client as Mqtt;
use crate::name::Secret;
use crate::outbox::Outgoing;

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
    Message { sequence: Option<u64>, time: u64, payload: Bytes },
    /// The broker no longer has this many messages.
    Missed(u64),
}

/// Why a client ends a connection.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{reason}")]
pub(crate) struct Refused {
    reason: String,
    /// Whether the broker has reached a limit. It may not have detected yet that this client's
    /// former connection is lost. Otherwise a new connection would fail, too: the broker refuses,
    /// or speaks another protocol, or this program cannot read its input or write its output.
    pub(crate) busy: bool,
}

impl Refused {
    /// A refusal for this reason. `busy` tells whether the broker has reached a limit.
    pub(crate) fn new(reason: String, busy: bool) -> Self {
        Self { reason, busy }
    }

    /// The same refusal in other words.
    pub(crate) fn reworded(self, words: impl FnOnce(&str) -> String) -> Self {
        Self { reason: words(&self.reason), ..self }
    }
}

/// A refusal of every connection.
impl From<String> for Refused {
    fn from(reason: String) -> Self {
        Self::new(reason, false)
    }
}

/// A client's end of a connection.
#[derive(Debug)]
pub(crate) enum Codec {
    Http(Frames),
    Mqtt(Mqtt),
}

impl Codec {
    /// Appends a message to `out`.
    pub(crate) fn publish(&mut self, message: &Outgoing, out: &mut BytesMut) {
        match self {
            Self::Http(_) => {
                let Outgoing { own, time, payload, .. } = message.clone();
                Frame::Message { sequence: own, time, payload }.write(out);
            }
            Self::Mqtt(client) => client.publish(message, out),
        }
    }

    /// Receives bytes of the broker, and appends answers to `out` and events to `events`. An error
    /// is the broker's refusal, or describes the fault in its bytes.
    pub(crate) fn receive(
        &mut self,
        bytes: &[u8],
        out: &mut BytesMut,
        events: &mut Vec<Event>,
    ) -> Result<(), Refused> {
        let frames = match self {
            Self::Http(frames) => frames,
            Self::Mqtt(client) => return client.receive(bytes, out, events),
        };
        frames.push(bytes);
        while let Some(frame) = frames.next().map_err(|fault| fault.to_string())? {
            events.push(match frame {
                Frame::Message { sequence, time, payload } => {
                    Event::Message { sequence: Some(sequence), time, payload }
                }
                Frame::Missed(count) => Event::Missed(count),
                Frame::Acknowledged(own) => Event::Acknowledged(own),
                Frame::Refused(reason) => return Err(reason.into()),
            });
        }
        Ok(())
    }

    /// Appends the client's last packet to `out`, if the protocol has one.
    pub(crate) fn end(&self, out: &mut BytesMut) {
        match self {
            Self::Http(_) => {}
            Self::Mqtt(client) => client.end(out),
        }
    }
}
