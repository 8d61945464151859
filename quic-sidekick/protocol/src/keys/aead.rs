//! ChaCha20-Poly1305 as Noise uses it, by one of two implementations (SPEC.md, section 4.5).
//!
//! The portable one needs no C compiler, so the crate builds for every target. The feature `ring`
//! chooses ring's, which opens a quACK in a fifth of the instructions: the portable code prepares
//! wide vectors for each message, however short.

use crate::wire::{KEY_LEN, TAG_LEN};

/// The implementation that seals and opens.
#[cfg(feature = "ring")]
pub(super) type SessionCipher = by_ring::Cipher;
#[cfg(not(feature = "ring"))]
pub(super) type SessionCipher = portable::Cipher;

/// The cipher with one key, for messages without associated data.
///
/// An implementation holds the key and nothing derived from it, because a proxy has two of them for
/// each session.
pub(super) trait Aead {
    /// The cipher with this key.
    fn new(key: &[u8; KEY_LEN]) -> Self;

    /// Encrypts a message in place, and returns its tag. Returns `None` for an impossible length.
    fn seal(&self, number: u32, message: &mut [u8]) -> Option<[u8; TAG_LEN]>;

    /// Decrypts a message in place. Returns false if the tag is not that of message and number; the
    /// message is unspecified then.
    #[must_use]
    fn open(&self, number: u32, message: &mut [u8], tag: &[u8; TAG_LEN]) -> bool;
}

/// The nonce of the message with this number: four zero bytes and the number in 64 bits, the lowest
/// byte first (section 12.3 of the Noise specification).
fn nonce(number: u32) -> [u8; 12] {
    let mut nonce = [0; 12];
    let (_, end) = nonce.split_at_mut(4);
    end.copy_from_slice(&u64::from(number).to_le_bytes());
    nonce
}

#[cfg(feature = "ring")]
mod by_ring {
    use super::{Aead, KEY_LEN, TAG_LEN, nonce};
    use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

    pub(in super::super) struct Cipher([u8; KEY_LEN]);

    impl Cipher {
        /// ring makes room for the keys of all its ciphers, half a kilobyte. Making this key for
        /// each message costs a few copies.
        fn key(&self) -> Option<LessSafeKey> {
            UnboundKey::new(&CHACHA20_POLY1305, &self.0).ok().map(LessSafeKey::new)
        }
    }

    impl Aead for Cipher {
        fn new(key: &[u8; KEY_LEN]) -> Self {
            Self(*key)
        }

        fn seal(&self, number: u32, message: &mut [u8]) -> Option<[u8; TAG_LEN]> {
            let nonce = Nonce::assume_unique_for_key(nonce(number));
            let tag = self.key()?.seal_in_place_separate_tag(nonce, Aad::empty(), message).ok()?;
            tag.as_ref().try_into().ok()
        }

        fn open(&self, number: u32, message: &mut [u8], tag: &[u8; TAG_LEN]) -> bool {
            let nonce = Nonce::assume_unique_for_key(nonce(number));
            self.key().is_some_and(|key| {
                key.open_in_place_separate_tag(nonce, Aad::empty(), (*tag).into(), message, 0..)
                    .is_ok()
            })
        }
    }
}

#[cfg(any(test, not(feature = "ring")))]
mod portable {
    use super::{Aead, KEY_LEN, TAG_LEN, nonce};
    use chacha20poly1305::{AeadInPlace, ChaCha20Poly1305, KeyInit};

    pub(in super::super) struct Cipher([u8; KEY_LEN]);

    impl Aead for Cipher {
        fn new(key: &[u8; KEY_LEN]) -> Self {
            Self(*key)
        }

        fn seal(&self, number: u32, message: &mut [u8]) -> Option<[u8; TAG_LEN]> {
            let cipher = ChaCha20Poly1305::new(&self.0.into());
            let tag = cipher.encrypt_in_place_detached(&nonce(number).into(), &[], message);
            Some(tag.ok()?.into())
        }

        fn open(&self, number: u32, message: &mut [u8], tag: &[u8; TAG_LEN]) -> bool {
            let cipher = ChaCha20Poly1305::new(&self.0.into());
            let (nonce, tag) = (nonce(number).into(), (*tag).into());
            cipher.decrypt_in_place_detached(&nonce, &[], message, &tag).is_ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};
    use snow::params::CipherChoice;
    use snow::resolvers::{CryptoResolver, DefaultResolver};

    /// Our ciphers seal the same bytes as snow's, open them, and open no altered bytes.
    fn is_that_of_snow<C: Aead>(key: [u8; KEY_LEN], number: u32, message: &[u8], wrong: usize) {
        let mut oracle = DefaultResolver.resolve_cipher(&CipherChoice::ChaChaPoly).unwrap();
        oracle.set(&key);
        let mut sealed = vec![0; message.len() + TAG_LEN];
        oracle.encrypt(number.into(), &[], message, &mut sealed);

        let cipher = C::new(&key);
        let mut ours = message.to_vec();
        let tag = cipher.seal(number, &mut ours).unwrap();
        assert_eq!([&ours[..], &tag].concat(), sealed);

        let opened = |number, sealed: &[u8]| {
            let (body, tag) = sealed.split_last_chunk().unwrap();
            let mut body = body.to_vec();
            cipher.open(number, &mut body, tag).then_some(body)
        };
        assert_eq!(opened(number, &sealed).as_deref(), Some(message));
        assert_eq!(opened(number ^ 1, &sealed), None, "another number");
        let bits = 8 * sealed.len();
        sealed[wrong % bits / 8] ^= 1 << (wrong % 8);
        assert_eq!(opened(number, &sealed), None, "bit {wrong} of {bits}");
    }

    proptest! {
        #[test]
        fn both_ciphers_are_that_of_noise(
            key: [u8; KEY_LEN],
            number: u32,
            message in vec(any::<u8>(), 0..1100),
            wrong: usize,
        ) {
            is_that_of_snow::<portable::Cipher>(key, number, &message, wrong);
            is_that_of_snow::<SessionCipher>(key, number, &message, wrong);
        }
    }
}
