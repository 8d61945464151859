//! The requests of HTTP/3 for `/topics/NAME`. Their bodies are [frames](crate::frame).
//!
//! POST publishes, for as long as its body goes on. The answer begins at once, and acknowledges
//! messages as they arrive. The query `publisher=ID` names the publisher, so that the broker
//! recognises repeated messages, and the header `pubsub-secret` is the secret of that name. The
//! publisher numbers its messages from 1 upwards, with gaps of up to 1,000,000.
//!
//! GET subscribes, until the client leaves: at the last value, or with `from=N` at message N or the
//! oldest after it. `instance=M` names the life of the broker to which N belongs; if that life is
//! over, the subscription begins at 1. After 30 s without a message the broker sends an empty frame
//! of type 0x21, by which it learns whether the client has left.
//!
//! A refusal before the answer has begun is a status and a sentence: 400 for a bad name or query,
//! 403 for a name of another client, 429 and 503 with `Retry-After` for a limit.

use std::collections::HashMap;
use std::sync::Arc;

use ::http::{HeaderValue, Method, Request, Response, StatusCode};
use bytes::{BufMut as _, Bytes, BytesMut};
use h3::error::{Code, StreamError};
use h3_server::connection::Stream;
use h3_server::quota::Client;
use h3_server::reply::Reply;
use tokio::time::timeout;
use tracing::{debug, warn};
use url::form_urlencoded;

use super::topics::{Broker, Publisher, Subscriber};
use super::{PATIENCE, Refusal};
use crate::frame::{self, Frame};
use crate::name::{PublisherName, TopicName};
use crate::topic::{Item, Message};

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

/// What an accepted request asks for.
enum Accepted {
    Usage,
    Publish(Publisher),
    Subscribe(Subscriber),
}

/// Serves one request.
pub(crate) async fn serve(
    request: Request<()>,
    mut stream: Stream,
    broker: Arc<Broker>,
    client: Client,
) {
    let path = request.uri().path();
    let ended = match accept(&request, &broker, client) {
        Ok(Accepted::Usage) => {
            return Reply::text(StatusCode::OK, USAGE.to_owned()).send(&mut stream, PATIENCE).await;
        }
        Ok(Accepted::Publish(publisher)) => publish(&mut stream, &broker, publisher).await,
        Ok(Accepted::Subscribe(subscriber)) => subscribe(&mut stream, &broker, subscriber).await,
        Err(refusal) => {
            warn!(path, %refusal, "refused");
            let (status, reason) = (refusal.status(), refusal.to_string());
            let reply = Reply::refusal(status, &reason, "GET, POST", PATIENCE);
            return reply.send(&mut stream, PATIENCE).await;
        }
    };
    if let Err(error) = ended {
        debug!(path, %error, "a stream ended early");
    }
}

fn accept(request: &Request<()>, broker: &Broker, client: Client) -> Result<Accepted, Refusal> {
    let uri = request.uri();
    if request.method() == Method::GET && uri.path() == "/" {
        return Ok(Accepted::Usage);
    }
    let topic = TopicName::of_path(uri.path()).ok_or(Refusal::Path)??;
    // Other names are for extensions.
    let query: HashMap<_, _> =
        form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).collect();
    let number = |name| {
        let number = query.get(name).map(|value| value.parse());
        number.transpose().map_err(|_| Refusal::Number(name))
    };
    match *request.method() {
        Method::POST => {
            let mut publisher = broker.publisher(client, &topic)?;
            if let Some(name) = query.get("publisher") {
                let secret = request.headers().get(SECRET).map(HeaderValue::as_bytes);
                let owner = broker.owner(client, secret);
                publisher.take_name(PublisherName::new(name)?, owner)?;
            }
            Ok(Accepted::Publish(publisher))
        }
        Method::GET => {
            let start = broker.start(number("from")?, number("instance")?);
            Ok(Accepted::Subscribe(broker.subscriber(client, &topic, start)?))
        }
        _ => Err(Refusal::Method),
    }
}

async fn answer(
    stream: &mut Stream,
    broker: &Broker,
    first: Option<u64>,
) -> Result<(), StreamError> {
    let mut response = Response::new(());
    let headers = response.headers_mut();
    headers.insert(INSTANCE, HeaderValue::from(broker.instance()));
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
    let (mut received, mut out) = (BytesMut::new(), BytesMut::new());
    while let Some(data) = stream.recv_data().await? {
        received.put(data);
        let mut latest = None;
        let taken = take(&mut received, broker, &publisher, &mut latest);
        if let Some(latest) = latest {
            Frame::Acknowledged(latest).write(&mut out);
        }
        if let Err(reason) = taken {
            return refuse(stream, out, reason).await;
        }
        if !out.is_empty() {
            stream.send_data(out.split().freeze()).await?;
        }
    }
    if !received.is_empty() {
        return refuse(stream, out, "the body ends within a message".to_owned()).await;
    }
    stream.finish().await
}

/// Publishes the messages that have arrived, and notes the number of the latest. An error is a
/// sentence about the bytes behind them.
fn take(
    received: &mut BytesMut,
    broker: &Broker,
    publisher: &Publisher,
    latest: &mut Option<u64>,
) -> Result<(), String> {
    let longest = broker.limits.max_message as usize;
    while let Some(frame) = frame::next(received, longest).map_err(|fault| fault.to_string())? {
        let Frame::Message(Message { sequence, time, payload }) = frame else {
            return Err("a publisher only sends messages".to_owned());
        };
        let published = publisher.publish(Some(sequence), time, payload, true);
        published.map_err(|error| error.to_string())?;
        *latest = Some(sequence);
    }
    Ok(())
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
                    Frame::Message(message).write(&mut out);
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
