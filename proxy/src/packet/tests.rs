use super::*;
use proptest::prelude::*;
use sidekick_protocol::{Filter, Identification, Position};

/// The datagram in a frame that was kept to its last byte.
fn whole(link: Link, frame: &[u8]) -> Result<Datagram<'_>, Skip> {
    let found = parse(link, frame, frame.len());
    assert!(found.is_ok_and(|datagram| datagram.payload.len() == datagram.len) || found.is_err());
    assert_ne!(found, Err(Skip::Cut));
    found
}

/// Checks that the result for any number of kept bytes agrees with that for the whole frame.
/// Returns how many bytes the parser needs for a result.
fn assert_cuts_agree(link: Link, frame: &[u8]) -> usize {
    let expected = whole(link, frame);
    let mut needed = frame.len() + 1;
    for kept in (0..=frame.len()).rev() {
        let found = parse(link, &frame[..kept], frame.len());
        match (found, expected) {
            (Err(Skip::Cut), _) => continue,
            (Ok(found), Ok(expected)) => {
                assert_eq!((found.flow, found.len), (expected.flow, expected.len), "{kept} kept");
                assert!(expected.payload.starts_with(found.payload), "{kept} kept");
                let behind = frame.len() - kept;
                assert!(found.payload.len() + behind >= found.len, "{kept} kept: more was there");
            }
            _ => assert_eq!(found, expected, "{kept} kept"),
        }
        assert_eq!(kept + 1, needed, "what is found with fewer bytes is found with more");
        needed = kept;
    }
    needed
}

/// A UDP datagram built by hand, and not by the library that parses it.
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

/// `extensions`: for each its protocol number, and its length in units of 8 bytes without the
/// first.
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
    bytes.extend("2001:db8::1".parse::<Ipv6Addr>().unwrap().octets());
    bytes.extend("2001:db8::2".parse::<Ipv6Addr>().unwrap().octets());
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

/// The same inside a session of PPPoE.
fn pppoe_bytes(tags: &[u16], inner: &[u8]) -> Vec<u8> {
    let mut bytes = ethernet_bytes(tags, inner);
    bytes.truncate(12 + tags.len() * 4);
    bytes.extend([0x88, 0x64, 0x11, 0, 0x12, 0x34]);
    bytes.extend(u16::try_from(inner.len() + 2).unwrap().to_be_bytes());
    bytes.extend([0, if inner[0] >> 4 == 4 { 0x21 } else { 0x57 }]);
    bytes.extend(inner);
    bytes
}

fn assert_found(link: Link, frame: &[u8], source: &str, destination: &str, payload: &[u8]) {
    let found = whole(link, frame).unwrap();
    assert_eq!(found.flow.source, source.parse().unwrap());
    assert_eq!(found.flow.destination, destination.parse().unwrap());
    assert_eq!(found.payload, payload);
    // The parser needs the headers, and no byte more.
    let headers = found.payload.as_ptr().addr() - frame.as_ptr().addr();
    assert_eq!(assert_cuts_agree(link, frame), headers);
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
        assert_eq!(whole(Link::Ip, &packet), Err(Skip::Fragment), "{fragment_field:#x}");
    }
    // A packet with "don't fragment" is not a fragment.
    assert_found(Link::Ip, &ipv4_bytes(&[], 0x4000, 17, &udp), V4.0, V4.1, &[7; 40]);
    assert_eq!(whole(Link::Ip, &ipv6_bytes(&[(44, 0)], 17, &udp)), Err(Skip::Fragment));
    assert_eq!(whole(Link::Ip, &ipv6_bytes(&[(0, 0), (44, 0)], 17, &udp)), Err(Skip::Fragment));
}

