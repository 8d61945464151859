//! How to capture on an interface.

use serde::Deserialize;

/// How a capture reads packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// By a ring, or by pnet if the kernel grants no ring.
    #[default]
    Auto,
    /// By a ring that the kernel shares: no system call for a packet.
    Ring,
    /// By the library pnet: two system calls for each packet.
    Pnet,
}

impl Backend {
    /// The backend's name on the command line and in files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Ring => "ring",
            Self::Pnet => "pnet",
        }
    }
}

/// How to capture on an interface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// How the captures read packets.
    pub backend: Backend,
    /// Whether to capture frames for other machines, too.
    pub promiscuous: bool,
    /// Bytes of packets that may wait for each thread.
    pub buffer: usize,
    /// Threads that share the packets.
    pub threads: u16,
}
