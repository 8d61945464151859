//! h3's interface to quinn.
//!
//! `h3-quinn` passes all received bytes to h3 (see `frames.rs`), and panics if a stream is stopped
//! while it is being read.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use h3::error::Code;
use h3::quic::{self, ConnectionErrorIncoming, StreamErrorIncoming, StreamId, WriteBuf};
use quinn::VarInt;
use tokio::io::ReadBuf;

use crate::frames::{Frames, TooLong};

/// The size of a read, in bytes.
const CHUNK: usize = 16 * 1024;

type Pending<T> = Pin<Box<dyn Future<Output = Result<T, quinn::ConnectionError>> + Send>>;
type Pair = (quinn::SendStream, quinn::RecvStream);

/// A connection.
pub(crate) struct Connection {
    quic: quinn::Connection,
    requests: Option<Pending<Pair>>,
    unidirectional: Option<Pending<quinn::RecvStream>>,
    opening: Option<Pending<quinn::SendStream>>,
}

impl Connection {
    pub(crate) fn new(quic: quinn::Connection) -> Self {
        Self { quic, requests: None, unidirectional: None, opening: None }
    }
}

/// Polls the future in `slot`, where `begin` puts one if there is none.
fn poll_in<T>(
    slot: &mut Option<Pending<T>>,
    begin: impl FnOnce() -> Pending<T>,
    cx: &mut Context<'_>,
) -> Poll<Result<T, ConnectionErrorIncoming>> {
    let result = ready!(slot.get_or_insert_with(begin).as_mut().poll(cx));
    *slot = None;
    Poll::Ready(result.map_err(connection_error))
}

impl quic::Connection<Bytes> for Connection {
    type RecvStream = RecvStream;
    type OpenStreams = Self;

    fn poll_accept_recv(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::RecvStream, ConnectionErrorIncoming>> {
        let quic = self.quic.clone();
        let begin = || Box::pin(async move { quic.accept_uni().await }) as _;
        let stream = ready!(poll_in(&mut self.unidirectional, begin, cx))?;
        Poll::Ready(Ok(RecvStream::new(stream, Frames::of_unidirectional(), self.quic.clone())))
    }

    fn poll_accept_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::BidiStream, ConnectionErrorIncoming>> {
        let quic = self.quic.clone();
        let begin = || Box::pin(async move { quic.accept_bi().await }) as _;
        let (send, receive) = ready!(poll_in(&mut self.requests, begin, cx))?;
        Poll::Ready(Ok(BidiStream {
            send: SendStream { stream: send, writing: None },
            receive: RecvStream::new(receive, Frames::of_request(), self.quic.clone()),
        }))
    }

    fn opener(&self) -> Self::OpenStreams {
        Self::new(self.quic.clone())
    }
}

impl quic::OpenStreams<Bytes> for Connection {
    type BidiStream = BidiStream;
    type SendStream = SendStream;

    fn poll_open_bidi(
        &mut self,
        _: &mut Context<'_>,
    ) -> Poll<Result<Self::BidiStream, StreamErrorIncoming>> {
        // HTTP/3 does not use server-initiated bidirectional streams (RFC 9114, section 6.1).
        Poll::Ready(Err(misused("a server opens no requests")))
    }

    fn poll_open_send(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::SendStream, StreamErrorIncoming>> {
        let quic = self.quic.clone();
        let begin = || Box::pin(async move { quic.open_uni().await }) as _;
        let opened = ready!(poll_in(&mut self.opening, begin, cx)).map_err(lost);
        Poll::Ready(opened.map(|stream| SendStream { stream, writing: None }))
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        self.quic.close(wire(code), reason);
    }
}

/// A request.
#[derive(Debug)]
pub struct BidiStream {
    send: SendStream,
    receive: RecvStream,
}

impl quic::BidiStream<Bytes> for BidiStream {
    type SendStream = SendStream;
    type RecvStream = RecvStream;

    fn split(self) -> (Self::SendStream, Self::RecvStream) {
        (self.send, self.receive)
    }
}

impl quic::RecvStream for BidiStream {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        self.receive.poll_data(cx)
    }

    fn stop_sending(&mut self, error_code: u64) {
        self.receive.stop_sending(error_code);
    }

    fn recv_id(&self) -> StreamId {
        self.receive.recv_id()
    }
}

impl quic::SendStream<Bytes> for BidiStream {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_ready(cx)
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.send.send_data(data)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_finish(cx)
    }

    fn reset(&mut self, reset_code: u64) {
        self.send.reset(reset_code);
    }

    fn send_id(&self) -> StreamId {
        self.send.send_id()
    }
}

/// The client's side of a stream.
#[derive(Debug)]
pub struct RecvStream {
    stream: quinn::RecvStream,
    frames: Frames,
    /// Bytes from quinn that h3 has not received yet.
    read: Bytes,
    quic: quinn::Connection,
}

impl RecvStream {
    fn new(stream: quinn::RecvStream, frames: Frames, quic: quinn::Connection) -> Self {
        Self { stream, frames, read: Bytes::new(), quic }
    }

