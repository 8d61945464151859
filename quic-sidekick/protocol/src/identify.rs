//! Which datagrams count, and which bytes identify them (SPEC.md, section 3). Both sides apply the
//! same rule.

use crate::wire::discovery::{Answer, Marker};
use std::net::SocketAddr;

/// The number of leading bytes of a UDP payload that are enough to identify any datagram by an
/// offset.
pub const HEAD_LEN: usize = 25;

/// The known part of a UDP payload: its length, its first bytes and perhaps its last four.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    head: &'a [u8],
    tail: Option<[u8; 4]>,
    len: usize,
}

impl<'a> Payload<'a> {
    /// A complete payload.
    #[inline]
    #[must_use]
    pub fn whole(payload: &'a [u8]) -> Self {
        Self { head: payload, tail: payload.last_chunk().copied(), len: payload.len() }
    }

    /// A payload of `len` bytes of which only `head` was kept: at least its first [`HEAD_LEN`]
    /// bytes, or all if it is shorter. Its last four bytes are unknown.
    #[inline]
    #[must_use]
    pub fn cut(head: &'a [u8], len: usize) -> Self {
        Self { head: head.get(..len).unwrap_or(head), tail: None, len }
    }

    /// All bytes, if they are known.
    #[must_use]
    pub fn bytes(&self) -> Option<&'a [u8]> {
        (self.head.len() == self.len).then_some(self.head)
    }

    /// The leading bytes that are known.
    pub(crate) fn head(&self) -> &'a [u8] {
        self.head
    }

    /// The payload's length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// Which datagrams of the flow count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Filter {
    /// Every datagram that holds an identifier.
    All,
    /// Only QUIC short-header datagrams: the first bit is 0 (RFC 8999, section 5.2).
    #[default]
    QuicShortHeader,
}

/// Where the identifier lies in the UDP payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// At this byte offset, 0 to [`Position::MAX_OFFSET`].
    Offset(u16),
    /// The payload's last four bytes: the end of an authentication tag, in SRTP and WireGuard for
    /// example.
    End,
    /// None: the identifier is a hash of the whole payload, FNV-1a, for datagrams that are not
    /// encrypted and may end alike. It costs a multiplication per byte.
    Whole,
}

impl Position {
    /// The largest offset: an identifier must end within the first [`HEAD_LEN`] bytes.
    pub const MAX_OFFSET: u16 = 21;

    /// The identifier of a copy, of which all bytes are known: the last four bytes, unless the hash
    /// identifies datagrams (SPEC.md, section 2).
    #[must_use]
    pub fn of_copy(self, datagram: &[u8]) -> Option<u32> {
        match self {
            Self::Whole => (!datagram.is_empty()).then(|| fnv1a(datagram)),
            Self::Offset(_) | Self::End => {
                datagram.last_chunk().map(|bytes| u32::from_be_bytes(*bytes))
            }
        }
    }
}

/// The hash of Fowler, Noll and Vo of 32 bits, in its variant 1a. Payloads that differ in one byte
/// always have different hashes.
fn fnv1a(bytes: &[u8]) -> u32 {
    const OFFSET_BASIS: u32 = 0x811c_9dc5;
    const PRIME: u32 = 0x0100_0193;
    bytes.iter().fold(OFFSET_BASIS, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(PRIME))
}

/// The rule that decides whether a datagram counts, and by which identifier.
///
/// The default is for QUIC: short headers only, and the four bytes at offset 21. That offset lies
/// behind the longest connection ID (1 + 20 bytes), so the bytes are ciphertext or a protected
/// packet number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identification {
    /// Where the identifier lies.
    pub position: Position,
    /// Which datagrams count.
    pub filter: Filter,
}

impl Default for Identification {
    fn default() -> Self {
        Self { position: Position::Offset(21), filter: Filter::QuicShortHeader }
    }
}

impl Identification {
    /// The identifier of a datagram, or `None` if the datagram does not count. It does not count if
    /// the filter rejects it, if it is a marker or an answer of any version, if it is too short to
    /// hold the four bytes, if they are unknown, or if they are zeros at the end: QUIC pads some
    /// datagrams behind their packets, and these end alike.
    #[inline]
    #[must_use]
    pub fn identifier(&self, payload: Payload<'_>) -> Option<u32> {
        let first = *payload.head.first()?;
        if self.filter == Filter::QuicShortHeader && first & 0x80 != 0 {
            return None;
        }
        if Marker::is_one(payload.head) || Answer::is_one(payload.head) {
            return None;
        }
        let bytes = match self.position {
            Position::Offset(offset) => {
                let start = usize::from(offset);
                // `head` may be longer than the payload.
                payload
                    .head
                    .get(start..start + 4)
                    .filter(|_| start + 4 <= payload.len)?
                    .try_into()
                    .ok()?
            }
            Position::End => payload.tail.filter(|tail| *tail != [0; 4])?,
            Position::Whole => return payload.bytes().map(fnv1a),
        };
        Some(u32::from_be_bytes(bytes))
    }

