//! Sockets, and waiting for them.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The longest datagram.
pub(crate) const DATAGRAM: usize = 65_535;

/// A socket that never blocks.
pub(crate) fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// The next datagram, if one is there.
pub(crate) fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Option<(usize, SocketAddr)>> {
    match socket.recv_from(buffer) {
        Ok(datagram) => Ok(Some(datagram)),
        // What ICMP tells of an earlier datagram is no concern of the next one.
        Err(error)
            if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionRefused) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Sends a datagram. One that the system does not take is lost, as it could be anywhere on its way.
pub(crate) fn send(socket: &UdpSocket, datagram: &[u8], to: SocketAddr) {
    let _ = socket.send_to(datagram, to);
}

/// Waits until one of the sockets has something to read, or until `deadline`.
pub(crate) fn wait<'a>(
    sockets: impl IntoIterator<Item = &'a UdpSocket>,
    deadline: Option<Instant>,
) -> io::Result<()> {
    let mut descriptors: Vec<_> =
        sockets.into_iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
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
