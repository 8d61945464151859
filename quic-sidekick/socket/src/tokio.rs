//! The socket for tokio.

use std::future::{Future as _, poll_fn};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tokio::io::{Interest, ReadBuf};
use tokio::net::ToSocketAddrs;
use tokio::time::{Sleep, sleep_until};

use crate::{Config, FlowStatus, clock};

/// A UDP socket of tokio that gets help.
///
/// Timers are served while a task waits in [`recv_from`](Self::recv_from), so keep one that
/// receives.
#[derive(Debug)]
pub struct UdpSocket {
    /// It never reads or writes by itself.
    io: tokio::net::UdpSocket,
    socket: crate::UdpSocket,
    timer: Mutex<Timer>,
}

#[derive(Debug, Default)]
struct Timer {
    sleep: Option<Pin<Box<Sleep>>>,
    /// When it wakes the task that receives.
    armed: Option<Instant>,
    receiver: Option<Waker>,
}

impl UdpSocket {
    /// Binds a socket, with the default settings.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Panics
    /// Outside of a runtime of tokio with I/O and time.
    pub async fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        Self::wrap(tokio::net::UdpSocket::bind(address).await?.into_std()?, Config::default())
    }

    /// Takes a bound socket.
    ///
    /// # Errors
    /// - The system's.
    /// - [`ErrorKind::InvalidInput`]: the socket is connected.
    ///
    /// # Panics
    /// Outside of a runtime of tokio with I/O and time.
    pub fn wrap(socket: std::net::UdpSocket, config: Config) -> io::Result<Self> {
        let socket = crate::UdpSocket::wrap(socket, config)?;
        let io = tokio::net::UdpSocket::from_std(socket.get_ref().try_clone()?)?;
        Ok(Self { io, socket, timer: Mutex::default() })
    }

    /// Sends a datagram, and waits until the system takes it.
    ///
    /// # Errors
    /// The system's.
    pub async fn send_to(&self, datagram: &[u8], peer: SocketAddr) -> io::Result<usize> {
        let send = || self.socket.send_to(datagram, peer);
        let sent = self.io.async_io(Interest::WRITABLE, send).await;
        self.wake_earlier();
        sent
    }

    /// Sends a datagram if the system takes it now.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if the system's buffer is full; otherwise the system's.
    pub fn try_send_to(&self, datagram: &[u8], peer: SocketAddr) -> io::Result<usize> {
        let send = || self.socket.send_to(datagram, peer);
        let sent = self.io.try_io(Interest::WRITABLE, send);
        self.wake_earlier();
        sent
    }

    /// Waits for a datagram of a peer, and returns its length and source.
    ///
    /// # Errors
    /// The system's.
    pub async fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let mut buffer = ReadBuf::new(buffer);
        let peer = poll_fn(|cx| self.poll_recv_from(cx, &mut buffer)).await?;
        Ok((buffer.filled().len(), peer))
    }

    /// The same for code that polls. Only the task that polled last is woken.
    ///
    /// # Errors
    /// The system's.
    pub fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<SocketAddr>> {
        loop {
            let is_readable = self.io.poll_recv_ready(cx)?.is_ready();
            let due = self.poll_timer(cx).is_ready();
            let mut receive = || self.socket.recv_from(buffer.initialize_unfilled());
            let received = match (is_readable, due) {
                (_, true) => receive(),
                (true, false) => self.io.try_io(Interest::READABLE, receive),
                (false, false) => return Poll::Pending,
            };
            match received {
                Ok((len, peer)) => {
                    buffer.advance(len);
                    return Poll::Ready(Ok(peer));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Whether the timers are due, and wakes the task when they are.
    fn poll_timer(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut timer = self.timer.lock().unwrap_or_else(PoisonError::into_inner);
        let Timer { sleep, armed, receiver } = &mut *timer;
        receiver.get_or_insert_with(|| cx.waker().clone()).clone_from(cx.waker());
        *armed = self.socket.poll_timeout();
        let Some(at) = *armed else { return Poll::Pending };
        // A timer of tokio rounds up to milliseconds.
        if at <= clock() {
            return Poll::Ready(());
        }
        let sleep = sleep.get_or_insert_with(|| Box::pin(sleep_until(at.into())));
        if sleep.deadline().into_std() != at {
            sleep.as_mut().reset(at.into());
        }
        sleep.as_mut().poll(cx)
    }

    /// Wakes the task that receives, if a timer is due earlier than it expects.
    fn wake_earlier(&self) {
        let Some(due) = self.socket.poll_timeout() else { return };
        let mut timer = self.timer.lock().unwrap_or_else(PoisonError::into_inner);
        if timer.armed.is_none_or(|armed| due < armed) {
            timer.armed = Some(due);
            timer.receiver.take().into_iter().for_each(Waker::wake);
        }
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
