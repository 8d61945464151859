//! Frames: those that the agent captured, and those that it sends.
//!
//! A frame that it sends has the headers of a flow's own packet (Ethernet header, VLAN tags, hop
//! limit, traffic class and addresses), and another payload. The capture shows only frames whose
//! VLAN tags are in their bytes. The agent computes lengths and checksums itself, because a
//! captured packet may lack the checksum that the network card would have computed.

use std::collections::HashSet;
use std::net::SocketAddr;

use pnet_packet::ipv4::{self, Ipv4Flags, MutableIpv4Packet};
use pnet_packet::ipv6::MutableIpv6Packet;
use pnet_packet::udp::{self, MutableUdpPacket};
use sidekick_protocol::Flow;

use crate::packet::{Datagram, ETHERTYPE_PPPOE, Link, MAX_TAGS, PPPOE_LEN, TAG_LEN};

const UDP_LEN: usize = 8;
/// The length of an IPv4 header without options.
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
/// The hop limit of a packet that has none to copy (RFC 1700).
const HOPS: u8 = 64;
/// An Ethernet header, three VLAN tags, those of PPPoE, the longest IPv4 header and a UDP header.
const MOST: usize = 14 + MAX_TAGS * TAG_LEN + PPPOE_LEN + 60 + UDP_LEN;

/// A datagram that leaves or arrives, and the frame in which it was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passing<'a> {
    /// The caller's number of the interface.
    pub(super) interface: u32,
    pub(super) link: Link,
    /// The frame's datagram, or all datagrams of a merged frame.
    pub(super) datagram: Datagram<'a>,
    /// The length of each datagram of a merged frame but the last.
    pub(super) each: Option<usize>,
    pub(super) frame: &'a [u8],
}

impl<'a> Passing<'a> {
    /// Whether the frame goes to one of these hardware addresses, or its link has none. A switch
    /// that floods shows others, too.
    pub(super) fn goes_to(&self, hardware: &HashSet<[u8; 6]>) -> bool {
        match self.link {
            Link::Ip => true,
            Link::Ethernet => self.frame.first_chunk().is_some_and(|to| hardware.contains(to)),
        }
    }

    /// The payloads of its datagrams. The iterator is empty if a part is missing: checksums and
    /// identifiers require all bytes.
    pub(super) fn payloads(&self) -> impl Iterator<Item = &'a [u8]> {
        let Datagram { payload, len, .. } = self.datagram;
        let whole = if payload.len() == len { payload } else { &[] };
        whole.chunks(self.each.unwrap_or(len).max(1))
    }
}

/// The headers of a flow's latest packet, and the interface that they belong to.
#[derive(Clone, Debug)]
pub(super) struct Template {
    flow: Flow,
    /// The number of the interface by which the packet passed.
    interface: u32,
    headers: [u8; MOST],
    /// Bytes of all headers.
    len: usize,
    /// Where the IP header begins, and whether those of PPPoE come before it.
    ip_at: usize,
    is_pppoe: bool,
}

/// The bytes of a frame before its payload, if the payload lies in the frame.
fn headers<'a>(frame: &'a [u8], payload: &[u8]) -> Option<&'a [u8]> {
    let len = (payload.as_ptr() as usize).checked_sub(frame.as_ptr() as usize)?;
    frame.get(..len)
}

impl Template {
    /// The headers of a frame in which this datagram was found. `None` if the IP header has
    /// extensions of IPv6: the checksum may then cover another destination. Also `None` if the
    /// frame goes to a group: the network's broadcast address is not known.
    pub(super) fn of(passing: &Passing<'_>) -> Option<Self> {
        let flow = passing.datagram.flow;
        let interface = passing.interface;
        let mut template =
            Self { flow, interface, headers: [0; MOST], len: 0, ip_at: 0, is_pppoe: false };
        template.update(passing).then_some(template)
    }

    /// The number of the interface whose link has such headers.
    pub(super) fn interface(&self) -> u32 {
        self.interface
    }

