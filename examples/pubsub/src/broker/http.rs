//! The requests of HTTP/3: POST publishes, GET subscribes.

use std::sync::Arc;

use ::http::{HeaderValue, Method, Request, Response, StatusCode};
use bytes::{Buf as _, Bytes, BytesMut};
use h3::error::{Code, StreamError};
use h3_server::connection::Stream;
use h3_server::quota::Client;
use h3_server::reply::Reply;
use tokio::time::timeout;
use tracing::{debug, warn};
use url::form_urlencoded;

use super::topics::{Publisher, Subscriber};
use super::{Broker, PATIENCE, Refusal, start};
use crate::frame::{Frame, Frames};
use crate::name::{PublisherName, TopicName};
use crate::topic::Item;
use crate::topic::publishers::Owner;

/// The header of an answer with the broker's life, to which the numbers of messages belong.
pub(crate) const INSTANCE: &str = "pubsub-instance";
/// The header of an answer to a subscriber with the number of its first message.
pub(crate) const FIRST: &str = "pubsub-first";
/// The header of a publisher's request with the secret of its name.
pub(crate) const SECRET: &str = "pubsub-secret";
/// The most bytes of frames that the broker sends at a time.
const CHUNK: usize = 16 * 1024;
/// A frame of a type that every client skips.
const EMPTY: &[u8] = &[0x21, 0];
const USAGE: &str = "pubsub broker: POST /topics/NAME publishes, GET /topics/NAME subscribes\n";

/// Serves one request.
pub(crate) async fn serve(
    request: Request<()>,
    mut stream: Stream,
    broker: Arc<Broker>,
    client: Client,
) {
    let uri = request.uri();
    let query = Query::parse(uri.query().unwrap_or_default());
    let topic = TopicName::of_path(uri.path());
    let done = match (request.method(), topic, query) {
        (&Method::GET, None, _) if uri.path() == "/" => {
            return Reply::text(StatusCode::OK, USAGE.to_owned()).send(&mut stream, PATIENCE).await;
        }
        (_, None, _) => Err(Refusal::Path),
        (_, Some(Err(name)), _) => Err(name.into()),
        (&Method::POST, Some(Ok(topic)), Ok(query)) => {
            let secret = request.headers().get(SECRET).map(HeaderValue::as_bytes);
            let owner = broker.topics.owner(client, secret);
            publisher(&broker, client, &topic, query.publisher.zip(Some(owner))).map(Ok)
        }
        (&Method::GET, Some(Ok(topic)), Ok(query)) => {
            subscriber(&broker, client, &topic, &query).map(Err)
        }
        (&Method::POST | &Method::GET, Some(Ok(_)), Err(refusal)) => Err(refusal),
        (_, Some(Ok(_)), _) => Err(Refusal::Method),
    };
    let ended = match done {
        Ok(Ok(publisher)) => publish(&mut stream, &broker, publisher).await,
        Ok(Err(subscriber)) => subscribe(&mut stream, &broker, subscriber).await,
        Err(refusal) => {
            warn!(path = uri.path(), %refusal, "refused");
            let reply =
                Reply::refusal(refusal.status(), &refusal.to_string(), "GET, POST", PATIENCE);
            return reply.send(&mut stream, PATIENCE).await;
        }
    };
    if let Err(error) = ended {
        debug!(path = uri.path(), %error, "a stream ended early");
    }
}

/// The query of a request.
#[derive(Debug, Default)]
struct Query {
    publisher: Option<PublisherName>,
    from: Option<u64>,
    instance: Option<u64>,
}

impl Query {
    fn parse(text: &str) -> Result<Self, Refusal> {
        let mut query = Self::default();
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            match &*name {
                "publisher" => query.publisher = Some(PublisherName::new(&value)?),
                "from" => {
                    query.from = Some(value.parse().map_err(|_| Refusal::Number("from"))?);
                }
                "instance" => {
                    query.instance = Some(value.parse().map_err(|_| Refusal::Number("instance"))?);
                }
                // For extensions.
                _ => {}
            }
        }
        Ok(query)
    }
}

fn publisher(
    broker: &Broker,
    client: Client,
    topic: &TopicName,
    name: Option<(PublisherName, Owner)>,
) -> Result<Publisher, Refusal> {
    let place = broker.publishers.take(client)?;
    let mut publisher = broker.topics.publisher(topic, place)?;
    if let Some((name, owner)) = name {
        publisher.take_name(name, owner)?;
    }
    Ok(publisher)
}

