//! What both ends of a call have to know before it begins: the key, and which packets are which.

mod sdp;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
pub(crate) use sdp::cname;
pub use sdp::{Description, SdpError, Sources};
use std::fmt;

/// Bytes of an SRTP master key of AES_CM_128_HMAC_SHA1_80 with its master salt (RFC 4568, section
/// 6.2.1).
pub const KEY_LEN: usize = 30;

/// Media clock of Opus in RTP, in hertz, whatever it was fed with (RFC 7587, section 4.1).
pub const CLOCK_RATE: u32 = 48_000;

/// An SRTP master key (16 bytes) and master salt (14 bytes). Who has it can hear the call and speak
/// in it.
#[derive(Clone, PartialEq, Eq)]
pub struct MasterKey([u8; KEY_LEN]);

impl MasterKey {
    /// The key of these bytes. Draw them at random for each call: two calls under one key may give
    /// their content away.
    #[must_use]
    pub fn new(bytes: [u8; KEY_LEN]) -> Self {
        Self(bytes)
    }

    /// The key of a simulation that is to repeat itself. It is no secret.
    #[must_use]
    pub fn of_simulation(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        // The contents of packets are drawn from the streams below.
        random.set_stream(u64::MAX);
        let mut bytes = [0; KEY_LEN];
        random.fill_bytes(&mut bytes);
        Self(bytes)
    }

    /// The key as it stands behind `inline:` in SDP.
    pub(crate) fn to_inline(&self) -> String {
        STANDARD.encode(self.0)
    }

    /// Reads what [`MasterKey::to_inline`] wrote.
    pub(crate) fn from_inline(text: &str) -> Option<Self> {
        STANDARD.decode(text).ok()?.try_into().ok().map(Self)
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

/// What the packets of a stream carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Opus (RFC 7587).
    Opus,
    /// Random bytes that nobody can play.
    Random,
}

/// What both ends of a call have agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Protects everything that either end sends; their SSRCs keep the key streams apart (RFC 3711,
    /// section 9.1).
    pub key: MasterKey,
    /// No more packets than this are protected with it by either end, SRTP and SRTCP counted apart,
    /// if the description says so (RFC 4568, section 6.1).
    pub lifetime: Option<u64>,
    /// Payload type of packets sent for the first time.
    pub payload_type: u8,
    /// Payload type of retransmissions (RFC 4588). Without one the other end sends none.
    pub rtx_payload_type: Option<u8>,
    /// What is in them.
    pub encoding: Encoding,
}

impl Session {
    /// Opus as payload type 96, its retransmissions as 97: of the dynamic ones (RFC 3551, section
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
    fn keys_read_back_and_are_not_shown() {
        let key = MasterKey::of_simulation(7);
        assert_eq!(MasterKey::from_inline(&key.to_inline()), Some(key.clone()));
        assert_eq!((key.key().len(), key.salt().len()), (16, 14));
        assert_eq!(format!("{key:?}"), "MasterKey(..)");
        assert_ne!(key, MasterKey::of_simulation(8));
        for wrong in ["", "AAAA", "not base64!", &"A".repeat(44)] {
            assert_eq!(MasterKey::from_inline(wrong), None, "{wrong}");
        }
    }
}
