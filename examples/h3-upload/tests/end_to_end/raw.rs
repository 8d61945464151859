//! Hand-written HTTP/3 over quinn, for bytes that no HTTP/3 library sends.

use std::any::Any;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quinn::congestion::{Controller, ControllerFactory};
use quinn::{Connection, Endpoint, RecvStream, SendStream, TransportConfig};

use crate::peer::{client_config, server_config};

/// Frame types and error codes of RFC 9114, sections 7.2 and 8.1.
pub(crate) const DATA: u64 = 0x0;
pub(crate) const HEADERS: u64 = 0x1;
pub(crate) const SETTINGS: u64 = 0x4;
pub(crate) const GOAWAY: u64 = 0x7;
pub(crate) const H3_NO_ERROR: u32 = 0x100;
pub(crate) const H3_FRAME_ERROR: u32 = 0x106;
pub(crate) const H3_EXCESSIVE_LOAD: u32 = 0x107;

/// A variable-length integer (RFC 9000, section 16).
pub(crate) fn integer(value: u64) -> Vec<u8> {
    match u8::try_from(value) {
        Ok(short) if short < 0x40 => vec![short],
        _ => (value | 0xc000_0000_0000_0000).to_be_bytes().to_vec(),
    }
}

pub(crate) fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    [integer(kind), integer(payload.len() as u64), payload.to_vec()].concat()
}

/// A field line whose name is in QPACK's static table, and its value a literal (RFC 9204, section
/// 4.5.4).
fn field(index: u8, value: &[u8]) -> Vec<u8> {
    let name = if index < 15 { vec![0x50 | index] } else { vec![0x5f, index - 15] };
    let len = vec![u8::try_from(value.len()).ok().filter(|len| *len < 127).expect("a short value")];
    [name, len, value.to_vec()].concat()
}

/// The header of a PUT, as a frame.
pub(crate) fn put(path: &str, length: Option<u64>) -> Vec<u8> {
    // The prefix; :method PUT and :scheme https are entries of the static table.
    let mut section = vec![0, 0, 0xc0 | 21, 0xc0 | 23];
    section.extend(field(0, b"127.0.0.1"));
    section.extend(field(1, path.as_bytes()));
    section
        .extend(length.map(|length| field(4, length.to_string().as_bytes())).unwrap_or_default());
    frame(HEADERS, &section)
}

/// The header of an answer, as a frame.
pub(crate) fn status(status: &[u8]) -> Vec<u8> {
    frame(HEADERS, &[vec![0, 0], field(24, status)].concat())
}

/// The header of an answer with these fields, whose names need not be in the static table (RFC
/// 9204, section 4.5.6).
pub(crate) fn answer(status: &[u8], fields: &[(&str, &str)]) -> Vec<u8> {
    let mut section = [vec![0, 0], field(24, status)].concat();
    for (name, value) in fields {
        section.extend(prefixed(0x20, 7, name.as_bytes()));
        section.extend(prefixed(0, 127, value.as_bytes()));
    }
    frame(HEADERS, &section)
}

/// A string after its length, which is an integer in the lower bits of the first byte, `most` at
/// most, or in the next byte, too.
fn prefixed(first: u8, most: u8, text: &[u8]) -> Vec<u8> {
    let len = u8::try_from(text.len()).unwrap();
    let length = match len.checked_sub(most) {
        None => vec![first | len],
        Some(rest) => vec![first | most, Some(rest).filter(|rest| *rest < 128).unwrap()],
    };
    [length, text.to_vec()].concat()
}

/// A client's connection, kept alive by PINGs. Its control stream must stay open.
pub(crate) struct Client {
    pub(crate) quic: Connection,
    _control: SendStream,
    _endpoint: Endpoint,
}

pub(crate) async fn connect(port: u16, ca: &Path) -> Result<Client, quinn::ConnectionError> {
    connect_by(port, ca, false).await
}

