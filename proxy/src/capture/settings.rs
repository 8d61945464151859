//! How to capture on an interface.

use clap::ValueEnum;
use serde::Serialize;

/// The most bytes in the name of an interface, by `IFNAMSIZ` of Linux.
const MAX_NAME: usize = 15;

/// How a capture reads packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// By a ring that the kernel shares, or by pnet if the kernel grants no ring
    #[default]
    Auto,
    /// By a ring that the kernel shares: no system call for a packet
    Ring,
    /// By the library pnet: two system calls for each packet
    Pnet,
}

/// Which packets of an interface a capture shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Those that leave, behind the interface's queueing discipline.
    Leaving,
    Arriving,
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

/// Checks the name of an interface, as an operator writes it.
///
/// # Errors
/// What is wrong with the name.
pub(crate) fn interface_name(name: &str) -> Result<String, String> {
    if name.is_empty() {
        return Err("the name is empty: leave it out".to_owned());
    }
    // Linux allows other control characters. But nobody wants them in an operator's terminal.
    let is_refused = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | ':' | '%');
    if name.len() > MAX_NAME || name.contains(is_refused) || matches!(name, "." | "..") {
        return Err("no interface can have this name: `ip link` lists those of this machine".into());
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_has_a_name_that_linux_allows() {
        for name in ["lo", "eth1.100", "br-lan@x", "fifteen-letters"] {
            assert_eq!(interface_name(name).as_deref(), Ok(name));
        }
        for name in [
            "",
            "sixteen-letters-",
            "near far",
            "../eth0",
            "..",
            "eth0:1",
            "tun%d",
            "a\0",
            "a\u{1b}c",
        ] {
            assert!(interface_name(name).is_err(), "{name:?}");
        }
    }
}
