mod damage;
mod tshark;
mod write;

use std::io::{Cursor, Write};

use sidekick_protocol::Flow;

use super::record::Order;
use super::*;
use write::{Pcapng, pcap, udp_packet};

/// An owned copy of a [`Frame`].
type Kept = (u32, Option<Link>, Option<Duration>, Vec<u8>, usize);

fn open(bytes: &[u8]) -> Result<CaptureFile> {
    CaptureFile::read("it".to_owned(), Box::new(Cursor::new(bytes.to_vec())))
}

/// All packets of a file, and how the file ended.
fn all(mut file: CaptureFile) -> (Vec<Kept>, Result<bool>) {
    let mut packets = Vec::new();
    loop {
        match file.next() {
            Ok(Some(frame)) => {
                assert!(frame.bytes.len() <= frame.len);
                packets.push((
                    frame.interface,
                    frame.link,
                    frame.time,
                    frame.bytes.to_vec(),
                    frame.len,
                ));
                assert_eq!(file.packets(), packets.len() as u64);
            }
            end => {
                let end = end.map(drop);
                let end = end.map(|()| file.truncated());
                assert!(matches!(file.next(), Ok(None)), "it has ended once and for all");
                return (packets, end);
            }
        }
    }
}

/// All packets of a file without errors.
fn read(bytes: &[u8]) -> Vec<Kept> {
    let (packets, end) = all(open(bytes).unwrap());
    assert!(!end.unwrap(), "truncated");
    packets
}

fn error(bytes: &[u8]) -> String {
    open(bytes).and_then(|file| all(file).1.map(drop)).unwrap_err().to_string()
}

const AT: Duration = Duration::new(1_700_000_000, 123_456_000);

#[test]
fn classic_files_of_each_kind() {
    let nanos = AT + Duration::from_nanos(789);
    let kinds = [
        (0xa1b2_c3d4, Order::Little, 123_456, AT),
        (0xa1b2_c3d4, Order::Big, 123_456, AT),
        (0xa1b2_3c4d, Order::Little, 123_456_789, nanos),
        (0xa1b2_3c4d, Order::Big, 123_456_789, nanos),
        (0xa1b2_cd34, Order::Little, 123_456, AT),
    ];
    for (magic, order, fraction, time) in kinds {
        let packets = [
            (1_700_000_000, fraction, 60, &[7; 60][..]),
            (1_700_000_000, fraction, 1514, &[8; 96]),
        ];
        let expected = [
            (0, Some(Link::Ethernet), Some(time), vec![7; 60], 60),
            (0, Some(Link::Ethernet), Some(time), vec![8; 96], 1514),
        ];
        assert_eq!(read(&pcap(magic, order, 1, &packets)), expected, "{magic:#x} {order:?}");
    }
}

#[test]
fn a_frame_check_sequence_beside_the_link_type_is_ignored() {
    let file = pcap(0xa1b2_c3d4, Order::Little, 0x2400_0001, &[(0, 0, 4, b"abcd")]);
    assert_eq!(read(&file)[0].1, Some(Link::Ethernet));
}

#[test]
fn fractions_beyond_a_second_and_short_lengths_are_accepted() {
    let file = pcap(0xa1b2_c3d4, Order::Little, 101, &[(u32::MAX, u32::MAX, 2, b"abcd")]);
    let time = Duration::from_secs(u32::MAX.into()) + Duration::from_micros(u32::MAX.into());
    assert_eq!(read(&file), [(0, Some(Link::Ip), Some(time), b"ab".to_vec(), 2)]);
}

/// Two sections of both byte orders, with all kinds of blocks.
fn mixed() -> Vec<u8> {
    let micros = 1_700_000_000_123_456;
    let mut file = Vec::new();
    for order in [Order::Little, Order::Big] {
        let mut section = Pcapng::new(order);
        // The default unit is a microsecond.
        section.interface(1, 64, &[(2, b"eth0")]);
        section.enhanced(0, micros, 1200, &[1; 64], &[]);
        section.block(4, &[0; 24]);
        section.interface(101, 0, &[(9, &[9])]);
        section.enhanced(1, micros * 1000 + 789, 3, &[2; 3], &[(1, b"a comment"), (2, &[0; 4])]);
        section.block(0x0bad, &[0; 8]);
        section.block(0x7777_7777, &[9; 2 << 20]);
        section.obsolete(1, micros * 1000 + 790, 41, &[3; 41]);
        section.simple(65, &[4; 64]);
        section.simple(5, &[5; 5]);
        file.extend(section.0);
    }
    file
}