/// Connects to the server or relay at `port`. A `reckless` client ignores losses.
pub(crate) async fn connect_by(
    port: u16,
    ca: &Path,
    reckless: bool,
) -> Result<Client, quinn::ConnectionError> {
    let mut config = client_config(ca, b"h3");
    let mut transport = TransportConfig::default();
    transport.keep_alive_interval(Some(Duration::from_millis(300)));
    if reckless {
        transport.congestion_controller_factory(Arc::new(Reckless)).send_window(1 << 30);
    }
    config.transport_config(Arc::new(transport));
    let endpoint = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let quic = endpoint.connect_with(config, address, "127.0.0.1").unwrap().await?;
    let control = open_control(&quic).await?;
    Ok(Client { quic, _control: control, _endpoint: endpoint })
}

/// A congestion controller that ignores acknowledgements and losses.
#[derive(Clone, Debug)]
struct Reckless;

impl ControllerFactory for Reckless {
    fn build(self: Arc<Self>, _: std::time::Instant, _: u16) -> Box<dyn Controller> {
        Box::new(Self)
    }
}

impl Controller for Reckless {
    fn on_congestion_event(
        &mut self,
        _: std::time::Instant,
        _: std::time::Instant,
        _: bool,
        _: u64,
    ) {
    }

    fn on_mtu_update(&mut self, _: u16) {}

    fn window(&self) -> u64 {
        1 << 26
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self)
    }

    fn initial_window(&self) -> u64 {
        1 << 26
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

async fn open_control(quic: &Connection) -> Result<SendStream, quinn::ConnectionError> {
    let mut control = quic.open_uni().await?;
    let _ = control.write_all(&[integer(0), frame(SETTINGS, &[])].concat()).await;
    Ok(control)
}

impl Client {
    /// Sends a request with these bytes. Its body ends when the caller finishes or drops the
    /// stream.
    pub(crate) async fn send(&self, bytes: &[u8]) -> (SendStream, RecvStream) {
        let (mut send, receive) = self.quic.open_bi().await.unwrap();
        send.write_all(bytes).await.unwrap();
        (send, receive)
    }
}

/// Reads a short answer, and returns its body.
pub(crate) async fn body(receive: &mut RecvStream) -> String {
    let mut bytes = receive.read_to_end(100_000).await.unwrap();
    let mut body = Vec::new();
    while !bytes.is_empty() {
        let (kind, kind_len) = read_integer(&bytes);
        let (len, len_len) = read_integer(&bytes[kind_len..]);
        let payload = bytes.split_off(kind_len + len_len);
        let (payload, rest) = payload.split_at(len.try_into().unwrap());
        if kind == DATA {
            body.extend(payload);
        }
        bytes = rest.to_vec();
    }
    String::from_utf8(body).unwrap()
}

fn read_integer(bytes: &[u8]) -> (u64, usize) {
    let len = 1 << (bytes[0] >> 6);
    let first = u64::from(bytes[0] & 0x3f);
    (bytes[1..len].iter().fold(first, |value, byte| value << 8 | u64::from(*byte)), len)
}

/// A server with hand-written HTTP/3. It ends when dropped.
pub(crate) struct Server {
    pub(crate) port: u16,
    _runtime: tokio::runtime::Runtime,
}

/// Starts a server that calls `handle` with each connection and its open control stream.
pub(crate) fn serve<F>(
    transport: TransportConfig,
    handle: impl Fn(Connection, SendStream) -> F + Send + 'static,
) -> Server
where
    F: Future<Output = Result<(), Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    // With one thread, no packet leaves between two steps of `handle` without a wait between them.
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build().unwrap();
    let mut config = server_config();
    config.transport_config(Arc::new(transport));
    let endpoint = runtime
        .block_on(async { Endpoint::server(config, (Ipv4Addr::LOCALHOST, 0).into()) })
        .unwrap();
    let port = endpoint.local_addr().unwrap().port();
    runtime.spawn(async move {
        while let Some(incoming) = endpoint.accept().await {
            let Ok(quic) = incoming.await else { continue };
            let Ok(control) = open_control(&quic).await else { continue };
            // These servers cause clients to leave early, so an error is no failure.
            tokio::spawn(handle(quic, control));
        }
    });
    Server { port, _runtime: runtime }
}
