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

#[derive(Debug)]
enum Order {
    /// The headers, and the body unless there is none.
    Request(Vec<Header>, Option<mpsc::Receiver<Piece>>),
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
        self.orders.send(Order::Request(headers, body)).map_err(|_| lost())?;
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
    /// An order that was received and not carried out.
    order: Option<Order>,
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
        order: None,
        events,
        http: None,
        stream: None,
        outgoing: None,
        unsent: None,
        answered: false,
        incoming: None,
        ended: false,
        unread: false,
        closing: None,
        closed: false,
    };
    (app, Http3 { orders: to, events: from })
}

impl OneRequest {
    fn follow(&mut self, conn: &mut Connection) {
        while let Some(order) = self.order.take().or_else(|| self.orders.try_recv().ok()) {
            match order {
                Order::Close(code) => self.closing = Some(code),
                Order::Request(headers, body) => {
                    let Some(http) = &mut self.http else { return };
                    match http.send_request(conn, &headers, body.is_none()) {
                        Ok(stream) => (self.stream, self.outgoing) = (Some(stream), body),
                        // The server allows no stream yet, or flow control holds the headers back.
                        Err(
                            h3::Error::StreamBlocked
                            | h3::Error::TransportError(quiche::Error::StreamLimit),
                        ) => {
                            self.order = Some(Order::Request(headers, body));
                            return;
                        }
                        Err(error) => self.fail(conn, error),
                    }
                }
            }
        }
        if self.orders.is_closed() && self.orders.is_empty() {
            self.closing.get_or_insert(H3_NO_ERROR);
        }
    }

    fn close(&mut self, conn: &mut Connection, code: u64) {
        if !std::mem::replace(&mut self.closed, true) {
            // This fails if the connection has already ended.
            let _ = conn.close(true, code, b"");
        }
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
                Ok((stream, h3::Event::Headers { list, .. })) => {
                    // Only the first section is the head of the answer; trailers are not needed.
                    if self.stream == Some(stream) && !std::mem::replace(&mut self.answered, true) {
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
            let mut piece = vec![0; PIECE];
            match http.recv_body(conn, stream, &mut piece) {
                Ok(len) if len > 0 => {
                    piece.truncate(len);
                    room.send(Piece { bytes: piece.into(), last: false });
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
            order = self.orders.recv(), if self.order.is_none() && !self.closed => self.order = order,
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
