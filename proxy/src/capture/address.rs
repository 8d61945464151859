//! A word that stands for one of a packet's IP addresses, as instructions of classic BPF.
//!
//! The word is that of [`Shard`](sidekick_protocol::Shard): an IPv4 address, or the exclusive or of
//! the four words of an IPv6 address.

use std::net::IpAddr;

use nix::libc::sock_filter;

use super::bpf::{
    ADD, AND, ETHERTYPE, FROM_X, IF_EQUAL, JUMP, LOAD_BYTE_AT_X, LOAD_HALF, LOAD_HALF_AT_X,
    LOAD_WORD_AT_X, LOAD_X, RETURN, SET_X, STORE, TO_X, XOR_X, op,
};
use crate::packet::{ETHERTYPE_PPPOE, MAX_TAGS, PPP_IPV4, PPP_IPV6, PPPOE_LEN, TAG_LEN};

/// Which of a packet's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The source, of a packet of any protocol.
    Source,
    /// The destination, of what can be a UDP datagram.
    UdpDestination,
}

/// EtherTypes that a VLAN tag follows. The next EtherType stands at the end of the tag.
const TAGS: [u32; 3] = [0x8100, 0x88a8, 0x9100];

/// Appends instructions after which A is the word of an address. They end the program with 0 for
/// what is no IP packet. The link's own header, without VLAN tags, has `link_len` bytes.
///
/// They skip as many VLAN tags as the parser, and then the headers of PPPoE. A packet with more
/// tags ends the program with 0, too.
pub(super) fn load_word(program: &mut Vec<sock_filter>, link_len: u32, end: End) {
    const TYPES: usize = 3;
    /// The tests of one EtherType, and what leads to the next.
    const LEVEL: usize = TYPES + TAGS.len() + 2;
    const FIRST: usize = 2;
    const NONE: usize = FIRST + LEVEL * MAX_TAGS + TYPES;
    const PPPOE: usize = NONE + 1;
    /// The test of PPP's protocol, then for each of two what moves X behind the headers.
    const PPPOE_OPS: usize = 4 + 4 + 4;
    const V4: usize = PPPOE + PPPOE_OPS;
    let start = program.len();
    let v4 = v4(end);
    let v6_at = V4 + v4.len() + 1;
    program.extend([op(SET_X, link_len, 0, 0), op(LOAD_HALF, ETHERTYPE, 0, 0)]);
    // A jump counts from the next instruction, and is one byte.
    let skip = |from: usize, to: usize| u8::try_from(to - from - 1).unwrap_or(u8::MAX);
    for (tags, offset) in (0..=MAX_TAGS).zip((link_len..).step_by(TAG_LEN)) {
        let mut test = |ethertype, then, or_else: Option<usize>| {
            let at = program.len() - start;
            let or_else = or_else.map_or(0, |to| skip(at, to));
            program.push(op(IF_EQUAL, ethertype, skip(at, then), or_else));
        };
        let innermost = tags == MAX_TAGS;
        test(0x0800, V4, None);
        test(0x86dd, v6_at, None);
        test(ETHERTYPE_PPPOE.into(), PPPOE, innermost.then_some(NONE));
        if innermost {
            break;
        }
        let behind = FIRST + LEVEL * (tags + 1) - 2;
        for (index, tag) in TAGS.into_iter().enumerate() {
            test(tag, behind, (index + 1 == TAGS.len()).then_some(NONE));
        }
        program.extend([
            op(LOAD_HALF, offset + 2, 0, 0),
            op(SET_X, offset + u32::try_from(TAG_LEN).unwrap_or(0), 0, 0),
        ]);
    }
    let v6 = v6(end);
    program.push(op(RETURN, 0, 0, 0));
    let header = u32::try_from(PPPOE_LEN).unwrap_or(0);
    let behind = [op(FROM_X, 0, 0, 0), op(ADD, header, 0, 0), op(TO_X, 0, 0, 0)];
    program.extend([
        op(LOAD_HALF_AT_X, header - 2, 0, 0),
        op(IF_EQUAL, PPP_IPV4.into(), 6, 0),
        op(IF_EQUAL, PPP_IPV6.into(), 1, 0),
        op(RETURN, 0, 0, 0),
    ]);
    program.extend(behind);
    program.push(op(JUMP, u32::try_from(v6_at - PPPOE - 8).unwrap_or(0), 0, 0));
    program.extend(behind);
    program.push(op(JUMP, 0, 0, 0));
    program.extend(v4);
    program.push(op(JUMP, u32::try_from(v6.len()).unwrap_or(0), 0, 0));
    program.extend(v6);
}

/// Loads the word of an IPv4 address. X is the beginning of the IP header.
fn v4(end: End) -> Vec<sock_filter> {
    match end {
        End::Source => vec![op(LOAD_WORD_AT_X, 12, 0, 0)],
        End::UdpDestination => vec![
            op(LOAD_BYTE_AT_X, 9, 0, 0),
            op(IF_EQUAL, 17, 1, 0),
            op(RETURN, 0, 0, 0),
            // Not a later fragment, which has no UDP header.
            op(LOAD_HALF_AT_X, 6, 0, 0),
            op(AND, 0x1fff, 0, 0),
            op(IF_EQUAL, 0, 1, 0),
            op(RETURN, 0, 0, 0),
            op(LOAD_WORD_AT_X, 16, 0, 0),
        ],
    }
}

/// Loads the word of an IPv6 address. X is the beginning of the IP header. UDP may follow an
/// extension header, so only TCP and ICMPv6 are certainly not UDP.
fn v6(end: End) -> Vec<sock_filter> {
    let (mut program, first) = match end {
        End::Source => (Vec::new(), 8),
        End::UdpDestination => (
            vec![
                op(LOAD_BYTE_AT_X, 6, 0, 0),
                op(IF_EQUAL, 6, 1, 0),
                op(IF_EQUAL, 58, 0, 1),
                op(RETURN, 0, 0, 0),
            ],
            24,
        ),
    };
    program.extend([
        op(LOAD_WORD_AT_X, first, 0, 0),
        op(STORE, 0, 0, 0),
        op(LOAD_WORD_AT_X, first + 4, 0, 0),
        op(STORE, 1, 0, 0),
        op(LOAD_WORD_AT_X, first + 8, 0, 0),
        op(STORE, 2, 0, 0),
        op(LOAD_WORD_AT_X, first + 12, 0, 0),
        op(LOAD_X, 0, 0, 0),
        op(XOR_X, 0, 0, 0),
        op(LOAD_X, 1, 0, 0),
        op(XOR_X, 0, 0, 0),
        op(LOAD_X, 2, 0, 0),
        op(XOR_X, 0, 0, 0),
    ]);
    program
}

pub(super) fn word(address: IpAddr) -> u32 {
    match address.to_canonical() {
        IpAddr::V4(ip) => ip.into(),
        IpAddr::V6(ip) => {
            let octets = ip.octets();
            octets.as_chunks().0.iter().fold(0, |all, word| all ^ u32::from_be_bytes(*word))
        }
    }
}
