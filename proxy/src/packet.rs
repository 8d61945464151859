//! From a captured frame to a UDP flow and its payload, without copying.
//!
//! Total over all byte strings: whatever arrives, [`parse`] answers with a [`Datagram`] that lies inside the
//! frame, or with the reason there is none. It is as strict as the kernel that forwards the frame: a datagram
//! the next hop would drop as truncated is not counted either.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use pnet_packet::ethernet::{EtherType, EtherTypes, EthernetPacket};
use pnet_packet::ip::{IpNextHeaderProtocol, IpNextHeaderProtocols};
use pnet_packet::ipv4::{Ipv4Flags, Ipv4Packet};
use pnet_packet::ipv6::Ipv6Packet;
use pnet_packet::udp::UdpPacket;
use pnet_packet::vlan::VlanPacket;
use sidekick_protocol::Flow;

/// Most VLAN tags that are looked through: a customer tag and a service tag, and one to spare.
const MAX_TAGS: usize = 3;
/// Most IPv6 extension headers that are looked through; real traffic carries none or one.
const MAX_EXTENSIONS: usize = 8;
/// Outer tag of stacked VLANs as equipment from before IEEE 802.1ad writes it.
const ETHERTYPE_OLD_QINQ: EtherType = EtherType(0x9100);
/// Length of a UDP header in bytes.
const UDP_HEADER_LEN: usize = 8;

/// What a captured frame begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// An Ethernet header (Ethernet, Wi-Fi, bridges, veth, loopback).
    Ethernet,
    /// The IP header itself (tun, WireGuard, PPP, LTE modems).
    Ip,
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ethernet => "an Ethernet header",
            Self::Ip => "an IP header",
        })
    }
}

/// A whole UDP datagram inside a captured frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Its two ends, in the datagram's own direction.
    pub flow: Flow,
    /// All of its payload. Of a merged frame: the payloads of all its datagrams, one behind the other.
    pub payload: &'a [u8],
}

/// Why a frame holds no UDP datagram that could be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// Some other protocol.
    NotUdp,
    /// A fragment of an IP packet: the identifier may lie in another one.
    Fragment,
    /// Headers that contradict themselves or the frame's length.
    Malformed,
}

/// Finds the UDP datagram in a captured frame.
///
/// # Errors
/// [`Skip`] says why there is none.
pub fn parse(link: Link, frame: &[u8]) -> Result<Datagram<'_>, Skip> {
    match link {
        Link::Ethernet => ethernet(frame),
        Link::Ip => match frame.first().map(|byte| byte >> 4) {
            Some(4) => ipv4(frame),
            Some(6) => ipv6(frame),
            Some(_) => Err(Skip::NotUdp),
            None => Err(Skip::Malformed),
        },
    }
}

fn ethernet(frame: &[u8]) -> Result<Datagram<'_>, Skip> {
    let header = EthernetPacket::new(frame).ok_or(Skip::Malformed)?;
    let mut ethertype = header.get_ethertype();
    let mut rest = after(frame, EthernetPacket::minimum_packet_size())?;
    for _ in 0..=MAX_TAGS {
        match ethertype {
            EtherTypes::Ipv4 => return ipv4(rest),
            EtherTypes::Ipv6 => return ipv6(rest),
            EtherTypes::Vlan | EtherTypes::PBridge | ETHERTYPE_OLD_QINQ => {
                ethertype = VlanPacket::new(rest).ok_or(Skip::Malformed)?.get_ethertype();
                rest = after(rest, VlanPacket::minimum_packet_size())?;
            }
            _ => return Err(Skip::NotUdp),
        }
    }
    Err(Skip::NotUdp)
}

fn ipv4(bytes: &[u8]) -> Result<Datagram<'_>, Skip> {
    let header = Ipv4Packet::new(bytes).ok_or(Skip::Malformed)?;
    if header.get_version() != 4 {
        return Err(Skip::Malformed);
    }
    if header.get_next_level_protocol() != IpNextHeaderProtocols::Udp {
        return Err(Skip::NotUdp);
    }
    let header_len = usize::from(header.get_header_length()) * 4;
    if header_len < Ipv4Packet::minimum_packet_size() {
        return Err(Skip::Malformed);
    }
    if header.get_fragment_offset() != 0 || header.get_flags() & Ipv4Flags::MoreFragments != 0 {
        return Err(Skip::Fragment);
    }
    // Cut at the total length first: Ethernet pads short frames.
    let packet = bytes.get(..usize::from(header.get_total_length())).ok_or(Skip::Malformed)?;
    udp(header.get_source().into(), header.get_destination().into(), after(packet, header_len)?)
}

