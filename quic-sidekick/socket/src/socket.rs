//! The socket for loops that poll.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::{Arrival, Config, Datagram, FlowStatus, Flows, Marks, clock, random};

/// A UDP socket that never blocks, and that gets help.
///
/// Use it as one of the standard library. Wait until it is readable, or until
/// [`poll_timeout`](Self::poll_timeout), and then call [`recv_from`](Self::recv_from) until it
/// returns [`ErrorKind::WouldBlock`]: that also serves the timers. The socket is not connected,
/// because proxies answer at its address; `peer_addr` of a wrapped one must be unknown.
#[derive(Debug)]
pub struct UdpSocket {
    socket: std::net::UdpSocket,
    flows: Mutex<Flows>,
}

impl UdpSocket {
    /// Binds a socket, with the default settings.
    ///
    /// # Errors
    /// The system's.
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        Self::wrap(std::net::UdpSocket::bind(address)?, Config::default())
    }

    /// Takes a bound socket, and sets it to never block.
    ///
    /// # Errors
    /// - The system's.
    /// - [`ErrorKind::InvalidInput`]: the socket is connected.
    pub fn wrap(socket: std::net::UdpSocket, config: Config) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let flows = Mutex::new(flows_of(&socket, config)?);
        Ok(Self { socket, flows })
    }

    fn flows(&self) -> MutexGuard<'_, Flows> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// The system's, such as [`ErrorKind::WouldBlock`] if its buffer is full.
    pub fn send_to(&self, datagram: &[u8], peer: SocketAddr) -> io::Result<usize> {
        let mut flows = self.flows();
        let sent = self.socket.send_to(datagram, peer)?;
        let now = clock();
        flows.on_sent(peer, Marks::default(), [datagram], now);
        self.transmit(&mut flows, now);
        Ok(sent)
    }

    /// Receives a datagram of a peer into `buffer`, and returns its length and source. What does
    /// not fit is cut off. Messages of proxies come by it, too, so give it 1500 bytes or more.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if there is none; otherwise the system's.
    pub fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let mut flows = self.flows();
        loop {
            if let Some(Datagram { peer, payload, .. }) = flows.poll_delivery() {
                return Ok((copy(&payload, buffer), peer));
            }
            let received = self.socket.recv_from(buffer);
            let now = clock();
            let passed = match received {
                Ok((len, peer)) => {
                    let datagram = buffer.get(..len).unwrap_or_default();
                    let arrival = flows.on_received(peer, Marks::default(), datagram, now);
                    (arrival == Arrival::Passes).then_some((len, peer))
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if flows.poll_timeout().is_none_or(|at| at > now) {
                        return Err(error);
                    }
                    flows.on_timeout(now);
                    None
                }
                Err(error) => return Err(error),
            };
            self.transmit(&mut flows, now);
            if let Some(passed) = passed {
                return Ok(passed);
            }
        }
    }

    fn transmit(&self, flows: &mut Flows, now: Instant) {
        flows.transmit(now, |datagram| {
            self.socket.send_to(&datagram.payload, datagram.peer).is_ok()
        });
    }

    /// When [`recv_from`](Self::recv_from) is due, although nothing may have arrived.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let flows = self.flows();
        flows.peek_delivery().map(|_| clock()).or_else(|| flows.poll_timeout())
    }

    /// The flows that are helped, and how.
    #[must_use]
    pub fn status(&self) -> Vec<FlowStatus> {
        self.flows().status(clock()).collect()
    }

    /// The socket itself, to poll it and to set its options. Do not send or receive by it.
    #[must_use]
    pub fn get_ref(&self) -> &std::net::UdpSocket {
        &self.socket
    }

    /// The address to which the socket is bound.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

impl Drop for UdpSocket {
    fn drop(&mut self) {
        let mut flows = self.flows();
        let now = clock();
        flows.close(now);
        self.transmit(&mut flows, now);
    }
}

#[cfg(unix)]
impl std::os::fd::AsFd for UdpSocket {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(unix)]
impl std::os::fd::AsRawFd for UdpSocket {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.socket.as_raw_fd()
    }
}

/// The flows of a socket.
pub(crate) fn flows_of(socket: &std::net::UdpSocket, config: Config) -> io::Result<Flows> {
    if socket.peer_addr().is_ok() {
        let sentence = "the socket is connected, so proxies cannot answer at it";
        return Err(io::Error::new(ErrorKind::InvalidInput, sentence));
    }
    Ok(Flows::new(config, socket.local_addr()?, random))
}

/// Copies what fits into the buffer.
pub(crate) fn copy(payload: &[u8], buffer: &mut [u8]) -> usize {
    let len = payload.len().min(buffer.len());
    for (to, from) in buffer.iter_mut().zip(payload) {
        *to = *from;
    }
    len
}
