//! A client of quinn, for what the programs never send, and for many subscribers at once.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use quinn::crypto::rustls::QuicClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::programs::Broker;

/// CONNECT of a plain client of MQTT 5.
pub(crate) const CONNECT: &[u8] = b"\x10\x0e\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x01p";

/// A socket for any number of connections.
pub(crate) fn endpoint() -> quinn::Endpoint {
    quinn::Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap()
}

/// A connection of quinn.
pub(crate) async fn connect(
    endpoint: &quinn::Endpoint,
    broker: &Broker,
    protocol: &[u8],
) -> quinn::Connection {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(broker.ca()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![protocol.to_vec()];
    let config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, broker.port));
    endpoint.connect_with(config, address, "127.0.0.1").unwrap().await.unwrap()
}
