//! Sending datagrams whose headers name the receiver of a flow as their source.
//!
//! A NAT or a firewall passes to a sender only datagrams from hosts to which the sender has sent. A
//! proxy that the sender has not found yet is not such a host. But datagrams with the receiver's
//! address pass on the flow's own path. So the proxy answers a marker from the receiver's address,
//! if the marker requests that. This requires a raw socket, and so CAP_NET_RAW, as capturing does.

use std::io::{self, Error};
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use pnet_packet::ip::IpNextHeaderProtocols;
use pnet_packet::ipv4::{self, MutableIpv4Packet};
use pnet_packet::ipv6::MutableIpv6Packet;
use pnet_packet::udp::{self, MutableUdpPacket};

use crate::packet_info::{self, PacketInfo};

const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const UDP_LEN: usize = 8;
/// The initial value of most systems.
const HOPS: u8 = 64;

/// A raw socket, which can send datagrams from addresses of other machines.
#[derive(Debug)]
pub struct RawSocket {
    v4: OwnedFd,
    /// `None` on a machine without IPv6.
    v6: Option<OwnedFd>,
}

impl RawSocket {
    /// Opens the raw sockets.
    ///
    /// # Errors
    /// When the process lacks CAP_NET_RAW.
    pub fn open() -> io::Result<Self> {
        let open =
            |family| socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw);
        let v6 = match open(AddressFamily::Inet6) {
            Ok(v6) => Some(v6),
            Err(Errno::EAFNOSUPPORT) => None,
            Err(errno) => return Err(errno.into()),
        };
        Ok(Self { v4: open(AddressFamily::Inet)?, v6 })
    }

    /// Sends a UDP datagram of this traffic class with the source `from` to `to`, through the
    /// interface with this index. Never blocks.
    ///
    /// # Errors
    /// When the system does not accept the datagram, when it is too long, or when the addresses are
    /// of different families.
    pub fn send(
        &self,
        payload: &[u8],
        class: u8,
        (from, to): (SocketAddr, SocketAddr),
        interface: Option<u32>,
    ) -> io::Result<()> {
        let mut packet = Vec::with_capacity(IPV6_LEN + UDP_LEN + payload.len());
        // The kernel routes by the address beside the packet, not by the header.
        let socket = match (from, to) {
            (SocketAddr::V4(from), SocketAddr::V4(to)) => {
                build_v4(payload, class, (from, to), &mut packet)?;
                &self.v4
            }
            (SocketAddr::V6(from), SocketAddr::V6(to)) => {
                build_v6(payload, class, (from, to), &mut packet)?;
                self.v6.as_ref().ok_or_else(|| Error::from(Errno::EAFNOSUPPORT))?
            }
            _ => return Err(Errno::EAFNOSUPPORT.into()),
        };
        let info = PacketInfo { source: None, interface };
        packet_info::send(socket, &packet, SocketAddr::new(to.ip(), 0), info)
    }
}

fn too_long() -> Error {
    Errno::EMSGSIZE.into()
}

/// The source and the destination of a datagram.
#[derive(Clone, Copy)]
enum Ends {
    V4(SocketAddrV4, SocketAddrV4),
    V6(SocketAddrV6, SocketAddrV6),
}

/// Writes the UDP header and the payload. The checksum also covers the addresses.
fn build_udp(room: &mut [u8], payload: &[u8], ends: Ends) -> io::Result<()> {
    let len = u16::try_from(UDP_LEN + payload.len()).map_err(|_| too_long())?;
    let mut udp = MutableUdpPacket::new(room).ok_or_else(too_long)?;
    let (from, to) = match ends {
        Ends::V4(from, to) => (from.port(), to.port()),
        Ends::V6(from, to) => (from.port(), to.port()),
    };
    udp.set_source(from);
    udp.set_destination(to);
    udp.set_length(len);
    udp.set_payload(payload);
    let sum = match ends {
        Ends::V4(from, to) => udp::ipv4_checksum(&udp.to_immutable(), from.ip(), to.ip()),
        Ends::V6(from, to) => udp::ipv6_checksum(&udp.to_immutable(), from.ip(), to.ip()),
    };
    // RFC 768: a sum of 0 is sent as its complement, since 0 means that there is no sum.
    udp.set_checksum(if sum == 0 { u16::MAX } else { sum });
    Ok(())
}

