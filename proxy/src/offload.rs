//! Merged frames: one captured frame that stands for many datagrams.
//!
//! Receive offload (GRO) on this machine, or segmentation offload (UDP_SEGMENT) on a sender behind
//! a virtual link, hands a capture one large frame for a train of datagrams of one flow. Counting
//! it once would break every quACK of that flow. Asked for a virtio header before each frame, the
//! kernel says whether it merged and at which length it will cut the payload again, so the
//! datagrams can be counted exactly as they will appear on the wire.

/// Bytes of `struct virtio_net_hdr`, which the kernel puts before each frame under
/// `PACKET_VNET_HDR`.
pub const HEADER_LEN: usize = 10;

/// `VIRTIO_NET_HDR_GSO_NONE`.
const GSO_NONE: u8 = 0;
/// `VIRTIO_NET_HDR_GSO_UDP`: one datagram that will leave as IP fragments.
const GSO_UDP_FRAGMENTS: u8 = 3;
/// `VIRTIO_NET_HDR_GSO_UDP_L4`: many datagrams of equal length, the last may be shorter.
const GSO_UDP_L4: u8 = 5;

/// What the kernel says about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merging {
    /// The frame is a packet of the wire.
    Single,
    /// The UDP payload is that of many datagrams, `each` bytes long (never 0) but for the last.
    Datagrams {
        /// Payload bytes of each datagram.
        each: usize,
    },
    /// One datagram that will be fragmented when it leaves.
    Fragments,
    /// Not UDP (TCP merged by offload), or a kind this program does not know.
    Other,
}

/// Splits what was read from the socket into the kernel's word about the frame, and the frame.
///
/// `None` if there are fewer bytes than the header has.
#[must_use]
pub fn split_header(read: &[u8]) -> Option<(Merging, &[u8])> {
    let (header, frame) = read.split_at_checked(HEADER_LEN)?;
    // Fields: flags, gso_type, hdr_len (2), gso_size (2), csum_start (2), csum_offset (2), in the
    // machine's byte order.
    let &[_, gso_type, _, _, low, high, ..] = header else { return None };
    let merging = match gso_type {
        GSO_NONE => Merging::Single,
        GSO_UDP_FRAGMENTS => Merging::Fragments,
        GSO_UDP_L4 => match u16::from_ne_bytes([low, high]) {
            0 => Merging::Other,
            each => Merging::Datagrams { each: usize::from(each) },
        },
        _ => Merging::Other,
    };
    Some((merging, frame))
}

/// The advice to an operator whose kernel merges datagrams and cannot say how.
#[must_use]
pub fn advice(interface: &str) -> String {
    format!("run `ethtool -K {interface} rx-udp-gro-forwarding off gro off`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(gso_type: u8, gso_size: u16) -> Vec<u8> {
        let mut bytes = vec![1, gso_type, 42, 0];
        bytes.extend(gso_size.to_ne_bytes());
        bytes.extend([34, 0, 6, 0]);
        bytes
    }

    #[test]
    fn each_kind_is_recognised() {
        let cases = [
            (0, 0, Merging::Single),
            (0, 1200, Merging::Single),
            (1, 1400, Merging::Other),
            (4, 1400, Merging::Other),
            (0x81, 1400, Merging::Other),
            (3, 1480, Merging::Fragments),
            (5, 1200, Merging::Datagrams { each: 1200 }),
            (5, 0, Merging::Other),
        ];
        for (gso_type, gso_size, expected) in cases {
            let mut read = header(gso_type, gso_size);
            read.extend(b"frame");
            assert_eq!(
                split_header(&read),
                Some((expected, &b"frame"[..])),
                "{gso_type} {gso_size}"
            );
        }
    }

    proptest! {
        #[test]
        fn total_and_never_divides_by_zero(read in prop::collection::vec(any::<u8>(), 0..40)) {
            match split_header(&read) {
                None => prop_assert!(read.len() < HEADER_LEN),
                Some((merging, frame)) => {
                    prop_assert_eq!(frame, &read[HEADER_LEN..]);
                    prop_assert_ne!(merging, Merging::Datagrams { each: 0 });
                }
            }
        }
    }
}
