//! Link types, which define the first header of a file's packets.
//!
//! The numbers are those of <https://www.tcpdump.org/linktypes.html>.

use crate::packet::Link;

/// The link types of [`Shape::of`], for the operator.
pub(super) const SUPPORTED: &str = "supported are Ethernet (1), raw IP (101, 228, 229, 12, 14), \
                                    Linux cooked capture (113, 276) and BSD loopback (0, 108)";

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
        };
        (link, bytes.get(header..).unwrap_or_default(), len.saturating_sub(header))
    }
}