    /// Closes the connection with an error.
    fn refuse(&self, code: Code, reason: &str) -> StreamErrorIncoming {
        self.quic.close(wire(code), reason.as_bytes());
        lost(ConnectionErrorIncoming::ApplicationClose { error_code: code.value() })
    }
}

impl quic::RecvStream for RecvStream {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        loop {
            match self.frames.next(&mut self.read) {
                Ok(Some(piece)) => {
                    // Copies a short piece, which would otherwise keep the whole buffer in memory.
                    let short = piece.len() < CHUNK / 16 && !self.read.is_empty();
                    let copy = || Bytes::copy_from_slice(&piece);
                    return Poll::Ready(Ok(Some(if short { copy() } else { piece })));
                }
                Ok(None) => {}
                Err(TooLong) => {
                    let error = self.refuse(Code::H3_EXCESSIVE_LOAD, "a frame is too long");
                    return Poll::Ready(Err(error));
                }
            }
            // Copies the bytes, because a part of a datagram would keep all of it in memory.
            let mut space = [0; CHUNK];
            let mut buffer = ReadBuf::new(&mut space);
            ready!(self.stream.poll_read_buf(cx, &mut buffer)).map_err(read_error)?;
            match buffer.filled() {
                [] if self.frames.may_end() => return Poll::Ready(Ok(None)),
                [] => {
                    let error = self.refuse(Code::H3_FRAME_ERROR, "a stream ended within a frame");
                    return Poll::Ready(Err(error));
                }
                read => self.read = Bytes::copy_from_slice(read),
            }
        }
    }

    fn stop_sending(&mut self, error_code: u64) {
        // It fails if the stream has ended already.
        let _ = self.stream.stop(wire(error_code.into()));
    }

    fn recv_id(&self) -> StreamId {
        id(self.stream.id())
    }
}

/// The server's side of a stream.
pub struct SendStream {
    stream: quinn::SendStream,
    writing: Option<WriteBuf<Bytes>>,
}

impl fmt::Debug for SendStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendStream").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl quic::SendStream<Bytes> for SendStream {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        while let Some(data) = &mut self.writing {
            if data.has_remaining() {
                let written = ready!(Pin::new(&mut self.stream).poll_write(cx, data.chunk()));
                data.advance(written.map_err(write_error)?);
            } else {
                self.writing = None;
            }
        }
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        if self.writing.is_some() {
            return Err(misused("a write before the end of the previous one"));
        }
        self.writing = Some(data.into());
        Ok(())
    }

    fn poll_finish(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        Poll::Ready(
            self.stream.finish().map_err(|error| StreamErrorIncoming::Unknown(error.into())),
        )
    }

    fn reset(&mut self, reset_code: u64) {
        // It fails if the client has stopped the stream already.
        let _ = self.stream.reset(wire(reset_code.into()));
    }

    fn send_id(&self) -> StreamId {
        id(self.stream.id())
    }
}

/// Encodes an error code (RFC 9114, section 8.1). All codes of HTTP/3 fit.
#[must_use]
pub fn wire(code: Code) -> VarInt {
    VarInt::from_u64(code.value()).unwrap_or(VarInt::MAX)
}

#[allow(clippy::expect_used, reason = "both are integers below 2^62 (RFC 9000, section 2.1)")]
fn id(id: quinn::StreamId) -> StreamId {
    u64::from(VarInt::from(id)).try_into().expect("a stream ID")
}

fn connection_error(error: quinn::ConnectionError) -> ConnectionErrorIncoming {
    match error {
        quinn::ConnectionError::ApplicationClosed(close) => {
            ConnectionErrorIncoming::ApplicationClose { error_code: close.error_code.into() }
        }
        quinn::ConnectionError::TimedOut => ConnectionErrorIncoming::Timeout,
        other => ConnectionErrorIncoming::Undefined(Arc::new(other)),
    }
}

/// The error of a stream whose connection has ended.
fn lost(connection_error: ConnectionErrorIncoming) -> StreamErrorIncoming {
    StreamErrorIncoming::ConnectionErrorIncoming { connection_error }
}

/// The error of a call that h3 does not make.
fn misused(reason: &str) -> StreamErrorIncoming {
    lost(ConnectionErrorIncoming::InternalError(reason.to_owned()))
}

fn read_error(error: quinn::ReadError) -> StreamErrorIncoming {
    match error {
        quinn::ReadError::Reset(code) => terminated(code),
        quinn::ReadError::ConnectionLost(error) => lost(connection_error(error)),
        other => StreamErrorIncoming::Unknown(other.into()),
    }
}

fn write_error(error: quinn::WriteError) -> StreamErrorIncoming {
    match error {
        quinn::WriteError::Stopped(code) => terminated(code),
        quinn::WriteError::ConnectionLost(error) => lost(connection_error(error)),
        other => StreamErrorIncoming::Unknown(other.into()),
    }
}

fn terminated(code: VarInt) -> StreamErrorIncoming {
    StreamErrorIncoming::StreamTerminated { error_code: code.into() }
}