#[test]
fn other_protocols_are_skipped_as_such() {
    let udp = udp_bytes(4000, 443, b"x");
    assert_eq!(whole(Link::Ip, &ipv4_bytes(&[], 0, 6, &udp)), Err(Skip::NotUdp));
    assert_eq!(whole(Link::Ip, &ipv6_bytes(&[], 6, &udp)), Err(Skip::NotUdp));
    assert_eq!(whole(Link::Ip, &ipv6_bytes(&[(60, 0)], 59, &udp)), Err(Skip::NotUdp));
    assert_eq!(whole(Link::Ip, &[0x10; 60]), Err(Skip::NotUdp));
    let mut arp = vec![2; 60];
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    assert_eq!(whole(Link::Ethernet, &arp), Err(Skip::NotUdp));
}

#[test]
fn encapsulations_are_named() {
    for (protocol, name) in [(4, "IP in IP"), (41, "IP in IP"), (47, "GRE"), (50, "IPsec")] {
        let expected = Err(Skip::Encapsulated(name));
        assert_eq!(whole(Link::Ip, &ipv4_bytes(&[], 0, protocol, &[7; 40])), expected);
        assert_eq!(whole(Link::Ip, &ipv6_bytes(&[(0, 0)], protocol, &[7; 40])), expected);
    }
    for (ethertype, name) in [([0x88, 0x47], "MPLS"), ([0x88, 0xe5], "MACsec")] {
        let frame = [&[2; 12][..], &ethertype, &[7; 40]].concat();
        assert_eq!(whole(Link::Ethernet, &frame), Err(Skip::Encapsulated(name)));
    }
}

#[test]
fn a_session_of_pppoe_has_what_its_length_says() {
    let packet = ipv4_bytes(&[], 0, 17, &udp_bytes(4000, 443, b"hi"));
    let good = pppoe_bytes(&[0x8100], &packet);
    let at = 12 + 4 + 2;
    let with = |position: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at + position] = value;
        whole(Link::Ethernet, &bytes).map(|datagram| datagram.payload.len())
    };
    assert_eq!(with(0, 0x21), Err(Skip::Malformed), "version 2");
    assert_eq!(with(1, 9), Err(Skip::Malformed), "discovery");
    assert_eq!(with(5, 33), Err(Skip::Malformed), "past the frame");
    assert_eq!(with(5, 31), Err(Skip::Malformed), "short of the packet");
    assert_eq!(with(5, 0), Err(Skip::Malformed), "no protocol");
    assert_eq!(with(6, 0xc0), Err(Skip::NotUdp), "LCP");
    let padded = [&good[..], &[0; 20]].concat();
    assert_found(Link::Ethernet, &padded, V4.0, V4.1, b"hi");
}

#[test]
fn lengths_that_contradict_each_other_are_malformed() {
    let good = ipv4_bytes(&[], 0, 17, &udp_bytes(4000, 443, b"0123456789"));
    let with = |position: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[position] = value;
        whole(Link::Ip, &bytes).map(|datagram| datagram.payload.len())
    };
    assert!(whole(Link::Ip, &good).is_ok());
    assert_eq!(with(0, 0x44), Err(Skip::Malformed), "header shorter than 20 bytes");
    assert_eq!(with(0, 0x4f), Err(Skip::Malformed), "header longer than the packet");
    assert_eq!(with(3, 39), Err(Skip::Malformed), "UDP reaches past the IP packet");
    assert_eq!(with(2, 1), Err(Skip::Malformed), "IP packet reaches past the frame");
    assert_eq!(with(25, 7), Err(Skip::Malformed), "UDP length below its own header");
    assert_eq!(with(25, 19), Err(Skip::Malformed), "UDP length past its data");
    // A UDP length below that of the IP payload is legal. The rest is padding.
    assert_eq!(with(25, 17), Ok(9));
}

