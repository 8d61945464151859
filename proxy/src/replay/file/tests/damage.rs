//! Files that are truncated, contradict themselves, or are not capture files.

use std::io;

use proptest::prelude::*;

use super::super::record::LONGEST;
use super::write::{Pcapng, pcap, u32, udp_packet};
use super::*;

/// A short file of each format, and the offsets where its header and its packets or blocks end.
fn files() -> Vec<(Vec<u8>, Vec<usize>)> {
    let packet = udp_packet(b"some bytes");
    assert_eq!(packet.len(), 38);
    let packets = [(1, 2, 38, &packet[..]), (3, 4, 1200, &packet[..30]), (5, 6, 0, &[])];
    let mut files = Vec::new();
    for (magic, order) in
        [(0xa1b2_c3d4, Order::Little), (0xa1b2_3c4d, Order::Big), (0xa1b2_cd34, Order::Little)]
    {
        let ends =
            (0..=packets.len()).map(|count| pcap(magic, order, 101, &packets[..count]).len());
        files.push((pcap(magic, order, 101, &packets), ends.collect()));
    }
    let blocks: [fn(&mut Pcapng, &[u8]); 5] = [
        |file, _| file.interface(101, 38, &[(9, &[9])]),
        |file, packet| file.enhanced(0, 7, 38, packet, &[(1, b"a comment")]),
        |file, _| file.block(0x0bad, &[1; 20]),
        |file, packet| file.obsolete(0, 8, 1200, &packet[..30]),
        |file, packet| file.simple(38, packet),
    ];
    for order in [Order::Little, Order::Big] {
        let mut file = Pcapng::new(order);
        let mut ends = vec![file.0.len()];
        for block in blocks {
            block(&mut file, &packet);
            ends.push(file.0.len());
        }
        files.push((file.0, ends));
    }
    files
}

/// Returns at most this many bytes at once, with interruptions.
struct Dribble(Cursor<Vec<u8>>, usize, bool);

impl Read for Dribble {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.2 = !self.2;
        if self.2 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let room = buffer.len().min(self.1);
        self.0.read(&mut buffer[..room])
    }
}

#[test]
fn a_truncated_file_has_its_whole_packets() {
    for (bytes, ends) in files() {
        let whole = read(&bytes);
        assert_eq!(whole.len(), 3);
        let mut given = 0;
        for end in 0..=bytes.len() {
            if end < ends[0] {
                let error = open(&bytes[..end]).unwrap_err().to_string();
                assert!(
                    error.ends_with("ends within its header, and contains no packet"),
                    "{error} at {end}"
                );
                continue;
            }
            let (packets, truncated) = all(open(&bytes[..end]).unwrap());
            assert!(whole.starts_with(&packets), "{end}");
            // Between two packets or blocks, nothing shows that there was more.
            assert_eq!(truncated.unwrap(), !ends.contains(&end), "{end}");
            assert!(
                packets.len() == given || packets.len() == given + 1 && ends.contains(&end),
                "{end}"
            );
            given = packets.len();
        }
        assert_eq!(given, 3);
    }
}

#[test]
fn any_division_of_the_bytes_gives_the_same_packets() {
    for (bytes, _) in files() {
        for step in [1, 2, 7, 64] {
            let source = Dribble(Cursor::new(bytes.clone()), step, false);
            let (packets, end) = all(CaptureFile::read("it".to_owned(), Box::new(source)).unwrap());
            assert!(!end.unwrap());
            assert_eq!(packets, read(&bytes));
        }
    }
}

#[test]
fn a_source_that_fails_is_named() {
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::ConnectionReset.into())
        }
    }
    let (bytes, _) = files().remove(0);
    let source = Cursor::new(bytes.clone()).chain(Failing);
    let (packets, end) = all(CaptureFile::read("it".to_owned(), Box::new(source)).unwrap());
    assert_eq!(packets, read(&bytes));
    assert!(end.unwrap_err().to_string().starts_with("reading it failed at byte 140: "));
}

