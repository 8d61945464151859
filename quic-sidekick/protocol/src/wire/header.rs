//! Fields that datagrams share: version, session numbers, cookies and the seal.

use std::fmt;

/// The protocol version of this crate: the high nibble of every datagram's first byte.
pub(crate) const VERSION: u8 = 1;

/// The length of an X25519 public key, and of a cipher's key, in bytes.
pub(crate) const KEY_LEN: usize = 32;
/// The length of an authentication tag in bytes.
pub(crate) const TAG_LEN: usize = 16;

/// The bytes that a seal adds to a message: the datagram's header and the authentication tag.
pub const SEAL_LEN: usize = 9 + TAG_LEN;

/// A session's number at one of its two sides, which chooses it; the peer puts it in front of each
/// datagram. It distinguishes sessions and proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionNumber(pub u32);

/// A value that a proxy issues, and that the sender repeats, so that the proxy keeps no state
/// (SPEC.md, section 6.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cookie(pub [u8; Cookie::LEN]);

impl Cookie {
    /// Its length in bytes.
    pub const LEN: usize = 20;
    /// The absence of a cookie.
    pub const NONE: Self = Self([0; Self::LEN]);

    /// The MAC, which only the issuing proxy can compute.
    pub(crate) fn mac(&self) -> &[u8; 16] {
        let [_, _, _, _, mac @ ..] = &self.0;
        mac
    }
}

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A cookie is a secret of its holder.
        f.write_str(if *self == Self::NONE { "Cookie(none)" } else { "Cookie(..)" })
    }
}