    /// Whether a datagram counts, but its identifier is in the part that was not kept.
    #[must_use]
    pub fn is_hidden(&self, payload: Payload<'_>) -> bool {
        let passes = match (self.filter, payload.head.first()) {
            (Filter::QuicShortHeader, Some(first)) => first & 0x80 == 0,
            (Filter::All, first) => first.is_some(),
            (Filter::QuicShortHeader, None) => false,
        };
        let end = match self.position {
            Position::Offset(offset) => usize::from(offset) + 4,
            Position::End => payload.len.max(4),
            Position::Whole => payload.len,
        };
        passes && payload.head.len() < end && end <= payload.len
    }
}

/// The two endpoints of a UDP flow, in the direction of its packets, as the proxy sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// The packets' source.
    pub source: SocketAddr,
    /// Their destination.
    pub destination: SocketAddr,
}

impl Flow {
    /// The flow as it is on the wire: with IPv4 addresses in place of IPv4-mapped IPv6 ones, and
    /// without scope and flow label.
    #[must_use]
    pub fn canonical(self) -> Self {
        Self { source: canonical(self.source), destination: canonical(self.destination) }
    }

    /// The flow of the packets in the other direction.
    #[must_use]
    pub fn reversed(&self) -> Self {
        Self { source: self.destination, destination: self.source }
    }
}

/// The address without scope and flow label, and as IPv4 if it is IPv4-mapped.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_short_headers_of_sufficient_length_count() {
        let rule = Identification::default();
        let mut head = [0u8; HEAD_LEN];
        head[21..].copy_from_slice(&[1, 2, 3, 4]);
        let identifier = |head: &[u8], len| rule.identifier(Payload::cut(head, len));
        assert_eq!(identifier(&head, 25), Some(0x0102_0304));
        assert_eq!(
            identifier(&head, 1200),
            Some(0x0102_0304),
            "a cut head identifies the datagram"
        );
        assert_eq!(identifier(&head, 24), None, "padding behind a short payload is not part of it");
        assert_eq!(identifier(&head[..24], 25), None);
        assert_eq!(identifier(&[], 0), None);
        head[0] = 0x80;
        assert_eq!(rule.identifier(Payload::whole(&head)), None, "long header");
        let all = Identification { filter: Filter::All, ..rule };
        assert_eq!(all.identifier(Payload::whole(&head)), Some(0x0102_0304));
    }

    #[test]
    fn every_allowed_offset_fits_the_head() {
        let head: Vec<u8> = (0u8..25).collect();
        for offset in 0..=Position::MAX_OFFSET {
            let o = u8::try_from(offset).unwrap();
            let rule = Identification { position: Position::Offset(offset), filter: Filter::All };
            let expected = u32::from_be_bytes([o, o + 1, o + 2, o + 3]);
            assert_eq!(rule.identifier(Payload::cut(&head, 1200)), Some(expected));
        }
    }

    #[test]
    fn a_hash_tells_datagrams_apart_that_end_alike() {
        // Two of its authors' test values.
        assert_eq!((fnv1a(b"a"), fnv1a(b"foobar")), (0xe40c_292c, 0xbf9c_f968));
        let rule = Identification { position: Position::Whole, filter: Filter::All };
        let identifier = |payload: &[u8]| rule.identifier(Payload::whole(payload));
        let seen: std::collections::HashSet<_> = (0..1000_u16)
            .map(|number| identifier(&[&number.to_be_bytes()[..], &[0; 100]].concat()))
            .collect();
        assert_eq!(seen.len(), 1000);
        assert_eq!(identifier(b""), None);
        assert_eq!(identifier(b"a"), Some(0xe40c_292c), "shorter than four bytes");
        assert_eq!(Position::Whole.of_copy(b"a"), Some(0xe40c_292c));
        let cut = Payload::cut(&[7; 25], 100);
        assert_eq!((rule.identifier(cut), rule.is_hidden(cut)), (None, true));
    }

    #[test]
    fn markers_and_answers_of_any_version_do_not_count() {
        let rule = Identification { position: Position::End, filter: Filter::All };
        for (first, name, counts) in [
            (5, b"Sidekick", false),
            (6, b"Sidekick", false),
            (7, b"Sidekick", true),
            (5, b"sidekick", true),
        ] {
            for version in [1, 2, 255] {
                let datagram = [&[first][..], &[9; 20], name, &[version], &[7; 98]].concat();
                let identifier = rule.identifier(Payload::whole(&datagram));
                assert_eq!(identifier.is_some(), counts, "{first}, {name:?}, {version}");
            }
        }
    }

    #[test]
    fn the_last_four_bytes_must_be_known() {
        let rule = Identification { position: Position::End, filter: Filter::All };
        let payload: Vec<u8> = (0u8..100).collect();
        assert_eq!(rule.identifier(Payload::whole(&payload)), Some(0x6061_6263));
        assert_eq!(rule.identifier(Payload::whole(&payload[..4])), Some(0x0001_0203));
        assert_eq!(rule.identifier(Payload::whole(&payload[..3])), None);
        assert_eq!(rule.identifier(Payload::cut(&payload[..25], 100)), None);
    }
}
