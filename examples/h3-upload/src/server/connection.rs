//! One connection, from its handshake to the end of its last request.

use std::sync::Arc;

use bytes::Bytes;
use h3::error::Code;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::debug;

use crate::frames::LONGEST_KEPT;
use crate::limits::{Client, Limits, Place, Quota};
use crate::request::{self, Ended};
use crate::store::Store;
use crate::transport::{self, wire};

/// The most streams that may end without a request. h3 remembers each until the connection ends.
const MOST_BROKEN: u32 = 1000;

/// The state that all connections share.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    limits: Arc<Limits>,
    store: Store,
    connections: Arc<Quota>,
    transfers: Arc<Quota>,
}

impl Service {
    pub(crate) fn new(limits: Limits, store: Store) -> Self {
        let connections =
            Quota::new("connections", limits.max_connections, limits.max_connections_per_client);
        let transfers = Quota::new("transfers", limits.max_uploads, limits.max_uploads_per_client);
        Self { limits: Arc::new(limits), store, connections, transfers }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn connections(&self) -> &Arc<Quota> {
        &self.connections
    }

    pub(crate) fn transfers(&self) -> &Arc<Quota> {
        &self.transfers
    }
}

/// Serves one connection, which keeps its `place` until it ends.
pub(crate) async fn serve_connection(
    incoming: quinn::Incoming,
    service: Service,
    client: Client,
    place: Place,
) {
    let peer = incoming.remote_address();
    let patience = service.limits.request_timeout();
    let quic = match timeout(patience, incoming).await {
        Ok(Ok(quic)) => quic,
        Ok(Err(error)) => return debug!(%peer, %error, "the handshake failed"),
        Err(_) => return debug!(%peer, "the handshake timed out"),
    };
    let mut builder = h3::server::builder();
    builder.max_field_section_size(LONGEST_KEPT.into());
    let settings_sent =
        timeout(patience, builder.build(transport::Connection::new(quic.clone()))).await;
    let mut http: h3::server::Connection<_, Bytes> = match settings_sent {
        Ok(Ok(http)) => http,
        Ok(Err(error)) => return debug!(%peer, %error, "the connection does not use HTTP/3"),
        Err(_) => {
            return quic.close(
                wire(Code::H3_EXCESSIVE_LOAD),
                b"the client allowed no stream for the settings",
            );
        }
    };
    let mut requests = JoinSet::new();
    let mut broken = 0;
    loop {
        let before = quic.stats().frame_tx.stream;
        tokio::select! {
            accepted = http.accept() => match accepted {
                Ok(Some(resolver)) => {
                    requests.spawn(request::serve(resolver, service.clone(), client, peer));
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
                Ok(Ended::Broken) => {
                    let reason = b"too many streams ended without a request";
                    quic.close(wire(Code::H3_EXCESSIVE_LOAD), reason);
                }
                Ok(Ended::Endless) => {
                    let reason = b"the headers of a request did not end in time";
                    quic.close(wire(Code::H3_EXCESSIVE_LOAD), reason);
                }
                Err(error) => debug!(%peer, %error, "a request failed"),
            },
            () = sleep(patience), if requests.is_empty() => {
                // The end of a file waits in the send window after its request has ended.
                if quic.stats().frame_tx.stream != before {
                    continue;
                }
                debug!(%peer, "closing a connection without a request");
                quic.close(wire(Code::H3_NO_ERROR), b"no request for too long");
                break;
            }
        }
    }
    // The server still stores complete bodies. Incomplete ones fail now.
    while requests.join_next().await.is_some() {}
    drop(place);
}
