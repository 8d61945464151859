//! A body's length and hash.

use sha2::{Digest as _, Sha256};

/// The digest of the bytes so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Digest {
    bytes: u64,
    hash: Sha256,
}

impl Digest {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.hash.update(bytes);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// SHA-256, in lower-case hexadecimal.
    pub(crate) fn sha256(&self) -> String {
        self.hash.clone().finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
