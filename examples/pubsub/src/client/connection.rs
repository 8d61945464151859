//! One connection to the broker, in either protocol.

use std::future::pending;

use bytes::{Bytes, BytesMut};
use h3_client::connect::{self, HTTP3, Link, Needs};
use h3_client::exchange::{self, H3_NO_ERROR, answer, lost, soon};
use h3_client::http3::{Answer, Http3, Piece};
use h3_client::options::Plan;
use h3_client::quiche::h3::Header;
use h3_client::report::Measured;
use h3_client::words::sentence;
use tokio::sync::mpsc;

use super::stream::OneStream;
use super::{Event, LONGEST_MESSAGE, Place, Refused, Role, Stopped};
use crate::broker::http::{FIRST, INSTANCE, SECRET};
use crate::cli::{Client, Protocol};
use crate::frame::{self, Frame};
use crate::mqtt::{ALPN, client::Client as Mqtt};
use crate::name::PublisherName;
use crate::topic::Message;

/// The most unsent bytes to which the client still adds a message.
const ENOUGH: usize = 16 * 1024;
/// Bytes that the broker may send before the client reads them.
const WINDOW: u64 = 1 << 20;
/// The program's task, for errors.
const REQUEST: &str = "request to the broker";

/// A connection, and its unsent bytes.
pub(crate) struct Connection {
    link: Link<()>,
    /// The request of HTTP/3.
    http: Option<Http3>,
    /// Bytes to the broker. A GET has no body.
    to: Option<mpsc::Sender<Piece>>,
    /// Bytes from the broker, once it answers.
    from: Option<mpsc::Receiver<Piece>>,
    codec: Codec,
    out: BytesMut,
    role: Role,
}

/// The protocol, without I/O.
#[derive(Debug)]
enum Codec {
    /// HTTP/3, with the received part of a frame.
    Http(BytesMut),
    Mqtt(Mqtt),
}

impl Connection {
    /// Connects, and sends the client's request.
    pub(crate) async fn open(
        client: &Client,
        name: &PublisherName,
        role: Role,
    ) -> anyhow::Result<Self> {
        let Client { plan, topic, protocol, .. } = client;
        let needs = |protocol| Needs { protocol, window: WINDOW, object: None, files: &[] };
        let mut out = BytesMut::new();
        Ok(match protocol {
            Protocol::Http3 => {
                let (link, http) = connect::connect_http3(plan, needs(HTTP3)).await?.split();
                let headers = headers(plan, name, role);
                let to = http.request(headers, matches!(role, Role::Publisher(_)))?;
                let codec = Codec::Http(BytesMut::new());
                Self { link, http: Some(http), to, from: None, codec, out, role }
            }
            Protocol::Mqtt => {
                let codec = Codec::Mqtt(Mqtt::new(topic, name, role, &mut out));
                let connected = connect::connect(plan, needs(ALPN), OneStream::new).await?;
                let (link, (to, from)) = connected.split();
                Self { link, http: None, to: Some(to), from: Some(from), codec, out, role }
            }
        })
    }

    /// Adds a message to the unsent bytes.
    pub(crate) fn publish(&mut self, message: &Message) {
        match &mut self.codec {
            Codec::Http(_) => Frame::Message(message.clone()).write(&mut self.out),
            Codec::Mqtt(mqtt) => mqtt.publish(message, &mut self.out),
        }
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
        let piece = async {
            match &mut self.from {
                Some(from) => from.recv().await,
                None => pending().await,
            }
        };
        let answer = async {
            match &mut self.http {
                Some(http) => answer(http.events.recv().await, REQUEST),
                None => pending().await,
            }
        };
        let head = tokio::select! {
            // The client handles bytes that arrived before the connection ended. They may explain
            // why the broker reads no more.
            biased;
            piece = piece => {
                let bytes = piece.map(|piece| piece.bytes).filter(|bytes| !bytes.is_empty());
                self.receive(bytes.ok_or_else(lost)?, events)?;
                return Ok(None);
            }
            answer = answer => answer?,
            sent = send(&self.to, &mut self.out), if !self.out.is_empty() => {
                return sent.map(|()| None);
            }
        };
        if exchange::status(&head.headers) != "200" {
            return Ok(Some(Head(head)));
        }
        let number = |name| exchange::fields(&head.headers, name).next()?.parse().ok();
        if let Role::Subscriber(_) = self.role {
            let place = Place { from: number(FIRST), instance: number(INSTANCE) };
            events.push(Event::Began(place));
        }
        self.from = Some(head.body);
        Ok(None)
    }