#[test]
fn sections_and_blocks_of_each_kind() {
    let nanos = |nanos| Some(AT + Duration::from_nanos(nanos));
    let section = [
        (0, Some(Link::Ethernet), nanos(0), vec![1; 64], 1200),
        (1, Some(Link::Ip), nanos(789), vec![2; 3], 3),
        (1, Some(Link::Ip), nanos(790), vec![3; 41], 41),
        (0, Some(Link::Ethernet), None, vec![4; 64], 65),
        (0, Some(Link::Ethernet), None, vec![5; 5], 5),
    ];
    let packets = read(&mixed());
    assert_eq!(packets, [section.clone(), section].concat());
}

#[test]
fn times_in_each_unit() {
    let cases: [(&[u8], u64, Duration); 9] = [
        (&[0], 7, Duration::from_secs(7)),
        (&[3], 7001, Duration::from_millis(7001)),
        (&[12], 7_000_000_000_001, Duration::from_secs(7)),
        (&[19], u64::MAX, Duration::new(1, 844_674_407)),
        (&[0x80], 7, Duration::from_secs(7)),
        (&[0x80 | 10], 7 << 10 | 512, Duration::from_millis(7500)),
        (&[0x80 | 32], 7 << 32 | 1 << 31, Duration::from_millis(7500)),
        (&[0x80 | 63], 3 << 62, Duration::from_millis(1500)),
        (&[0], u64::MAX, Duration::from_secs(u64::MAX)),
    ];
    for (resolution, units, expected) in cases {
        for order in [Order::Little, Order::Big] {
            let mut file = Pcapng::new(order);
            file.interface(1, 0, &[(9, resolution)]);
            file.enhanced(0, units, 0, &[], &[]);
            assert_eq!(read(&file.0)[0].2, Some(expected), "{resolution:?}");
        }
    }
    for resolution in [20, 0x7f, 0x80 | 64, 0xff] {
        let mut file = Pcapng::new(Order::Little);
        file.interface(1, 0, &[(9, &[resolution])]);
        assert!(error(&file.0).ends_with("an interface with a too short unit of time"));
    }
}

#[test]
fn an_offset_of_time_is_added() {
    for order in [Order::Little, Order::Big] {
        for (offset, expected) in
            [(100, 107), (-3, 4), (-8, 0), (i64::MAX, 7 + (1 << 63) - 1), (i64::MIN, 0)]
        {
            let mut file = Pcapng::new(order);
            file.interface(1, 0, &[(9, &[0]), (14, &file.i64(offset))]);
            file.enhanced(0, 7, 0, &[], &[]);
            assert_eq!(read(&file.0)[0].2, Some(Duration::from_secs(expected)), "{offset}");
        }
    }
}

/// Each link type, and the bytes before an IP packet of this length.
fn headers(len: u8) -> Vec<(u32, Vec<u8>)> {
    let ethernet = [&[2; 12][..], &[8, 0]].concat();
    let cooked = [&[0, 0, 0, 1, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0, 8, 0][..]].concat();
    let tagged = [&[0, 0, 0, 1, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0, 0x81, 0, 0, 7, 8, 0][..]].concat();
    let cooked2 = vec![8, 0, 0, 0, 0, 0, 0, 3, 0, 1, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0];
    let session = [0x11, 0, 0, 1, 0, len + 2, 0, 0x21];
    let mut headers = vec![
        (1, ethernet),
        (113, cooked),
        (113, tagged),
        (276, cooked2),
        (0, vec![2, 0, 0, 0]),
        (0, vec![0, 0, 0, 2]),
        (108, vec![0, 0, 0, 2]),
        (1, [&[2; 12][..], &[0x88, 0x64], &session].concat()),
        (9, vec![0, 0x21]),
        (9, vec![0xff, 3, 0, 0x21]),
        (50, vec![0xff, 3, 0x21]),
        (50, vec![0x0f, 0, 8, 0]),
        (104, vec![0x8f, 0, 8, 0]),
        (51, session.to_vec()),
        (166, vec![1, 3, 0, 0x21]),
        (204, vec![1, 0, 0x21]),
        (204, vec![0, 0xff, 3, 0, 0x21]),
    ];
    headers.extend([12, 14, 101, 228].map(|raw| (raw, vec![])));
    headers
}

