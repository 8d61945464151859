//! One connection of the server.

use std::sync::Arc;

use h3_server::connection::{handshake, serve_requests};
use h3_server::quota::{Client, Place, Quota};

use crate::limits::Limits;
use crate::request;
use crate::store::Store;

/// The state that all connections share.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    limits: Arc<Limits>,
    store: Store,
    transfers: Arc<Quota>,
}

impl Service {
    pub(crate) fn new(limits: Limits, store: Store) -> Self {
        let transfers = Quota::new("transfers", limits.max_uploads, limits.max_uploads_per_client);
        Self { limits: Arc::new(limits), store, transfers }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn transfers(&self) -> &Arc<Quota> {
        &self.transfers
    }
}

/// Serves one connection, which keeps its `place` until it ends.
pub(crate) async fn serve(
    incoming: quinn::Incoming,
    service: Service,
    client: Client,
    place: Place,
) {
    let peer = incoming.remote_address();
    let patience = service.limits.request_timeout();
    let Some(quic) = handshake(incoming, patience).await else { return };
    let mut requests = serve_requests(quic, patience, move |request, stream| {
        request::serve(request, stream, service.clone(), client, peer)
    })
    .await;
    // The server still stores complete bodies. Incomplete ones fail now.
    while requests.join_next().await.is_some() {}
    drop(place);
}
