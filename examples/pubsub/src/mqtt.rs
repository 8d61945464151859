//! MQTT 5 over one QUIC stream, at both ends. These files do no I/O.
//!
//! A plain client or broker of MQTT 5 ignores the user properties below. With them, a message keeps
//! its numbers and its time, and a subscriber resumes where it was.

use bytes::BytesMut;
use mqtt5_protocol::packet::MqttPacket;
use mqtt5_protocol::packet::publish::PublishPacket;
use mqtt5_protocol::{FixedHeader, MqttError, Packet, Properties, QoS};

use crate::name::TopicName;
use crate::topic::Message;

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

/// Removes the next packet from the received bytes of a stream; `None` if it is incomplete. So a
/// receiver buffers at most one packet, of at most `longest` bytes. A stream may end where `buffer`
/// is empty.
pub(crate) fn next(buffer: &mut BytesMut, longest: usize) -> Result<Option<Packet>, MqttError> {
    let head = buffer.get(..buffer.len().min(LONGEST_HEADER)).unwrap_or(&[]);
    // The last byte of the length is below 128.
    let ends = head.iter().skip(1).any(|byte| byte & 0x80 == 0);
    if !ends && head.len() < LONGEST_HEADER {
        return Ok(None);
    }
    let mut rest = head;
    let header = FixedHeader::decode(&mut rest)?;
    let begin = head.len() - rest.len();
    let size = begin + header.remaining_length as usize;
    if size > longest {
        return Err(MqttError::PacketTooLarge { size, max: longest });
    }
    if buffer.len() < size {
        return Ok(None);
    }
    let packet = buffer.split_to(size);
    // The decoder copies the payload from a slice. A part of a buffer would keep the whole buffer
    // in memory, and properties may be far longer than the payload.
    let mut body = packet.get(begin..).unwrap_or(&[]);
    let packet = Packet::decode_from_body(header.packet_type, &header, &mut body)?;
    match body.is_empty() {
        true => Ok(Some(packet)),
        false => Err(MqttError::MalformedPacket("bytes after its content".to_owned())),
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

pub(crate) fn packet(topic: &TopicName, message: &Message, qos: QoS) -> PublishPacket {
    PublishPacket::new(topic.as_str(), message.payload.clone(), qos)
        .with_user_property(SEQUENCE.to_owned(), message.sequence.to_string())
        .with_user_property(TIME.to_owned(), message.time.to_string())
}

/// The first user property of this name, if it is a number.
pub(crate) fn number(properties: &Properties, name: &str) -> Option<u64> {
    properties.get_user_property_value(name)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
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
            let (mut buffer, mut lens) = (BytesMut::new(), Vec::new());
            for piece in stream.chunks(at_once) {
                buffer.extend_from_slice(piece);
                while let Some(Packet::Publish(packet)) = next(&mut buffer, 1000).unwrap() {
                    lens.push(packet.payload.len());
                }
            }
            assert!(buffer.is_empty());
            assert_eq!(lens, (0..20).map(|n| n * 10).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_packet_is_refused_by_its_header() {
        let error = next(&mut BytesMut::from(&b"\x32\xe6\x07"[..]), 1000).unwrap_err();
        assert!(matches!(error, MqttError::PacketTooLarge { size: 1001, max: 1000 }), "{error}");
        // A length of five bytes.
        next(&mut BytesMut::from(&b"\x32\xff\xff\xff\xff\x7f"[..]), 1000).unwrap_err();
    }

    #[test]
    fn a_message_does_not_keep_its_packet_in_memory() {
        let packet = PublishPacket::new("t", b"x".to_vec(), QoS::AtMostOnce)
            .with_user_property("long".to_owned(), "x".repeat(60_000));
        let mut stream = BytesMut::new();
        write(&packet, &mut stream);
        let Some(Packet::Publish(packet)) = next(&mut stream, 100_000).unwrap() else { panic!() };
        drop(stream);
        let mut payload = packet.payload.try_into_mut().unwrap();
        assert_eq!(&payload[..], b"x");
        assert!(!payload.try_reclaim(1000), "the buffer has more than the payload");
    }

    proptest! {
        #[test]
        fn any_bytes_are_packets_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut buffer = BytesMut::from(&bytes[..]);
            while let Ok(Some(_)) = next(&mut buffer, 200) {}
        }
    }
}
