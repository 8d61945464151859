//! The protocol of a flow, by the form of its packets.

use std::fmt;

use sidekick_protocol::policy::{Traits, is_initial};

use super::looks::Looks;

/// The protocol of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// QUIC: the handshake has long headers (RFC 8999, section 5.1).
    Quic,
    /// RTP or SRTP (RFC 3550, section 5.1).
    Rtp,
    WireGuard,
    /// SRT (draft-sharabayko-srt).
    Srt,
    /// RIST: GRE with a type of its own (VSF TR-06-2).
    Rist,
    Mosh,
    OpenVpn,
    /// Another protocol that encrypts its packets.
    Encrypted,
    /// MPEG-TS without RTP: nothing numbers the datagrams, so receivers cannot put them in order.
    MpegTs,
    /// Something else.
    #[default]
    Udp,
}

/// The length of a packet of a transport stream, and its first byte (ISO/IEC 13818-1).
const TS_LEN: usize = 188;
const TS_SYNC: u8 = 0x47;

impl Kind {
    /// Whether a receiver takes a packet that comes late for a loss, or cannot put it in order.
    /// Receivers of the other kinds order packets by themselves, and late is worse for them than
    /// out of order. TCP in WireGuard does not mind a late copy: at 10 % near loss its download has
    /// 8.9 Mbit/s, and 7.6 if its packets are held.
    pub(super) fn minds_order(self) -> bool {
        matches!(self, Self::Quic | Self::OpenVpn | Self::Encrypted | Self::MpegTs)
    }

    /// Whether its receivers surely authenticate packets. Parity may rebuild wrong ones, of which
    /// only that gets rid.
    pub(super) fn is_authenticated(self) -> bool {
        matches!(self, Self::Quic | Self::OpenVpn)
    }

    /// The kind of a flow with this packet. For most kinds, one packet does not show it.
    pub(super) fn of(payload: &[u8]) -> Self {
        match payload {
            // The types of messages, three reserved bytes, and the length of such a message.
            [1..=4, 0, 0, 0, ..] if is_wireguard(payload) => Self::WireGuard,
            // An induction or a conclusion: a control packet of type 0, and version 4 or 5.
            [0x80, 0, 0, 0, 0, 0, 0, 0, _, _, _, _, _, _, _, _, 0, 0, 0, 4 | 5, ..]
                if payload.len() >= 64 =>
            {
                Self::Srt
            }
            // GRE without a checksum, in version 0, and the types of RIST.
            [first, flags, 0x88, 0xb5 | 0xb6, ..] if first & 0x8f == 0 && flags & 7 <= 1 => {
                Self::Rist
            }
            [TS_SYNC, ..] if is_transport_stream(payload) => Self::MpegTs,
            // A long header, and a connection ID of at most 20 bytes.
            [first, version @ ..] if first & 0xc0 == 0xc0 => match version.split_first_chunk() {
                Some((version, [0..=20, ..])) if is_version(*version) => Self::Quic,
                _ => Self::Udp,
            },
            _ => Self::Udp,
        }
    }

    /// Whether its receivers bear datagrams of others, and datagrams twice or out of order: they
    /// authenticate or number what they receive.
    pub(super) fn is_robust(self) -> bool {
        !matches!(self, Self::Udp | Self::MpegTs)
    }

    /// Whether its program tells people of each datagram that is not its own.
    pub(super) fn reports_strangers(self) -> bool {
        matches!(self, Self::Mosh | Self::OpenVpn)
    }

    /// Whether its packets may end alike: they are not always encrypted.
    pub(super) fn may_end_alike(self) -> bool {
        matches!(self, Self::Rtp | Self::Srt | Self::Rist | Self::MpegTs | Self::Udp)
    }

    /// Whether one loss costs its sender as much as many: it slows down.
    pub(super) fn slows_down(self) -> bool {
        matches!(self, Self::Quic | Self::WireGuard | Self::Encrypted)
    }

    /// Whether short headers of its packets have a spin bit.
    pub(super) fn spins(self) -> bool {
        matches!(self, Self::Quic | Self::Encrypted)
    }

    /// What decides when its losses are repaired.
    pub(super) fn traits(self) -> Traits {
        let (slows_down, waits) = (self.slows_down(), self.waits());
        let minds_order = self.minds_order();
        Traits { slows_down, waits, minds_order, is_call: self == Self::Rtp }
    }

