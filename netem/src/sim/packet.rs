//! UDP datagrams between the nodes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use etherparse::PacketBuilder;

use crate::link::{Ecn, Frame};

/// Bytes of Ethernet, IPv4 and UDP headers, which count on the links of every backend.
const HEADERS: u64 = 14 + 20 + 8;
const TIME_TO_LIVE: u8 = 64;

/// A UDP datagram.
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
        let (source, destination) = (ipv4(self.source.ip()), ipv4(self.destination.ip()));
        let builder = PacketBuilder::ethernet2(hardware(source), hardware(destination))
            .ipv4(source.octets(), destination.octets(), TIME_TO_LIVE)
            .udp(self.source.port(), self.destination.port());
        let mut frame = Vec::with_capacity(builder.size(self.payload.len()));
        // A vector accepts all bytes, and no datagram here is too long for its headers.
        let written = builder.write(&mut frame, &self.payload);
        debug_assert!(written.is_ok(), "{written:?}");
        frame
    }
}

impl Frame for Packet {
    fn bytes(&self) -> u64 {
        self.payload.len() as u64 + HEADERS
    }

    fn ecn(&self) -> Ecn {
        // quiche 0.30 does not use ECN. A scenario's queues mark only packets of other transports.
        Ecn::NotEct
    }

    fn mark_ce(&mut self) {}

    fn corrupt(&mut self, random: u64) {
        self.damaged = true;
        let bits = self.payload.len() as u64 * 8;
        if let Some(bit) = random.checked_rem(bits)
            && let Some(byte) =
                usize::try_from(bit / 8).ok().and_then(|at| self.payload.get_mut(at))
        {
            *byte ^= 1 << (bit % 8);
        }
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
