//! The proxy's own UDP port, which answers from the address it was spoken to.
//!
//! A router has many addresses. If a sender speaks to one of them and the answer came from another,
//! the sender's socket (connected) or its NAT would throw it away; so the address each message was
//! sent to is read with it, and given back to the kernel with the answer.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use sidekick_protocol::is_network_error;
use thiserror::Error;

use crate::route::{self, Route};

/// Bytes of messages that may wait in each direction, as the kernel counts them: some thousands,
/// since after an outage all senders speak at once, and since what is sent waits for answers to
/// ARP.
const WAITING_BYTES: usize = 4 << 20;

/// Why the port cannot be opened.
#[derive(Debug, Error)]
pub enum PortError {
    /// Another program has it.
    #[error(
        "UDP port {} is in use on {}: stop the program that has it, or choose another port with --listen",
        .0.port(), .0.ip()
    )]
    InUse(SocketAddr),
    /// The address belongs to another machine.
    #[error("{} is not an address of this machine: choose one with --listen, or 0.0.0.0 for all", .0.ip())]
    NotLocal(SocketAddr),
    /// Ports below 1024 are privileged.
    #[error("no permission to listen on {0}: choose a port above 1023 with --listen")]
    NotPermitted(SocketAddr),
    /// Something else went wrong.
    #[error("cannot listen on {address}: {cause}")]
    Other {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        cause: io::Error,
    },
}

/// The proxy's UDP socket.
#[derive(Debug)]
pub struct Port {
    socket: UdpSocket,
    address: SocketAddr,
}

/// Receives on a [`Port`]; owns the buffers, so that receiving allocates nothing.
#[derive(Debug)]
pub struct Receiver<'a> {
    port: &'a Port,
    control: Vec<u8>,
}

/// A datagram that arrived at the port.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Its sender; an IPv4 address is one even if the socket is an IPv6 one.
    pub from: SocketAddr,
    /// The address it was sent to, where the socket listens on more than one.
    pub to: Option<IpAddr>,
    /// Bytes received.
    pub len: usize,
}

impl Port {
    /// Opens the port.
    ///
    /// # Errors
    /// When it is in use, is not ours, or takes more privilege.
    pub fn open(address: SocketAddr) -> Result<Self, PortError> {
        let other = |cause| PortError::Other { address, cause };
        let socket = UdpSocket::bind(address).map_err(|cause| match cause.kind() {
            io::ErrorKind::AddrInUse => PortError::InUse(address),
            io::ErrorKind::AddrNotAvailable => PortError::NotLocal(address),
            io::ErrorKind::PermissionDenied => PortError::NotPermitted(address),
            _ => other(cause),
        })?;
        // More than the system's limit takes CAP_NET_ADMIN; what it gives has to do otherwise.
        if setsockopt(&socket, sockopt::RcvBufForce, &WAITING_BYTES).is_err() {
            let _ = setsockopt(&socket, sockopt::RcvBuf, &WAITING_BYTES);
        }
        if setsockopt(&socket, sockopt::SndBufForce, &WAITING_BYTES).is_err() {
            let _ = setsockopt(&socket, sockopt::SndBuf, &WAITING_BYTES);
        }
        if address.ip().is_unspecified() {
            let told = if address.is_ipv4() {
                setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)
            } else {
                setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)
            };
            told.map_err(|errno| other(errno.into()))?;
        }
        let address = socket.local_addr().map_err(other)?;
        Ok(Self { socket, address })
    }

    /// The address it listens on; the port is the real one if 0 was asked for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address under which a peer has spoken to it: `spoken_to`, or the one that it listens on,
    /// if either is known.
    #[must_use]
    pub fn own_address(&self, spoken_to: Option<IpAddr>) -> Option<SocketAddr> {
        let ip = spoken_to.or_else(|| Some(self.address.ip()).filter(|ip| !ip.is_unspecified()))?;
        Some(SocketAddr::new(ip, self.address.port()))
    }

    /// The receiving half.
    #[must_use]
    pub fn receiver(&self) -> Receiver<'_> {
        Receiver { port: self, control: cmsg_space!(libc::in6_pktinfo) }
    }

    /// Sends `message` without ever waiting.
    ///
    /// # Errors
    /// When the message could not be handed to the network; every message of the protocol may be
    /// lost, so that is no reason to end.
    pub fn send(&self, message: &[u8], to: SocketAddr, route: Route) -> io::Result<()> {
        route::send(&self.socket, message, self.in_family(to), route)
    }

    /// An IPv6 socket reaches an IPv4 peer under its mapped address.
    fn in_family(&self, peer: SocketAddr) -> SocketAddr {
        match (self.address, peer) {
            (SocketAddr::V6(_), SocketAddr::V4(v4)) => {
                SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0).into()
            }
            _ => peer,
        }
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Receiver<'_> {
    /// Reads a datagram, if one is there; a longer one than `buffer` is cut.
    ///
    /// # Errors
    /// When the socket is of no more use; a signal is no failure, nor is what the network reports.
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<Arrival>> {
        loop {
            let mut data = [IoSliceMut::new(buffer)];
            let fd = self.port.socket.as_raw_fd();
            let received = recvmsg::<SockaddrStorage>(
                fd,
                &mut data,
                Some(&mut self.control),
                MsgFlags::MSG_DONTWAIT,
            );
            let received = match received {
                Ok(received) => received,
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => return Ok(None),
                // Linux tells a socket without a peer nothing of ICMP; other systems do.
                Err(errno) if is_network_error(&errno.into()) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            };
            let Some(from) = received.address.as_ref().and_then(socket_addr) else { continue };
            let to = received.cmsgs()?.find_map(|message| match message {
                ControlMessageOwned::Ipv4PacketInfo(info) => {
                    Some(Ipv4Addr::from(info.ipi_spec_dst.s_addr.to_ne_bytes()).into())
                }
                ControlMessageOwned::Ipv6PacketInfo(info) => {
                    Some(IpAddr::from(info.ipi6_addr.s6_addr).to_canonical())
                }
                _ => None,
            });
            // A group's address cannot be answered from.
            let to = to.filter(|own: &IpAddr| !own.is_multicast());
            return Ok(Some(Arrival { from, to, len: received.bytes }));
        }
    }
}

/// The peer as the captures see it: an IPv4 peer of an IPv6 socket has an IPv4 address.
fn socket_addr(storage: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = storage.as_sockaddr_in() {
        return Some(SocketAddr::new(v4.ip().into(), v4.port()));
    }
    let v6: SocketAddrV6 = (*storage.as_sockaddr_in6()?).into();
    match v6.ip().to_ipv4_mapped() {
        Some(v4) => Some(SocketAddr::new(v4.into(), v6.port())),
        None => Some(v6.into()),
    }
}
