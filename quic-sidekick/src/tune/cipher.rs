//! The AEAD that a processor is fastest at.

use std::fmt;

/// An AEAD of TLS 1.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cipher {
    /// AES-128-GCM.
    Aes,
    /// ChaCha20-Poly1305.
    ChaCha20,
}

impl Cipher {
    /// The one that BoringSSL puts first on this processor: AES if the processor has instructions
    /// for AES and for carry-less multiplication.
    #[must_use]
    pub fn preferred() -> Self {
        if has_aes() { Self::Aes } else { Self::ChaCha20 }
    }
}

impl fmt::Display for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aes => "AES-128-GCM",
            Self::ChaCha20 => "ChaCha20-Poly1305",
        })
    }
}

#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
fn has_aes() -> bool {
    is_x86_feature_detected!("aes") && is_x86_feature_detected!("pclmulqdq")
}

#[cfg(target_arch = "aarch64")]
fn has_aes() -> bool {
    // Rust's "aes" of AArch64 includes PMULL, the carry-less multiplication.
    std::arch::is_aarch64_feature_detected!("aes")
}

#[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
fn has_aes() -> bool {
    false
}
