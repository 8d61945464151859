//! A client on quinn, for bytes that the programs never send, and for many subscribers at once.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::http_peer::client_config;
use crate::programs::Broker;

/// CONNECT of a plain client of MQTT 5.
pub(crate) const CONNECT: &[u8] = b"\x10\x0e\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x01p";
/// SUBSCRIBE to the topic `t` by QoS 0.
pub(crate) const SUBSCRIBE: &[u8] = b"\x82\x07\x00\x01\x00\x00\x01t\x00";

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

/// A bidirectional stream, and what it has received.
pub(crate) struct Stream {
    pub(crate) received: Vec<u8>,
    receive: quinn::RecvStream,
    _send: quinn::SendStream,
}

impl Stream {
    /// Opens a stream, and sends these bytes.
    pub(crate) async fn begin(quic: &quinn::Connection, bytes: &[u8]) -> Self {
        let (mut send, receive) = quic.open_bi().await.unwrap();
        send.write_all(bytes).await.unwrap();
        Self { received: Vec::new(), receive, _send: send }
    }

    /// Waits until it has received these bytes.
    pub(crate) async fn read_until(&mut self, bytes: &[u8]) {
        while !self.received.windows(bytes.len()).any(|window| window == bytes) {
            let chunk = self.receive.read_chunk(1000, true).await.unwrap().unwrap();
            self.received.extend_from_slice(&chunk.bytes);
        }
    }
}