#[test]
fn endless_chains_of_headers_are_malformed() {
    let udp = udp_bytes(4000, 443, b"x");
    let long = vec![(60, 0); MAX_EXTENSIONS + 1];
    assert_eq!(whole(Link::Ip, &ipv6_bytes(&long, 17, &udp)), Err(Skip::NotUdp));
    assert!(whole(Link::Ip, &ipv6_bytes(&long[1..], 17, &udp)).is_ok());
    let inner = ipv4_bytes(&[], 0, 17, &udp);
    assert!(whole(Link::Ethernet, &ethernet_bytes(&[0x8100; MAX_TAGS], &inner)).is_ok());
    let deeper = ethernet_bytes(&[0x8100; MAX_TAGS + 1], &inner);
    let many = Err(Skip::Encapsulated("more than three VLAN tags"));
    assert_eq!(whole(Link::Ethernet, &deeper), many);
}

#[test]
fn a_cut_datagram_keeps_its_length() {
    let payload: Vec<u8> = (0..=255).cycle().take(8958).collect();
    let jumbo = ethernet_bytes(&[], &ipv4_bytes(&[], 0, 17, &udp_bytes(4000, 443, &payload)));
    assert_eq!(jumbo.len(), 9000);
    for (kept, here) in [(9000, 8958), (8999, 8957), (96, 54), (43, 1), (42, 0)] {
        let found = parse(Link::Ethernet, &jumbo[..kept], jumbo.len()).unwrap();
        assert_eq!((found.payload, found.len), (&payload[..here], 8958), "{kept} kept");
    }
    assert_eq!(parse(Link::Ethernet, &jumbo[..41], jumbo.len()), Err(Skip::Cut));
    // The parser compares with the length on the wire, not with that of the kept bytes.
    assert_eq!(parse(Link::Ethernet, &jumbo[..96], jumbo.len() - 1), Err(Skip::Malformed));
    assert_eq!(parse(Link::Ethernet, &jumbo[..96], 96), Err(Skip::Malformed));
}

#[test]
fn a_truncated_payload_reports_its_missing_bytes() {
    let packet = ipv4_bytes(&[], 0, 17, &udp_bytes(4000, 443, &[7; 40]));
    let ends = Identification { position: Position::End, filter: Filter::All };
    let named = |kept: usize| {
        let payload = parse(Link::Ip, &packet[..kept], packet.len()).unwrap().payload();
        (ends.identifier(payload), Identification::default().identifier(payload))
    };
    assert_eq!(named(68), (Some(0x0707_0707), Some(0x0707_0707)));
    assert_eq!(named(67), (None, Some(0x0707_0707)), "the last bytes are missing");
    assert_eq!(named(53), (None, Some(0x0707_0707)));
    assert_eq!(named(52), (None, None));
    assert_eq!(named(28), (None, None));
}

#[test]
fn a_payload_of_no_bytes_is_whole_behind_its_header() {
    let frame = ethernet_bytes(&[], &ipv6_bytes(&[], 17, &udp_bytes(4000, 443, b"")));
    assert_found(Link::Ethernet, &frame, V6.0, V6.1, b"");
    assert_eq!(parse(Link::Ethernet, &[], 0), Err(Skip::Malformed));
    assert_eq!(parse(Link::Ip, &[], 0), Err(Skip::Malformed));
    assert_eq!(parse(Link::Ethernet, &[], 1), Err(Skip::Malformed));
    assert_eq!(parse(Link::Ethernet, &[], frame.len()), Err(Skip::Cut));
    assert_eq!(parse(Link::Ip, &[], 1), Err(Skip::Cut));
}

