//! An application that moves the bytes of one bidirectional stream, for MQTT.

use std::future::pending;

use bytes::{Buf as _, Bytes};
use h3_client::event_loop::Application;
use h3_client::http3::Piece;
use h3_client::quiche::{self, Connection, h3};
use tokio::sync::mpsc::{self, error::TryRecvError};

/// The client's first bidirectional stream (RFC 9000, section 2.1).
const STREAM: u64 = 0;
/// Chunks that wait on either side. Flow control holds back the rest.
const CHUNKS: usize = 16;
/// The size of a read, in bytes.
const CHUNK: usize = 16 * 1024;

/// The application.
#[derive(Debug)]
pub(crate) struct OneStream {
    /// `None` once the program has nothing more to send. The connection closes a round later,
    /// because it sends no stream's bytes after that.
    outgoing: Option<mpsc::Receiver<Piece>>,
    /// Bytes that the connection has not accepted yet.
    unsent: Bytes,
    /// `None` once the broker has ended the stream.
    incoming: Option<mpsc::Sender<Piece>>,
    /// Whether the stream may have bytes for which `incoming` had no room.
    unread: bool,
    closed: bool,
}

impl OneStream {
    /// The application, and the program's ends of the stream. The connection closes when the sender
    /// is dropped.
    pub(crate) fn new() -> (Self, (mpsc::Sender<Piece>, mpsc::Receiver<Piece>)) {
        let (to, outgoing) = mpsc::channel(CHUNKS);
        let (incoming, from) = mpsc::channel(CHUNKS);
        let (outgoing, incoming) = (Some(outgoing), Some(incoming));
        let app = Self { outgoing, unsent: Bytes::new(), incoming, unread: false, closed: false };
        (app, (to, from))
    }

    /// Passes on the stream's bytes while there is room.
    fn read(&mut self, conn: &mut Connection) {
        let mut chunk = [0; CHUNK];
        self.unread = false;
        while let Some(incoming) = &self.incoming {
            let Ok(room) = incoming.try_reserve() else {
                self.unread = !incoming.is_closed();
                return;
            };
            match conn.stream_recv(STREAM, &mut chunk) {
                Ok((len, last)) => {
                    let read = chunk.get(..len).unwrap_or_default();
                    room.send(Piece { bytes: Bytes::copy_from_slice(read), last });
                    if !last {
                        continue;
                    }
                }
                // The stream does not exist before this end has sent on it.
                Err(quiche::Error::Done | quiche::Error::InvalidStreamState(_)) => return,
                // The broker reset it.
                Err(_) => drop(room),
            }
            self.incoming = None;
        }
    }

    /// Passes the program's bytes to the connection, as many as it accepts.
    fn write(&mut self, conn: &mut Connection) {
        while let Some(outgoing) = &mut self.outgoing {
            if self.unsent.is_empty() {
                match outgoing.try_recv() {
                    Ok(piece) => self.unsent = piece.bytes,
                    Err(TryRecvError::Empty) => return,
                    Err(TryRecvError::Disconnected) => self.outgoing = None,
                }
                continue;
            }
            match conn.stream_send(STREAM, &self.unsent, false) {
                Ok(0) | Err(quiche::Error::Done) => return,
                Ok(sent) => self.unsent.advance(sent),
                // The broker stopped reading, or the connection has ended. The bytes that it sent,
                // or its end, have the reason.
                Err(_) => self.unsent = Bytes::new(),
            }
        }
    }
}

impl Application for OneStream {
    fn established(&mut self, _: &mut Connection) -> Result<(), h3::Error> {
        Ok(())
    }

    fn work(&mut self, conn: &mut Connection) {
        if self.outgoing.is_none() && !std::mem::replace(&mut self.closed, true) {
            // This fails if the connection has already ended.
            let _ = conn.close(true, 0, b"");
        }
        self.read(conn);
        self.write(conn);
    }

    /// Cancel safe: it stores what it receives from the channel before it awaits again.
    async fn wait(&mut self) {
        if self.outgoing.is_none() && !self.closed {
            return;
        }
        let room = async {
            match &self.incoming {
                Some(incoming) if self.unread => drop(incoming.reserve().await),
                _ => pending().await,
            }
        };
        let taken = async {
            match &mut self.outgoing {
                // While bytes are unsent, flow control wakes the loop by itself.
                Some(outgoing) if self.unsent.is_empty() => outgoing.recv().await,
                _ => pending().await,
            }
        };
        tokio::select! {
            piece = taken => self.unsent = piece.map(|piece| piece.bytes).unwrap_or_default(),
            () = room => {}
        }
    }

    fn has_unread(&self) -> bool {
        self.unread
    }
}