fn subscriber(
    broker: &Broker,
    client: Client,
    topic: &TopicName,
    query: &Query,
) -> Result<Subscriber, Refusal> {
    let place = broker.subscribers.take(client)?;
    let start = start(&broker.topics, query.from, query.instance);
    Ok(broker.topics.subscriber(topic, start, place)?)
}

async fn answer(
    stream: &mut Stream,
    broker: &Broker,
    first: Option<u64>,
) -> Result<(), StreamError> {
    let mut response = Response::new(());
    let headers = response.headers_mut();
    headers.insert(INSTANCE, HeaderValue::from(broker.topics.instance()));
    if let Some(first) = first {
        headers.insert(FIRST, HeaderValue::from(first));
    }
    stream.send_response(response).await
}

/// Receives messages, and acknowledges them.
async fn publish(
    stream: &mut Stream,
    broker: &Broker,
    publisher: Publisher,
) -> Result<(), StreamError> {
    answer(stream, broker, None).await?;
    let mut frames = Frames::new(broker.limits.max_message as usize);
    let mut out = BytesMut::new();
    while let Some(mut data) = stream.recv_data().await? {
        while data.has_remaining() {
            let chunk = data.chunk();
            frames.push(chunk);
            let len = chunk.len();
            data.advance(len);
        }
        let (latest, fault) = take(&mut frames, &publisher);
        if let Some(latest) = latest {
            Frame::Acknowledged(latest).write(&mut out);
        }
        if let Some(reason) = fault {
            return refuse(stream, out, reason).await;
        }
        if !out.is_empty() {
            stream.send_data(out.split().freeze()).await?;
        }
    }
    if !frames.may_end() {
        return refuse(stream, out, "the body ends within a message".to_owned()).await;
    }
    stream.finish().await
}

/// Publishes the messages that have arrived. Returns the number of the last one, and the error
/// after it, if there is one.
fn take(frames: &mut Frames, publisher: &Publisher) -> (Option<u64>, Option<String>) {
    let mut latest = None;
    loop {
        match frames.next() {
            Ok(Some(Frame::Message { sequence, time, payload })) => {
                if let Err(error) = publisher.publish(Some(sequence), time, payload, true) {
                    return (latest, Some(error.to_string()));
                }
                latest = Some(sequence);
            }
            Ok(Some(_)) => return (latest, Some("a publisher only sends messages".to_owned())),
            Ok(None) => return (latest, None),
            Err(fault) => return (latest, Some(fault.to_string())),
        }
    }
}

/// Ends an answer that has begun, because of an error of the client.
async fn refuse(stream: &mut Stream, mut out: BytesMut, reason: String) -> Result<(), StreamError> {
    warn!(reason, "refused");
    Frame::Refused(reason).write(&mut out);
    stream.send_data(out.freeze()).await?;
    stream.finish().await?;
    // The broker does not need the rest of the body (RFC 9114, section 4.1).
    stream.stop_sending(Code::H3_NO_ERROR);
    Ok(())
}

/// Sends messages until the client leaves.
async fn subscribe(
    stream: &mut Stream,
    broker: &Broker,
    mut subscriber: Subscriber,
) -> Result<(), StreamError> {
    answer(stream, broker, Some(subscriber.first())).await?;
    let mut out = BytesMut::new();
    loop {
        while out.len() < CHUNK
            && let Some(item) = subscriber.read()
        {
            match item {
                Item::Last(message) | Item::Message(message) => {
                    let (sequence, time, payload) =
                        (message.sequence, message.time, message.payload);
                    Frame::Message { sequence, time, payload }.write(&mut out);
                }
                Item::Missed(count) => Frame::Missed(count).write(&mut out),
            }
        }
        match out.is_empty() {
            true => {
                if timeout(PATIENCE, subscriber.wait()).await.is_err() {
                    // This fails if the client has closed the stream, but not the connection.
                    stream.send_data(Bytes::from_static(EMPTY)).await?;
                }
            }
            // This waits for the flow control of this subscriber, which delays no other subscriber.
            false => stream.send_data(out.split().freeze()).await?,
        }
    }
}