    /// Whether this packet begins a flow of this kind. The first answer then comes a round trip
    /// later.
    pub(super) fn begins_with(self, payload: &[u8]) -> bool {
        match (self, payload) {
            (Self::Quic, _) => is_initial(payload),
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
        matches!(self, Self::Rtp | Self::WireGuard | Self::Srt)
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
            // A data packet: a whole message, and the socket that receives it.
            (Self::Srt, [s0, s1, s2, s3, flags, _, _, _, _, _, _, _, socket @ ..])
                if s0 & 0x80 == 0 && flags >> 6 == 3 =>
            {
                let value = u32::from_be_bytes([*s0, *s1, *s2, *s3]).into();
                Some(Number { stream: u32::from_be_bytes(*socket.first_chunk()?), value, bits: 31 })
            }
            // The direction, and the number of 63 bits.
            (Self::Mosh, [0 | 0x80, 0, 0, 0, ..]) if payload.len() >= 24 => {
                let number = u64::from_be_bytes(*payload.first_chunk()?);
                let (stream, value) = (u32::from(number >> 63 != 0), number & (u64::MAX >> 1));
                Some(Number { stream, value, bits: 63 })
            }
            // The operation, the peer, and the number of a data packet.
            (Self::OpenVpn, [0x48..=0x4f, _, _, _, rest @ ..]) => {
                let value = u32::from_be_bytes(*rest.first_chunk()?).into();
                Some(Number {
                    stream: u32::from_be_bytes(*payload.first_chunk()?),
                    value,
                    bits: 32,
                })
            }
            _ => None,
        }
    }

    /// What the headers of a numbered flow's packets have in common, apart from the numbering that
    /// they share.
    pub(super) fn header(self, payload: &[u8]) -> Option<u16> {
        let [first, second, ..] = payload else { return None };
        match self {
            // The version, the flags and the payload type, without the marker bit (RFC 3550,
            // section 5.1).
            Self::Rtp => Some(u16::from_be_bytes([*first, *second & 0x7f])),
            // The position within a message, and the key.
            Self::Srt => payload.get(4).map(|flags| u16::from(flags & 0xd8)),
            _ => Some(u16::from_be_bytes([*first, *second])),
        }
    }

    /// Whether the receiver reorders packets by itself, and waits for late ones.
    pub(super) fn waits(self) -> bool {
        matches!(self, Self::Rtp | Self::Srt | Self::Rist | Self::Mosh | Self::OpenVpn)
    }
}

/// Whether this is a version of QUIC that is in use: 1 or 2 (RFC 9369), a draft, one of Google's or
/// Facebook's, or one that servers must ignore (RFC 9000, section 15). Encrypted packets of other
/// protocols may begin like a long header.
fn is_version(version: [u8; 4]) -> bool {
    matches!(version, [0, 0, 0, 1] | [0x6b, 0x33, 0x43, 0xcf])
        || matches!(version, [0xff, 0, 0, _] | [b'Q' | b'T', b'0', _, _] | [0xfa, 0xce, 0xb0, _])
        || version.iter().all(|byte| byte & 0x0f == 0x0a)
}

/// Whether the length of a packet is that of a message of `WireGuard` with this type. Data is
/// padded to 16 bytes, unless it then exceeds the tunnel's packets.
fn is_wireguard(payload: &[u8]) -> bool {
    match (payload.first(), payload.len()) {
        (Some(1), len) => len == 148,
        (Some(2), len) => len == 92,
        (Some(3), len) => len == 64,
        (Some(4), len) => len >= 32 && (len % 16 == 0 || len >= 1200),
        _ => false,
    }
}

/// Whether a client of `OpenVPN` begins with this packet: the operation, version 2 or 3, and a
/// random session ID. Text may begin like this.
fn is_openvpn_reset(payload: &[u8]) -> bool {
    let Some([0x38 | 0x50, session @ ..]) = payload.first_chunk::<9>() else { return false };
    (14..=128).contains(&payload.len()) && !session.iter().all(|byte| byte.is_ascii())
}

/// Whether a datagram consists of packets of a transport stream.
fn is_transport_stream(payload: &[u8]) -> bool {
    payload.len().is_multiple_of(TS_LEN)
        && payload.iter().step_by(TS_LEN).all(|sync| *sync == TS_SYNC)
}

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

/// This many packets with rising numbers in one place are of the kind that has them there.
const ALIKE: u8 = 3;
/// A larger step is no sign of a number.
const STEP: i64 = 16;
/// Packets that show whether a flow is encrypted.
const EXAMINED: u32 = 8;
/// After so many failures, the distance from one examination to the next no longer doubles.
const MOST_FAILURES: u32 = 8;

