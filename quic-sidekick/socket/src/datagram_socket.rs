//! A socket for clients of tokio-quiche, which take one by the traits of the crate
//! `datagram-socket`.
//!
//! Both halves of tokio-quiche's `Socket` are clones of a [`Connected`]:
//!
//! ```no_run
//! # async fn example() -> std::io::Result<()> {
//! use sidekick_socket::datagram_socket::Connected;
//!
//! let server = "192.0.2.1:443".parse().expect("an address");
//! let socket = sidekick_socket::tokio::UdpSocket::bind("0.0.0.0:0").await?;
//! let socket = Connected::new(socket, server);
//! // Socket { send: socket.clone(), recv: socket.clone(), local_addr: socket.local_addr()?,
//! //     peer_addr: server, capabilities: Default::default() }
//! # let _ = socket;
//! # Ok(())
//! # }
//! ```

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ::datagram_socket::{DatagramSocketRecv, DatagramSocketSend};
use tokio::io::ReadBuf;

use crate::FlowStatus;
use crate::tokio::UdpSocket;

/// A socket of tokio that gets help, towards one peer. What others send is dropped.
#[derive(Clone, Debug)]
pub struct Connected {
    socket: Arc<UdpSocket>,
    peer: SocketAddr,
}

impl Connected {
    /// The socket towards this peer.
    #[must_use]
    pub fn new(socket: UdpSocket, peer: SocketAddr) -> Self {
        Self { socket: Arc::new(socket), peer }
    }

    /// The flows that are helped, and how.
    #[must_use]
    pub fn status(&self) -> Vec<FlowStatus> {
        self.socket.status()
    }

    /// The address to which the socket is bound.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

impl DatagramSocketSend for Connected {
    fn poll_send(&self, cx: &mut Context<'_>, datagram: &[u8]) -> Poll<io::Result<usize>> {
        self.socket.poll_send_to(cx, datagram, self.peer)
    }

    fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        datagram: &[u8],
        peer: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        if peer != self.peer {
            let sentence = format!("the socket is for {} alone", self.peer);
            return Poll::Ready(Err(io::Error::new(ErrorKind::InvalidInput, sentence)));
        }
        self.poll_send(cx, datagram)
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        Some(self.peer)
    }
}

impl DatagramSocketRecv for Connected {
    fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_recv_from(cx, buffer).map_ok(|_| ())
    }

    fn poll_recv_from(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<SocketAddr>> {
        loop {
            let (len, from) = ready!(self.socket.poll_recv_from(cx, buffer.initialize_unfilled()))?;
            if from == self.peer {
                buffer.advance(len);
                return Poll::Ready(Ok(from));
            }
        }
    }
}