#[test]
fn packets_of_each_link_type() {
    let packet = udp_packet(&[7; 100]);
    let flow = Flow {
        source: "192.0.2.1:4000".parse().unwrap(),
        destination: "198.51.100.7:443".parse().unwrap(),
    };
    for (link, header) in headers(128) {
        let frame = [&header[..], &packet].concat();
        let len = u32::try_from(frame.len()).unwrap();
        for kept in 0..=frame.len() {
            let bytes = pcap(0xa1b2_c3d4, Order::Little, link, &[(0, 0, len, &frame[..kept])]);
            let mut file = open(&bytes).unwrap();
            let found = file.next().unwrap().unwrap().datagram();
            match kept.checked_sub(header.len() + 28) {
                None => assert_eq!(found, Err(Skip::Cut), "{kept} of {link}"),
                Some(kept) => {
                    let expected = Datagram { flow, payload: &[7; 100][..kept], len: 100 };
                    assert_eq!(found, Ok(expected), "{kept} of {link}");
                }
            }
        }
    }
}

#[test]
fn other_protocols_of_each_link_type() {
    // An ARP packet, and one of IP bytes with the EtherType of another protocol.
    let others = [
        (1, [&[2; 12][..], &[8, 6]].concat()),
        (113, vec![0, 0, 0, 1, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0, 8, 6]),
        (113, vec![0, 0, 0, 1, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0, 0, 4]),
        (276, vec![8, 6, 0, 0, 0, 0, 0, 3, 0, 1, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0]),
        (0, vec![7, 0, 0, 0]),
        (0, vec![1, 2, 3, 4]),
        (9, vec![0xc0, 0x21]),
        (50, vec![0x0f, 0, 0x20, 0]),
    ];
    for (link, header) in others {
        let frame = [&header[..], &udp_packet(b"x")].concat();
        let len = u32::try_from(frame.len()).unwrap();
        let bytes = pcap(0xa1b2_c3d4, Order::Little, link, &[(0, 0, len, &frame)]);
        assert_eq!(
            open(&bytes).unwrap().next().unwrap().unwrap().datagram(),
            Err(Skip::NotUdp),
            "{link}"
        );
    }
    // A packet shorter than its header.
    for link in [113, 276, 0] {
        let bytes = pcap(0xa1b2_c3d4, Order::Little, link, &[(0, 0, 1, &[8])]);
        assert_eq!(
            open(&bytes).unwrap().next().unwrap().unwrap().datagram(),
            Err(Skip::Malformed),
            "{link}"
        );
    }
}

#[test]
fn an_unknown_link_type_is_named() {
    let supported = link::SUPPORTED;
    assert_eq!(
        error(&pcap(0xa1b2_c3d4, Order::Little, 105, &[])),
        format!("it has packets of link type 105 (packet 1 is the first); {supported}")
    );
    // An interface without packets is harmless.
    let mut file = Pcapng::new(Order::Little);
    file.interface(1, 0, &[]);
    file.interface(127, 0, &[]);
    file.enhanced(0, 0, 1, b"x", &[]);
    assert_eq!(read(&file.0).len(), 1);
    file.enhanced(1, 0, 1, b"x", &[]);
    assert_eq!(
        error(&file.0),
        format!("it has packets of link type 127 (packet 2 is the first); {supported}")
    );
}

#[test]
fn a_file_that_is_not_a_capture_is_an_error() {
    assert_eq!(error(b"#!/bin/sh"), "it is not a capture file: it is neither pcap nor pcapng");
    assert_eq!(error(b""), "it ends within its header, and contains no packet");
    assert!(error(&[0x1f, 0x8b, 8, 0]).starts_with("it is compressed"));
    let missing = CaptureFile::open(Path::new("/nowhere/it.pcap")).unwrap_err().to_string();
    assert!(missing.starts_with("cannot open /nowhere/it.pcap: "), "{missing}");
    let directory = CaptureFile::open(Path::new("/")).unwrap_err().to_string();
    assert!(directory.starts_with("reading / failed at byte 0: "), "{directory}");
}

#[test]
fn a_file_far_longer_than_the_buffer() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&pcap(0xa1b2_c3d4, Order::Big, 1, &[])).unwrap();
    let lens = (0..500_u32).map(|number| number * 7919 % 60_000);
    for (number, len) in lens.clone().enumerate() {
        let frame = vec![u8::try_from(number % 256).unwrap(); usize::try_from(len).unwrap()];
        file.write_all(&[&[0; 8], &len.to_be_bytes()[..], &len.to_be_bytes(), &frame].concat())
            .unwrap();
    }
    let mut reader = CaptureFile::open(file.path()).unwrap();
    for (number, len) in lens.enumerate() {
        let frame = reader.next().unwrap().unwrap();
        assert_eq!(
            (frame.bytes.len(), frame.len),
            (usize::try_from(len).unwrap(), usize::try_from(len).unwrap())
        );
        assert!(
            frame.bytes.iter().all(|byte| usize::from(*byte) == number % 256),
            "packet {number}"
        );
    }
    assert_eq!(reader.next().unwrap(), None);
    assert!(!reader.truncated());
}
