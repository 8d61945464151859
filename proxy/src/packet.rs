//! From a captured frame to a UDP flow and its payload, without copying.
//!
//! The parser is total. For any bytes, [`parse`] returns a [`Datagram`] that lies inside the frame,
//! or the reason why there is none. It is as strict as the kernel that forwards the frame: the
//! proxy does not count a datagram that the next hop would drop as truncated. The parser compares a
//! truncated frame with its length on the wire.
//!
//! This runs for each packet on the wire, so it reads the headers in place, each after one check of
//! its length.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use sidekick_protocol::{Flow, Payload};

/// Most VLAN tags that the parser skips: a customer tag, a service tag, and one to spare.
pub(crate) const MAX_TAGS: usize = 3;
/// Most IPv6 extension headers that the parser skips. Real traffic has none or one.
const MAX_EXTENSIONS: usize = 8;

const ETHERNET_LEN: usize = 14;
/// Bytes of a VLAN tag, including the EtherType of what follows.
pub(crate) const TAG_LEN: usize = 4;
/// Without options.
const IPV4_LEN: usize = 20;
/// Without extension headers.
const IPV6_LEN: usize = 40;
const UDP_LEN: usize = 8;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: u16 = 0x8100;
/// Outer tag of stacked VLANs (IEEE 802.1ad).
const ETHERTYPE_QINQ: u16 = 0x88a8;
/// Outer tag of stacked VLANs, as equipment older than IEEE 802.1ad writes it.
const ETHERTYPE_OLD_QINQ: u16 = 0x9100;
/// The packets of a session of PPPoE (RFC 2516, section 4), as between many a home router and its
/// provider.
pub(crate) const ETHERTYPE_PPPOE: u16 = 0x8864;
/// Bytes of the headers of PPPoE and PPP.
pub(crate) const PPPOE_LEN: usize = 8;
/// IPv4 over PPP (RFC 1332, section 2).
pub(crate) const PPP_IPV4: u16 = 0x0021;
/// IPv6 over PPP (RFC 5072, section 3).
pub(crate) const PPP_IPV6: u16 = 0x0057;

const HOP_BY_HOP: u8 = 0;
const UDP: u8 = 17;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;

/// The bits "more fragments" and the offset of the IPv4 fragment field, without "don't fragment".
const FRAGMENT_MASK: u16 = 0x3fff;

/// The first header of a captured frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// An Ethernet header (Ethernet, Wi-Fi, bridges, veth, loopback).
    Ethernet,
    /// The IP header itself (tun, WireGuard, PPP, LTE modems).
    Ip,
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ethernet => "an Ethernet header",
            Self::Ip => "an IP header",
        })
    }
}

/// A UDP datagram inside a captured frame. The frame may contain only its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The datagram's source and destination.
    pub flow: Flow,
    /// The payload's bytes that the capture kept: all, the first, or none. For a merged frame: the
    /// payloads of all its datagrams, one after the other.
    pub payload: &'a [u8],
    /// The payload's length on the wire, at least that of `payload`.
    pub len: usize,
}

impl<'a> Datagram<'a> {
    /// The payload as the protocol's code expects it: whole if all of its bytes are here.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> Payload<'a> {
        if self.payload.len() == self.len {
            Payload::whole(self.payload)
        } else {
            Payload::cut(self.payload, self.len)
        }
    }
}

/// Why a frame has no UDP datagram to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// Another protocol.
    NotUdp,
    /// A packet inside an encapsulation of this name, which the parser does not read. It may be
    /// UDP.
    Encapsulated(&'static str),
    /// A fragment of an IP packet. The identifier may lie in another fragment.
    Fragment,
    /// Headers that contradict themselves or the frame's length.
    Malformed,
    /// The capture kept only a part of the headers.
    Cut,
}

/// A part of a frame, from some byte to the frame's end on the wire.
#[derive(Clone, Copy)]
struct Part<'a> {
    /// The first bytes of the part, which the capture kept; at most `len`.
    kept: &'a [u8],
    /// The part's length on the wire.
    len: usize,
}

impl<'a> Part<'a> {
    /// The first `N` bytes of the part.
    #[inline]
    fn header<const N: usize>(self) -> Result<&'a [u8; N], Skip> {
        self.kept.first_chunk().ok_or(if self.len < N { Skip::Malformed } else { Skip::Cut })
    }

    /// The part after its first `len` bytes.
    #[inline]
    fn after(self, len: usize) -> Result<Self, Skip> {
        let rest = self.len.checked_sub(len).ok_or(Skip::Malformed)?;
        Ok(Self { kept: self.kept.get(len..).unwrap_or_default(), len: rest })
    }

    /// The part's first `len` bytes.
    #[inline]
    fn within(self, len: usize) -> Result<Self, Skip> {
        if len > self.len {
            return Err(Skip::Malformed);
        }
        Ok(Self { kept: self.kept.get(..len).unwrap_or(self.kept), len })
    }

    /// The datagram of `flow` with this part as its payload.
    #[inline]
    fn datagram(self, flow: Flow) -> Datagram<'a> {
        Datagram { flow, payload: self.kept, len: self.len }
    }
}

/// Finds the UDP datagram in a captured frame of `len` bytes. `frame` is the beginning of these
/// bytes, or all.
///
/// The parser compares lengths in headers with `len`. It ignores bytes of `frame` after `len`.
///
/// # Errors
/// [`Skip`] says why there is none.
#[inline(always)]
pub fn parse(link: Link, frame: &[u8], len: usize) -> Result<Datagram<'_>, Skip> {
    let frame = Part { kept: frame.get(..len).unwrap_or(frame), len };
    match link {
        Link::Ethernet => ethernet(frame),
        Link::Ip => match frame.header::<1>()?[0] >> 4 {
            4 => ipv4(frame),
            6 => ipv6(frame),
            _ => Err(Skip::NotUdp),
        },
    }
}

