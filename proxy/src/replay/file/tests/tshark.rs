//! The same files read by tshark, and files that Wireshark's tools have written.

use std::process::Command;

use super::write::{Pcapng, pcap, udp_packet};
use super::*;

/// Runs one of Wireshark's tools.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| {
        panic!("this test runs {program}, which `.ci/deps test` installs: {error}")
    });
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {complaint}");
    String::from_utf8(output.stdout).unwrap()
}

/// The time of a packet, its length and that of its payload.
type Row = (Option<Duration>, usize, Option<usize>);

fn by_tshark(path: &str) -> Vec<Row> {
    let fields = ["frame.time_epoch", "frame.len", "udp.length"].map(|field| ["-e", field]);
    let arguments = [&["-r", path, "-T", "fields"][..], fields.as_flattened()].concat();
    let seconds = |text: &str| {
        let (seconds, nanos) = text.split_once('.').unwrap();
        assert_eq!(nanos.len(), 9);
        Duration::new(seconds.parse().unwrap(), nanos.parse().unwrap())
    };
    let row = |line: &str| {
        let [time, len, udp] = line.split('\t').collect::<Vec<_>>().try_into().unwrap();
        let udp = (!udp.is_empty()).then(|| udp.parse::<usize>().unwrap() - 8);
        ((!time.is_empty()).then(|| seconds(time)), len.parse().unwrap(), udp)
    };
    run("tshark", &arguments).lines().map(row).collect()
}

fn by_us(path: &str, header: usize) -> Vec<Row> {
    let mut file = CaptureFile::open(Path::new(path)).unwrap();
    let mut rows = Vec::new();
    while let Some(frame) = file.next().unwrap() {
        let payload = frame.datagram().ok().map(|datagram| datagram.len);
        rows.push((frame.time, frame.len + header, payload));
    }
    assert!(!file.truncated());
    rows
}

/// Checks that both read the same packets, `packets` of them, in the file at `path`. The link type
/// puts `header` bytes before each.
fn assert_agree(path: &str, packets: usize, header: usize) {
    let ours = by_us(path, header);
    assert_eq!(ours.len(), packets, "{path}");
    assert_eq!(ours, by_tshark(path), "{path}");
}

fn packet_of(number: usize, link_header: &[u8]) -> Vec<u8> {
    [link_header, &udp_packet(&vec![7; 20 + number])].concat()
}

#[test]
fn tshark_reads_the_same_in_each_link_type() {
    let directory = tempfile::tempdir().unwrap();
    for (index, (link, header)) in headers(48).into_iter().enumerate() {
        // In files from other systems, 12 and 14 are other types. tshark 4.0 does not know 166.
        if matches!(link, 12 | 14 | 166) {
            continue;
        }
        let header_of = |number: u8| headers(48 + number).swap_remove(index).1;
        let packets: Vec<_> =
            (0..3).map(|number| packet_of(number.into(), &header_of(number))).collect();
        let entries: Vec<_> = packets
            .iter()
            .map(|packet| (1_700_000_000, 5, packet.len().try_into().unwrap(), &packet[..]))
            .collect();
        let path = directory.path().join(format!("{index}.pcap"));
        let order = if index % 2 == 0 { Order::Little } else { Order::Big };
        std::fs::write(&path, pcap(0xa1b2_c3d4, order, link, &entries)).unwrap();
        let stripped = match link {
            113 => 2,
            276 => 20,
            0 | 108 => 4,
            9 | 50 | 51 | 104 => header.len(),
            // tshark does not count the direction.
            204 => header.len() - 1,
            _ => 0,
        };
        assert_agree(path.to_str().unwrap(), 3, stripped);
    }
}

#[test]
fn tshark_reads_the_same_in_each_block() {
    let directory = tempfile::tempdir().unwrap();
    for order in [Order::Little, Order::Big] {
        let mut file = Pcapng::new(order);
        // Units of 10^-6, 10^-9, 2^-20 and 10^-3 seconds. The last has an offset of hours.
        file.interface(101, 60, &[]);
        file.interface(101, 0, &[(9, &[9])]);
        file.interface(101, 0, &[(9, &[0x80 | 20])]);
        file.interface(101, 0, &[(9, &[3]), (14, &file.i64(7200))]);
        let units = [
            1_700_000_000_123_456,
            1_700_000_000_123_456_789,
            1_700_000_000 << 20 | 12_345,
            1_700_000_000_123,
        ];
        for (interface, units) in units.into_iter().enumerate() {
            let packet = packet_of(interface, &[]);
            let len = u32::try_from(packet.len()).unwrap();
            file.enhanced(interface.try_into().unwrap(), units, len, &packet, &[(1, b"a comment")]);
            file.enhanced(interface.try_into().unwrap(), units, len, &packet[..40], &[]);
            file.obsolete(interface.try_into().unwrap(), units, len, &packet);
        }
        file.block(0x7777_7777, &[0; 12]);
        let packet = packet_of(50, &[]);
        file.simple(packet.len().try_into().unwrap(), &packet[..60]);
        file.simple(48, &packet_of(0, &[]));
        let path = directory.path().join(format!("{order:?}.pcapng"));
        std::fs::write(&path, &file.0).unwrap();
        assert_agree(path.to_str().unwrap(), 14, 0);
    }
}

#[test]
fn what_the_tools_write_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    // Text2pcap reads hex, and adds Ethernet, IP and UDP headers.
    let hex: String =
        (0..50).map(|number| format!("000000 {}\n", "40 ".repeat(5 + number * 7 % 90))).collect();
    std::fs::write(path("hex"), hex).unwrap();
    run("text2pcap", &["-q", "-u", "4000,443", &path("hex"), &path("first.pcapng")]);
    run(
        "text2pcap",
        &["-q", "-6", "2001:db8::1,2001:db8::2", "-u", "1,2", &path("hex"), &path("second.pcapng")],
    );
    // Two interfaces, ordered by time.
    run("mergecap", &["-w", &path("merged.pcapng"), &path("first.pcapng"), &path("second.pcapng")]);
    assert_agree(&path("merged.pcapng"), 100, 0);
    let shown = by_us(&path("merged.pcapng"), 0);
    assert!(shown.iter().all(|(time, _, payload)| time.is_some() && payload.is_some()));
    for format in ["pcap", "nsecpcap", "modpcap", "pcapng"] {
        run("editcap", &["-F", format, "-s", "70", &path("first.pcapng"), &path(format)]);
        assert_agree(&path(format), 50, 0);
    }
}