    /// The traffic class: DSCP and ECN.
    pub(super) fn class(&self) -> u8 {
        match self.headers.get(self.ip_at..) {
            Some([first, second, ..]) if first >> 4 == 4 => *second,
            Some([first, second, ..]) => first << 4 | second >> 4,
            _ => 0,
        }
    }

    /// Headers for packets back to where a datagram came from. `None` if its own have options.
    pub(super) fn back(arriving: &Passing<'_>) -> Option<Self> {
        Self::of(arriving)?.reversed()
    }

    /// Headers for packets the other way. `None` if these have options.
    pub(super) fn reversed(&self) -> Option<Self> {
        let mut template = self.clone();
        let Flow { source, destination } = template.flow;
        template.flow = template.flow.reversed();
        let (link, rest) = template.headers.split_at_mut_checked(template.ip_at)?;
        if let Some((destination, source)) = link.split_first_chunk_mut::<6>() {
            destination.swap_with_slice(source.get_mut(..6)?);
        }
        let udp = match (source, destination) {
            (SocketAddr::V4(source), SocketAddr::V4(destination)) => {
                let (ip, udp) = rest.split_at_mut_checked(IPV4_LEN)?;
                let mut ip = MutableIpv4Packet::new(ip)?;
                if ip.get_header_length() != 5 {
                    return None;
                }
                ip.set_source(*destination.ip());
                ip.set_destination(*source.ip());
                ip.set_ttl(HOPS);
                udp
            }
            (SocketAddr::V6(source), SocketAddr::V6(destination)) => {
                let (ip, udp) = rest.split_at_mut_checked(IPV6_LEN)?;
                let mut ip = MutableIpv6Packet::new(ip)?;
                ip.set_source(*destination.ip());
                ip.set_destination(*source.ip());
                ip.set_hop_limit(HOPS);
                udp
            }
            _ => return None,
        };
        let mut udp = MutableUdpPacket::new(udp)?;
        udp.set_source(destination.port());
        udp.set_destination(source.port());
        Some(template)
    }

    /// Uses the headers of a later packet, because its route may differ. Returns false, and changes
    /// nothing, if the agent cannot write such headers.
    pub(super) fn update(&mut self, passing: &Passing<'_>) -> bool {
        let Passing { interface, link, datagram, frame, .. } = *passing;
        let Some(headers) = headers(frame, datagram.payload) else { return false };
        let (ip_at, is_pppoe) = match link {
            Link::Ip => (0, false),
            // The bit of the destination that is sent first (IEEE 802.3, section 3.2.3).
            Link::Ethernet if headers.first().is_none_or(|first| first & 1 != 0) => return false,
            Link::Ethernet => ethernet_len(headers),
        };
        let ip_len = match headers.get(ip_at) {
            Some(first) if first >> 4 == 4 => usize::from(first & 0x0f) * 4,
            _ => IPV6_LEN,
        };
        let room = self.headers.get_mut(..headers.len());
        match room.filter(|_| ip_at + ip_len + UDP_LEN == headers.len()) {
            Some(room) => room.copy_from_slice(headers),
            None => return false,
        }
        (self.interface, self.len, self.ip_at) = (interface, headers.len(), ip_at);
        self.is_pppoe = is_pppoe;
        true
    }

    /// Writes the frame with this payload to `out`, after what is there. Returns false, and writes
    /// nothing, if the payload fits no datagram.
    pub(super) fn write(&self, payload: &[u8], out: &mut Vec<u8>) -> bool {
        let begin = out.len();
        let link = self.headers.get(..self.ip_at).unwrap_or_default();
        out.extend_from_slice(link);
        let packet = out.len();
        let mut written = self.write_packet(payload, out);
        if written && self.is_pppoe {
            // PPP's protocol, and the packet.
            let len = u16::try_from(out.len() - packet + 2).ok();
            let field = out.get_mut(..packet).and_then(|out| out.rchunks_exact_mut(2).nth(1));
            written =
                len.zip(field).map(|(len, to)| to.copy_from_slice(&len.to_be_bytes())).is_some();
        }
        if !written {
            out.truncate(begin);
        }
        written
    }