    fn receive(&mut self, bytes: Bytes, events: &mut Vec<Event>) -> Result<(), Refused> {
        let read = match &mut self.codec {
            Codec::Http(buffer) => read_frames(buffer, &bytes, events),
            Codec::Mqtt(mqtt) => mqtt.receive(&bytes, &mut self.out, events),
        };
        read.map_err(|refused| Refused { reason: broker_refused(&refused.reason), ..refused })
    }

    /// Closes the connection. Returns its measurements, or why it `ended`.
    pub(crate) async fn close(mut self, ended: anyhow::Result<()>) -> anyhow::Result<Measured> {
        let ended = ended.map_err(|error| {
            let exact = error.is::<Refused>() || error.is::<Stopped>();
            // Before the close, which would replace the broker's own reason.
            match self.link.ending().filter(|_| !exact) {
                Some(ending) => anyhow::anyhow!("{ending}"),
                None => error,
            }
        });
        let now = h3_client::now();
        if let Codec::Mqtt(mqtt) = &self.codec {
            mqtt.end(&mut self.out);
        }
        // Only if there is room at once: the connection may be dead.
        let _ = soon(send(&self.to, &mut self.out)).await;
        drop(self.to);
        match (self.http, self.from) {
            (Some(mut http), _) => exchange::close(&mut http, H3_NO_ERROR).await,
            (None, Some(mut from)) => {
                let _ = soon(async { while from.recv().await.is_some() {} }).await;
            }
            (None, None) => {}
        }
        ended.map(|()| self.link.measured(now))
    }
}

/// Sends all of `bytes` as soon as there is room. Cancel safe: it then has sent nothing.
async fn send(to: &Option<mpsc::Sender<Piece>>, bytes: &mut BytesMut) -> anyhow::Result<()> {
    if let Some(to) = to {
        let room = to.reserve().await.map_err(|_| lost())?;
        room.send(Piece { bytes: bytes.split().freeze(), last: false });
    }
    Ok(())
}

fn read_frames(
    buffer: &mut BytesMut,
    bytes: &[u8],
    events: &mut Vec<Event>,
) -> Result<(), Refused> {
    buffer.extend_from_slice(bytes);
    while let Some(frame) =
        frame::next(buffer, LONGEST_MESSAGE).map_err(|fault| fault.to_string())?
    {
        events.push(match frame {
            Frame::Message(message) => Event::Message(message),
            Frame::Missed(count) => Event::Missed(count),
            Frame::Acknowledged(own) => Event::Acknowledged(own),
            Frame::Refused(reason) => return Err(reason.into()),
        });
    }
    Ok(())
}

/// The head of an answer that refuses.
pub(crate) struct Head(Answer);

impl Head {
    /// Why the broker refused.
    pub(crate) async fn refusal(mut self, plan: &Plan) -> anyhow::Error {
        let status = exchange::status(&self.0.headers);
        match exchange::text(plan, &mut self.0).await {
            Ok(text) => {
                let text = sentence(&String::from_utf8_lossy(&text));
                let reason = broker_refused(&format!("{text} (status {status})"));
                Refused { reason, busy: matches!(&*status, "429" | "503") }.into()
            }
            Err(error) => error,
        }
    }
}

fn broker_refused(reason: &str) -> String {
    format!("the broker refused: {}", sentence(reason))
}

fn headers(plan: &Plan, name: &PublisherName, role: Role) -> Vec<Header> {
    // Its path is already that of the topic.
    let mut plan = plan.clone();
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
