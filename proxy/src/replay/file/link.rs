//! Link types, which define the first header of a file's packets.
//!
//! The numbers are those of <https://www.tcpdump.org/linktypes.html>.

use crate::packet::{Link, PPP_IPV4, PPP_IPV6};

/// The link types of [`Shape::of`], for the operator.
pub(super) const SUPPORTED: &str = "supported are Ethernet (1), raw IP (101, 228, 229, 12, 14), \
                                    PPP and Cisco HDLC (9, 50, 51, 104, 166, 204), Linux cooked capture (113, 276) and \
                                    BSD loopback (0, 108)";

const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
/// `AF_INET` on all systems.
const FAMILY_IPV4: u8 = 2;
/// `AF_INET6`: Linux, NetBSD and OpenBSD, FreeBSD, Darwin.
const FAMILIES_IPV6: [u8; 4] = [10, 24, 28, 30];

/// Where the packet begins in a file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// An Ethernet header comes first.
    Ethernet,
    /// The IP header comes first.
    Ip,
    /// The number of the address family comes first, in four bytes of either order.
    Family,
    /// The header of `tcpdump -i any` comes first, version 1.
    Cooked,
    /// The same, version 2.
    Cooked2,
    /// A header of PPP or of Cisco HDLC comes first, behind this many bytes.
    Ppp(usize),
}

impl Shape {
    /// The shape of packets of a link type; `None` if the link type is not supported.
    pub(super) fn of(link: u32) -> Option<Self> {
        Some(match link {
            1 => Self::Ethernet,
            // Some systems used 12 and 14 for raw IP before it had a common number.
            12 | 14 | 101 | 228 | 229 => Self::Ip,
            0 | 108 => Self::Family,
            113 => Self::Cooked,
            276 => Self::Cooked2,
            9 | 50 | 104 => Self::Ppp(0),
            // Behind the header of PPPoE, without one of Ethernet.
            51 => Self::Ppp(6),
            // Behind the direction, which in 166 replaces the address.
            166 => Self::Ppp(0),
            204 => Self::Ppp(1),
            _ => return None,
        })
    }

    /// The packet in `bytes`, which are the first of `len`: its first header, its bytes, and its
    /// length.
    #[inline]
    pub(super) fn unwrap(self, bytes: &[u8], len: usize) -> (Option<Link>, &[u8], usize) {
        let (link, header) = match self {
            Self::Ethernet => (Some(Link::Ethernet), 0),
            Self::Ip => (Some(Link::Ip), 0),
            Self::Family => {
                let family = match bytes {
                    // The loopback of OpenBSD and of other systems. The byte order is unknown,
                    // but the number is small.
                    &[0, 0, 0, family, ..] | &[family, 0, 0, 0, ..] => Some(family),
                    &[_, _, _, _, ..] => None,
                    // The file does not have these bytes, and so no IP header either.
                    _ => Some(FAMILY_IPV4),
                };
                let ip = family
                    .is_some_and(|family| family == FAMILY_IPV4 || FAMILIES_IPV6.contains(&family));
                (ip.then_some(Link::Ip), 4)
            }
            // Kind of packet (2), hardware type (2), length of the address (2), address (8),
            // EtherType (2): behind the first two it is as long as an Ethernet header, with the
            // EtherType at the same place.
            Self::Cooked => (Some(Link::Ethernet), 2),
            // EtherType (2), reserved (2), interface (4), hardware type (2), kind of packet (1),
            // length of the address (1), address (8).
            Self::Cooked2 => {
                let ethertype = bytes.first_chunk().unwrap_or(&ETHERTYPE_IPV4);
                (matches!(*ethertype, ETHERTYPE_IPV4 | ETHERTYPE_IPV6).then_some(Link::Ip), 20)
            }
            Self::Ppp(at) => {
                let (ip, header) = ppp(bytes.get(at..).unwrap_or_default());
                (ip.then_some(Link::Ip), at + header)
            }
        };
        (link, bytes.get(header..).unwrap_or_default(), len.saturating_sub(header))
    }
}

/// Whether an IP packet follows the header of PPP that begins here, and how long that is (RFC 1661,
/// section 2; RFC 1662, section 3.1). A file that lacks even this header lacks that of IP, too.
fn ppp(bytes: &[u8]) -> (bool, usize) {
    if bytes.len() < 4 {
        return (true, 4);
    }
    // The address and the control field, which a link may omit.
    let (framing, rest) = match bytes {
        [0xff | 0x00 | 0x01, 0x03, rest @ ..] => (2, rest),
        // Cisco HDLC: to one or to all, a control field of 0, and an EtherType.
        [0x0f | 0x8f, 0, first, second, ..] => {
            return (matches!([*first, *second], ETHERTYPE_IPV4 | ETHERTYPE_IPV6), 4);
        }
        rest => (0, rest),
    };
    let (protocol, len) = match *rest {
        // A link may omit the first byte of a number if that is 0. Only the last byte is odd.
        [protocol, ..] if protocol & 1 == 1 => (protocol.into(), 1),
        [first, second, ..] => (u16::from_be_bytes([first, second]), 2),
        _ => (0, 2),
    };
    (matches!(protocol, PPP_IPV4 | PPP_IPV6), framing + len)
}
