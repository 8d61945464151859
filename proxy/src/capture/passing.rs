//! Captures of whole packets in one direction, for an agent.
//!
//! An agent sends by the capture of arriving packets. A packet socket does not see the packets that
//! it sends itself, and the capture of leaving packets must show when the agent's packets are on
//! the wire. Other packet sockets on the same interface see them, too.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd};

use nix::libc::{PACKET_OUTGOING, sock_filter};
use nix::sys::socket::{MsgFlags, SockaddrStorage, sendmsg};

use super::bpf::{IF_EQUAL, LOAD_BYTE, PACKET_TYPE, RETURN, VLAN_TAG_PRESENT, op};
use super::error::CaptureError;
use super::interface::Capture;
use super::open::{Filtered, Purpose};
use super::settings::{Direction, Settings};
use super::socket;
use crate::offload::HEADER_LEN;
use crate::packet::Link;

/// A capture of the packets in one direction.
#[derive(Debug)]
pub(crate) struct PassingCapture {
    pub(crate) capture: Capture,
    vnet_header: bool,
    link: Link,
    /// Where packets of IPv4 and of IPv6 go.
    link_addresses: [SockaddrStorage; 2],
}

impl PassingCapture {
    /// Opens one on the interface called `name`.
    ///
    /// # Errors
    /// As for [`open`](super::open).
    pub(crate) fn open(
        name: &str,
        settings: Settings,
        direction: Direction,
    ) -> Result<Self, CaptureError> {
        let unbound = Filtered::open(name, settings, Purpose::Passing(direction))?;
        let vnet_header = unbound.has_vnet_header();
        let link_addresses = unbound.link_addresses()?;
        let (interface, link, source) = unbound.bind()?;
        let capture = Capture::new(&interface, link, direction, source);
        let capture = match direction {
            Direction::Leaving => capture,
            // An agent has a capture for each direction.
            Direction::Arriving => capture.silent(),
        };
        let refused = |cause| CaptureError::Filter { name: name.to_owned(), cause };
        socket::filter_by(&capture.as_fd(), &mut filter(link, direction)).map_err(refused)?;
        Ok(Self { capture, vnet_header, link, link_addresses })
    }

    /// Sends a frame by the interface, as it is. Never blocks.
    ///
    /// # Errors
    /// When the system does not accept the frame.
    pub(crate) fn send(&self, frame: &[u8]) -> io::Result<()> {
        // A virtio header of zeros: one packet, whose checksum is complete.
        let header = [0; HEADER_LEN];
        let header = header.get(..if self.vnet_header { HEADER_LEN } else { 0 });
        let parts = [IoSlice::new(header.unwrap_or_default()), IoSlice::new(frame)];
        let fd = self.capture.as_fd().as_raw_fd();
        let [v4, v6] = &self.link_addresses;
        // A frame contains its protocol number. For a bare packet the caller passes it to the
        // kernel: a PPP device drops a packet without one.
        let link_address = match (self.link, frame.first()) {
            (Link::Ethernet, _) => None,
            (Link::Ip, Some(first)) if first >> 4 == 4 => Some(v4),
            (Link::Ip, _) => Some(v6),
        };
        sendmsg(fd, &parts, &[], MsgFlags::MSG_DONTWAIT, link_address)?;
        Ok(())
    }
}

/// The program that keeps what may be UDP, in one direction.
///
/// A frame of the agent has no VLAN tag beside its bytes. So the program hides leaving packets with
/// such a tag, on the parent of a VLAN. The agent would repair them in another VLAN.
fn filter(link: Link, direction: Direction) -> Vec<sock_filter> {
    let (leaving, arriving) = match direction {
        Direction::Leaving => (1, 0),
        Direction::Arriving => (0, 1),
    };
    let mut program = vec![
        op(LOAD_BYTE, PACKET_TYPE, 0, 0),
        op(IF_EQUAL, u32::from(PACKET_OUTGOING), leaving, arriving),
        op(RETURN, 0, 0, 0),
    ];
    if direction == Direction::Leaving {
        program.extend([
            op(LOAD_BYTE, VLAN_TAG_PRESENT, 0, 0),
            op(IF_EQUAL, 0, 1, 0),
            op(RETURN, 0, 0, 0),
        ]);
    }
    program.extend(socket::filter(link));
    program
}

#[cfg(test)]
mod tests {
    use nix::libc::{PACKET_HOST, PACKET_OTHERHOST};

    use super::super::bpf::run_tagged;
    use super::*;

    #[test]
    fn each_direction_shows_its_own_datagrams() {
        for (direction, shown) in
            [(Direction::Leaving, [true, false, false]), (Direction::Arriving, [false, true, true])]
        {
            let program = filter(Link::Ip, direction);
            for (protocol, udp) in [(17, true), (6, false)] {
                let mut packet = vec![0; 40];
                (packet[0], packet[9]) = (0x45, protocol);
                let kinds = [PACKET_OUTGOING, PACKET_HOST, PACKET_OTHERHOST];
                for tagged in [false, true] {
                    let seen = |kind| run_tagged(&program, &packet, (0x0800, kind, tagged)) != 0;
                    let expected = udp && !(tagged && direction == Direction::Leaving);
                    assert_eq!(
                        kinds.map(seen),
                        shown.map(|shown| shown && expected),
                        "{direction:?} {protocol} {tagged}"
                    );
                }
            }
        }
    }
}
