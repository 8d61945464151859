//! A request against a server in the same process, without sockets and without losses.

use std::net::SocketAddr;

use bytes::BytesMut;

use super::*;

/// A client with its application, and a server.
struct Pair {
    client: Connection,
    app: OneRequest,
    server: Connection,
    http: Option<h3::Connection>,
}

fn addresses() -> (SocketAddr, SocketAddr) {
    (([127, 0, 0, 1], 1000).into(), ([127, 0, 0, 1], 443).into())
}

fn config() -> quiche::Config {
    let mut config = quiche::Config::new(quiche::PROTOCOL_VERSION).unwrap();
    config.set_application_protos(h3::APPLICATION_PROTOCOL).unwrap();
    config.set_initial_max_data(1 << 24);
    config.set_initial_max_stream_data_bidi_local(1 << 20);
    config.set_initial_max_stream_data_bidi_remote(1 << 20);
    config.set_initial_max_stream_data_uni(1 << 16);
    config.set_initial_max_streams_uni(8);
    config
}

impl Pair {
    /// An established connection to a server that allows so many requests.
    fn new(requests: u64) -> (Self, Http3) {
        let (here, there) = addresses();
        let dir = tempfile::tempdir().unwrap();
        let own = rcgen::generate_simple_self_signed(["example".to_owned()]).unwrap();
        let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(at("cert"), own.cert.pem()).unwrap();
        std::fs::write(at("key"), own.signing_key.serialize_pem()).unwrap();
        let mut serving = config();
        serving.load_cert_chain_from_pem_file(&at("cert")).unwrap();
        serving.load_priv_key_from_pem_file(&at("key")).unwrap();
        serving.set_initial_max_streams_bidi(requests);
        let mut asking = config();
        asking.verify_peer(false);
        let id = quiche::ConnectionId::from_ref;
        let client =
            quiche::connect(Some("example"), &id(&[1; 16]), here, there, &mut asking).unwrap();
        let server = quiche::accept(&id(&[2; 16]), None, there, here, &mut serving).unwrap();
        let (app, controller) = http3();
        let mut pair = Self { client, app, server, http: None };
        pair.exchange();
        pair.app.established(&mut pair.client).unwrap();
        let http = h3::Connection::with_transport(&mut pair.server, &h3::Config::new().unwrap());
        pair.http = Some(http.unwrap());
        pair.exchange();
        (pair, controller)
    }

    /// Passes on all datagrams, until neither end has more.
    fn exchange(&mut self) {
        let (here, there) = addresses();
        let mut buffer = [0; 1500];
        let mut pass = |from: &mut Connection, to: &mut Connection, source, destination| {
            let mut any = false;
            while let Ok((len, _)) = from.send(&mut buffer) {
                let info = quiche::RecvInfo { from: source, to: destination };
                let _ = to.recv(&mut buffer[..len], info);
                any = true;
            }
            any
        };
        while pass(&mut self.client, &mut self.server, here, there)
            | pass(&mut self.server, &mut self.client, there, here)
        {}
    }

    /// A round of the event loop, and all that the server sends because of it.
    fn round(&mut self) {
        self.app.work(&mut self.client);
        self.exchange();
        let http = self.http.as_mut().unwrap();
        while http.poll(&mut self.server).is_ok() {}
        self.exchange();
        self.app.work(&mut self.client);
    }

    /// The server begins its answer.
    fn answer(&mut self) {
        let head = [Header::new(b":status", b"200")];
        self.http.as_mut().unwrap().send_response(&mut self.server, 0, &head, false).unwrap();
    }

    /// A request whose answer has begun.
    fn begin(&mut self, http: &mut Http3) -> Answer {
        http.request(get(), false).unwrap();
        self.round();
        self.answer();
        self.round();
        head(http)
    }
}

fn get() -> Vec<Header> {
    [(":method", "GET"), (":scheme", "https"), (":authority", "example"), (":path", "/")]
        .map(|(name, value)| Header::new(name.as_bytes(), value.as_bytes()))
        .into()
}

/// The head of the answer, which must have arrived.
fn head(http: &mut Http3) -> Answer {
    match http.events.try_recv() {
        Ok(Event::Answer(answer)) => answer,
        other => panic!("{other:?}"),
    }
}

#[test]
fn single_bytes_keep_no_more_memory_than_they_need() {
    let (mut pair, mut http) = Pair::new(1);
    let mut body = pair.begin(&mut http).body;
    for byte in b"abc" {
        pair.http.as_mut().unwrap().send_body(&mut pair.server, 0, &[*byte], false).unwrap();
        pair.round();
        let piece = body.try_recv().unwrap();
        assert_eq!(&piece.bytes[..], [*byte]);
        assert!(BytesMut::from(piece.bytes).capacity() < 64);
    }
    assert!(!pair.app.has_unread());
    pair.http.as_mut().unwrap().send_body(&mut pair.server, 0, b"", true).unwrap();
    pair.round();
    assert_eq!(body.try_recv().unwrap(), Piece { bytes: Bytes::new(), last: true });
}

/// RFC 9114, section 6.2.3: streams of reserved types have no meaning, and may be reset.
#[test]
fn a_reset_of_another_stream_is_not_the_request_s() {
    let (mut pair, mut http) = Pair::new(1);
    http.request(get(), false).unwrap();
    pair.round();
    // The server's fifth unidirectional stream, after those of HTTP/3 and its GREASE.
    let stream = 4 * 4 + 3;
    pair.server.stream_send(stream, &[0x21], false).unwrap();
    pair.server.stream_shutdown(stream, quiche::Shutdown::Write, 7).unwrap();
    pair.round();
    pair.answer();
    pair.round();
    assert_eq!(head(&mut http).headers, [Header::new(b":status", b"200")]);
}

#[test]
fn a_request_that_waits_for_the_server_can_be_given_up() {
    let (mut pair, http) = Pair::new(0);
    http.request(get(), false).unwrap();
    pair.round();
    assert!(pair.app.request.is_some(), "the server allows none");
    drop(http);
    pair.round();
    pair.round();
    assert_eq!(pair.client.local_error().map(|error| error.error_code), Some(H3_NO_ERROR));
}

#[test]
fn after_a_close_nothing_is_unread() {
    let (mut pair, mut http) = Pair::new(1);
    let _body = pair.begin(&mut http).body;
    let mut sent = 0;
    while sent < 2 * PIECES * PIECE {
        let http = pair.http.as_mut().unwrap();
        sent += http.send_body(&mut pair.server, 0, &[7; PIECE], false).unwrap_or(0);
        pair.exchange();
    }
    pair.round();
    assert!(pair.app.has_unread(), "more arrived than waits for the program");
    http.close(H3_NO_ERROR);
    pair.round();
    pair.round();
    assert!(!pair.app.has_unread() && pair.client.local_error().is_some());
}

#[test]
fn what_was_taken_before_a_close_is_sent() {
    let (mut pair, http) = Pair::new(1);
    let body = http.request(get(), true).unwrap().unwrap();
    pair.round();
    for bytes in ["", "abc"] {
        body.try_send(Piece { bytes: bytes.into(), last: false }).unwrap();
    }
    http.close(H3_NO_ERROR);
    pair.app.work(&mut pair.client);
    pair.exchange();
    let mut buffer = [0; 8];
    let http = pair.http.as_mut().unwrap();
    while http.poll(&mut pair.server).is_ok() {}
    assert_eq!(http.recv_body(&mut pair.server, 0, &mut buffer), Ok(3));
}
