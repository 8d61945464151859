//! Merged frames: one captured frame for many datagrams.
//!
//! A capture may receive one large frame for several datagrams of one flow. The cause is receive
//! offload (GRO) on this machine, or segmentation offload (UDP_SEGMENT) on a sender behind a
//! virtual link. Counting the frame once would break every quACK of that flow. The kernel can put a
//! virtio header before each frame. It shows whether the kernel merged datagrams, and at which
//! length it will split the payload again, so the proxy counts the datagrams as they appear on the
//! wire.

use crate::capture::Direction;

/// Bytes of `struct virtio_net_hdr`, which the kernel puts before each frame with the option
/// `PACKET_VNET_HDR`.
pub const HEADER_LEN: usize = 10;

/// `VIRTIO_NET_HDR_GSO_NONE`.
const GSO_NONE: u8 = 0;
/// `VIRTIO_NET_HDR_GSO_UDP`: one datagram that will leave as IP fragments.
const GSO_UDP_FRAGMENTS: u8 = 3;
/// `VIRTIO_NET_HDR_GSO_UDP_L4`: many datagrams of equal length. The last may be shorter.
const GSO_UDP_L4: u8 = 5;

/// Whether and how the kernel merged a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merging {
    /// The frame is one packet.
    Single,
    /// The UDP payload is that of many datagrams. All but the last have `each` bytes, never 0.
    Datagrams {
        /// Payload bytes of each datagram.
        each: usize,
    },
    /// One datagram that the machine will fragment when it sends it.
    Fragments,
    /// Not UDP (TCP merged by offload), or an unknown kind.
    Other,
}

/// Splits the bytes that the socket returned into the kernel's header and the frame. Returns `None`
/// if there are fewer bytes than the header has.
#[must_use]
pub fn split_header(read: &[u8]) -> Option<(Merging, &[u8])> {
    let (header, frame) = read.split_at_checked(HEADER_LEN)?;
    // Fields: flags, gso_type, hdr_len (2), gso_size (2), csum_start (2), csum_offset (2), in the
    // byte order of the machine.
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

/// The advice for a kernel that cannot describe how it merges datagrams: the interface merges
/// arriving ones, and has not split leaving ones yet.
#[must_use]
pub(crate) fn advice(interface: &str, direction: Direction) -> String {
    let settings = match direction {
        Direction::Arriving => "rx-udp-gro-forwarding off gro off",
        Direction::Leaving => "tx-udp-segmentation off",
    };
    format!("run `ethtool -K {interface} {settings}`")
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

    #[test]
    fn the_advice_changes_the_setting_that_merges() {
        assert!(advice("wlan0", Direction::Leaving).ends_with("wlan0 tx-udp-segmentation off`"));
        assert!(advice("wlan0", Direction::Arriving).contains("rx-udp-gro-forwarding off"));
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
