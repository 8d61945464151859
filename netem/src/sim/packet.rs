//! UDP datagrams between the nodes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use pnet_packet::ethernet::{EtherTypes, MutableEthernetPacket};
use pnet_packet::ip::IpNextHeaderProtocols;
use pnet_packet::ipv4::{self, Ipv4Flags, MutableIpv4Packet};
use pnet_packet::udp::{self, MutableUdpPacket};

use crate::link::{Ecn, Frame, flip_a_bit};

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const UDP: usize = 8;
/// Bytes of the headers, which count on the links of every backend.
const HEADERS: usize = ETHERNET + IPV4 + UDP;
const TIME_TO_LIVE: u8 = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) source: SocketAddr,
    pub(super) destination: SocketAddr,
    pub(super) payload: Vec<u8>,
    /// Whether the datagram was damaged. Its checksum is then wrong, and its receiver drops it.
    pub(super) damaged: bool,
}

impl Packet {
    pub(super) fn new(source: SocketAddr, destination: SocketAddr, payload: &[u8]) -> Self {
        Self { source, destination, payload: payload.to_vec(), damaged: false }
    }

    /// The Ethernet frame that would carry it, for capture files.
    pub(super) fn to_frame(&self) -> Vec<u8> {
        let mut frame = vec![0; HEADERS];
        frame.extend_from_slice(&self.payload);
        let written = self.write_headers(&mut frame);
        // No datagram here is too long for its headers.
        debug_assert!(written.is_some(), "{} bytes", self.payload.len());
        frame
    }

    fn write_headers(&self, frame: &mut [u8]) -> Option<()> {
        let (source, destination) = (ipv4(self.source.ip()), ipv4(self.destination.ip()));
        let (ethernet, packet) = frame.split_at_mut_checked(ETHERNET)?;
        let mut ethernet = MutableEthernetPacket::new(ethernet)?;
        ethernet.set_source(hardware(source).into());
        ethernet.set_destination(hardware(destination).into());
        ethernet.set_ethertype(EtherTypes::Ipv4);

        let mut ip = MutableIpv4Packet::new(packet)?;
        ip.set_version(4);
        ip.set_header_length(5);
        ip.set_total_length(u16::try_from(IPV4 + UDP + self.payload.len()).ok()?);
        ip.set_flags(Ipv4Flags::DontFragment);
        ip.set_ttl(TIME_TO_LIVE);
        ip.set_next_level_protocol(IpNextHeaderProtocols::Udp);
        ip.set_source(source);
        ip.set_destination(destination);
        ip.set_checksum(ipv4::checksum(&ip.to_immutable()));

        let mut udp = MutableUdpPacket::new(packet.get_mut(IPV4..)?)?;
        udp.set_source(self.source.port());
        udp.set_destination(self.destination.port());
        udp.set_length(u16::try_from(UDP + self.payload.len()).ok()?);
        let sum = udp::ipv4_checksum(&udp.to_immutable(), &source, &destination);
        // A sum of 0 means that there is none, so it is sent as its complement (RFC 768).
        udp.set_checksum(if sum == 0 { u16::MAX } else { sum });
        Some(())
    }
}

impl Frame for Packet {
    fn bytes(&self) -> u64 {
        (HEADERS + self.payload.len()) as u64
    }

    fn ecn(&self) -> Ecn {
        // quiche 0.30 does not use ECN. A scenario's queues mark only packets of other transports.
        Ecn::NotEct
    }

    fn mark_ce(&mut self) {}

    fn corrupt(&mut self, random: u64) {
        self.damaged = true;
        flip_a_bit(&mut self.payload, random);
    }
}

fn ipv4(address: IpAddr) -> Ipv4Addr {
    match address {
        IpAddr::V4(address) => address,
        IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    }
}

/// The hardware addresses of these IP addresses on the other backends.
fn hardware(address: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = address.octets();
    [2, 0, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet() -> Packet {
        Packet::new(([10, 77, 1, 1], 4000).into(), ([10, 77, 2, 2], 4433).into(), &[7; 100])
    }

    #[test]
    fn a_frame_is_as_long_as_it_counts_and_has_right_checksums() {
        let frame = packet().to_frame();
        assert_eq!(frame.len() as u64, packet().bytes());
        let sliced = etherparse::SlicedPacket::from_ethernet(&frame).unwrap();
        let Some(etherparse::NetSlice::Ipv4(ip)) = &sliced.net else { panic!("not IPv4") };
        assert_eq!(ip.header().to_header().calc_header_checksum(), ip.header().header_checksum());
        let Some(etherparse::TransportSlice::Udp(udp)) = &sliced.transport else {
            panic!("not UDP")
        };
        let expected =
            udp.to_header().calc_checksum_ipv4(&ip.header().to_header(), udp.payload()).unwrap();
        assert_eq!((udp.checksum(), udp.destination_port()), (expected, 4433));
    }

    #[test]
    fn damage_is_one_bit() {
        let mut damaged = packet();
        damaged.corrupt(805);
        let differing: Vec<_> =
            packet().payload.iter().zip(&damaged.payload).map(|(a, b)| a ^ b).collect();
        assert!(damaged.damaged);
        assert_eq!(differing.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
    }
}
