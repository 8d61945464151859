//! Any bytes may be captured, complete or truncated, with any description by the kernel. A datagram
//! that is found lies within the captured bytes and the frame. A truncated frame shows the same
//! datagram as the complete one.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sidekick_protocol::{Filter, Flow, Identification, Position, Sender};
use sidekick_proxy::testing::offload::{self, Merging};
use sidekick_proxy::testing::packet::{Datagram, Link, Skip, parse};
use std::net::SocketAddr;

/// The least number of header bytes of a datagram: those of IPv4 and UDP.
const SHORTEST_HEADERS: usize = 28;

/// The first byte selects the link type and how the frame's length relates to the captured bytes,
/// and the next two by how much. The socket's data follows.
fn case(data: &[u8]) -> Option<(Link, usize, Merging, &[u8])> {
    let (&[settings, by, more], read) = data.split_first_chunk()?;
    let Some((merging, frame)) = offload::split_header(read) else {
        assert!(read.len() < offload::HEADER_LEN, "{read:?}");
        return None;
    };
    assert_eq!(frame.len(), read.len() - offload::HEADER_LEN);
    let link = if settings & 1 == 0 { Link::Ethernet } else { Link::Ip };
    let by = usize::from(u16::from_le_bytes([by, more]));
    let len = match settings >> 1 & 3 {
        0 => frame.len(),
        1 => frame.len() + by,
        2 => frame.len().saturating_sub(by),
        _ => usize::MAX - by,
    };
    Some((link, len, merging, frame))
}

/// Checks a packet's flow: one family, and nothing but addresses and ports.
fn check_flow(flow: Flow) {
    let Flow { source, destination } = flow;
    assert_eq!(source.is_ipv4(), destination.is_ipv4(), "{flow:?}");
    let plain = |end: SocketAddr| SocketAddr::new(end.ip(), end.port()) == end;
    assert!(plain(source) && plain(destination), "{flow:?}");
    // An IPv6 packet may have addresses that a socket would show for IPv4: on the wire it belongs
    // to another flow.
    let mapped = |end: SocketAddr| end.ip().to_canonical() != end.ip();
    assert!(flow.canonical() == flow || mapped(source) || mapped(destination), "{flow:?}");
}

fn check_found(datagram: Datagram<'_>, frame: &[u8], len: usize, merging: Merging) {
    let kept = frame.len().min(len);
    check_flow(datagram.flow);
    assert!(
        datagram.payload.len() <= datagram.len && datagram.len + SHORTEST_HEADERS <= len,
        "{datagram:?} of {len}"
    );
    let start = datagram.payload.as_ptr().addr() - frame.as_ptr().addr();
    assert!(
        datagram.payload.is_empty()
            || start >= SHORTEST_HEADERS && start + datagram.payload.len() <= kept
    );
    if kept == len {
        assert_eq!(datagram.payload.len(), datagram.len);
    }
    if let Merging::Datagrams { each } = merging {
        assert!(
            datagram.len.div_ceil(each) <= datagram.len,
            "{each} bytes each of {}",
            datagram.len
        );
    }
    // The identifier is that of the captured bytes, or unknown. Padding, markers and answers do not
    // count.
    let end = Identification { position: Position::End, filter: Filter::All }
        .identifier(datagram.payload());
    let expected = datagram
        .payload
        .last_chunk()
        .filter(|bytes| datagram.payload.len() == datagram.len && **bytes != [0; 4])
        .filter(|_| !Sender::is_marker(datagram.payload) && !Sender::is_answer(datagram.payload));
    assert_eq!(end, expected.map(|bytes| u32::from_be_bytes(*bytes)));
}

/// Compares the results from fewer and from more bytes of a frame.
fn check_cut(found: Result<Datagram<'_>, Skip>, all: Result<Datagram<'_>, Skip>, kept: usize) {
    match (found, all) {
        (Err(Skip::Cut), _) => {}
        (Ok(found), Ok(all)) => {
            assert_eq!((found.flow, found.len), (all.flow, all.len), "{kept} kept");
            assert!(all.payload.starts_with(found.payload), "{kept} kept");
        }
        _ => assert_eq!(found, all, "{kept} kept"),
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((link, len, merging, frame)) = case(data) else { return };
    let all = parse(link, frame, len);
    if let Ok(datagram) = all {
        check_found(datagram, frame, len, merging);
    }
    if frame.len() >= len {
        assert_ne!(all, Err(Skip::Cut), "nothing was truncated");
        assert_eq!(all, parse(link, &frame[..len], len), "bytes behind the frame");
    }
    for kept in 0..frame.len() {
        check_cut(parse(link, &frame[..kept], len), all, kept);
    }
});
