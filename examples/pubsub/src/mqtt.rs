//! MQTT 5 over one QUIC stream, at both ends. These files do no I/O.
//!
//! A plain client or broker of MQTT 5 ignores the user properties below. With them, a message keeps
//! its numbers and its time, and a subscriber resumes where it was.

use bytes::BytesMut;
use mqtt5_protocol::packet::MqttPacket;
use mqtt5_protocol::{FixedHeader, MqttError, Packet, Properties};

pub(crate) mod client;
pub(crate) mod session;

/// The application protocol (ALPN).
pub(crate) const ALPN: &[u8] = b"mqtt";
/// The most bytes that a packet has beside its message: the topic and the properties.
pub(crate) const ADDED: usize = 1024;

/// Of a message: its number. On the way to the broker it is the publisher's, and on the way back
/// the topic's.
pub(crate) const SEQUENCE: &str = "sequence";
/// Of a message: when it was published, in microseconds since 1970.
pub(crate) const TIME: &str = "time";
/// Of a message to a subscriber: the broker no longer has this many messages before it.
pub(crate) const MISSED: &str = "missed";
/// Of SUBSCRIBE: the number of the first message to send.
pub(crate) const FROM: &str = "from";
/// Of SUBACK: the number of the subscriber's first message.
pub(crate) const FIRST: &str = "first";
/// Of CONNACK and SUBSCRIBE: the life of the broker to which numbers belong.
pub(crate) const INSTANCE: &str = "instance";

/// The longest fixed header, in bytes.
const LONGEST_HEADER: usize = 5;

/// The bytes of a stream, as packets.
#[derive(Debug)]
pub(crate) struct Packets {
    buffer: BytesMut,
    longest: usize,
}

impl Packets {
    /// The packets of a stream, which have at most `longest` bytes.
    pub(crate) fn new(longest: usize) -> Self {
        Self { buffer: BytesMut::new(), longest }
    }

    /// Adds bytes of the stream. Call [`next`](Self::next) until it returns `None` after it.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Whether the stream may end here.
    pub(crate) fn may_end(&self) -> bool {
        self.buffer.is_empty()
    }

    /// The next packet; `None` if it is incomplete.
    pub(crate) fn next(&mut self) -> Result<Option<Packet>, MqttError> {
        let head = self.buffer.get(..self.buffer.len().min(LONGEST_HEADER)).unwrap_or(&[]);
        // The last byte of the length is below 128.
        let ends = head.iter().skip(1).any(|byte| byte & 0x80 == 0);
        if !ends && head.len() < LONGEST_HEADER {
            return Ok(None);
        }
        let mut rest = head;
        let header = FixedHeader::decode(&mut rest)?;
        let begin = head.len() - rest.len();
        let size = begin + header.remaining_length as usize;
        if size > self.longest {
            return Err(MqttError::PacketTooLarge { size, max: self.longest });
        }
        if self.buffer.len() < size {
            return Ok(None);
        }
        let packet = self.buffer.split_to(size);
        // The decoder copies the payload from a slice. A part of a buffer would keep the whole
        // buffer in memory, and properties may be far longer than the payload.
        let mut body = packet.get(begin..).unwrap_or(&[]);
        let packet = Packet::decode_from_body(header.packet_type, &header, &mut body)?;
        match body.is_empty() {
            true => Ok(Some(packet)),
            false => Err(MqttError::MalformedPacket("bytes after its content".to_owned())),
        }
    }
}

/// Appends a packet to `out`. It omits one that cannot be encoded, which does not occur: the
/// program checks names and lengths before.
pub(crate) fn write(packet: &impl MqttPacket, out: &mut BytesMut) {
    let begin = out.len();
    if let Err(error) = packet.encode(out) {
        debug_assert!(false, "{error}");
        out.truncate(begin);
    }
}

/// The first user property of this name, if it is a number.
pub(crate) fn number(properties: &Properties, name: &str) -> Option<u64> {
    properties.get_user_property_value(name)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mqtt5_protocol::QoS;
    use mqtt5_protocol::packet::publish::PublishPacket;
    use proptest::prelude::*;

    #[test]
    fn packets_arrive_in_any_pieces() {
        let mut stream = BytesMut::new();
        for n in 0..20_u16 {
            let payload = vec![7; usize::from(n) * 10];
            let packet = PublishPacket::new("a/b", payload, QoS::AtLeastOnce).with_packet_id(n + 1);
            write(&packet, &mut stream);
        }
        for at_once in 1..40 {
            let mut packets = Packets::new(1000);
            let mut lens = Vec::new();
            for piece in stream.chunks(at_once) {
                packets.push(piece);
                while let Some(Packet::Publish(packet)) = packets.next().unwrap() {
                    lens.push(packet.payload.len());
                }
            }
            assert!(packets.may_end());
            assert_eq!(lens, (0..20).map(|n| n * 10).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_long_packet_is_refused_by_its_header() {
        let mut packets = Packets::new(1000);
        packets.push(b"\x32\xe6\x07");
        let error = packets.next().unwrap_err();
        assert!(matches!(error, MqttError::PacketTooLarge { size: 1001, max: 1000 }), "{error}");
    }

    #[test]
    fn a_length_of_five_bytes_is_malformed() {
        let mut packets = Packets::new(1000);
        packets.push(b"\x32\xff\xff\xff\xff\x7f");
        assert!(packets.next().is_err());
    }

    #[test]
    fn a_message_does_not_keep_its_packet_in_memory() {
        let packet = PublishPacket::new("t", b"x".to_vec(), QoS::AtMostOnce)
            .with_user_property("long".to_owned(), "x".repeat(60_000));
        let mut stream = BytesMut::new();
        write(&packet, &mut stream);
        let mut packets = Packets::new(100_000);
        packets.push(&stream);
        let Some(Packet::Publish(packet)) = packets.next().unwrap() else { panic!("no packet") };
        drop(packets);
        let mut payload = packet.payload.try_into_mut().unwrap();
        assert_eq!(&payload[..], b"x");
        assert!(!payload.try_reclaim(1000), "the buffer has more than the payload");
    }

    proptest! {
        #[test]
        fn any_bytes_are_packets_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut packets = Packets::new(200);
            packets.push(&bytes);
            while let Ok(Some(_)) = packets.next() {}
        }
    }
}
