//! UDP sockets, and the wait for them.

use std::cell::Cell;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sidekick_protocol::is_network_error;

/// The longest datagram.
pub(crate) const DATAGRAM: usize = 65_535;

/// A socket that never blocks. It counts errors that the network reports, but does not fail,
/// because anyone can forge them.
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

    /// The number of errors that the network has reported.
    pub(crate) fn errors(&self) -> u64 {
        self.errors.get()
    }

    /// The next waiting datagram, if any.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<(usize, SocketAddr)>> {
        loop {
            match self.udp.recv_from(buffer) {
                Ok(datagram) => return Ok(Some(datagram)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                // An ICMP message concerns an earlier datagram, not the next one.
                Err(error) if self.count(&error) || error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a datagram. If the system refuses it, it counts as lost in the network.
    pub(crate) fn send(&self, datagram: &[u8], to: SocketAddr) {
        if let Err(error) = self.udp.send_to(datagram, to) {
            self.count(&error);
        }
    }

    /// Counts an error if the network reported it. Returns whether it did.
    fn count(&self, error: &io::Error) -> bool {
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
#[allow(clippy::disallowed_methods, reason = "a program's edge: it reads the real clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
