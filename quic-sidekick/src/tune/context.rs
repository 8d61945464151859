//! The facts that an application can know of its connection.

use crate::Mode;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// The end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The end that connects.
    Client,
    /// The end that accepts connections.
    Server,
}

/// The traffic of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Traffic {
    /// Anything.
    #[default]
    Unknown,
    /// Small messages whose time counts.
    Messages,
}

/// The network that this end is attached to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Network {
    /// Any.
    #[default]
    Unknown,
    /// Ethernet or fibre, which lose almost nothing.
    Wired,
    /// Wi-Fi.
    WiFi,
    /// A mobile telephone network.
    Cellular,
    /// Satellites in a low orbit: round trips of some 25 to 120 ms.
    Leo,
    /// A geostationary satellite: round trips of about 600 ms.
    Geo,
}

impl Network {
    /// All networks.
    pub const ALL: [Self; 6] =
        [Self::Unknown, Self::Wired, Self::WiFi, Self::Cellular, Self::Leo, Self::Geo];

    fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Wired => "wired",
            Self::WiFi => "wifi",
            Self::Cellular => "cellular",
            Self::Leo => "leo",
            Self::Geo => "geo",
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text is not the name of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("expected one of unknown, wired, wifi, cellular, leo, geo")]
pub struct ParseNetworkError;

impl FromStr for Network {
    type Err = ParseNetworkError;

    fn from_str(text: &str) -> Result<Self, ParseNetworkError> {
        Self::ALL.into_iter().find(|network| network.name() == text).ok_or(ParseNetworkError)
    }
}

/// Whether and how a connection uses a Sidekick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Help {
    /// As the network suggests.
    #[default]
    Choose,
    /// Not at all.
    Off,
    /// In this mode.
    Mode(Mode),
}

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