fn ipv6(bytes: &[u8]) -> Result<Datagram<'_>, Skip> {
    let header = Ipv6Packet::new(bytes).ok_or(Skip::Malformed)?;
    if header.get_version() != 6 {
        return Err(Skip::Malformed);
    }
    let mut next = header.get_next_header();
    let mut rest = after(bytes, Ipv6Packet::minimum_packet_size())?
        .get(..usize::from(header.get_payload_length()))
        .ok_or(Skip::Malformed)?;
    for _ in 0..=MAX_EXTENSIONS {
        match next {
            IpNextHeaderProtocols::Udp => {
                return udp(header.get_source().into(), header.get_destination().into(), rest);
            }
            IpNextHeaderProtocols::Hopopt
            | IpNextHeaderProtocols::Ipv6Route
            | IpNextHeaderProtocols::Ipv6Opts => {
                // RFC 8200, section 4: next header, then the length in 8-byte units beyond the first.
                let &[following, units, ..] = rest else { return Err(Skip::Malformed) };
                next = IpNextHeaderProtocol(following);
                rest = after(rest, (usize::from(units) + 1) * 8)?;
            }
            IpNextHeaderProtocols::Ipv6Frag => return Err(Skip::Fragment),
            _ => return Err(Skip::NotUdp),
        }
    }
    Err(Skip::NotUdp)
}

fn udp(source: IpAddr, destination: IpAddr, bytes: &[u8]) -> Result<Datagram<'_>, Skip> {
    let header = UdpPacket::new(bytes).ok_or(Skip::Malformed)?;
    let payload = bytes.get(UDP_HEADER_LEN..usize::from(header.get_length())).ok_or(Skip::Malformed)?;
    let flow = Flow {
        source: SocketAddr::new(source, header.get_source()),
        destination: SocketAddr::new(destination, header.get_destination()),
    };
    Ok(Datagram { flow, payload })
}