/// The numbers that packets of a kind would have.
#[derive(Clone, Copy, Debug, Default)]
struct Guess {
    latest: Option<Number>,
    /// Packets in order so far, at most [`ALIKE`].
    alike: u8,
}

impl Guess {
    /// Notes a packet's number. Returns whether enough packets have one.
    fn note(&mut self, number: Option<Number>) -> bool {
        // Other packets may come in between.
        let Some(number) = number else { return false };
        let continues = self.latest.is_some_and(|latest| {
            let step = number.step_from(latest.value.cast_signed());
            latest.stream == number.stream && (1..=STEP).contains(&step)
        });
        self.alike = if continues { (self.alike + 1).min(ALIKE) } else { 1 };
        self.latest = Some(number);
        self.alike >= ALIKE
    }
}

/// Detects the kind of a flow. A call begins with STUN and DTLS on the same ports (RFC 7983).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Classifier {
    pub(super) kind: Kind,
    /// What the packets would be as RTP, SRT, mosh and `OpenVPN`.
    guesses: [Guess; 4],
    looks: Looks,
    packets: u32,
    /// Packets before the next ones are examined, and how often they did not look encrypted.
    unexamined: u32,
    failures: u32,
    /// The latest packets that were examined looked encrypted, but earlier ones did not.
    may_be_encrypted: bool,
    /// A packet began otherwise than STUN, DTLS, RTP or RTCP (RFC 7983).
    is_other: bool,
}

impl Classifier {
    /// Notes a packet of the flow.
    pub(super) fn note(&mut self, payload: &[u8]) {
        self.packets = self.packets.saturating_add(1);
        self.is_other |= !matches!(payload.first(), Some(0..=1 | 20..=25 | 128..=191));
        if self.unexamined > 0 {
            self.unexamined -= 1;
        } else if self.looks.packets() < EXAMINED {
            self.looks.note(payload);
        }
        if !matches!(self.kind, Kind::Udp | Kind::Encrypted) {
            return;
        }
        let before = self.kind;
        if self.kind == Kind::Udp {
            self.kind = if self.packets == 1 && is_openvpn_reset(payload) {
                Kind::OpenVpn
            } else {
                Kind::of(payload)
            };
        }
        let is_examined = self.looks.packets() >= EXAMINED;
        let is_encrypted = before == Kind::Encrypted || self.looks.are_encrypted();
        for (kind, guess) in
            [Kind::Rtp, Kind::Srt, Kind::Mosh, Kind::OpenVpn].into_iter().zip(&mut self.guesses)
        {
            let encrypts = matches!(kind, Kind::Mosh | Kind::OpenVpn);
            if guess.note(kind.number(payload)) && (!encrypts || is_encrypted && is_examined) {
                self.kind = kind;
            }
        }
        if self.kind == Kind::Udp && is_examined {
            self.judge(is_encrypted);
        }
        if self.kind != before {
            self.looks = Looks::default();
        }
    }

    /// Judges the packets that were examined. Those of a handshake often show text, and the next
    /// ones do not. But some of a plain flow may be compressed: twice in a row is proof.
    fn judge(&mut self, is_encrypted: bool) {
        self.looks = Looks::default();
        if !is_encrypted {
            self.unexamined = EXAMINED << self.failures;
            self.failures = (self.failures + 1).min(MOST_FAILURES);
            self.may_be_encrypted = false;
        } else if self.failures == 0 || self.may_be_encrypted {
            self.kind = Kind::Encrypted;
        } else {
            self.may_be_encrypted = true;
        }
    }

    /// Whether all packets may be control packets of a call.
    pub(super) fn is_control(&self) -> bool {
        !self.is_other
    }

