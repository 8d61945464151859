//! An application that moves the bytes of one bidirectional stream, for MQTT.

use bytes::{Buf as _, Bytes};
use h3_client::event_loop::Application;
use h3_client::quiche::{self, Connection, h3};
use tokio::sync::mpsc;

/// The client's first bidirectional stream (RFC 9000, section 2.1).
const STREAM: u64 = 0;
/// Chunks that wait on either side. Flow control holds back the rest.
const CHUNKS: usize = 16;
/// The size of a read, in bytes.
const CHUNK: usize = 16 * 1024;

/// The other end of the application. The connection closes when `to` is dropped.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) to: mpsc::Sender<Bytes>,
    pub(crate) from: mpsc::Receiver<Bytes>,
}

/// The application.
#[derive(Debug)]
pub(crate) struct OneStream {
    outgoing: mpsc::Receiver<Bytes>,
    /// Bytes that the connection has not accepted yet.
    unsent: Bytes,
    /// `None` once the broker has ended the stream.
    incoming: Option<mpsc::Sender<Bytes>>,
    /// Whether the stream may have bytes for which `incoming` had no room.
    unread: bool,
    /// Whether the program has nothing more to send. The connection closes a round later, because
    /// it sends no stream's bytes after that.
    ended: bool,
    closed: bool,
}

impl OneStream {
    /// The application and its other end.
    pub(crate) fn new() -> (Self, Ends) {
        let (to, outgoing) = mpsc::channel(CHUNKS);
        let (incoming, from) = mpsc::channel(CHUNKS);
        let app = Self {
            outgoing,
            unsent: Bytes::new(),
            incoming: Some(incoming),
            unread: false,
            ended: false,
            closed: false,
        };
        (app, Ends { to, from })
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
                Ok((len, fin)) => {
                    let read = chunk.get(..len).unwrap_or_default();
                    room.send(Bytes::copy_from_slice(read));
                    if !fin {
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
        loop {
            while !self.unsent.is_empty() {
                match conn.stream_send(STREAM, &self.unsent, false) {
                    Ok(0) | Err(quiche::Error::Done) => return,
                    Ok(sent) => self.unsent.advance(sent),
                    // The broker stopped reading, or the connection has ended. The bytes that it
                    // sent, or its end, have the reason.
                    Err(_) => self.unsent = Bytes::new(),
                }
            }
            match self.outgoing.try_recv() {
                Ok(bytes) => self.unsent = bytes,
                Err(mpsc::error::TryRecvError::Empty) => return,
                Err(mpsc::error::TryRecvError::Disconnected) => break,
            }
        }
        self.ended = true;
    }
}

impl Application for OneStream {
    fn established(&mut self, _: &mut Connection) -> Result<(), h3::Error> {
        Ok(())
    }

    fn work(&mut self, conn: &mut Connection) {
        if self.ended && !std::mem::replace(&mut self.closed, true) {
            // This fails if the connection has already ended.
            let _ = conn.close(true, 0, b"");
        }
        self.read(conn);
        self.write(conn);
    }

    /// Cancel safe: it stores what it receives from the channel before it awaits again.
    async fn wait(&mut self) {
        if self.ended && !self.closed {
            return;
        }
        let room = async {
            match &self.incoming {
                Some(incoming) if self.unread => drop(incoming.reserve().await),
                _ => std::future::pending().await,
            }
        };
        // While bytes are unsent, flow control wakes the loop by itself.
        let takes = self.unsent.is_empty() && !self.ended;
        tokio::select! {
            bytes = self.outgoing.recv(), if takes => {
                self.unsent = bytes.unwrap_or_default();
            }
            () = room => {}
        }
    }

    fn has_unread(&self) -> bool {
        self.unread
    }
}
