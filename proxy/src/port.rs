//! The proxy's own UDP port, which answers from the address to which a message was sent.
//!
//! A router has many addresses. If the answer came from another address than the message was sent
//! to, the sender's connected socket or its NAT would drop it. So the port reads the destination of
//! each message, and passes it to the kernel with the answer.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, SockaddrStorage, bind,
    recvmsg, setsockopt, socket, sockopt,
};
use sidekick_protocol::Peer;
use sidekick_protocol::is_network_error;
use thiserror::Error;

use crate::packet_info::{self, PacketInfo};

/// Bytes of messages that may wait in each direction, as the kernel counts them. This is room for
/// some thousand messages: after an outage all senders send at once, and the kernel keeps datagrams
/// while it waits for ARP.
const WAITING_BYTES: usize = 4 << 20;

/// Why the proxy cannot open its port.
#[derive(Debug, Error)]
pub enum PortError {
    /// Another program uses it.
    #[error(
        "UDP port {} is in use on {}: stop the program that uses it, or choose another port with \
         --listen",
        .0.port(), .0.ip()
    )]
    InUse(SocketAddr),
    /// The address belongs to another machine.
    #[error(
        "{} is not an address of this machine: choose one with --listen, or omit it for all",
        .0.ip()
    )]
    NotLocal(SocketAddr),
    /// Ports below 1024 are privileged.
    #[error("no permission to listen on {0}: choose a port above 1023 with --listen")]
    NotPermitted(SocketAddr),
    /// The kernel has no free port. An agent lets the kernel choose one.
    #[error("cannot open a UDP port: {0}")]
    NoPort(io::Error),
    /// Something else went wrong.
    #[error("cannot listen on {address}: {cause}")]
    Other {
        /// The requested address.
        address: SocketAddr,
        /// The error of the system.
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
    /// The sender. An IPv4 address is not mapped to IPv6, even on an IPv6 socket.
    pub from: SocketAddr,
    /// The destination, if the socket listens on more than one address.
    pub local_ip: Option<IpAddr>,
    /// Bytes received.
    pub len: usize,
}

impl Port {
    /// Opens the port. At the unspecified address of IPv6, it also serves IPv4.
    ///
    /// # Errors
    /// When the port is in use, the address belongs to another machine, or the process lacks the
    /// privilege.
    pub fn open(address: SocketAddr) -> Result<Self, PortError> {
        let other = |cause| PortError::Other { address, cause };
        let socket = bound(address).map_err(|cause| match cause.kind() {
            _ if address.ip().is_unspecified() && address.port() == 0 => PortError::NoPort(cause),
            io::ErrorKind::AddrInUse => PortError::InUse(address),
            io::ErrorKind::AddrNotAvailable => PortError::NotLocal(address),
            io::ErrorKind::PermissionDenied => PortError::NotPermitted(address),
            _ => other(cause),
        })?;
        // More than the system's limit requires CAP_NET_ADMIN. Otherwise the limit must do.
        if setsockopt(&socket, sockopt::RcvBufForce, &WAITING_BYTES).is_err() {
            let _ = setsockopt(&socket, sockopt::RcvBuf, &WAITING_BYTES);
        }
        if setsockopt(&socket, sockopt::SndBufForce, &WAITING_BYTES).is_err() {
            let _ = setsockopt(&socket, sockopt::SndBuf, &WAITING_BYTES);
        }
        if address.ip().is_unspecified() {
            let failed = |errno: Errno| other(errno.into());
            // On an IPv6 socket, too. For a message to an IPv4 broadcast address, the IPv6 option
            // does not report an address that can be the source of an answer.
            setsockopt(&socket, sockopt::Ipv4PacketInfo, &true).map_err(failed)?;
            if address.is_ipv6() {
                setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true).map_err(failed)?;
            }
        }
        let address = socket.local_addr().map_err(other)?;
        Ok(Self { socket, address })
    }

    /// The address on which the port listens, with the real port if the requested one was 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address and port to which a peer sends messages: at `local_ip`, or at the address on
    /// which the port listens, if either is known.
    #[must_use]
    pub fn local_address(&self, local_ip: Option<IpAddr>) -> Option<SocketAddr> {
        let ip = local_ip.or_else(|| Some(self.address.ip()).filter(|ip| !ip.is_unspecified()))?;
        Some(SocketAddr::new(ip, self.address.port()))
    }

    /// The receiving half.
    #[must_use]
    pub fn receiver(&self) -> Receiver<'_> {
        Receiver { port: self, control: cmsg_space!(libc::in_pktinfo, libc::in6_pktinfo) }
    }

    /// Sends `message`. Never blocks.
    ///
    /// # Errors
    /// When the system does not accept the message. The network may lose every message of the
    /// protocol, so this is no reason to end.
    pub fn send(&self, message: &[u8], to: SocketAddr, info: PacketInfo) -> io::Result<()> {
        packet_info::send(&self.socket, message, self.in_family(to), info)
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

/// The address that stands for all of this machine: that of IPv6, where a [`Port`] also serves
/// IPv4, or that of IPv4 if the kernel has no IPv6.
pub(crate) fn all_addresses() -> IpAddr {
    match unbound(AddressFamily::Inet6) {
        Ok(_) => Ipv6Addr::UNSPECIFIED.into(),
        Err(_) => Ipv4Addr::UNSPECIFIED.into(),
    }
}

fn unbound(family: AddressFamily) -> nix::Result<OwnedFd> {
    socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)
}

