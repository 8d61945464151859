//! The protocol of a flow, by the form of its packets.

use std::fmt;

/// The protocol of a flow, by its first packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// QUIC: the handshake has long headers (RFC 8999, section 5.1).
    Quic,
    /// RTP or SRTP (RFC 3550, section 5.1).
    Rtp,
    /// `WireGuard`.
    WireGuard,
    /// Something else.
    #[default]
    Udp,
}

impl Kind {
    /// The kind of a flow with this packet. One packet does not show that it is RTP.
    pub(super) fn of(payload: &[u8]) -> Self {
        match payload {
            // The types of messages, and three reserved bytes.
            [1..=4, 0, 0, 0, ..] => Self::WireGuard,
            // The version is not 0, and the connection ID has at most 20 bytes.
            [first, version @ ..] if first & 0xc0 == 0xc0 => match version {
                [0, 0, 0, 0, ..] | [_, _, _, _, 21..=255, ..] => Self::Udp,
                [_, _, _, _, _, ..] => Self::Quic,
                _ => Self::Udp,
            },
            _ => Self::Udp,
        }
    }

    /// Whether this packet begins a flow of this kind. The first answer then comes a round trip
    /// later.
    pub(super) fn begins_with(self, payload: &[u8]) -> bool {
        match (self, payload) {
            // The first bits of a long header contain the type, here of an Initial packet (RFC
            // 9000, section 17.2.2). RFC 9369 gives the types other numbers in version 2.
            (Self::Quic, [first, 0x6b, 0x33, 0x43, 0xcf, ..]) => first & 0xf0 == 0xd0,
            (Self::Quic, [first, ..]) => first & 0xf0 == 0xc0,
            // The initiation of a handshake.
            (Self::WireGuard, [first, ..]) => *first == 1,
            _ => false,
        }
    }

    /// Whether a packet seems to have a number that anyone can read. Only several packets prove it.
    pub(super) fn may_be_numbered(payload: &[u8]) -> bool {
        [Self::Rtp, Self::WireGuard].iter().any(|kind| kind.number(payload).is_some())
    }

    /// Whether its packets have numbers that anyone can read.
    pub(super) fn is_numbered(self) -> bool {
        matches!(self, Self::Rtp | Self::WireGuard)
    }

    /// The number of a packet, if it has one that anyone can read.
    pub(super) fn number(self, payload: &[u8]) -> Option<Number> {
        match (self, payload) {
            // RTCP has no such number. Its types differ from the payload types of RTP by their
            // values (RFC 5761, section 4).
            (Self::Rtp, [first, kind, s0, s1, _, _, _, _, ssrc @ ..])
                if first & 0xc0 == 0x80 && !(192..=223).contains(kind) =>
            {
                let value = u16::from_be_bytes([*s0, *s1]).into();
                Some(Number { stream: u32::from_be_bytes(*ssrc.first_chunk()?), value, bits: 16 })
            }
            // The receiver's index and the counter of a data message.
            (Self::WireGuard, [4, 0, 0, 0, rest @ ..]) => {
                let (index, rest) = rest.split_first_chunk()?;
                let value = u64::from_le_bytes(*rest.first_chunk()?);
                Some(Number { stream: u32::from_be_bytes(*index), value, bits: 64 })
            }
            _ => None,
        }
    }

    /// Whether the receiver reorders packets by itself, and waits for late ones.
    pub(super) fn waits(self) -> bool {
        self == Self::Rtp
    }
}

/// The number of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    /// A value that packets of one numbering share.
    pub(super) stream: u32,
    /// The number, as it is written.
    pub(super) value: u64,
    /// The bits of the number's field, 1 to 64. The numbers wrap behind the last one.
    bits: u32,
}

impl Number {
    /// The step from an earlier number: the shortest one that leads to this field value.
    pub(super) fn step_from(self, before: i64) -> i64 {
        let unused = 64 - self.bits;
        let step = self.value.wrapping_sub(before.cast_unsigned());
        // The sign is that of the field's highest bit.
        (step << unused).cast_signed() >> unused
    }
}

/// This many packets with the same SSRC in its place are RTP. Other protocols encrypt those bytes.
const ALIKE: u8 = 3;

/// Detects the kind of a flow. A call begins with STUN and DTLS on the same ports (RFC 7983).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Classifier {
    pub(super) kind: Kind,
    ssrc: [u8; 4],
    alike: u8,
}

