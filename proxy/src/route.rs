//! Sending with a word in the route that a datagram takes.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use nix::libc;
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};

/// What a datagram's route must be; by default, the kernel decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// The source address: one of this machine.
    pub source: Option<IpAddr>,
    /// The kernel's index of the interface by which it leaves, not 0.
    pub interface: Option<u32>,
}

/// Sends a datagram through a socket of the family of `to`, without ever waiting.
///
/// # Errors
/// When it could not be handed to the network.
pub(crate) fn send(
    socket: &impl AsFd,
    datagram: &[u8],
    to: SocketAddr,
    route: Route,
) -> io::Result<()> {
    let (data, address) = ([IoSlice::new(datagram)], SockaddrStorage::from(to));
    let send = |wishes: &[ControlMessage<'_>]| {
        // Who sends has packets to count: a full queue must not hold that up.
        sendmsg(socket.as_fd().as_raw_fd(), &data, wishes, MsgFlags::MSG_DONTWAIT, Some(&address))
            .map(drop)
    };
    let sent = match (route, to) {
        (Route { source: None, interface: None }, _) => send(&[]),
        (Route { source, interface }, SocketAddr::V4(_)) => {
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
        (Route { source, interface }, SocketAddr::V6(to)) => {
            let source = match source {
                Some(IpAddr::V4(source)) => source.to_ipv6_mapped(),
                Some(IpAddr::V6(source)) => source,
                // An IPv4 peer of an IPv6 socket: the kernel wants the source mapped as well.
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