#[inline(always)]
fn ethernet(frame: Part<'_>) -> Result<Datagram<'_>, Skip> {
    // Two addresses, then the EtherType.
    let header: &[u8; ETHERNET_LEN] = frame.header()?;
    let mut ethertype = u16::from_be_bytes([header[12], header[13]]);
    let mut rest = frame.after(ETHERNET_LEN)?;
    for _ in 0..=MAX_TAGS {
        match ethertype {
            ETHERTYPE_IPV4 => return ipv4(rest),
            ETHERTYPE_IPV6 => return ipv6(rest),
            ETHERTYPE_PPPOE => return pppoe(rest),
            ETHERTYPE_VLAN | ETHERTYPE_QINQ | ETHERTYPE_OLD_QINQ => {
                let tag: &[u8; TAG_LEN] = rest.header()?;
                ethertype = u16::from_be_bytes([tag[2], tag[3]]);
                rest = rest.after(TAG_LEN)?;
            }
            0x8847 | 0x8848 => return Err(Skip::Encapsulated("MPLS")),
            0x88e5 => return Err(Skip::Encapsulated("MACsec")),
            0x88e7 => return Err(Skip::Encapsulated("802.1ah")),
            _ => return Err(Skip::NotUdp),
        }
    }
    Err(Skip::Encapsulated("more than three VLAN tags"))
}

/// RFC 2516, section 4: the version and the type, which are both 1, a code, a session, and the
/// length of what follows. That begins with the number of PPP's protocol (RFC 1661, section 2).
#[inline]
fn pppoe(frame: Part<'_>) -> Result<Datagram<'_>, Skip> {
    let header: &[u8; PPPOE_LEN] = frame.header()?;
    if header[..2] != [0x11, 0] {
        return Err(Skip::Malformed);
    }
    let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    // What follows the length in a short frame is padding.
    let packet = frame.within(PPPOE_LEN - 2 + len)?.after(PPPOE_LEN)?;
    match u16::from_be_bytes([header[6], header[7]]) {
        PPP_IPV4 => ipv4(packet),
        PPP_IPV6 => ipv6(packet),
        _ => Err(Skip::NotUdp),
    }
}

/// RFC 791, section 3.1.
#[inline(always)]
fn ipv4(packet: Part<'_>) -> Result<Datagram<'_>, Skip> {
    let header: &[u8; IPV4_LEN] = packet.header()?;
    if header[0] >> 4 != 4 {
        return Err(Skip::Malformed);
    }
    if header[9] != UDP {
        return Err(other(header[9]));
    }
    let header_len = usize::from(header[0] & 0x0f) * 4;
    if header_len < IPV4_LEN {
        return Err(Skip::Malformed);
    }
    if u16::from_be_bytes([header[6], header[7]]) & FRAGMENT_MASK != 0 {
        return Err(Skip::Fragment);
    }
    // First limit the packet to the total length: Ethernet pads short frames.
    let total_len = u16::from_be_bytes([header[2], header[3]]).into();
    let (ports, payload) = udp(packet.within(total_len)?.after(header_len)?)?;
    let end = |at: usize, port| {
        let address = Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
        SocketAddr::V4(SocketAddrV4::new(address, port))
    };
    Ok(payload.datagram(Flow { source: end(12, ports[0]), destination: end(16, ports[1]) }))
}

/// RFC 8200, section 3.
#[inline]
fn ipv6(packet: Part<'_>) -> Result<Datagram<'_>, Skip> {
    let header: &[u8; IPV6_LEN] = packet.header()?;
    if header[0] >> 4 != 6 {
        return Err(Skip::Malformed);
    }
    let mut next = header[6];
    let payload_len = u16::from_be_bytes([header[4], header[5]]).into();
    let mut rest = packet.after(IPV6_LEN)?.within(payload_len)?;
    for _ in 0..=MAX_EXTENSIONS {
        match next {
            UDP => {
                let (ports, payload) = udp(rest)?;
                let ([source, destination], []) = header[8..].as_chunks() else {
                    return Err(Skip::Malformed);
                };
                let end = |octets: &[u8; 16], port| {
                    SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::from(*octets), port, 0, 0))
                };
                let flow =
                    Flow { source: end(source, ports[0]), destination: end(destination, ports[1]) };
                return Ok(payload.datagram(flow));
            }
            HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS => {
                // Section 4: the next header, then the length in units of 8 bytes, without the
                // first.
                let &[following, units] = rest.header()?;
                next = following;
                rest = rest.after((usize::from(units) + 1) * 8)?;
            }
            FRAGMENT => return Err(Skip::Fragment),
            protocol => return Err(other(protocol)),
        }
    }
    Err(Skip::NotUdp)
}

/// Why a packet of a protocol other than UDP is skipped.
#[cold]
fn other(protocol: u8) -> Skip {
    match protocol {
        4 | 41 => Skip::Encapsulated("IP in IP"),
        47 => Skip::Encapsulated("GRE"),
        50 | 51 => Skip::Encapsulated("IPsec"),
        97 => Skip::Encapsulated("Ethernet in IP"),
        115 => Skip::Encapsulated("L2TP"),
        _ => Skip::NotUdp,
    }
}

/// RFC 768: the ports of source and destination, and the payload.
#[inline]
fn udp(datagram: Part<'_>) -> Result<([u16; 2], Part<'_>), Skip> {
    let header: &[u8; UDP_LEN] = datagram.header()?;
    let field = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let payload = datagram.within(field(4).into())?.after(UDP_LEN)?;
    Ok(([field(0), field(2)], payload))
}

#[cfg(test)]
mod tests;
