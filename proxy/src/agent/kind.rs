//! What a flow's packets look like.

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

    /// Whether the receiver puts packets in order by itself, and waits for late ones.
    pub(super) fn waits(self) -> bool {
        self == Self::Rtp
    }
}

/// So many packets with the same SSRC in its place are RTP. Other protocols encrypt those bytes.
const ALIKE: u8 = 3;

/// Finds out what a flow is. A call begins with STUN and DTLS on the same ports (RFC 7983).
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
    fn kinds_are_told_by_the_first_packet() {
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
}
