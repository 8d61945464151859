//! What datagrams and messages have in common: version, session numbers, cookies and the seal.

use std::fmt;

/// The version that this crate speaks; the high nibble of every datagram's first byte.
pub const VERSION: u8 = 1;

/// What a seal adds to a message: the header of the datagram and the authentication tag.
pub const SEAL_LEN: usize = 9 + 16;

/// Names a session to one of its two sides, which has chosen the number; the other side puts it in
/// front of what it sends. It keeps sessions apart and proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionNumber(pub u32);

/// What a proxy gives to a sender and wants back, instead of remembering it (SPEC.md, section 6.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cookie(pub [u8; Cookie::LEN]);

impl Cookie {
    /// Its length in bytes.
    pub const LEN: usize = 20;
    /// Stands for no cookie.
    pub const NONE: Self = Self([0; Self::LEN]);

    /// The MAC, which only its proxy can compute.
    pub(crate) fn mac(&self) -> &[u8; 16] {
        let [_, _, _, _, mac @ ..] = &self.0;
        mac
    }
}

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Whoever has a cookie can use it.
        f.write_str(if *self == Self::NONE { "Cookie(none)" } else { "Cookie(..)" })
    }
}
