//! A client on quinn, for bytes that the programs never send, and for many subscribers at once.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::http_peer::client_config;
use crate::programs::Broker;

/// CONNECT of a plain client of MQTT 5.
pub(crate) const CONNECT: &[u8] = b"\x10\x0e\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x01p";

/// A socket for any number of connections.
pub(crate) fn endpoint() -> quinn::Endpoint {
    quinn::Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap()
}

/// A connection of quinn, kept alive by PINGs.
pub(crate) async fn connect(
    endpoint: &quinn::Endpoint,
    broker: &Broker,
    protocol: &[u8],
) -> quinn::Connection {
    let mut config = client_config(&broker.ca(), protocol);
    let mut transport = quinn::TransportConfig::default();
    transport.keep_alive_interval(Some(Duration::from_secs(5)));
    config.transport_config(Arc::new(transport));
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, broker.port));
    endpoint.connect_with(config, address, "127.0.0.1").unwrap().await.unwrap()
}
