//! Hand-written HTTP/3 over quinn, for bytes that no HTTP/3 library sends.

use std::any::Any;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quinn::congestion::{Controller, ControllerFactory};
use quinn::{Connection, Endpoint, RecvStream, SendStream, TransportConfig};

use crate::peer::client_config;

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

/// A header section of these fields, as a frame. All names are literals (RFC 9204, section 4.5.6).
fn headers<'a>(fields: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Vec<u8> {
    let lines = fields.into_iter().flat_map(|(name, value)| {
        [prefixed(0x20, 7, name.as_bytes()), prefixed(0, 127, value)].concat()
    });
    frame(HEADERS, &[0, 0].into_iter().chain(lines).collect::<Vec<_>>())
}

/// The header of a PUT.
pub(crate) fn put(path: &str, length: Option<u64>) -> Vec<u8> {
    let length = length.map(|length| length.to_string());
    let request =
        [(":method", "PUT"), (":scheme", "https"), (":authority", "127.0.0.1"), (":path", path)];
    let fields = request.into_iter().chain(length.as_deref().map(|text| ("content-length", text)));
    headers(fields.map(|(name, value)| (name, value.as_bytes())))
}

/// The header of an answer.
pub(crate) fn answer(status: &[u8], fields: &[(&str, &str)]) -> Vec<u8> {
    let fields = fields.iter().map(|(name, value)| (*name, value.as_bytes()));
    headers([(":status", status)].into_iter().chain(fields))
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

pub(crate) async fn open_control(quic: &Connection) -> Result<SendStream, quinn::ConnectionError> {
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
