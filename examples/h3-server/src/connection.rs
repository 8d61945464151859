//! One HTTP/3 connection, from its settings to the end of its last request.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use h3::error::Code;
use h3::server::{RequestResolver, RequestStream};
use http::Request;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::debug;

use crate::frames::LONGEST_KEPT;
use crate::transport::{self, wire};

/// The most streams that may end without a request. h3 remembers each until the connection ends.
const MOST_BROKEN: u32 = 1000;

/// A request's stream.
pub type Stream = RequestStream<transport::BidiStream, Bytes>;

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its request was answered, or the client left.
    Answered,
    /// It had no request.
    Broken,
    /// Its headers did not end in time.
    Endless,
}

/// Completes a handshake; `None` if that fails, or takes longer than `patience`.
pub async fn handshake(incoming: quinn::Incoming, patience: Duration) -> Option<quinn::Connection> {
    let peer = incoming.remote_address();
    match timeout(patience, incoming).await {
        Ok(Ok(quic)) => return Some(quic),
        Ok(Err(error)) => debug!(%peer, %error, "the handshake failed"),
        Err(_) => debug!(%peer, "the handshake timed out"),
    }
    None
}

/// Serves the requests of a connection by `serve`, each in a task of its own, until the client or
/// an error ends the connection. Returns the requests that still run.
///
/// Within `patience`, the settings must leave, the headers of a request must end, and a connection
/// without a request must begin one.
pub async fn serve_requests<F>(
    quic: quinn::Connection,
    patience: Duration,
    serve: impl Fn(Request<()>, Stream) -> F + Clone + Send + 'static,
) -> JoinSet<Ended>
where
    F: Future<Output = ()> + Send + 'static,
{
    let peer = quic.remote_address();
    let excess = |reason: &str| quic.close(wire(Code::H3_EXCESSIVE_LOAD), reason.as_bytes());
    let mut requests = JoinSet::new();
    let mut builder = h3::server::builder();
    builder.max_field_section_size(LONGEST_KEPT.into());
    let built = builder.build(transport::Connection::new(quic.clone()));
    let mut http: h3::server::Connection<_, Bytes> = match timeout(patience, built).await {
        Ok(Ok(http)) => http,
        Ok(Err(error)) => {
            debug!(%peer, %error, "the connection does not use HTTP/3");
            return requests;
        }
        Err(_) => {
            excess("the client allowed no stream for the settings");
            return requests;
        }
    };
    let mut broken = 0;
    loop {
        let before = quic.stats().frame_tx.stream;
        tokio::select! {
            accepted = http.accept() => match accepted {
                Ok(Some(resolver)) => {
                    requests.spawn(answer(resolver, peer, patience, serve.clone()));
                }
                Ok(None) => break,
                Err(error) => {
                    debug!(%peer, %error, "connection ended");
                    break;
                }
            },
            Some(ended) = requests.join_next() => match ended {
                Ok(Ended::Answered) => {}
                Ok(Ended::Broken) if broken < MOST_BROKEN => broken += 1,
                Ok(Ended::Broken) => excess("too many streams ended without a request"),
                Ok(Ended::Endless) => excess("the headers of a request did not end in time"),
                Err(error) => debug!(%peer, %error, "a request failed"),
            },
            () = sleep(patience), if requests.is_empty() => {
                // The end of a body waits in the send window after its request has ended.
                if quic.stats().frame_tx.stream != before {
                    continue;
                }
                debug!(%peer, "closing a connection without a request");
                quic.close(wire(Code::H3_NO_ERROR), b"no request for too long");
                break;
            }
        }
    }
    requests
}

/// Lets `serve` answer the request of a stream.
async fn answer<F: Future<Output = ()>>(
    resolver: RequestResolver<transport::Connection, Bytes>,
    peer: SocketAddr,
    patience: Duration,
    serve: impl Fn(Request<()>, Stream) -> F,
) -> Ended {
    let ended = match timeout(patience, resolver.resolve_request()).await {
        Ok(Ok((request, stream))) => {
            debug!(%peer, method = %request.method(), path = request.uri().path(), "request");
            serve(request, stream).await;
            return Ended::Answered;
        }
        Ok(Err(_)) => Ended::Broken,
        Err(_) => Ended::Endless,
    };
    debug!(%peer, ?ended, "a stream without a request");
    ended
}