fn build_v4(
    payload: &[u8],
    class: u8,
    (from, to): (SocketAddrV4, SocketAddrV4),
    packet: &mut Vec<u8>,
) -> io::Result<()> {
    packet.resize(IPV4_LEN + UDP_LEN + payload.len(), 0);
    let len = u16::try_from(packet.len()).map_err(|_| too_long())?;
    let (head, rest) = packet.split_at_mut(IPV4_LEN);
    build_udp(rest, payload, Ends::V4(from, to))?;
    let mut ip = MutableIpv4Packet::new(head).ok_or_else(too_long)?;
    ip.set_version(4);
    ip.set_header_length(5);
    ip.set_dscp(class >> 2);
    ip.set_ecn(class & 3);
    ip.set_total_length(len);
    ip.set_ttl(HOPS);
    ip.set_next_level_protocol(IpNextHeaderProtocols::Udp);
    ip.set_source(*from.ip());
    ip.set_destination(*to.ip());
    ip.set_checksum(ipv4::checksum(&ip.to_immutable()));
    Ok(())
}

fn build_v6(
    payload: &[u8],
    class: u8,
    (from, to): (SocketAddrV6, SocketAddrV6),
    packet: &mut Vec<u8>,
) -> io::Result<()> {
    packet.resize(IPV6_LEN + UDP_LEN + payload.len(), 0);
    let len = u16::try_from(UDP_LEN + payload.len()).map_err(|_| too_long())?;
    let (head, rest) = packet.split_at_mut(IPV6_LEN);
    build_udp(rest, payload, Ends::V6(from, to))?;
    let mut ip = MutableIpv6Packet::new(head).ok_or_else(too_long)?;
    ip.set_version(6);
    ip.set_traffic_class(class);
    ip.set_payload_length(len);
    ip.set_hop_limit(HOPS);
    ip.set_next_header(IpNextHeaderProtocols::Udp);
    ip.set_source(*from.ip());
    ip.set_destination(*to.ip());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Link, parse};

    /// Expedited forwarding, and ECT(1).
    const CLASS: u8 = 46 << 2 | 1;

    /// The parser of captured packets reads the result, and also checks the lengths.
    #[test]
    fn a_packet_is_what_a_capture_would_show() {
        let payload: Vec<u8> = (0..111).collect();
        for (from, to) in
            [("198.51.100.7:443", "192.0.2.1:4000"), ("[2001:db8::7]:443", "[2001:db8::1]:4000")]
        {
            let (from, to): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
            let mut packet = Vec::new();
            match (from, to) {
                (SocketAddr::V4(from), SocketAddr::V4(to)) => {
                    build_v4(&payload, CLASS, (from, to), &mut packet)
                }
                (SocketAddr::V6(from), SocketAddr::V6(to)) => {
                    build_v6(&payload, CLASS, (from, to), &mut packet)
                }
                _ => unreachable!(),
            }
            .unwrap();
            let datagram = parse(Link::Ip, &packet, packet.len()).unwrap();
            assert_eq!((datagram.flow.source, datagram.flow.destination), (from, to));
            assert_eq!(datagram.payload, payload);
            let class = match from {
                SocketAddr::V4(_) => packet[1],
                SocketAddr::V6(_) => packet[0] << 4 | packet[1] >> 4,
            };
            assert_eq!(class, CLASS);
        }
    }

    #[test]
    fn a_payload_that_fits_no_datagram_is_refused() {
        let (from, to) = ("192.0.2.1:1".parse().unwrap(), "192.0.2.2:2".parse().unwrap());
        assert!(build_v4(&[0; 1 << 16], 0, (from, to), &mut Vec::new()).is_err());
    }
}
