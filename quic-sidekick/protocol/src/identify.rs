//! Which datagrams count, and by which bytes (SPEC.md, section 3). Both sides apply the same rule.

/// How many leading bytes of a UDP payload are enough to identify any datagram.
pub const HEAD_LEN: usize = 25;

/// Which datagrams of the flow count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Filter {
    /// Every datagram that holds an identifier.
    All,
    /// QUIC short-header datagrams alone: the first bit is 0 (RFC 8999, section 5.2).
    #[default]
    QuicShortHeader,
}

/// The rule by which a datagram counts and is named.
///
/// The default is QUIC's: short headers only, and the four bytes at offset 21, which is behind the longest
/// connection ID (1 + 20 bytes) and therefore ciphertext or a protected packet number whatever the ID's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identification {
    /// Where the identifier begins in the UDP payload, in bytes: 0 to [`Identification::MAX_OFFSET`].
    pub offset: u16,
    /// Which datagrams count.
    pub filter: Filter,
}

impl Default for Identification {
    fn default() -> Self {
        Self { offset: 21, filter: Filter::QuicShortHeader }
    }
}

impl Identification {
    /// The largest offset: an identifier must end within the first [`HEAD_LEN`] bytes.
    pub const MAX_OFFSET: u16 = 21;

    /// The identifier of a datagram with payload `head`, of which `payload_len` bytes were sent, or `None` if it does
    /// not count: it is filtered out, or too short to hold the four bytes. `head` may be cut after [`HEAD_LEN`] bytes.
    #[must_use]
    pub fn identifier(&self, head: &[u8], payload_len: usize) -> Option<u32> {
        let first = *head.first()?;
        if self.filter == Filter::QuicShortHeader && first & 0x80 != 0 {
            return None;
        }
        let start = usize::from(self.offset);
        let end = start + 4;
        if payload_len < end {
            return None;
        }
        let bytes: [u8; 4] = head.get(start..end)?.try_into().ok()?;
        Some(u32::from_be_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_short_headers_long_enough_count() {
        let rule = Identification::default();
        let mut head = [0u8; HEAD_LEN];
        head[21..].copy_from_slice(&[1, 2, 3, 4]);
        assert_eq!(rule.identifier(&head, 25), Some(0x0102_0304));
        assert_eq!(rule.identifier(&head, 1200), Some(0x0102_0304), "a cut head names the whole datagram");
        assert_eq!(rule.identifier(&head, 24), None, "padding behind a short payload is not part of it");
        assert_eq!(rule.identifier(&head[..24], 25), None);
        assert_eq!(rule.identifier(&[], 0), None);
        head[0] = 0x80;
        assert_eq!(rule.identifier(&head, 25), None, "long header");
        assert_eq!(Identification { filter: Filter::All, ..rule }.identifier(&head, 25), Some(0x0102_0304));
    }

    #[test]
    fn every_allowed_offset_fits_the_head() {
        let head: Vec<u8> = (0u8..25).collect();
        for offset in 0..=Identification::MAX_OFFSET {
            let o = u8::try_from(offset).unwrap();
            let rule = Identification { offset, filter: Filter::All };
            assert_eq!(rule.identifier(&head, 25), Some(u32::from_be_bytes([o, o + 1, o + 2, o + 3])));
        }
    }
}
