//! A tokio-quiche application that moves the bytes of one bidirectional stream, for MQTT.

use bytes::{Buf as _, Bytes};
use h3_client::tokio_quiche::quic::{HandshakeInfo, QuicheConnection};
use h3_client::tokio_quiche::{ApplicationOverQuic, QuicResult, quiche};
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
    /// Whether the program has nothing more to send.
    ended: bool,
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
        };
        (app, Ends { to, from })
    }

    /// Passes on the stream's bytes while there is room.
    fn read(&mut self, conn: &mut QuicheConnection) {
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
    fn write(&mut self, conn: &mut QuicheConnection) -> QuicResult<()> {
        loop {
            while !self.unsent.is_empty() {
                match conn.stream_send(STREAM, &self.unsent, false) {
                    Ok(0) | Err(quiche::Error::Done) => return Ok(()),
                    Ok(sent) => self.unsent.advance(sent),
                    // The broker stopped reading. The bytes that it sent have the reason.
                    Err(quiche::Error::StreamStopped(_)) => self.unsent = Bytes::new(),
                    Err(error) => return Err(error.into()),
                }
            }
            match self.outgoing.try_recv() {
                Ok(bytes) => self.unsent = bytes,
                Err(mpsc::error::TryRecvError::Empty) => return Ok(()),
                Err(mpsc::error::TryRecvError::Disconnected) => break,
            }
        }
        if !std::mem::replace(&mut self.ended, true) {
            // This fails if the connection has already ended.
            let _ = conn.close(true, 0, b"");
        }
        Ok(())
    }
}

impl ApplicationOverQuic for OneStream {
    fn on_conn_established(
        &mut self,
        _: &mut QuicheConnection,
        _: &HandshakeInfo,
    ) -> QuicResult<()> {
        Ok(())
    }

    fn should_act(&self) -> bool {
        true
    }

    /// Cancel safe: it stores what it receives from the channel before it awaits again.
    async fn wait_for_data(&mut self, _: &mut QuicheConnection) -> QuicResult<()> {
        let room = async {
            match &self.incoming {
                Some(incoming) if self.unread => drop(incoming.reserve().await),
                _ => std::future::pending().await,
            }
        };
        // While bytes are unsent, flow control wakes the worker by itself.
        let takes = self.unsent.is_empty() && !self.ended;
        tokio::select! {
            bytes = self.outgoing.recv(), if takes => {
                self.unsent = bytes.unwrap_or_default();
            }
            () = room => {}
        }
        Ok(())
    }

    fn process_reads(&mut self, conn: &mut QuicheConnection) -> QuicResult<()> {
        self.read(conn);
        Ok(())
    }

    /// tokio-quiche calls `process_reads` only after a packet of the broker's. Room for earlier
    /// bytes may appear without such a packet.
    fn process_writes(&mut self, conn: &mut QuicheConnection) -> QuicResult<()> {
        if self.unread {
            self.read(conn);
        }
        self.write(conn)
    }
}
