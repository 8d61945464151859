//! RTP packets (RFC 3550) and retransmissions (RFC 4588), with the `rtp-types` crate.

use rtp_types::{RtpPacket, RtpPacketBuilder};

/// The length in bytes of an RTP header without contributing sources and extensions (RFC 3550,
/// section 5.1).
pub const HEADER_LEN: usize = 12;
/// The length in bytes of the original sequence number, which precedes a retransmission's content
/// (RFC 4588, section 4).
pub const OSN_LEN: usize = 2;

/// The fields of an RTP header that a call uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The packet's source.
    pub ssrc: u32,
    /// The type of its content.
    pub payload_type: u8,
    /// Its number within the SSRC.
    pub sequence: u16,
    /// The time of capture, in units of the media's clock.
    pub timestamp: u32,
    /// Whether speech begins with it (RFC 3551, section 4.1). A talker sets it in the first packet
    /// alone.
    pub marker: bool,
}

/// The header, which SRTP leaves in clear; `None` if the bytes are not RTP. It ignores what
/// follows, because the length of padding is encrypted.
#[must_use]
pub fn header(bytes: &[u8]) -> Option<Header> {
    let mut fixed = *bytes.first_chunk::<HEADER_LEN>()?;
    // Only the version remains.
    fixed[0] &= 0xc0;
    let packet = RtpPacket::parse(&fixed).ok()?;
    Some(Header {
        ssrc: packet.ssrc(),
        payload_type: packet.payload_type(),
        sequence: packet.sequence_number(),
        timestamp: packet.timestamp(),
        marker: packet.marker_bit(),
    })
}

/// The content, without padding, of a decrypted RTP packet; `None` if the bytes are not RTP.
#[must_use]
pub fn content(bytes: &[u8]) -> Option<&[u8]> {
    let packet = RtpPacket::parse(bytes).ok()?;
    bytes.get(packet.payload_offset()..)?.get(..packet.payload_len())
}

pub(crate) fn packet(header: &Header, content: &[u8]) -> Vec<u8> {
    build(header, &[content])
}

/// The retransmission, with its own header, of the packet with this number and content.
pub(crate) fn retransmission(header: &Header, original: u16, content: &[u8]) -> Vec<u8> {
    build(header, &[&original.to_be_bytes(), content])
}

fn build(header: &Header, parts: &[&[u8]]) -> Vec<u8> {
    let builder = RtpPacketBuilder::<&[u8], &[u8]>::new()
        .payload_type(header.payload_type)
        .sequence_number(header.sequence)
        .timestamp(header.timestamp)
        .ssrc(header.ssrc)
        .marker_bit(header.marker);
    // It fails only for a payload type beyond 7 bits, which the configuration excludes.
    parts
        .iter()
        .fold(builder, |builder, part| builder.payload(*part))
        .write_vec()
        .unwrap_or_default()
}

/// The original sequence number and content in a retransmission's content.
pub(crate) fn original(content: &[u8]) -> Option<(u16, &[u8])> {
    let (number, content) = content.split_first_chunk()?;
    Some((u16::from_be_bytes(*number), content))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEADER: Header =
        Header { ssrc: 7, payload_type: 96, sequence: 65_535, timestamp: 960, marker: true };

    #[test]
    fn what_is_written_reads_back() {
        let bytes = packet(&HEADER, &[1, 2, 3]);
        assert_eq!((header(&bytes), content(&bytes)), (Some(HEADER), Some(&[1, 2, 3][..])));
        let bytes = retransmission(&HEADER, 65_535, &[1, 2, 3]);
        assert_eq!(content(&bytes).and_then(original), Some((65_535, &[1, 2, 3][..])));
        assert_eq!(original(&[1]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..80), first in 0x80_u8..0xc0) {
            let _ = content(&bytes);
            let bytes = [&[first], &bytes[..]].concat();
            prop_assert_eq!(header(&bytes).is_some(), bytes.len() >= HEADER_LEN);
            if let Ok(packet) = RtpPacket::parse(&bytes) {
                prop_assert_eq!(content(&bytes), Some(packet.payload()));
            }
        }
    }
}
