//! A client and a server for what the two programs never do to each other.

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
        let connecting = endpoint.connect_with(client_config(ca), address, "127.0.0.1").unwrap();
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

pub(crate) fn client_config(ca: &Path) -> quinn::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()))
}

/// How a server may go wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// Answers 201 with this body, once it has the whole upload.
    Says(&'static str),
    /// Aborts the stream in both directions as soon as it sees the request.
    Resets,
    /// Closes the connection as soon as it sees the request.
    Hangs,
}

/// A server with a fault. It serves one connection, and goes when dropped.
pub(crate) struct FaultyServer {
    pub(crate) port: u16,
    _runtime: tokio::runtime::Runtime,
}

impl FaultyServer {
    pub(crate) fn start(fault: Fault) -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let endpoint = runtime
            .block_on(async {
                quinn::Endpoint::server(server_config(), (Ipv4Addr::LOCALHOST, 0).into())
            })
            .unwrap();
        let port = endpoint.local_addr().unwrap().port();
        runtime.spawn(async move {
            // A client that leaves in the middle is what these faults are to bring about.
            let _ = serve(&endpoint, fault).await;
            endpoint.wait_idle().await;
        });
        Self { port, _runtime: runtime }
    }
}

async fn serve(
    endpoint: &quinn::Endpoint,
    fault: Fault,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let quic = endpoint.accept().await.ok_or("closed")?.await?;
    let mut http =
        h3::server::Connection::<_, Bytes>::new(h3_quinn::Connection::new(quic.clone())).await?;
    let resolver = http.accept().await?.ok_or("no request")?;
    let (_, mut stream) = resolver.resolve_request().await?;
    match fault {
        Fault::Says(body) => {
            while stream.recv_data().await?.is_some() {}
            stream.send_response(Response::builder().status(201).body(())?).await?;
            stream.send_data(Bytes::from_static(body.as_bytes())).await?;
            stream.finish().await?;
        }
        Fault::Resets => {
            stream.stop_sending(h3::error::Code::H3_INTERNAL_ERROR);
            stream.stop_stream(h3::error::Code::H3_INTERNAL_ERROR);
        }
        Fault::Hangs => quic.close(0x102u32.into(), b"out of order"),
    }
    // Keeps the connection until the client ends it.
    let _ = http.accept().await;
    Ok(())
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