    /// As [`Template::write`], but begins with the IP header.
    pub(super) fn write_packet(&self, payload: &[u8], out: &mut Vec<u8>) -> bool {
        let begin = out.len();
        out.extend_from_slice(self.headers.get(self.ip_at..self.len).unwrap_or_default());
        out.extend_from_slice(payload);
        let written = out.get_mut(begin..).and_then(|packet| self.complete(packet));
        if written.is_none() {
            out.truncate(begin);
        }
        written.is_some()
    }

    /// Completes the lengths and checksums of a packet.
    fn complete(&self, packet: &mut [u8]) -> Option<()> {
        let whole = packet.len();
        let (ip, rest) = packet.split_at_mut_checked(self.len - self.ip_at - UDP_LEN)?;
        let len = u16::try_from(rest.len()).ok()?;
        let mut udp = MutableUdpPacket::new(rest)?;
        udp.set_length(len);
        udp.set_checksum(0);
        let sum = match (self.flow.source, self.flow.destination) {
            (SocketAddr::V4(from), SocketAddr::V4(to)) => {
                let mut ip = MutableIpv4Packet::new(ip)?;
                ip.set_total_length(u16::try_from(whole).ok()?);
                let sum = udp::ipv4_checksum(&udp.to_immutable(), from.ip(), to.ip());
                if ip.get_flags() & Ipv4Flags::DontFragment == 0 {
                    // A receiver would mix the fragments of two packets with one identification
                    // (RFC 6864, section 4.3). Copies of one packet have the same fragments.
                    ip.set_identification(sum);
                }
                ip.set_checksum(0);
                ip.set_checksum(ipv4::checksum(&ip.to_immutable()));
                sum
            }
            (SocketAddr::V6(from), SocketAddr::V6(to)) => {
                MutableIpv6Packet::new(ip)?.set_payload_length(len);
                udp::ipv6_checksum(&udp.to_immutable(), from.ip(), to.ip())
            }
            _ => return None,
        };
        // RFC 768: a sum of 0 is sent as its complement, since 0 means that there is no sum.
        udp.set_checksum(if sum == 0 { u16::MAX } else { sum });
        Some(())
    }
}

