//! Sending a datagram from a chosen source address, or through a chosen interface.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use nix::libc;
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};

/// The source address and the interface of a leaving datagram. The kernel decides each that is
/// `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketInfo {
    /// The source address, which is one of this machine.
    pub source: Option<IpAddr>,
    /// The kernel's index of the interface by which the datagram leaves, not 0.
    pub interface: Option<u32>,
}

/// Whether this is the address and port of one program on one machine.
pub(crate) fn is_unicast(address: SocketAddr) -> bool {
    let ip = address.ip();
    let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    address.port() != 0 && !ip.is_unspecified() && !ip.is_multicast() && !broadcast
}

/// Sends a datagram through a socket of the family of `to`. Never blocks.
///
/// # Errors
/// When the system does not accept the datagram.
pub(crate) fn send(
    socket: &impl AsFd,
    datagram: &[u8],
    to: SocketAddr,
    info: PacketInfo,
) -> io::Result<()> {
    let (data, address) = ([IoSlice::new(datagram)], SockaddrStorage::from(to));
    let send = |control: &[ControlMessage<'_>]| {
        // The caller has packets to count. A full queue must not delay that.
        sendmsg(socket.as_fd().as_raw_fd(), &data, control, MsgFlags::MSG_DONTWAIT, Some(&address))
            .map(drop)
    };
    let sent = match (info, to) {
        (PacketInfo { source: None, interface: None }, _) => send(&[]),
        (PacketInfo { source, interface }, SocketAddr::V4(_)) => {
            let source = match source {
                Some(IpAddr::V4(source)) => source,
                _ => Ipv4Addr::UNSPECIFIED,
            };
            let index = interface.and_then(|index| i32::try_from(index).ok()).unwrap_or(0);
            send(&[ControlMessage::Ipv4PacketInfo(&libc::in_pktinfo {
                ipi_ifindex: index,
                ipi_spec_dst: libc::in_addr { s_addr: u32::from_ne_bytes(source.octets()) },
                ipi_addr: libc::in_addr { s_addr: 0 },
            })])
        }
        (PacketInfo { source, interface }, SocketAddr::V6(to)) => {
            let source = match source {
                Some(IpAddr::V4(source)) => source.to_ipv6_mapped(),
                Some(IpAddr::V6(source)) => source,
                // For an IPv4 peer of an IPv6 socket, the kernel requires a mapped source, too.
                None if to.ip().to_ipv4_mapped().is_some() => {
                    Ipv4Addr::UNSPECIFIED.to_ipv6_mapped()
                }
                None => Ipv6Addr::UNSPECIFIED,
            };
            send(&[ControlMessage::Ipv6PacketInfo(&libc::in6_pktinfo {
                ipi6_addr: libc::in6_addr { s6_addr: source.octets() },
                ipi6_ifindex: interface.unwrap_or(0),
            })])
        }
    };
    Ok(sent?)
}
