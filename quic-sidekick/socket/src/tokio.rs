//! The socket for tokio.

use std::future::{Future as _, poll_fn};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use tokio::io::Interest;
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

    /// The same for code that polls. Only the task that polled last is woken.
    ///
    /// # Errors
    /// The system's.
    pub fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        datagram: &[u8],
        peer: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.io.poll_send_ready(cx))?;
            match self.try_send_to(datagram, peer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                sent => return Poll::Ready(sent),
            }
        }
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

    /// Waits until the system takes a datagram.
    ///
    /// # Errors
    /// The system's.
    pub async fn writable(&self) -> io::Result<()> {
        self.io.writable().await
    }

    /// Waits for a datagram of a peer, and returns its length and source.
    ///
    /// # Errors
    /// The system's.
    pub async fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        poll_fn(|cx| self.poll_recv_from(cx, buffer)).await
    }

    /// The same for code that polls. Only the task that polled last is woken.
    ///
    /// # Errors
    /// The system's.
    pub fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        loop {
            ready!(self.poll_readable(cx))?;
            match self.try_recv_from(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                received => return Poll::Ready(received),
            }
        }
    }

    /// Waits until [`try_recv_from`](Self::try_recv_from) is worth a call.
    ///
    /// # Errors
    /// The system's.
    pub async fn readable(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_readable(cx)).await
    }

    /// The same for code that polls. Only the task that polled last is woken.
    ///
    /// # Errors
    /// The system's.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let is_readable = self.io.poll_recv_ready(cx)?.is_ready();
        if is_readable || self.poll_timer(cx).is_ready() {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }

    /// Receives a datagram of a peer if there is one, and returns its length and source.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if there is none; otherwise the system's.
    pub fn try_recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        match self.io.try_io(Interest::READABLE, || self.socket.recv_from(buffer)) {
            // tokio knows of nothing that arrived. But something may have waited here.
            Err(error) if error.kind() == ErrorKind::WouldBlock && self.is_due() => {
                self.socket.recv_from(buffer)
            }
            received => received,
        }
    }

    fn is_due(&self) -> bool {
        self.socket.poll_timeout().is_some_and(|at| at <= clock())
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
