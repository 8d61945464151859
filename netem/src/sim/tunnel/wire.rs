//! The messages of a tunnel.

use std::net::{Ipv4Addr, SocketAddr};

use crate::sim::packet::Packet;

/// A message from one end of a tunnel to the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// A packet of a flow.
    Data {
        /// The packet's number, the same in all its transmissions.
        number: u32,
        /// The number of earlier transmissions of packets.
        transmission: u32,
        packet: Packet,
    },
    Block(Block),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// The newest transmission that arrived.
    pub(super) newest: u32,
    /// All packets before this one have arrived, or are given up.
    pub(super) next: u32,
    /// Whether each packet from `next` on has arrived, up to the last that did.
    pub(super) received: Vec<bool>,
}

const DATA: u8 = 0;
const BLOCK: u8 = 1;
/// Bytes of type, number and transmission. Or of type, newest and next.
const HEADER: usize = 9;
/// The IPv4 and UDP headers of a packet in the tunnel.
const INNER: usize = 28;

impl Message {
    /// The UDP payload.
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Data { number, transmission, packet } => {
                let mut bytes = header(DATA, *number, *transmission);
                // Of the headers, the lab needs only the addresses. The encoding still has the
                // headers' length.
                put_address(&mut bytes, packet.source);
                put_address(&mut bytes, packet.destination);
                bytes.resize(HEADER + INNER, 0);
                bytes.extend(&packet.payload);
                bytes
            }
            Self::Block(Block { newest, next, received }) => {
                let mut bytes = header(BLOCK, *newest, *next);
                let byte = |bits: &[bool]| {
                    bits.iter().rev().fold(0_u8, |byte, &bit| byte << 1 | u8::from(bit))
                };
                bytes.extend(received.chunks(8).map(byte));
                bytes
            }
        }
    }

    /// The message of a UDP payload. `None` if it is invalid.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_at_checked(HEADER)?;
        let (kind, numbers) = head.split_first()?;
        let (one, other) = numbers.split_at_checked(4)?;
        let [one, other] = [one, other].map(|bytes| bytes.try_into().ok().map(u32::from_be_bytes));
        let (one, other) = (one?, other?);
        match *kind {
            DATA => {
                let (inner, payload) = rest.split_at_checked(INNER)?;
                let (source, inner) = address(inner)?;
                let (destination, _) = address(inner)?;
                let packet = Packet::new(source, destination, payload);
                Some(Self::Data { number: one, transmission: other, packet })
            }
            BLOCK => {
                let bits = |byte: &u8| (0..8).map(|bit| byte >> bit & 1 == 1).collect::<Vec<_>>();
                let received = rest.iter().flat_map(bits).collect();
                Some(Self::Block(Block { newest: one, next: other, received }))
            }
            _ => None,
        }
    }
}

fn header(kind: u8, one: u32, other: u32) -> Vec<u8> {
    [&[kind][..], &one.to_be_bytes(), &other.to_be_bytes()].concat()
}

fn put_address(bytes: &mut Vec<u8>, address: SocketAddr) {
    let ip = match address {
        SocketAddr::V4(address) => *address.ip(),
        SocketAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    };
    bytes.extend(ip.octets());
    bytes.extend(address.port().to_be_bytes());
}

fn address(bytes: &[u8]) -> Option<(SocketAddr, &[u8])> {
    let (ip, rest) = bytes.split_first_chunk::<4>()?;
    let (port, rest) = rest.split_first_chunk::<2>()?;
    Some(((*ip, u16::from_be_bytes(*port)).into(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data() -> Message {
        let (source, destination) = (([10, 77, 1, 1], 4000).into(), ([10, 77, 2, 2], 4433).into());
        let packet = Packet::new(source, destination, b"opaque");
        Message::Data { number: 7, transmission: 1 << 20, packet }
    }

    #[test]
    fn messages_survive_the_way() {
        let received = vec![false, true, true, false, false, false, false, false, true];
        let block = Block { newest: 9, next: 4, received };
        assert_eq!(Message::decode(&data().encode()), Some(data()));
        let Some(Message::Block(read)) = Message::decode(&Message::Block(block.clone()).encode())
        else {
            panic!("no block")
        };
        // The encoding rounds the number of bits up to a multiple of eight.
        assert_eq!((read.newest, read.next, &read.received[..9]), (9, 4, &block.received[..]));
        assert!(read.received.len() == 16 && !read.received[9..].contains(&true));
    }

    #[test]
    fn a_message_that_is_too_short_is_refused() {
        let bytes = data().encode();
        assert_eq!(bytes.len(), HEADER + INNER + 6);
        for length in 0..HEADER + INNER {
            assert_eq!(Message::decode(&bytes[..length]), None, "{length}");
        }
        assert_eq!(Message::decode(&[2; 40]), None);
    }
}
