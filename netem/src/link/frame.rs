//! The interface of packets to a link that carries them.

/// The two bits of the IP header that explicit congestion notification uses (RFC 3168, section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// The transport does not take part.
    #[default]
    NotEct = 0b00,
    /// The transport takes part, codepoint ECT(1).
    Ect1 = 0b01,
    /// The transport takes part, codepoint ECT(0).
    Ect0 = 0b10,
    /// Congestion experienced.
    Ce = 0b11,
}

impl Ecn {
    /// Reads the two low bits of the traffic class octet.
    pub fn from_bits(traffic_class: u8) -> Self {
        match traffic_class & 0b11 {
            0b00 => Self::NotEct,
            0b01 => Self::Ect1,
            0b10 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// The two bits.
    pub fn bits(self) -> u8 {
        self as u8
    }

    /// Whether a queue may mark the packet instead of dropping it.
    pub fn is_capable(self) -> bool {
        self != Self::NotEct
    }
}

/// A packet that a link can carry.
pub trait Frame: Clone {
    /// Size of the whole Ethernet frame, in bytes.
    fn bytes(&self) -> u64;

    /// The packet's ECN codepoint.
    fn ecn(&self) -> Ecn;

    /// Sets congestion experienced in the packet. Called only if [`Ecn::is_capable`] holds.
    fn mark_ce(&mut self);

    /// Damages the packet as noise would, at a place that follows from 64 random bits. The UDP
    /// checksum at the receiver, or its substitute, must detect the damage, so a corrupted packet
    /// uses the link, and is lost at its end.
    fn corrupt(&mut self, random: u64);
}

/// The bytes of a frame that are not part of its IP packet.
pub(super) const ETHERNET_HEADER: usize = 14;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const UDP_HEADER: usize = 8;
const PROTOCOL_UDP: u8 = 17;
const TRAFFIC_CLASS: usize = ETHERNET_HEADER + 1;
const IPV4_PROTOCOL: usize = ETHERNET_HEADER + 9;
const IPV4_CHECKSUM: usize = ETHERNET_HEADER + 10;
const IPV6_NEXT_HEADER: usize = ETHERNET_HEADER + 6;
/// In IPv6 the traffic class begins half an octet earlier (RFC 8200, section 3).
const IPV6_CLASS_SHIFT: u32 = 4;

/// An Ethernet frame that carries IP, as the relays see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EthernetFrame(Vec<u8>);

impl EthernetFrame {
    /// A frame of these bytes. `None` unless it carries IPv4 or IPv6 with a whole header, to one
    /// host: kernels send multicasts to discover neighbours and routers, which the lab configures
    /// instead.
    pub fn from_ip(bytes: &[u8]) -> Option<Self> {
        let to_one = bytes.first().is_some_and(|first| first & 1 == 0);
        let version = bytes.get(ETHERNET_HEADER).map(|first| first >> 4);
        let header = match bytes.get(12..ETHERNET_HEADER)?.try_into().ok()? {
            ETHERTYPE_IPV4 if version == Some(4) => IPV4_HEADER,
            ETHERTYPE_IPV6 if version == Some(6) => IPV6_HEADER,
            _ => return None,
        };
        (to_one && bytes.len() >= ETHERNET_HEADER + header).then(|| Self(bytes.to_vec()))
    }

    /// The whole frame.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn is_ipv6(&self) -> bool {
        self.0.get(ETHERNET_HEADER).is_some_and(|first| first >> 4 == 6)
    }

    /// Where the IP payload begins, by the length in the header. The hosts send no IPv6 extension
    /// headers.
    fn ip_payload(&self) -> usize {
        if self.is_ipv6() {
            return ETHERNET_HEADER + IPV6_HEADER;
        }
        let words = self.0.get(ETHERNET_HEADER).map_or(0, |first| usize::from(first & 0x0f));
        ETHERNET_HEADER + (4 * words).max(IPV4_HEADER)
    }

    fn is_udp(&self) -> bool {
        let place = if self.is_ipv6() { IPV6_NEXT_HEADER } else { IPV4_PROTOCOL };
        self.0.get(place) == Some(&PROTOCOL_UDP)
    }
}

impl Frame for EthernetFrame {
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn ecn(&self) -> Ecn {
        let shift = if self.is_ipv6() { IPV6_CLASS_SHIFT } else { 0 };
        self.0.get(TRAFFIC_CLASS).map_or(Ecn::NotEct, |&class| Ecn::from_bits(class >> shift))
    }