/// The length of an Ethernet header with its VLAN tags and the headers of PPPoE, and whether it has
/// the latter.
fn ethernet_len(frame: &[u8]) -> (usize, bool) {
    let is_tag = |at: usize| matches!(frame.get(at..at + 2), Some([0x81 | 0x91, 0] | [0x88, 0xa8]));
    let tags = (0..MAX_TAGS).take_while(|tags| is_tag(12 + tags * TAG_LEN)).count();
    let len = 14 + tags * TAG_LEN;
    let pppoe = frame.get(len - 2..len) == Some(&ETHERTYPE_PPPOE.to_be_bytes());
    (if pppoe { len + PPPOE_LEN } else { len }, pppoe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::parse;

    /// A packet of this flow as a program's socket would have made it, with a wrong checksum.
    fn packet(v6: bool, options: usize, payload: &[u8]) -> Vec<u8> {
        let udp = u16::try_from(8 + payload.len()).unwrap().to_be_bytes();
        let mut packet = if v6 {
            let mut ip = vec![0x6a, 0xbc, 0xde, 0xf0, udp[0], udp[1], 17, 63];
            ip.extend("2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
            ip.extend("2001:db8::2".parse::<std::net::Ipv6Addr>().unwrap().octets());
            ip
        } else {
            let len = u16::try_from(28 + options + payload.len()).unwrap().to_be_bytes();
            let first = 0x45 + u8::try_from(options / 4).unwrap();
            let mut ip = vec![first, 0xb8, len[0], len[1], 9, 9, 0x40, 0, 63, 17, 0xde, 0xad];
            ip.extend([192, 0, 2, 1, 192, 0, 2, 2]);
            ip.extend(vec![1; options]);
            ip
        };
        packet.extend([0x10, 0, 0x20, 0, udp[0], udp[1], 0xbe, 0xef]);
        packet.extend(payload);
        packet
    }

    fn link_header(tags: usize, v6: bool) -> Vec<u8> {
        let ethertype: [u8; 2] = if v6 { [0x86, 0xdd] } else { [0x08, 0x00] };
        [&[2; 6][..], &[4; 6], &[0x81, 0, 0, 7].repeat(tags), &ethertype].concat()
    }

    /// The same with the headers of PPPoE, before an IP packet of this length.
    fn pppoe_header(tags: usize, v6: bool, len: usize) -> Vec<u8> {
        let len = u16::try_from(len + 2).unwrap().to_be_bytes();
        let behind = [0x88, 0x64, 0x11, 0, 0, 9, len[0], len[1], 0, if v6 { 0x57 } else { 0x21 }];
        [&link_header(tags, v6)[..12 + tags * 4], &behind].concat()
    }

    /// The sum of all 16-bit words of a correct packet and its pseudo header, folded.
    fn folded(bytes: &[u8]) -> u16 {
        let mut sum: u32 = bytes
            .chunks(2)
            .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
            .sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        u16::try_from(sum).unwrap()
    }

    fn passing<'a>(link: Link, datagram: Datagram<'a>, frame: &'a [u8]) -> Passing<'a> {
        Passing { interface: 0, link, datagram, each: None, frame }
    }

    #[test]
    fn a_frame_has_the_flows_headers_and_right_sums() {
        for v6 in [false, true] {
            for options in if v6 { vec![0] } else { vec![0, 4, 40] } {
                let captured = packet(v6, options, b"captured");
                let len = captured.len();
                let sessions = [0, 3].map(|tags| pppoe_header(tags, v6, len));
                let others = [vec![], link_header(0, v6), link_header(2, v6)];
                for header in others.into_iter().chain(sessions) {
                    let link = if header.is_empty() { Link::Ip } else { Link::Ethernet };
                    let frame = [&header[..], &captured].concat();
                    let datagram = parse(link, &frame, frame.len()).unwrap();
                    let template = Template::of(&passing(link, datagram, &frame)).unwrap();
                    for len in [0, 1, 8, 999, 1400] {
                        let payload: Vec<u8> = (0..=255).cycle().take(len).collect();
                        let mut out = vec![7, 7];
                        assert!(template.write(&payload, &mut out));
                        let sent = &out[2..];
                        let again = parse(link, sent, sent.len()).unwrap();
                        assert_eq!((again.flow, again.payload), (datagram.flow, &payload[..]));
                        let ip = &sent[header.len()..];
                        let mut packet = vec![8];
                        assert!(template.write_packet(&payload, &mut packet));
                        assert_eq!(&packet[1..], ip);
                        let mut expected = header.clone();
                        if header.len() >= 14 + 8
                            && header[header.len() - 10..].starts_with(&[0x88, 0x64])
                        {
                            let at = header.len() - 4;
                            let len = u16::try_from(ip.len() + 2).unwrap();
                            expected[at..at + 2].copy_from_slice(&len.to_be_bytes());
                        }
                        assert_eq!(&sent[..header.len()], &expected[..]);
                        let ip_len = if v6 { 40 } else { 20 + options };
                        if v6 {
                            assert_eq!(&ip[..4], &[0x6a, 0xbc, 0xde, 0xf0], "class and label");
                        } else {
                            assert_eq!((ip[1], ip[8]), (0xb8, 63), "class and hops");
                            assert_eq!(folded(&ip[..ip_len]), 0xffff);
                        }
                        let addresses = if v6 { &ip[8..40] } else { &ip[12..20] };
                        let udp_len = u16::try_from(8 + payload.len()).unwrap().to_be_bytes();
                        let pseudo = [addresses, &[0, 17], &udp_len].concat();
                        assert_eq!(folded(&[&pseudo[..], &ip[ip_len..]].concat()), 0xffff);
                    }
                    let mut out = Vec::new();
                    assert!(!template.write(&vec![0; 1 << 16], &mut out) && out.is_empty());
                }
            }
        }
    }

    #[test]
    fn headers_of_an_arrival_are_reversed_for_an_answer() {
        for v6 in [false, true] {
            for header in [vec![], link_header(0, v6), link_header(2, v6)] {
                let link = if header.is_empty() { Link::Ip } else { Link::Ethernet };
                let frame = [&header[..], &packet(v6, 0, b"captured")].concat();
                let datagram = parse(link, &frame, frame.len()).unwrap();
                let template = Template::back(&passing(link, datagram, &frame)).unwrap();
                let mut out = Vec::new();
                assert!(template.write(b"back", &mut out));
                let sent = parse(link, &out, out.len()).unwrap();
                assert_eq!((sent.flow, sent.payload), (datagram.flow.reversed(), &b"back"[..]));
                if !header.is_empty() {
                    assert_eq!((&out[..6], &out[6..12]), (&[4; 6][..], &[2; 6][..]));
                    assert_eq!(&out[12..header.len()], &header[12..]);
                }
            }
        }
        let frame = packet(false, 4, b"captured");
        let datagram = parse(Link::Ip, &frame, frame.len()).unwrap();
        assert!(Template::back(&passing(Link::Ip, datagram, &frame)).is_none(), "options");
    }

    #[test]
    fn packets_that_may_be_fragmented_have_identifications_of_their_own() {
        for flags in [0x40, 0, 0x80] {
            let mut frame = packet(false, 0, b"captured");
            frame[6] = flags;
            let datagram = parse(Link::Ip, &frame, frame.len()).unwrap();
            let template = Template::of(&passing(Link::Ip, datagram, &frame)).unwrap();
            let identification = |payload: &[u8]| {
                let mut out = Vec::new();
                assert!(template.write(payload, &mut out));
                assert_eq!((out[6], folded(&out[..20])), (flags, 0xffff));
                [out[4], out[5]]
            };
            let of = [&b"one"[..], b"two", b"one"].map(identification);
            assert_eq!(of[0], of[2], "copies of one packet");
            assert_eq!(of[0] == of[1], flags == 0x40, "{of:?}");
            assert_eq!(of[0] == [9, 9], flags == 0x40, "{of:?}");
        }
    }

    #[test]
    fn frames_to_a_group_are_refused() {
        for first in [0, 1, 2, 3, 0x33, 0xff] {
            let mut frame = [link_header(0, false), packet(false, 0, b"payload")].concat();
            frame[0] = first;
            let datagram = parse(Link::Ethernet, &frame, frame.len()).unwrap();
            let template = Template::of(&passing(Link::Ethernet, datagram, &frame));
            assert_eq!(template.is_some(), first % 2 == 0, "{first}");
        }
        // Without a link header, the same byte begins the IP header.
        let frame = packet(false, 0, b"payload");
        let datagram = parse(Link::Ip, &frame, frame.len()).unwrap();
        assert!(frame[0] & 1 != 0 && Template::of(&passing(Link::Ip, datagram, &frame)).is_some());
    }

    #[test]
    fn extension_headers_are_refused() {
        let inner = packet(true, 0, b"payload");
        let mut extended = inner[..40].to_vec();
        extended[6] = 60;
        let len = u16::try_from(inner.len() - 40 + 8).unwrap().to_be_bytes();
        extended[4..6].copy_from_slice(&len);
        extended.extend([17, 0, 1, 4, 0, 0, 0, 0]);
        extended.extend(&inner[40..]);
        let datagram = parse(Link::Ip, &extended, extended.len()).unwrap();
        assert!(Template::of(&passing(Link::Ip, datagram, &extended)).is_none());
    }
}
