//! The bytes of a connection: the bodies of a request and its answer, or a stream of MQTT.

use bytes::{Bytes, BytesMut};
use h3_client::connect::{self, HTTP3, Link, Needs};
use h3_client::exchange::{self, H3_NO_ERROR, answer, lost};
use h3_client::http3::{Answer, Http3, Piece};
use h3_client::options::Plan;
use h3_client::quiche::h3::Header;
use tokio::sync::mpsc;
use tokio::time::{Duration, timeout};

use super::stream::{Ends, OneStream};
use crate::mqtt::ALPN;

/// The program's task, for errors.
pub(crate) const REQUEST: &str = "request to the broker";
/// Bytes that the broker may send before the client reads them.
const WINDOW: u64 = 1 << 20;
/// The longest wait until the connection has ended.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The sending half: bytes to the broker.
#[derive(Debug)]
pub(crate) enum Sender {
    /// The body of a POST.
    Body(mpsc::Sender<Piece>),
    Stream(mpsc::Sender<Bytes>),
    /// A GET has no body.
    Nowhere,
}

impl Sender {
    /// Sends all of `bytes` as soon as there is room. Cancel safe: it then has sent nothing.
    pub(crate) async fn send(&self, bytes: &mut BytesMut) -> anyhow::Result<()> {
        match self {
            Self::Body(body) => {
                let room = body.reserve().await.map_err(|_| lost())?;
                room.send(Piece { bytes: bytes.split().freeze(), last: false });
            }
            Self::Stream(stream) => {
                let room = stream.reserve().await.map_err(|_| lost())?;
                room.send(bytes.split().freeze());
            }
            Self::Nowhere => bytes.clear(),
        }
        Ok(())
    }
}

/// An arrival from the broker.
#[derive(Debug)]
pub(crate) enum Received {
    /// The head of an answer.
    Head(Answer),
    Bytes(Bytes),
}

/// The receiving half: bytes from the broker.
pub(crate) enum Receiver {
    Http { http: Http3, body: Option<mpsc::Receiver<Piece>> },
    Stream(mpsc::Receiver<Bytes>),
}

impl Receiver {
    /// Waits for the next arrival. Cancel safe. An error is the end of the connection.
    pub(crate) async fn receive(&mut self) -> anyhow::Result<Received> {
        let (http, body) = match self {
            Self::Http { http, body } => (http, body),
            Self::Stream(stream) => {
                return Ok(Received::Bytes(stream.recv().await.ok_or_else(lost)?));
            }
        };
        let Some(body) = body else {
            return Ok(Received::Head(answer(http.events.recv().await, REQUEST)?));
        };
        tokio::select! {
            // The client handles bytes that arrived before the connection ended.
            biased;
            piece = body.recv() => match piece {
                Some(Piece { bytes, .. }) if !bytes.is_empty() => Ok(Received::Bytes(bytes)),
                _ => Err(lost()),
            },
            event = http.events.recv() => Err(answer(event, REQUEST).err().unwrap_or_else(lost)),
        }
    }

    /// The answer continues with this body.
    pub(crate) fn begin(&mut self, pieces: mpsc::Receiver<Piece>) {
        if let Self::Http { body, .. } = self {
            *body = Some(pieces);
        }
    }

    /// Closes the connection, whose sending half is already closed, and waits for its end.
    pub(crate) async fn close(&mut self) {
        match self {
            Self::Http { http, .. } => exchange::close(http, H3_NO_ERROR).await,
            Self::Stream(stream) => {
                let _ =
                    timeout(CLOSE_TIMEOUT, async { while stream.recv().await.is_some() {} }).await;
            }
        }
    }
}

/// Connects for a request of HTTP/3 with these headers, and sends it.
pub(crate) async fn http(
    plan: &Plan,
    headers: Vec<Header>,
    has_body: bool,
) -> anyhow::Result<(Link<()>, Sender, Receiver)> {
    let needs = Needs { protocol: HTTP3, window: WINDOW, object: None, files: &[] };
    let (link, http) = connect::connect_http3(plan, needs).await?.split();
    let to = http.request(headers, has_body)?.map_or(Sender::Nowhere, Sender::Body);
    Ok((link, to, Receiver::Http { http, body: None }))
}

/// Connects for a stream of MQTT.
pub(crate) async fn mqtt(plan: &Plan) -> anyhow::Result<(Link<()>, Sender, Receiver)> {
    let needs = Needs { protocol: ALPN, window: WINDOW, object: None, files: &[] };
    let (link, Ends { to, from }) = connect::connect(plan, needs, OneStream::new).await?.split();
    Ok((link, Sender::Stream(to), Receiver::Stream(from)))
}