fn after(bytes: &[u8], len: usize) -> Result<&[u8], Skip> {
    bytes.get(len..).ok_or(Skip::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A hand-built UDP datagram; deliberately not built by the library that parses it.
    fn udp_bytes(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(source.to_be_bytes());
        bytes.extend(destination.to_be_bytes());
        bytes.extend(u16::try_from(8 + payload.len()).unwrap().to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(payload);
        bytes
    }

    fn ipv4_bytes(options: &[u8], fragment_field: u16, protocol: u8, inner: &[u8]) -> Vec<u8> {
        assert_eq!(options.len() % 4, 0);
        let header_len = 20 + options.len();
        let mut bytes = vec![0x40 | u8::try_from(header_len / 4).unwrap(), 0];
        bytes.extend(u16::try_from(header_len + inner.len()).unwrap().to_be_bytes());
        bytes.extend([0xab, 0xcd]);
        bytes.extend(fragment_field.to_be_bytes());
        bytes.extend([64, protocol, 0, 0]);
        bytes.extend([10, 0, 0, 1]);
        bytes.extend([192, 0, 2, 9]);
        bytes.extend(options);
        bytes.extend(inner);
        bytes
    }

    /// `extensions`: (its own protocol number, its length in 8-byte units beyond the first).
    fn ipv6_bytes(extensions: &[(u8, u8)], last: u8, inner: &[u8]) -> Vec<u8> {
        let mut chain = Vec::new();
        for (position, (_, units)) in extensions.iter().enumerate() {
            let following = extensions.get(position + 1).map_or(last, |(number, _)| *number);
            let start = chain.len();
            chain.extend([following, *units]);
            chain.resize(start + (usize::from(*units) + 1) * 8, 0x11);
        }
        let mut bytes = vec![0x60, 0, 0, 0];
        bytes.extend(u16::try_from(chain.len() + inner.len()).unwrap().to_be_bytes());
        bytes.extend([extensions.first().map_or(last, |(number, _)| *number), 64]);
        bytes.extend("2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
        bytes.extend("2001:db8::2".parse::<std::net::Ipv6Addr>().unwrap().octets());
        bytes.extend(chain);
        bytes.extend(inner);
        bytes
    }

    fn ethernet_bytes(tags: &[u16], inner: &[u8]) -> Vec<u8> {
        let mut bytes = vec![2; 12];
        for tag in tags {
            bytes.extend(tag.to_be_bytes());
            bytes.extend([0x20, 0x07]);
        }
        let ethertype: u16 = if inner[0] >> 4 == 4 { 0x0800 } else { 0x86dd };
        bytes.extend(ethertype.to_be_bytes());
        bytes.extend(inner);
        bytes
    }

    fn assert_found(link: Link, frame: &[u8], source: &str, destination: &str, payload: &[u8]) {
        let found = parse(link, frame).unwrap();
        assert_eq!(found.flow.source, source.parse().unwrap());
        assert_eq!(found.flow.destination, destination.parse().unwrap());
        assert_eq!(found.payload, payload);
    }

    const V4: (&str, &str) = ("10.0.0.1:4000", "192.0.2.9:443");
    const V6: (&str, &str) = ("[2001:db8::1]:4000", "[2001:db8::2]:443");

    #[test]
    fn ethernet_padding_is_not_payload() {
        let mut frame = ethernet_bytes(&[], &ipv4_bytes(&[], 0, 17, &udp_bytes(4000, 443, b"hi")));
        frame.resize(60, 0);
        assert_found(Link::Ethernet, &frame, V4.0, V4.1, b"hi");
    }

    #[test]
    fn fragments_are_not_counted() {
        let udp = udp_bytes(4000, 443, &[7; 40]);
        for fragment_field in [0x2000, 0x0001, 0x2001, 0x1fff] {
            let packet = ipv4_bytes(&[], fragment_field, 17, &udp);
            assert_eq!(parse(Link::Ip, &packet), Err(Skip::Fragment), "{fragment_field:#x}");
        }
        // "Don't fragment" is no fragment.
        assert_found(Link::Ip, &ipv4_bytes(&[], 0x4000, 17, &udp), V4.0, V4.1, &[7; 40]);
        assert_eq!(parse(Link::Ip, &ipv6_bytes(&[(44, 0)], 17, &udp)), Err(Skip::Fragment));
        assert_eq!(parse(Link::Ip, &ipv6_bytes(&[(0, 0), (44, 0)], 17, &udp)), Err(Skip::Fragment));
    }

    #[test]
    fn other_protocols_are_named_so() {
        let udp = udp_bytes(4000, 443, b"x");
        assert_eq!(parse(Link::Ip, &ipv4_bytes(&[], 0, 6, &udp)), Err(Skip::NotUdp));
        assert_eq!(parse(Link::Ip, &ipv6_bytes(&[], 6, &udp)), Err(Skip::NotUdp));
        assert_eq!(parse(Link::Ip, &ipv6_bytes(&[(60, 0)], 59, &udp)), Err(Skip::NotUdp));
        assert_eq!(parse(Link::Ip, &[0x10; 60]), Err(Skip::NotUdp));
        let mut arp = vec![2; 60];
        arp[12..14].copy_from_slice(&[0x08, 0x06]);
        assert_eq!(parse(Link::Ethernet, &arp), Err(Skip::NotUdp));
    }

    #[test]
    fn lengths_that_contradict_each_other_are_malformed() {
        let good = ipv4_bytes(&[], 0, 17, &udp_bytes(4000, 443, b"0123456789"));
        let with = |position: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[position] = value;
            parse(Link::Ip, &bytes).map(|datagram| datagram.payload.len())
        };
        assert!(parse(Link::Ip, &good).is_ok());
        assert_eq!(with(0, 0x44), Err(Skip::Malformed), "header shorter than 20 bytes");
        assert_eq!(with(0, 0x4f), Err(Skip::Malformed), "header longer than the packet");
        assert_eq!(with(3, 39), Err(Skip::Malformed), "UDP reaches past the IP packet");
        assert_eq!(with(2, 1), Err(Skip::Malformed), "IP packet reaches past the frame");
        assert_eq!(with(25, 7), Err(Skip::Malformed), "UDP length below its own header");
        assert_eq!(with(25, 19), Err(Skip::Malformed), "UDP length past its data");
        // A UDP length below what IP carries is legal: the rest is padding.
        assert_eq!(with(25, 17), Ok(9));
    }

    #[test]
    fn chains_without_end_are_given_up() {
        let udp = udp_bytes(4000, 443, b"x");
        let long = vec![(60, 0); MAX_EXTENSIONS + 1];
        assert_eq!(parse(Link::Ip, &ipv6_bytes(&long, 17, &udp)), Err(Skip::NotUdp));
        assert!(parse(Link::Ip, &ipv6_bytes(&long[1..], 17, &udp)).is_ok());
        let inner = ipv4_bytes(&[], 0, 17, &udp);
        assert!(parse(Link::Ethernet, &ethernet_bytes(&[0x8100; MAX_TAGS], &inner)).is_ok());
        let deeper = ethernet_bytes(&[0x8100; MAX_TAGS + 1], &inner);
        assert_eq!(parse(Link::Ethernet, &deeper), Err(Skip::NotUdp));
    }

    fn tags() -> impl Strategy<Value = Vec<u16>> {
        prop::collection::vec(prop::sample::select(vec![0x8100_u16, 0x88a8, 0x9100]), 0..=MAX_TAGS)
    }

    fn extensions() -> impl Strategy<Value = Vec<(u8, u8)>> {
        let one = (prop::sample::select(vec![0_u8, 43, 60]), 0_u8..5);
        prop::collection::vec(one, 0..=MAX_EXTENSIONS)
    }

    proptest! {
        #[test]
        fn total_on_arbitrary_bytes(frame in prop::collection::vec(any::<u8>(), 0..200)) {
            for link in [Link::Ethernet, Link::Ip] {
                if let Ok(datagram) = parse(link, &frame) {
                    prop_assert!(frame.as_ptr_range().contains(&datagram.payload.as_ptr())
                        || datagram.payload.is_empty());
                    prop_assert!(datagram.payload.len() + 28 <= frame.len());
                }
            }
        }

        #[test]
        fn total_on_damaged_headers(
            extensions in extensions(),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        ) {
            let packet = ipv6_bytes(&extensions, 17, &udp_bytes(1, 2, b"some payload"));
            let mut frame = ethernet_bytes(&[0x8100], &packet);
            for (position, value) in damage {
                let position = position.index(frame.len());
                frame[position] = value;
            }
            if let Ok(datagram) = parse(Link::Ethernet, &frame) {
                prop_assert!(datagram.payload.len() + 48 <= frame.len());
            }
        }

        #[test]
        fn ipv4_round_trip(
            tags in tags(),
            words in 0_usize..=10,
            payload in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            let packet = ipv4_bytes(&vec![1; words * 4], 0, 17, &udp_bytes(4000, 443, &payload));
            assert_found(Link::Ip, &packet, V4.0, V4.1, &payload);
            let frame = ethernet_bytes(&tags, &packet);
            assert_found(Link::Ethernet, &frame, V4.0, V4.1, &payload);
            for len in 0..frame.len() {
                prop_assert!(parse(Link::Ethernet, &frame[..len]).is_err(), "cut at {}", len);
            }
        }

        #[test]
        fn ipv6_round_trip(
            tags in tags(),
            extensions in extensions(),
            payload in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            let packet = ipv6_bytes(&extensions, 17, &udp_bytes(4000, 443, &payload));
            assert_found(Link::Ip, &packet, V6.0, V6.1, &payload);
            let frame = ethernet_bytes(&tags, &packet);
            assert_found(Link::Ethernet, &frame, V6.0, V6.1, &payload);
            for len in 0..frame.len() {
                prop_assert!(parse(Link::Ethernet, &frame[..len]).is_err(), "cut at {}", len);
            }
        }
    }
}