fn bound(address: SocketAddr) -> io::Result<UdpSocket> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let fd = unbound(family)?;
    if address.is_ipv6() {
        // The administrator of the machine can change the default (net.ipv6.bindv6only).
        setsockopt(&fd, sockopt::Ipv6V6Only, &false)?;
    }
    bind(fd.as_raw_fd(), &SockaddrStorage::from(address))?;
    Ok(fd.into())
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Receiver<'_> {
    /// Reads a datagram, if one waits. Truncates a datagram that is longer than `buffer`.
    ///
    /// # Errors
    /// When the socket has failed. Signals and errors of the network are not failures.
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
                // Linux reports no ICMP errors to an unconnected socket; other systems do.
                Err(errno) if is_network_error(&errno.into()) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            };
            let Some(from) = received.address.as_ref().and_then(socket_addr) else { continue };
            // A message of IPv4 to an IPv6 socket has both. That of IPv4 decides.
            let mut local_ip = None;
            for message in received.cmsgs()? {
                match message {
                    ControlMessageOwned::Ipv4PacketInfo(info) => {
                        local_ip =
                            Some(Ipv4Addr::from(info.ipi_spec_dst.s_addr.to_ne_bytes()).into());
                    }
                    ControlMessageOwned::Ipv6PacketInfo(info) => {
                        local_ip.get_or_insert(IpAddr::from(info.ipi6_addr.s6_addr).to_canonical());
                    }
                    _ => {}
                }
            }
            // A multicast address cannot be the source of an answer.
            let local_ip = local_ip.filter(|ip: &IpAddr| !ip.is_multicast());
            return Ok(Some(Arrival { from, local_ip, len: received.bytes }));
        }
    }
}

/// The peer's address as captured packets show it: an IPv4 peer of an IPv6 socket has an IPv4
/// address.
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
/// Most messages that one read returns.
const MESSAGES: usize = 32;
/// Bytes of a receive buffer: more than any message, so a message that fills it is too long.
const RECEIVE_LEN: usize = 2048;

/// Reads messages at a port, many at a time, so that what arrived before them can be handled first.
pub(crate) struct PortReader {
    messages: Vec<Received>,
}

#[derive(Clone)]
struct Received {
    from: Peer,
    len: usize,
    buffer: [u8; RECEIVE_LEN],
}

impl Default for PortReader {
    fn default() -> Self {
        let unspecified = SocketAddr::from(([0; 4], 0));
        let empty = Received { from: unspecified.into(), len: 0, buffer: [0; RECEIVE_LEN] };
        Self { messages: vec![empty; MESSAGES] }
    }
}

impl PortReader {
    /// Reads messages that wait, at most 32, and returns how many. Never blocks.
    pub(crate) fn read(&mut self, port: &Port) -> io::Result<usize> {
        let mut receiver = port.receiver();
        for (index, message) in self.messages.iter_mut().enumerate() {
            let Some(arrival) = receiver.receive(&mut message.buffer)? else {
                return Ok(index);
            };
            message.from = Peer { address: arrival.from, local_ip: arrival.local_ip };
            message.len = arrival.len;
        }
        Ok(MESSAGES)
    }

    /// The sender and the bytes of the first `count` messages of the last read.
    pub(crate) fn messages(&self, count: usize) -> impl Iterator<Item = (Peer, &[u8])> {
        self.messages
            .iter()
            .take(count)
            .filter_map(|message| Some((message.from, message.buffer.get(..message.len)?)))
    }
}
