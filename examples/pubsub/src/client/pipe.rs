//! The bytes of a connection: the bodies of a request and its answer, or a stream of MQTT.

use anyhow::Context as _;
use bytes::{Bytes, BytesMut};
use h3_client::connect::{self, HTTP3, Link, Needs};
use h3_client::exchange::{self, H3_NO_ERROR, answer, lost};
use h3_client::options::Plan;
use h3_client::tokio_quiche::ClientH3Controller;
use h3_client::tokio_quiche::http3::driver::{
    ClientEventStream, InboundFrame, InboundFrameStream, IncomingH3Headers, NewClientRequest,
    OutboundFrame, OutboundFrameSender,
};
use h3_client::tokio_quiche::quiche::h3::Header;
use tokio::sync::{mpsc, oneshot};
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
    Body(mpsc::Sender<OutboundFrame>),
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
                room.send(OutboundFrame::Body(bytes.split().freeze(), false));
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
    Head(Box<IncomingH3Headers>),
    Bytes(Bytes),
}

/// The receiving half: bytes from the broker.
pub(crate) enum Receiver {
    Http {
        controller: ClientH3Controller,
        events: ClientEventStream,
        body: Option<InboundFrameStream>,
    },
    Stream(mpsc::Receiver<Bytes>),
}

impl Receiver {
    /// Waits for the next arrival. Cancel safe. An error is the end of the connection.
    pub(crate) async fn receive(&mut self) -> anyhow::Result<Received> {
        let (events, body) = match self {
            Self::Http { events, body, .. } => (events, body),
            Self::Stream(stream) => {
                return Ok(Received::Bytes(stream.recv().await.ok_or_else(lost)?));
            }
        };
        loop {
            let Some(body) = body else {
                match answer(events.recv().await, REQUEST)? {
                    Some(head) => return Ok(Received::Head(Box::new(head))),
                    None => continue,
                }
            };
            tokio::select! {
                // The client handles bytes that arrived before the connection ended.
                biased;
                frame = body.recv() => match frame {
                    Some(InboundFrame::Body(bytes, _)) if !bytes.is_empty() => {
                        return Ok(Received::Bytes(bytes.freeze()));
                    }
                    Some(InboundFrame::Datagram(_)) => {}
                    Some(InboundFrame::Body(..)) | None => return Err(lost()),
                },
                event = events.recv() => drop(answer(event, REQUEST)?),
            }
        }
    }

    /// The answer continues with this body.
    pub(crate) fn begin(&mut self, frames: InboundFrameStream) {
        if let Self::Http { body, .. } = self {
            *body = Some(frames);
        }
    }

    /// The text of an answer without messages.
    pub(crate) async fn text(
        &mut self,
        plan: &Plan,
        head: &mut IncomingH3Headers,
    ) -> anyhow::Result<String> {
        let Self::Http { events, .. } = self else { return Ok(String::new()) };
        let text = exchange::text(plan, head, events).await?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Closes the connection, whose sending half is already closed, and waits for its end.
    pub(crate) async fn close(&mut self) {
        match self {
            Self::Http { controller, events, .. } => {
                exchange::close(controller, events, H3_NO_ERROR).await;
            }
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
    let (link, mut controller) = connect::connect_http3(plan, needs).await?.split();
    let events = controller.take_event_receiver();
    let (writer, body) = oneshot::channel::<OutboundFrameSender>();
    let body_writer = has_body.then_some(writer);
    let request = NewClientRequest { request_id: 0, headers, body_writer };
    controller.request_sender().send(request).map_err(|_| lost())?;
    let to = match has_body {
        true => {
            let body = body.await.map_err(|_| lost())?;
            Sender::Body(body.get_ref().cloned().context("the driver gave no way for the body")?)
        }
        false => Sender::Nowhere,
    };
    Ok((link, to, Receiver::Http { controller, events, body: None }))
}

/// Connects for a stream of MQTT.
pub(crate) async fn mqtt(plan: &Plan) -> anyhow::Result<(Link<()>, Sender, Receiver)> {
    let needs = Needs { protocol: ALPN, window: WINDOW, object: None, files: &[] };
    let (link, Ends { to, from }) = connect::connect(plan, needs, OneStream::new).await?.split();
    Ok((link, Sender::Stream(to), Receiver::Stream(from)))
}