    /// Whether the ends of packets may be alike, so that only the whole of a packet identifies it.
    pub(super) fn may_end_alike(&self) -> bool {
        let is_examined = self.looks.packets() >= EXAMINED;
        let is_plain = is_examined && !self.looks.are_encrypted();
        self.kind.may_end_alike() && (!self.kind.is_robust() || self.looks.end_alike() || is_plain)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Quic => "QUIC",
            Self::Rtp => "RTP",
            Self::WireGuard => "WireGuard",
            Self::Srt => "SRT",
            Self::Rist => "RIST",
            Self::Mosh => "mosh",
            Self::OpenVpn => "OpenVPN",
            Self::Encrypted => "encrypted",
            Self::MpegTs => "MPEG-TS",
            Self::Udp => "UDP",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::flows::tests::encrypted;

    #[test]
    fn the_first_packet_shows_the_kind() {
        let long = [0xc3, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(Kind::of(&long), Kind::Quic);
        let negotiation = [0xc3, 0, 0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(Kind::of(&negotiation), Kind::Udp);
        for (first, len, is_wireguard) in
            [(1, 148, true), (1, 149, false), (2, 92, true), (3, 64, true), (4, 32, true)]
                .into_iter()
                .chain([(4, 30, false), (4, 40, false), (4, 1448, true), (5, 64, false)])
        {
            let packet = [&[first, 0, 0, 0][..], &vec![9; len - 4]].concat();
            assert_eq!(Kind::of(&packet) == Kind::WireGuard, is_wireguard, "{first} {len}");
        }
        let stream = |packets| [&[0x47][..], &[0xff; 187]].concat().repeat(packets);
        assert_eq!(Kind::of(&stream(7)), Kind::MpegTs);
        assert_eq!(Kind::of(&[&stream(6)[..], &[0; 188]].concat()), Kind::Udp);
        let induction = [&[0x80][..], &[0; 18], &[4], &[0; 44]].concat();
        assert_eq!(Kind::of(&induction), Kind::Srt);
        assert_eq!(Kind::of(&[0x30, 0, 0x88, 0xb6, 0, 0, 0, 1]), Kind::Rist);
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

    /// The kind of a flow after so many packets.
    fn classified(packets: impl IntoIterator<Item = Vec<u8>>) -> Kind {
        let mut flow = Classifier::default();
        packets.into_iter().for_each(|packet| flow.note(&packet));
        flow.kind
    }

    #[test]
    fn numbers_and_encryption_show_the_kind() {
        let random = |number: u32| encrypted(number.into())[4..104].to_vec();
        let with = |header: fn(u32) -> Vec<u8>, body: &dyn Fn(u32) -> Vec<u8>| {
            (0..8).map(|number| [header(number), body(number)].concat()).collect::<Vec<_>>()
        };
        let mosh = |number: u32| [&[0; 4][..], &number.to_be_bytes()].concat();
        let openvpn = |number: u32| [&[0x48, 0, 0, 1][..], &number.to_be_bytes()].concat();
        let srt = |number: u32| {
            let message = (0xc000_0000 + number).to_be_bytes();
            [&(900 + number).to_be_bytes()[..], &message, &number.to_be_bytes(), &[7; 4]].concat()
        };
        let none = |_: u32| Vec::new();
        assert_eq!(classified(with(mosh, &random)), Kind::Mosh);
        assert_eq!(classified(with(openvpn, &random)), Kind::OpenVpn);
        assert_eq!(classified(with(none, &random)), Kind::Encrypted);
        assert_eq!(classified(with(srt, &|_| vec![0x47; 188])), Kind::Srt);
        // A counter alone is no sign of these protocols.
        let padded = |_: u32| vec![0; 100];
        assert_eq!(classified(with(mosh, &padded)), Kind::Udp);
        assert_eq!(classified(with(openvpn, &padded)), Kind::Udp);
        let counter =
            |number: u32| [&(0x80 + number).to_le_bytes()[..], &[0; 4], &[1; 4], &[0; 20]].concat();
        assert_eq!(classified((0..60).map(counter)), Kind::Udp, "no RTP");
        // A plain flow whose packets are compressed now and then.
        let mixed = (0..4000_u32).map(|number| match number % 40 {
            20..30 => random(number),
            _ => format!("hello {number}, how are you?").into_bytes(),
        });
        assert_eq!(classified(mixed), Kind::Udp);
        let reset = [&[0x38][..], &[0x9c, 1, 2, 3, 4, 5, 6, 7], &[0; 5]].concat();
        assert_eq!(classified([reset.clone()]), Kind::OpenVpn);
        assert_eq!(classified([b"hello".to_vec(), reset]), Kind::Udp);
        assert_eq!(classified([b"8 metrics of this host".to_vec()]), Kind::Udp);
        // What is not encrypted at first may be so later.
        let text = (0..13_u32).map(|number| format!("hello {number}, how are you?").into_bytes());
        assert_eq!(classified(text.clone()), Kind::Udp);
        let encrypted = (0..40).map(random);
        assert_eq!(classified(text.chain(encrypted)), Kind::Encrypted);
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
