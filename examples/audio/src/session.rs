//! The agreement of both ends before a call: the key and the payload types.

#[cfg(feature = "programs")]
mod sdp;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
#[cfg(feature = "programs")]
pub use sdp::Description;
use std::fmt;

/// The length in bytes of a master key and salt of AES_CM_128_HMAC_SHA1_80 (RFC 4568, section
/// 6.2.1).
pub const KEY_LEN: usize = 30;

/// The media clock of Opus in RTP, in hertz (RFC 7587, section 4.1).
pub const CLOCK_RATE: u32 = 48_000;

/// An SRTP master key (16 bytes) and master salt (14 bytes). Its holder can read and forge the
/// call's packets.
#[derive(Clone, PartialEq, Eq)]
pub struct MasterKey([u8; KEY_LEN]);

impl MasterKey {
    /// The key of these bytes. They must be random and new for each call: two calls under one key
    /// may reveal their content.
    #[must_use]
    pub fn new(bytes: [u8; KEY_LEN]) -> Self {
        Self(bytes)
    }

    /// The key of a simulation that repeats itself. It is not secret.
    #[must_use]
    pub fn of_simulation(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        // The contents of packets use the streams below.
        random.set_stream(u64::MAX);
        let mut bytes = [0; KEY_LEN];
        random.fill_bytes(&mut bytes);
        Self(bytes)
    }

    /// The key, 16 bytes.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.0.split_at(16).0
    }

    /// The salt, 14 bytes.
    #[must_use]
    pub fn salt(&self) -> &[u8] {
        self.0.split_at(16).1
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey(..)")
    }
}

/// The SSRCs of a talker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sources {
    /// Of the media.
    pub media: u32,
    /// Of the retransmissions.
    pub rtx: u32,
}

/// The CNAME, which both SSRCs of a talker share. RFC 7022 only requires that it is unique.
pub(crate) fn cname(media: u32) -> String {
    format!("audio-{media:08x}")
}

/// The content of a stream's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Opus (RFC 7587).
    Opus,
    /// Random bytes, which cannot be played.
    Random,
}

/// The agreement of both ends of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Protects everything that either end sends. Their SSRCs separate the key streams (RFC 3711,
    /// section 9.1).
    pub key: MasterKey,
    /// The most packets that either end protects with it, for SRTP and SRTCP each (RFC 4568,
    /// section 6.1).
    pub lifetime: Option<u64>,
    /// The payload type of media.
    pub payload_type: u8,
    /// The payload type of retransmissions (RFC 4588). Without one, packets are
    /// retransmitted unchanged.
    pub rtx_payload_type: Option<u8>,
    /// Their content.
    pub encoding: Encoding,
}

impl Session {
    /// A session with payload type 96, and 97 for retransmissions: dynamic ones (RFC 3551, section
    /// 6).
    #[must_use]
    pub fn new(key: MasterKey, encoding: Encoding) -> Self {
        Self { key, lifetime: None, payload_type: 96, rtx_payload_type: Some(97), encoding }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_two_parts_and_are_not_shown() {
        let key = MasterKey::of_simulation(7);
        assert_eq!((key.key().len(), key.salt().len()), (16, 14));
        assert_eq!(format!("{key:?}"), "MasterKey(..)");
        assert_ne!(key, MasterKey::of_simulation(8));
    }
}
