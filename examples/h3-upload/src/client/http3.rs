//! One request of HTTP/3 on a connection of quiche, and its answer.

use bytes::{Buf as _, Bytes};
use quic_sidekick::quiche::h3::{self, Header};
use quic_sidekick::quiche::{self, Connection};
use tokio::sync::mpsc;

use crate::event_loop::Application;
use crate::exchange::{H3_NO_ERROR, lost};

/// The longest header section of an answer, in bytes.
const LONGEST_HEADERS: u64 = 16 * 1024;
/// Pieces that wait on either side. Flow control holds back the rest.
const PIECES: usize = 16;
/// The most bytes of a piece that arrived.
const PIECE: usize = 16 * 1024;
/// H3_INTERNAL_ERROR (RFC 9114, section 8.1).
const H3_INTERNAL_ERROR: u64 = 0x102;

/// A part of a body. The last one may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The bytes.
    pub bytes: Bytes,
    /// Whether the body ends with them.
    pub last: bool,
}

/// The head of an answer. Its body follows in pieces; if the server or the network ends it early,
/// there is no last piece.
#[derive(Debug)]
pub struct Answer {
    /// The header fields, with the pseudo-header `:status`.
    pub headers: Vec<Header>,
    /// The body.
    pub body: mpsc::Receiver<Piece>,
}

/// An event of the connection that concerns the request.
#[derive(Debug)]
pub enum Event {
    /// The first header section of the answer.
    Answer(Answer),
    /// The server reset the request.
    Reset,
    /// The server violated the protocol.
    Violation(h3::Error),
}

/// The headers of a request, and its body unless it has none.
#[derive(Debug)]
struct Request(Vec<Header>, Option<mpsc::Receiver<Piece>>);

#[derive(Debug)]
enum Order {
    Request(Request),
    /// The error code.
    Close(u64),
}

/// The program's side of the request. If it is dropped, the connection closes.
#[derive(Debug)]
pub struct Http3 {
    orders: mpsc::UnboundedSender<Order>,
    /// What the connection says. It ends with the connection.
    pub events: mpsc::UnboundedReceiver<Event>,
}

impl Http3 {
    /// Sends the request of this connection, once. Returns where its body goes, if it has one. That
    /// channel closes if the server stops reading.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn request(
        &self,
        headers: Vec<Header>,
        has_body: bool,
    ) -> anyhow::Result<Option<mpsc::Sender<Piece>>> {
        let (to, body) = has_body.then(|| mpsc::channel(PIECES)).unzip();
        self.orders.send(Order::Request(Request(headers, body))).map_err(|_| lost())?;
        Ok(to)
    }

    /// Closes the connection. The events end once the CONNECTION_CLOSE frame has left.
    pub(crate) fn close(&self, code: u64) {
        // A connection that has ended needs no close.
        let _ = self.orders.send(Order::Close(code));
    }
}

/// The connection's side.
pub(crate) struct OneRequest {
    orders: mpsc::UnboundedReceiver<Order>,
    /// A request that the server has not let begin yet.
    request: Option<Request>,
    events: mpsc::UnboundedSender<Event>,
    http: Option<h3::Connection>,
    stream: Option<u64>,
    /// The body of the request, until it has been taken whole.
    outgoing: Option<mpsc::Receiver<Piece>>,
    /// What the connection has not accepted yet.
    unsent: Option<Piece>,
    answered: bool,
    /// The body of the answer, until its last piece.
    incoming: Option<mpsc::Sender<Piece>>,
    /// Whether the answer's body has ended.
    ended: bool,
    /// Whether the body may have more for which `incoming` had no room.
    unread: bool,
    /// Where the connection puts what arrives. Each piece gets as much memory as it has bytes.
    buffer: Box<[u8; PIECE]>,
    /// The error code of a close that waits until the loop has sent what came before it.
    closing: Option<u64>,
    closed: bool,
}

/// Both sides.
pub(crate) fn http3() -> (OneRequest, Http3) {
    let (to, orders) = mpsc::unbounded_channel();
    let (events, from) = mpsc::unbounded_channel();
    let app = OneRequest {
        orders,
        request: None,
        events,
        http: None,
        stream: None,
        outgoing: None,
        unsent: None,
        answered: false,
        incoming: None,
        ended: false,
        unread: false,
        buffer: Box::new([0; PIECE]),
        closing: None,
        closed: false,
    };
    (app, Http3 { orders: to, events: from })
}

impl OneRequest {
    fn take(&mut self, order: Order) {
        match order {
            Order::Request(request) => self.request = Some(request),
            Order::Close(code) => self.closing = Some(code),
        }
    }

    fn follow(&mut self, conn: &mut Connection) {
        while let Ok(order) = self.orders.try_recv() {
            self.take(order);
        }
        if self.orders.is_closed() && self.orders.is_empty() {
            self.closing.get_or_insert(H3_NO_ERROR);
        }
        let Some(http) = &mut self.http else { return };
        let Some(Request(headers, body)) = self.request.take() else { return };
        match http.send_request(conn, &headers, body.is_none()) {
            Ok(stream) => (self.stream, self.outgoing) = (Some(stream), body),
            // The server allows no stream yet, or flow control holds the headers back.
            Err(
                h3::Error::StreamBlocked | h3::Error::TransportError(quiche::Error::StreamLimit),
            ) => self.request = Some(Request(headers, body)),
            Err(error) => self.fail(conn, error),
        }
    }

