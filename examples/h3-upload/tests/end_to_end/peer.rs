//! A client of quinn and h3, for requests that h3-upload never sends; and TLS for other peers.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use http::{Request, Response, StatusCode};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// Sends one request with quinn and h3. `headers` and `body` may contradict each other. Returns the
/// status and the body of the answer.
pub(crate) fn ask(
    port: u16,
    ca: &Path,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &'static [u8],
) -> (StatusCode, String) {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let mut client = Client::connect(port, ca).await;
        let mut request = client.begin(method, path, headers, body).await;
        let _ = request.finish().await;
        let answer = answer(&mut request).await;
        (answer.0.status(), answer.1)
    })
}

type Stream = h3::client::RequestStream<h3_quinn::BidiStream<Bytes>, Bytes>;

/// A connection of quinn and h3.
pub(crate) struct Client {
    port: u16,
    sender: h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>,
    _driving: tokio::task::JoinHandle<()>,
}

impl Client {
    pub(crate) async fn connect(port: u16, ca: &Path) -> Self {
        let endpoint = quinn::Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let connecting =
            endpoint.connect_with(client_config(ca, b"h3"), address, "127.0.0.1").unwrap();
        let quic = h3_quinn::Connection::new(connecting.await.unwrap());
        let (mut driver, sender) = h3::client::new(quic).await.unwrap();
        let driving = tokio::spawn(async move {
            driver.wait_idle().await;
        });
        Self { port, sender, _driving: driving }
    }

    /// Begins a request, and sends this part of its body.
    pub(crate) async fn begin(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &'static [u8],
    ) -> Stream {
        let uri = format!("https://127.0.0.1:{}{path}", self.port);
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut stream = self.sender.send_request(request.body(()).unwrap()).await.unwrap();
        // A server may refuse before it has the whole body.
        let _ = stream.send_data(Bytes::from_static(body)).await;
        stream
    }
}

/// Reads the answer to a request, and its body.
pub(crate) async fn answer(stream: &mut Stream) -> (Response<()>, String) {
    let response = stream.recv_response().await.unwrap();
    let mut text = Vec::new();
    while let Some(data) = stream.recv_data().await.unwrap() {
        text.extend_from_slice(data.chunk());
    }
    (response, String::from_utf8(text).unwrap())
}

/// TLS of a client that trusts `ca`, for this application protocol (ALPN).
pub(crate) fn client_config(ca: &Path, protocol: &[u8]) -> quinn::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![protocol.to_vec()];
    quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()))
}

pub(crate) fn server_config() -> quinn::ServerConfig {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls).unwrap()))
}