#[test]
fn a_cut_inside_the_headers_is_reported() {
    let udp = udp_bytes(4000, 443, b"0123456789");
    let cut = |link, frame: &[u8], kept: usize| parse(link, &frame[..kept], frame.len()).map(drop);
    let options = ipv4_bytes(&[1; 12], 0, 17, &udp);
    for kept in [0, 1, 19, 20, 24, 31, 32, 39] {
        assert_eq!(cut(Link::Ip, &options, kept), Err(Skip::Cut), "{kept} of IPv4");
    }
    assert!(cut(Link::Ip, &options, 40).is_ok());

    // After 40 bytes of header: 8, 24 and 8 bytes of extensions, and UDP.
    let chain = ipv6_bytes(&[(0, 0), (43, 2), (60, 0)], 17, &udp);
    for kept in [39, 40, 41, 44, 48, 49, 60, 71, 72, 73, 80, 87] {
        assert_eq!(cut(Link::Ip, &chain, kept), Err(Skip::Cut), "{kept} of IPv6");
    }
    assert!(cut(Link::Ip, &chain, 88).is_ok());

    let tagged = ethernet_bytes(&[0x88a8, 0x8100], &options);
    for kept in [13, 14, 17, 18, 21, 22, 41] {
        assert_eq!(cut(Link::Ethernet, &tagged, kept), Err(Skip::Cut), "{kept} of Ethernet");
    }
    assert!(cut(Link::Ethernet, &tagged, 62).is_ok());
}

#[test]
fn contradictions_in_kept_headers_come_before_the_cut() {
    let udp = udp_bytes(4000, 443, b"x");
    let cut =
        |packet: Vec<u8>, kept: usize| parse(Link::Ip, &packet[..kept], packet.len()).map(drop);
    assert_eq!(cut(ipv4_bytes(&[], 0, 6, &udp), 20), Err(Skip::NotUdp));
    assert_eq!(cut(ipv4_bytes(&[], 0x2000, 17, &udp), 20), Err(Skip::Fragment));
    // The first two bytes of the previous extension suffice.
    assert_eq!(cut(ipv6_bytes(&[(60, 3)], 6, &udp), 42), Err(Skip::NotUdp));
    assert_eq!(cut(ipv6_bytes(&[(60, 3), (44, 0)], 17, &udp), 42), Err(Skip::Fragment));
}

#[test]
fn truncated_padding_leaves_the_payload_whole() {
    let mut frame = ethernet_bytes(&[], &ipv4_bytes(&[], 0, 17, &udp_bytes(4000, 443, b"hi")));
    assert_eq!(frame.len(), 44);
    frame.resize(60, 0);
    for kept in 44..=60 {
        let found = parse(Link::Ethernet, &frame[..kept], 60).unwrap();
        assert_eq!((found.payload, found.len), (&b"hi"[..], 2), "{kept} kept");
    }
    let found = parse(Link::Ethernet, &frame[..43], 60).unwrap();
    assert_eq!((found.payload, found.len), (&b"h"[..], 2));
}

#[test]
fn bytes_behind_the_frame_are_not_part_of_it() {
    let packet = ipv4_bytes(&[], 0, 17, &udp_bytes(4000, 443, b"hi"));
    let mut longer = packet.clone();
    longer.extend([9; 30]);
    assert_eq!(parse(Link::Ip, &longer, packet.len()), whole(Link::Ip, &packet));
    assert_eq!(parse(Link::Ip, &longer, packet.len() - 1), Err(Skip::Malformed));
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
            assert_cuts_agree(link, &frame);
            if let Ok(datagram) = whole(link, &frame) {
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
        assert_cuts_agree(Link::Ethernet, &frame);
        if let Ok(datagram) = whole(Link::Ethernet, &frame) {
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
        for frame in [ethernet_bytes(&tags, &packet), pppoe_bytes(&tags, &packet)] {
            assert_found(Link::Ethernet, &frame, V4.0, V4.1, &payload);
            for len in 0..frame.len() {
                prop_assert!(whole(Link::Ethernet, &frame[..len]).is_err(), "ends at {}", len);
            }
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
        for frame in [ethernet_bytes(&tags, &packet), pppoe_bytes(&tags, &packet)] {
            assert_found(Link::Ethernet, &frame, V6.0, V6.1, &payload);
            for len in 0..frame.len() {
                prop_assert!(whole(Link::Ethernet, &frame[..len]).is_err(), "ends at {}", len);
            }
        }
    }
}
