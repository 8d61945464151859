//! One connection to the broker, in either protocol.

use bytes::BytesMut;
use h3_client::connect::Link;
use h3_client::exchange;
use h3_client::http3::Answer;
use h3_client::options::Plan;
use h3_client::quiche::h3::Header;
use h3_client::report::Measured;
use h3_client::words::sentence;
use tokio::sync::oneshot;

use super::Stopped;
use super::codec::{Codec, Event, LONGEST_MESSAGE, Place, Refused, Role};
use super::pipe::{self, Received, Receiver, Sender};
use crate::broker::http::{FIRST, INSTANCE, SECRET};
use crate::cli::{Client, Protocol};
use crate::frame::Frames;
use crate::mqtt::client::Client as Mqtt;
use crate::name::{PublisherName, TopicName};
use crate::outbox::Outgoing;

/// The most unsent bytes to which the client still adds a message.
const ENOUGH: usize = 16 * 1024;

/// A connection, and its unsent bytes.
pub(crate) struct Connection {
    link: Link<()>,
    sender: Sender,
    receiver: Receiver,
    codec: Codec,
    out: BytesMut,
    role: Role,
}

impl Connection {
    /// Connects, and sends the client's request. When `stop` fires, it returns an error: before the
    /// handshake there is no connection to close.
    pub(crate) async fn open(
        client: &Client,
        name: &PublisherName,
        role: Role,
        stop: &mut oneshot::Receiver<()>,
    ) -> anyhow::Result<Self> {
        let Client { plan, topic, .. } = client;
        let mut out = BytesMut::new();
        let opened = async {
            anyhow::Ok(match client.protocol {
                Protocol::Http3 => {
                    let headers = headers(plan, topic, name, role);
                    let publishes = matches!(role, Role::Publisher(_));
                    let codec = Codec::Http(Frames::new(LONGEST_MESSAGE));
                    (codec, pipe::http(plan, headers, publishes).await?)
                }
                Protocol::Mqtt => {
                    let codec = Codec::Mqtt(Mqtt::new(topic, name, role, &mut out));
                    (codec, pipe::mqtt(plan).await?)
                }
            })
        };
        let (codec, (link, sender, receiver)) = tokio::select! {
            opened = opened => opened?,
            _ = stop => return Err(Stopped.into()),
        };
        Ok(Self { link, sender, receiver, codec, out, role })
    }

    /// Lets `exchange` use the connection until it returns or `stop` fires, and closes it. Returns
    /// its measurements, or why it ended.
    pub(crate) async fn carry(
        mut self,
        exchange: impl AsyncFnOnce(&mut Self) -> anyhow::Result<()>,
        stop: &mut oneshot::Receiver<()>,
    ) -> anyhow::Result<Measured> {
        let ended = tokio::select! {
            ended = exchange(&mut self) => ended,
            _ = stop => Err(Stopped.into()),
        };
        let ended = ended.map_err(|error| {
            let exact = error.is::<Refused>() || error.is::<Stopped>();
            // Before the close, which would replace the broker's own reason.
            match self.link.ending().filter(|_| !exact) {
                Some(ending) => anyhow::anyhow!("{ending}"),
                None => error,
            }
        });
        let measured = self.close().await;
        ended.map(|()| measured)
    }

    /// Adds a message to the unsent bytes.
    pub(crate) fn publish(&mut self, message: &Outgoing) {
        self.codec.publish(message, &mut self.out);
    }

    /// Whether the connection has room for another message.
    pub(crate) fn has_room(&self) -> bool {
        self.out.len() < ENOUGH
    }

    /// Sends unsent bytes or receives, whichever is possible first. Adds events to `events`. Cancel
    /// safe.
    ///
    /// An error is [`Refused`], or the end of the connection.
    pub(crate) async fn turn(&mut self, events: &mut Vec<Event>) -> anyhow::Result<Option<Head>> {
        let received = tokio::select! {
            // The bytes that the broker sent may explain why it reads no more.
            biased;
            received = self.receiver.receive() => received?,
            sent = self.sender.send(&mut self.out), if !self.out.is_empty() => {
                sent?;
                return Ok(None);
            }
        };
        match received {
            Received::Bytes(bytes) => {
                let read = self.codec.receive(&bytes, &mut self.out, events);
                read.map_err(|refused| refused.reworded(broker_refused))?;
                Ok(None)
            }
            Received::Head(head) if exchange::status(&head.headers) == "200" => {
                let number = |name| exchange::fields(&head.headers, name).next()?.parse().ok();
                if let Role::Subscriber(_) = self.role {
                    let place = Place { from: number(FIRST), instance: number(INSTANCE) };
                    events.push(Event::Began(place));
                }
                self.receiver.begin(head.body);
                Ok(None)
            }
            Received::Head(head) => Ok(Some(Head(head))),
        }
    }

    /// Why the broker refused, from the head of its answer.
    pub(crate) async fn refusal(&self, plan: &Plan, Head(mut head): Head) -> anyhow::Error {
        let status = exchange::status(&head.headers);
        match exchange::text(plan, &mut head).await {
            Ok(text) => {
                let text = sentence(&String::from_utf8_lossy(&text));
                let text = format!("{text} (status {status})");
                let busy = matches!(&*status, "429" | "503");
                Refused::new(broker_refused(&text), busy).into()
            }
            Err(error) => error,
        }
    }

    async fn close(mut self) -> Measured {
        let ended = h3_client::now();
        self.codec.end(&mut self.out);
        // Only if there is room at once: the connection may be dead.
        let _ = exchange::soon(self.sender.send(&mut self.out)).await;
        drop(self.sender);
        self.receiver.close().await;
        self.link.measured(ended)
    }
}

/// The head of an answer that refuses.
pub(crate) struct Head(Answer);

fn broker_refused(reason: &str) -> String {
    format!("the broker refused: {}", sentence(reason))
}

fn headers(plan: &Plan, topic: &TopicName, name: &PublisherName, role: Role) -> Vec<Header> {
    let mut plan = plan.clone();
    plan.target.path = topic.path();
    let (method, fields) = match role {
        Role::Publisher(_) => ("POST", vec![("publisher", name.as_str().to_owned())]),
        Role::Subscriber(place) => {
            let fields = [("from", place.from), ("instance", place.instance)];
            let number = |(name, value): (_, Option<u64>)| Some((name, value?.to_string()));
            ("GET", fields.into_iter().filter_map(number).collect())
        }
    };
    if !fields.is_empty() {
        let query =
            url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        plan.target.path = format!("{}?{query}", plan.target.path);
    }
    let mut headers = exchange::headers(&plan, method);
    if let Role::Publisher(secret) = role {
        headers.push(Header::new(SECRET.as_bytes(), secret.text().as_bytes()));
    }
    headers
}
