//! `sidekick-proxy replay` with a capture file.
//!
//! `SIDEKICK_PROXY` may name another build of the program, and a command that runs it, as `make
//! test-arm64` does.

#[path = "../common/frames.rs"]
mod frames;

use std::collections::HashMap;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};

use frames::{CUT, Frames};
use serde_json::Value;

const PACKETS: usize = 20_000;
const FLOWS: u16 = 50;

/// The header of a capture file: little-endian, microseconds, version 2.4, Ethernet.
fn header() -> Vec<u8> {
    let words: [u32; 6] = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 1 << 16, 1];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Packets a millisecond apart.
fn capture(frames: &Frames) -> Vec<u8> {
    let mut file = header();
    for ((frame, len), number) in frames.iter().zip(0_u32..) {
        let (kept, len) = (u32::try_from(CUT).unwrap(), u32::try_from(len).unwrap());
        for word in [1_700_000_000 + number / 1000, number % 1000 * 1000, kept, len] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    file
}

/// Runs the program with `file` as standard input.
fn replay(options: &[&str], file: &[u8]) -> Value {
    let named = std::env::var("SIDEKICK_PROXY")
        .unwrap_or_else(|_| env!("CARGO_BIN_EXE_sidekick-proxy").into());
    let mut words = named.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    command.args(words).args(["replay", "--json", "-"]).args(options);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(file).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn each_flow_of_a_capture_is_reported() {
    let frames = Frames::new(PACKETS, FLOWS, 7);
    // For each flow: the number of packets, and the first and last identifiers.
    let mut expected = HashMap::<SocketAddr, (u64, u32, u32)>::new();
    for (frame, _) in frames.iter() {
        let address = Ipv4Addr::from_octets(frame[26..30].try_into().unwrap());
        let source = (address, u16::from_be_bytes(frame[34..36].try_into().unwrap())).into();
        let identifier = u32::from_be_bytes(frame[42 + 21..][..4].try_into().unwrap());
        let flow = expected.entry(source).or_insert((0, identifier, identifier));
        *flow = (flow.0 + 1, flow.1, identifier);
    }
    let told = replay(&["--every-packets", "10"], &capture(&frames));
    assert_eq!((&told["packets"], &told["counted"]), (&PACKETS.into(), &PACKETS.into()), "{told}");
    assert_eq!((&told["span_s"], &told["truncated"]), (&19.999.into(), &false.into()));
    let flows = told["flows"].as_array().unwrap();
    assert_eq!(flows.len(), expected.len());
    let mut quacks = 0;
    for flow in flows {
        let (counted, first, last) = expected[&flow["source"].as_str().unwrap().parse().unwrap()];
        assert_eq!(
            (&flow["counted"], &flow["first"], &flow["last"], &flow["quacks"]),
            (&counted.into(), &first.into(), &last.into(), &(counted / 10).into()),
        );
        assert_eq!(flow["destination"], "198.51.100.7:443");
        quacks += counted / 10;
    }
    assert_eq!(told["quacks"], quacks);
}

#[test]
fn the_packets_of_a_truncated_capture_are_reported() {
    let whole = capture(&Frames::new(10, 1, 1));
    let told = replay(&["--flows", "1"], &whole[..whole.len() - 1]);
    assert_eq!((&told["packets"], &told["truncated"]), (&9.into(), &true.into()), "{told}");
    assert_eq!(replay(&[], &header())["packets"], 0);
}