#[test]
fn lengths_beyond_the_bound_are_refused_at_once() {
    let order = Order::Little;
    let mut file = pcap(0xa1b2_c3d4, order, 1, &[(0, 0, 1, b"x")]);
    file.extend([0; 8]);
    file.extend([0xff; 8]);
    assert_eq!(
        error(&file),
        "it is broken at byte 41, after 1 packets: a packet or block has 4294967311 bytes, and the \
         limit is 16777216"
    );

    for kind in [6, 1, 3, 2, 5] {
        let mut file = Pcapng::new(order);
        file.0.extend(u32(order, kind));
        file.0.extend(u32(order, 0xffff_fffc));
        file.0.extend([0; 64]);
        assert_eq!(
            error(&file.0),
            "it is broken at byte 28, after 0 packets: a packet or block has 4294967292 bytes, and \
             the limit is 16777216"
        );
    }

    // The longest record that the reader accepts.
    let longest = vec![7; LONGEST - 16];
    let file = pcap(0xa1b2_c3d4, order, 1, &[(0, 0, 1 << 20, &longest), (0, 0, 1 << 20, &longest)]);
    assert_eq!(read(&file).len(), 2);
}

#[test]
fn contradictions_are_named_with_their_place() {
    let start = || {
        let mut file = Pcapng::new(Order::Little);
        file.interface(1, 0, &[]);
        file.enhanced(0, 0, 1, b"x", &[]);
        assert_eq!(file.0.len(), 28 + 20 + 36);
        file
    };
    let damaged = |position: usize, value: u8| {
        let mut file = start();
        file.0[position] = value;
        error(&file.0)
    };
    assert_eq!(
        damaged(80, 99),
        "it is broken at byte 48, after 0 packets: a block with different lengths at its beginning \
         and end"
    );
    assert!(damaged(52, 35).ends_with("byte 48, after 0 packets: a block of impossible length"));
    assert!(damaged(52, 8).ends_with("a block of impossible length"));
    assert!(damaged(56, 1).ends_with("a packet of an interface without description"));
    assert!(damaged(68, 5).ends_with("a packet that is longer than its block"));
    assert!(damaged(8, 0).ends_with("byte 0, after 0 packets: a section of unknown byte order"));
    assert!(damaged(12, 2).ends_with("a section whose version is not 1"));
    let with = |kind: u32, body: &[u8]| {
        let mut file = start();
        file.block(kind, body);
        error(&file.0)
    };
    for kind in [2, 3, 6] {
        let body = &[0; 16][..if kind == 3 { 0 } else { 16 }];
        assert!(
            with(kind, body).ends_with("byte 84, after 1 packets: a packet without its header")
        );
    }
    assert!(with(3, &[9, 0, 0, 0, 1, 1, 1, 1]).ends_with("a packet that is longer than its block"));
    assert!(with(1, &[1, 0]).ends_with("an interface with an invalid description"));
    // An interface of another section.
    let mut file = start();
    let mut second = Pcapng::new(Order::Big);
    second.enhanced(0, 0, 1, b"x", &[]);
    file.0.extend(second.0);
    assert!(
        error(&file.0)
            .ends_with("byte 112, after 1 packets: a packet of an interface without description")
    );

    let mut file = pcap(0xa1b2_c3d4, Order::Little, 1, &[]);
    file[4] = 3;
    assert!(error(&file).ends_with("the version is not 2"));
}

#[test]
fn interfaces_without_end_are_refused() {
    let mut file = Pcapng::new(Order::Little);
    for _ in 0..1 << 16 {
        file.interface(1, 0, &[]);
    }
    assert_eq!(read(&file.0), []);
    file.interface(1, 0, &[]);
    assert!(error(&file.0).ends_with("more than 65536 interfaces"));
}

/// Reading ends for any bytes.
fn survives(bytes: &[u8]) {
    if let Ok(mut file) = open(bytes) {
        let mut packets = 0;
        while let Ok(Some(frame)) = file.next() {
            assert!(frame.bytes.len() <= frame.len);
            packets += 1;
            assert!(
                frame.datagram().is_ok_and(|datagram| datagram.len <= frame.len)
                    || frame.datagram().is_err()
            );
        }
        assert!(packets <= bytes.len());
    }
}

proptest! {
    #[test]
    fn total_on_garbage(garbage in prop::collection::vec(any::<u8>(), 0..400)) {
        survives(&garbage);
        for (file, ends) in files() {
            survives(&[&file[..ends[0]], &garbage].concat());
            survives(&[&file, &garbage[..]].concat());
        }
    }

    #[test]
    fn total_on_damaged_files(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        for (mut file, _) in files() {
            for (position, value) in &damage {
                let position = position.index(file.len());
                file[position] = *value;
            }
            survives(&file);
        }
    }
}
