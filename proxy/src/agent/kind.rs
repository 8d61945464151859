//! What a flow's packets look like.

use std::fmt;
use std::time::Duration;

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
    /// The kind of a flow with this packet.
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
            // Version 2. RFC 7983: a DTLS record, STUN and TURN begin with other bytes.
            [first, ..] if first & 0xc0 == 0x80 && payload.len() >= 12 => Self::Rtp,
            _ => Self::Udp,
        }
    }

    /// Whether the receiver puts packets in order by itself, and waits for late ones.
    pub(super) fn waits(self) -> bool {
        self == Self::Rtp
    }

    /// How old a packet may be when it is sent again. A receiver of media waits for late packets;
    /// another has long asked its sender for them.
    pub(super) fn max_age(self) -> Duration {
        if self.waits() { Duration::from_millis(200) } else { Duration::from_millis(100) }
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
    fn kinds_are_told_by_the_first_packet() {
        let long = [0xc3, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(Kind::of(&long), Kind::Quic);
        let negotiation = [0xc3, 0, 0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(Kind::of(&negotiation), Kind::Udp);
        assert_eq!(Kind::of(&[[0x80, 111].as_slice(), &[0; 10]].concat()), Kind::Rtp);
        assert_eq!(Kind::of(&[4, 0, 0, 0, 9, 9, 9, 9]), Kind::WireGuard);
        assert_eq!(Kind::of(b"\x00\x01\x00\x08\x21\x12\xa4\x42"), Kind::Udp, "STUN");
        for len in 0..6 {
            Kind::of(&long[..len]);
        }
        assert_eq!(Kind::of(&[0x80; 11]), Kind::Udp);
    }
}