impl Classifier {
    /// Notes a packet of the flow.
    pub(super) fn note(&mut self, payload: &[u8]) {
        if self.kind != Kind::Udp {
            return;
        }
        self.kind = Kind::of(payload);
        // Version 2, and the SSRC of the fixed header (RFC 3550, section 5.1).
        let header: Option<&[u8; 12]> = payload.first_chunk();
        if let Some([first, _, _, _, _, _, _, _, ssrc @ ..]) = header
            && first & 0xc0 == 0x80
        {
            self.alike = if *ssrc == self.ssrc { self.alike + 1 } else { 1 };
            self.ssrc = *ssrc;
            if self.alike >= ALIKE {
                self.kind = Kind::Rtp;
            }
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Quic => "QUIC",
            Self::Rtp => "RTP",
            Self::WireGuard => "WireGuard",
            Self::Udp => "UDP",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_packet_shows_the_kind() {
        let long = [0xc3, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(Kind::of(&long), Kind::Quic);
        let negotiation = [0xc3, 0, 0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(Kind::of(&negotiation), Kind::Udp);
        assert_eq!(Kind::of(&[4, 0, 0, 0, 9, 9, 9, 9]), Kind::WireGuard);
        assert_eq!(Kind::of(b"\x00\x01\x00\x08\x21\x12\xa4\x42"), Kind::Udp, "STUN");
        for len in 0..6 {
            Kind::of(&long[..len]);
        }
    }

    #[test]
    fn a_flow_begins_with_its_handshake() {
        let long = |first, version: [u8; 4]| [&[first][..], &version, &[8; 9]].concat();
        assert!(Kind::Quic.begins_with(&long(0xcb, [0, 0, 0, 1])));
        assert!(!Kind::Quic.begins_with(&long(0xeb, [0, 0, 0, 1])), "a Handshake packet");
        assert!(Kind::Quic.begins_with(&long(0xdb, [0x6b, 0x33, 0x43, 0xcf])));
        assert!(!Kind::Quic.begins_with(&long(0xcb, [0x6b, 0x33, 0x43, 0xcf])), "a Retry packet");
        assert!(!Kind::Quic.begins_with(&[0x4b, 9, 9, 9]), "a short header");
        assert!(Kind::WireGuard.begins_with(&[1, 0, 0, 0]));
        assert!(!Kind::WireGuard.begins_with(&[2, 0, 0, 0]));
        assert!(!Kind::Udp.begins_with(&[1]) && !Kind::Quic.begins_with(&[]));
    }

    #[test]
    fn a_call_is_found_behind_its_handshake() {
        let stun = b"\x00\x01\x00\x08\x21\x12\xa4\x42............";
        let dtls = [&[22, 0xfe, 0xfd][..], &[7; 60]].concat();
        let media = |sequence: u8, ssrc: u8| {
            [&[0x90, 111, 0, sequence, 0, 0, 0, sequence][..], &[ssrc; 4], &[9; 40]].concat()
        };
        let mut flow = Classifier::default();
        for packet in [stun.to_vec(), dtls, media(1, 5), media(2, 5)] {
            flow.note(&packet);
            assert_eq!(flow.kind, Kind::Udp);
        }
        flow.note(&media(3, 5));
        assert_eq!(flow.kind, Kind::Rtp);
        // Where RTP has its SSRC, an encrypted tunnel has other bytes in each packet.
        let mut tunnel = Classifier::default();
        (0..=255).for_each(|number| tunnel.note(&media(number, number)));
        assert_eq!(tunnel.kind, Kind::Udp);
        for len in 0..20 {
            tunnel.note(&[0x80; 20][..len]);
        }
    }

    #[test]
    fn numbers_stand_where_the_protocols_have_them() {
        let rtp = [0x90, 0xef, 0xff, 0xfe, 1, 2, 3, 4, 0, 0, 1, 2, 9, 9];
        let number = Number { stream: 258, value: 0xfffe, bits: 16 };
        assert_eq!(Kind::Rtp.number(&rtp), Some(number));
        let mut rtcp = rtp;
        rtcp[1] = 200;
        assert_eq!(Kind::Rtp.number(&rtcp), None);
        let data = [4, 0, 0, 0, 0, 0, 0, 7, 5, 1, 0, 0, 0, 0, 0, 0, 9];
        let number = Number { stream: 7, value: 261, bits: 64 };
        assert_eq!(Kind::WireGuard.number(&data), Some(number));
        assert_eq!(Kind::WireGuard.number(&[1; 148]), None, "a handshake");
        for len in 0..12 {
            assert_eq!(Kind::Rtp.number(&rtp[..len]), None);
            assert_eq!(Kind::WireGuard.number(&data[..len]), None);
        }
        assert_eq!(Kind::Quic.number(&rtp), None);
    }

    #[test]
    fn steps_are_right_where_numbers_wrap() {
        for (bits, mask) in [(16, u64::from(u16::MAX)), (64, u64::MAX)] {
            for before in [0_i64, 3, 0x7fff, 0x8000, 0xffff, 0x1_0000, 0x1234_5678] {
                for step in [-300_i64, -1, 0, 1, 2, 300] {
                    let value = (before + step).cast_unsigned() & mask;
                    let number = Number { stream: 0, value, bits };
                    assert_eq!(number.step_from(before), step, "{bits} {before} {step}");
                }
            }
        }
    }
}
