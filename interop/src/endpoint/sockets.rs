//! Sockets, and waiting for them.

use std::cell::Cell;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sidekick_protocol::is_network_error;

/// The longest datagram.
pub(crate) const DATAGRAM: usize = 65_535;

/// A socket that never blocks. What the network says of it is counted, and ends nothing: anyone can
/// say that.
#[derive(Debug)]
pub(crate) struct Socket {
    udp: UdpSocket,
    errors: Cell<u64>,
}

impl Socket {
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Self> {
        let udp = UdpSocket::bind(address)?;
        udp.set_nonblocking(true)?;
        Ok(Self { udp, errors: Cell::default() })
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.udp.local_addr()
    }

    /// Errors that the network has reported.
    pub(crate) fn errors(&self) -> u64 {
        self.errors.get()
    }

    /// The next datagram, if one is there.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<(usize, SocketAddr)>> {
        loop {
            match self.udp.recv_from(buffer) {
                Ok(datagram) => return Ok(Some(datagram)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                // What ICMP tells of an earlier datagram is no concern of the next one.
                Err(error)
                    if self.is_counted(&error) || error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a datagram. One that the system does not take is lost, as it could be anywhere on its
    /// way.
    pub(crate) fn send(&self, datagram: &[u8], to: SocketAddr) {
        if let Err(error) = self.udp.send_to(datagram, to) {
            self.is_counted(&error);
        }
    }

    /// Counts an error that the network reports, and says whether it is one.
    fn is_counted(&self, error: &io::Error) -> bool {
        let network = is_network_error(error);
        self.errors.set(self.errors.get() + u64::from(network));
        network
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.udp.as_fd()
    }
}

/// Waits until one of the sockets has something to read, or until `deadline`.
pub(crate) fn wait<'a>(
    sockets: impl IntoIterator<Item = BorrowedFd<'a>>,
    deadline: Option<Instant>,
) -> io::Result<()> {
    let mut descriptors: Vec<_> =
        sockets.into_iter().map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN)).collect();
    let timeout = deadline.map(|deadline| {
        let left = deadline.saturating_duration_since(now());
        Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        }
    });
    match poll(&mut descriptors, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The clock of these programs.
#[allow(clippy::disallowed_methods, reason = "a program's edge: this is where its time comes from")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