    /// Sets the two bits. In IPv4, it also corrects the header checksum (RFC 1624, equation 3).
    fn mark_ce(&mut self) {
        if self.is_ipv6() {
            if let Some(class) = self.0.get_mut(TRAFFIC_CLASS) {
                *class |= Ecn::Ce.bits() << IPV6_CLASS_SHIFT;
            }
            return;
        }
        let Some(&[first, class]) = self.0.get(ETHERNET_HEADER..ETHERNET_HEADER + 2) else {
            return;
        };
        let Some(&[high, low]) = self.0.get(IPV4_CHECKSUM..IPV4_CHECKSUM + 2) else { return };
        let marked = class | Ecn::Ce.bits();
        let (old, new) = (u16::from_be_bytes([first, class]), u16::from_be_bytes([first, marked]));
        let mut sum =
            u32::from(!u16::from_be_bytes([high, low])) + u32::from(!old) + u32::from(new);
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        let [.., high, low] = (!sum).to_be_bytes();
        self.0[TRAFFIC_CLASS] = marked;
        self.0[IPV4_CHECKSUM..IPV4_CHECKSUM + 2].copy_from_slice(&[high, low]);
    }

    /// Flips one bit of the UDP payload. If the packet is not UDP, or has no UDP payload, it flips
    /// one of the IP payload. The receiver's kernel detects the wrong UDP checksum and drops the
    /// datagram, so no program receives it.
    fn corrupt(&mut self, random: u64) {
        let payload = self.ip_payload();
        let udp_payload = payload + UDP_HEADER;
        let from = if self.is_udp() && self.0.len() > udp_payload { udp_payload } else { payload };
        flip_a_bit(self.0.get_mut(from..).unwrap_or_default(), random);
    }
}

/// Flips a bit whose place follows from 64 random bits.
pub(crate) fn flip_a_bit(bytes: &mut [u8], random: u64) {
    if let Some(bit) = random.checked_rem(bytes.len() as u64 * 8)
        && let Some(byte) = usize::try_from(bit / 8).ok().and_then(|place| bytes.get_mut(place))
    {
        *byte ^= 1 << (bit % 8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A slow Internet checksum (RFC 1071).
    fn checksum(bytes: &[u8]) -> u16 {
        let sum: u64 = bytes
            .chunks(2)
            .map(|pair| u64::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)])))
            .sum();
        let folded = (0..4).fold(sum, |sum, _| (sum & 0xffff) + (sum >> 16));
        !u16::try_from(folded).unwrap()
    }

    fn frame(class: u8, identification: u16, payload: &[u8]) -> EthernetFrame {
        let mut bytes = vec![2_u8; 12];
        bytes.extend(ETHERTYPE_IPV4);
        let length = u16::try_from(IPV4_HEADER + payload.len()).unwrap();
        let mut header = vec![0x45, class];
        header.extend(length.to_be_bytes());
        header.extend(identification.to_be_bytes());
        header.extend([0x40, 0, 64, PROTOCOL_UDP, 0, 0, 10, 77, 1, 1, 10, 77, 2, 2]);
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes.extend(header);
        bytes.extend(payload);
        EthernetFrame::from_ip(&bytes).unwrap()
    }

    fn header(frame: &EthernetFrame) -> &[u8] {
        &frame.as_bytes()[ETHERNET_HEADER..ETHERNET_HEADER + IPV4_HEADER]
    }

    /// A frame of IPv6 and UDP.
    fn frame_v6(class: u8, payload: &[u8]) -> EthernetFrame {
        let mut bytes = vec![2_u8; 12];
        bytes.extend(ETHERTYPE_IPV6);
        bytes.extend([0x60 | class >> 4, class << 4, 0, 0]);
        bytes.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
        bytes.extend([PROTOCOL_UDP, 64]);
        bytes.extend([0xfd; 32]);
        bytes.extend(payload);
        EthernetFrame::from_ip(&bytes).unwrap()
    }

    #[test]
    fn multicast_and_truncated_ipv6_frames_are_refused() {
        let good = frame_v6(0, &[0; 30]);
        assert_eq!(EthernetFrame::from_ip(&good.as_bytes()[..ETHERNET_HEADER + 39]), None);
        let mut to_many = good.as_bytes().to_vec();
        to_many[0] = 0x33;
        assert_eq!(EthernetFrame::from_ip(&to_many), None);
        let mut mixed = good.as_bytes().to_vec();
        mixed[12..14].copy_from_slice(&ETHERTYPE_IPV4);
        assert_eq!(EthernetFrame::from_ip(&mixed), None);
    }

    #[test]
    fn only_whole_ipv4_frames_are_taken() {
        let good = frame(0, 1, &[0; 30]);
        assert!(EthernetFrame::from_ip(good.as_bytes()).is_some());
        assert_eq!(EthernetFrame::from_ip(&good.as_bytes()[..ETHERNET_HEADER + 19]), None);
        let mut arp = good.as_bytes().to_vec();
        arp[13] = 0x06;
        assert_eq!(EthernetFrame::from_ip(&arp), None);
        assert_eq!(EthernetFrame::from_ip(&[]), None);
    }

    proptest! {
        #[test]
        fn a_mark_keeps_the_header_checksum_right(class: u8, identification: u16) {
            let mut marked = frame(class, identification, &[7; 20]);
            prop_assert_eq!(checksum(header(&marked)), 0);
            prop_assert_eq!(marked.ecn().bits(), class & 0b11);
            marked.mark_ce();
            prop_assert_eq!(marked.ecn(), Ecn::Ce);
            prop_assert_eq!(checksum(header(&marked)), 0);
            prop_assert_eq!(header(&marked)[1] >> 2, class >> 2);
        }

        #[test]
        fn a_mark_of_ipv6_changes_the_two_bits(class: u8, random: u64) {
            let before = frame_v6(class, &[7; 20]);
            prop_assert_eq!(before.ecn().bits(), class & 0b11);
            let mut marked = before.clone();
            marked.mark_ce();
            prop_assert_eq!(&marked, &frame_v6(class | 0b11, &[7; 20]));
            let mut damaged = before.clone();
            damaged.corrupt(random);
            prop_assert_eq!(&damaged.as_bytes()[..ETHERNET_HEADER + IPV6_HEADER + UDP_HEADER],
                &before.as_bytes()[..ETHERNET_HEADER + IPV6_HEADER + UDP_HEADER]);
            prop_assert!(damaged != before);
        }

        #[test]
        fn corruption_flips_one_bit_that_the_udp_checksum_covers(payload in prop::collection::vec(any::<u8>(), 0..60), random: u64) {
            let before = frame(0, 1, &payload);
            let mut after = before.clone();
            after.corrupt(random);
            let flipped: u32 =
                before.as_bytes().iter().zip(after.as_bytes()).map(|(a, b)| (a ^ b).count_ones()).sum();
            prop_assert_eq!(flipped, u32::from(!payload.is_empty()));
            prop_assert_eq!(header(&before), header(&after));
            if payload.len() > UDP_HEADER {
                prop_assert_eq!(&after.as_bytes()[..ETHERNET_HEADER + IPV4_HEADER + UDP_HEADER],
                    &before.as_bytes()[..ETHERNET_HEADER + IPV4_HEADER + UDP_HEADER]);
            }
            prop_assert!(payload.is_empty() || checksum(&after.as_bytes()[14..]) != checksum(&before.as_bytes()[14..]));
        }
    }
}