    fn close(&mut self, conn: &mut Connection, code: u64) {
        if !std::mem::replace(&mut self.closed, true) {
            // This fails if the connection has already ended.
            let _ = conn.close(true, code, b"");
        }
        // Nobody waits for the rest of the body.
        (self.incoming, self.unread) = (None, false);
    }

    fn fail(&mut self, conn: &mut Connection, error: h3::Error) {
        let _ = self.events.send(Event::Violation(error));
        // quiche has closed the connection with the error's own code in most cases.
        self.close(conn, H3_INTERNAL_ERROR);
    }

    fn poll(&mut self, conn: &mut Connection) {
        let Some(http) = &mut self.http else { return };
        loop {
            match http.poll(conn) {
                // A server may open and reset streams of kinds that nobody knows (RFC 9114, section
                // 6.2.3).
                Ok((stream, _)) if self.stream != Some(stream) => {}
                Ok((_, h3::Event::Headers { list, .. })) => {
                    // Only the first section is the head of the answer; trailers are not needed.
                    if !std::mem::replace(&mut self.answered, true) {
                        let (to, body) = mpsc::channel(PIECES);
                        self.incoming = Some(to);
                        let _ = self.events.send(Event::Answer(Answer { headers: list, body }));
                    }
                }
                Ok((_, h3::Event::Data)) => self.unread = true,
                Ok((_, h3::Event::Finished)) => (self.ended, self.unread) = (true, true),
                Ok((_, h3::Event::Reset(_))) => {
                    self.incoming = None;
                    let _ = self.events.send(Event::Reset);
                }
                Ok((_, h3::Event::PriorityUpdate | h3::Event::GoAway)) => {}
                Err(h3::Error::Done) => return,
                Err(error) => return self.fail(conn, error),
            }
        }
    }

    /// Passes on the body of the answer while there is room. Returns whether it read anything: only
    /// then quiche reports the end of the body.
    fn read(&mut self, conn: &mut Connection) -> bool {
        let (Some(http), Some(stream)) = (&mut self.http, self.stream) else { return false };
        let mut moved = false;
        while self.unread
            && let Some(incoming) = &self.incoming
        {
            let Ok(room) = incoming.try_reserve() else {
                self.unread = !incoming.is_closed();
                return moved;
            };
            match http.recv_body(conn, stream, self.buffer.as_mut_slice()) {
                Ok(len) if len > 0 => {
                    let bytes = self.buffer.get(..len).unwrap_or_default();
                    room.send(Piece { bytes: Bytes::copy_from_slice(bytes), last: false });
                    moved = true;
                }
                _ => {
                    self.unread = false;
                    if self.ended {
                        room.send(Piece { bytes: Bytes::new(), last: true });
                        self.incoming = None;
                    }
                }
            }
        }
        moved
    }

    /// Passes the body of the request on, as much as the connection accepts.
    fn write(&mut self, conn: &mut Connection) {
        let (Some(http), Some(stream)) = (&mut self.http, self.stream) else { return };
        loop {
            if self.unsent.is_none() {
                let Some(outgoing) = &mut self.outgoing else { return };
                match outgoing.try_recv() {
                    Ok(piece) => self.unsent = Some(piece),
                    Err(mpsc::error::TryRecvError::Empty) => return,
                    // The program gave up. Its order to close follows.
                    Err(mpsc::error::TryRecvError::Disconnected) => {
                        self.outgoing = None;
                        return;
                    }
                }
            }
            let Some(piece) = &mut self.unsent else { return };
            if piece.bytes.is_empty() && !piece.last {
                self.unsent = None;
                continue;
            }
            match http.send_body(conn, stream, &piece.bytes, piece.last) {
                Ok(sent) => {
                    piece.bytes.advance(sent);
                    if !piece.bytes.is_empty() {
                        return;
                    }
                    if piece.last {
                        self.outgoing = None;
                    }
                    self.unsent = None;
                }
                Err(h3::Error::Done) => return,
                // The server stopped reading. Its answer has the reason.
                Err(_) => (self.outgoing, self.unsent) = (None, None),
            }
        }
    }
}

impl Application for OneRequest {
    fn established(&mut self, conn: &mut Connection) -> Result<(), h3::Error> {
        let mut config = h3::Config::new()?;
        config.set_max_field_section_size(LONGEST_HEADERS);
        self.http = Some(h3::Connection::with_transport(conn, &config)?);
        Ok(())
    }

    fn work(&mut self, conn: &mut Connection) {
        if let Some(code) = self.closing {
            return self.close(conn, code);
        }
        self.follow(conn);
        self.poll(conn);
        while self.read(conn) {
            self.poll(conn);
        }
        self.write(conn);
    }

    async fn wait(&mut self) {
        if self.closing.is_some() && !self.closed {
            return;
        }
        let room = async {
            match &self.incoming {
                Some(incoming) if self.unread => drop(incoming.reserve().await),
                _ => std::future::pending().await,
            }
        };
        let taken = async {
            match &mut self.outgoing {
                Some(outgoing) if self.unsent.is_none() => outgoing.recv().await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            order = self.orders.recv(), if self.closing.is_none() => match order {
                Some(order) => self.take(order),
                None => self.closing = Some(H3_NO_ERROR),
            },
            piece = taken => match piece {
                Some(piece) => self.unsent = Some(piece),
                None => self.outgoing = None,
            },
            () = room => {}
        }
    }

    fn has_unread(&self) -> bool {
        self.unread && self.incoming.as_ref().is_some_and(|incoming| !incoming.is_closed())
    }
}

#[cfg(test)]
mod tests;
