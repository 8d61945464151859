//! Why a capture cannot start, or has ended.

use std::io;

use thiserror::Error;

use super::settings::Direction;
use crate::offload;

/// Why a capture cannot start, or has ended.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// No interface has this name.
    #[error("there is no interface {name} here; this machine has {available}")]
    NoSuchInterface {
        /// The name that the operator gave.
        name: String,
        /// The names that exist, separated by commas.
        available: String,
    },
    /// The process must not open packet sockets.
    #[error(
        "capturing requires the CAP_NET_RAW capability: run as root, or grant it once with \
         `setcap cap_net_raw+ep {program}`"
    )]
    NotPermitted {
        /// The path of this program.
        program: String,
    },
    /// The interface carries neither Ethernet frames nor bare IP packets.
    #[error(
        "{name} has link type {hardware}, which is neither Ethernet nor bare IP: capture on \
         another interface"
    )]
    UnsupportedLink {
        /// The interface.
        name: String,
        /// Its `ARPHRD_` number.
        hardware: u16,
    },
    /// The interface was removed during the capture.
    #[error("interface {name} has disappeared")]
    Gone {
        /// The interface.
        name: String,
    },
    /// The interface has another name now. Settings, such as addresses to announce, go by the name.
    #[error(
        "interface {name} is called {now} now: nothing is captured there until an interface has \
         the name {name}; rename it back, or write {now} into the configuration and restart"
    )]
    Renamed {
        /// The name that the operator gave.
        name: String,
        /// The name that it has now.
        now: String,
    },
    /// The kernel no longer fills the slots of the ring.
    #[error(
        "the ring of {name} is stuck, as Linux leaves it after a merged frame that it cannot \
         describe; {}",
        offload::advice(name, *direction)
    )]
    Stuck {
        /// The interface.
        name: String,
        /// What was captured there.
        direction: Direction,
    },
    /// The kernel refuses the filter that selects what to copy.
    #[error("the kernel refuses the filter of what to copy on {name}: {cause}")]
    Filter {
        /// The interface.
        name: String,
        /// The error of the system.
        cause: io::Error,
    },
    /// The packet socket failed in another way.
    #[error("capturing on {name} failed: {cause}")]
    Socket {
        /// The interface.
        name: String,
        /// The error of the system.
        cause: io::Error,
    },
}

impl CaptureError {
    /// A sentence for the log of a program whose capture has ended: why, and when `what` resumes.
    pub(crate) fn ended(&self, what: &str) -> String {
        match self {
            // It tells that by itself.
            Self::Renamed { .. } => self.to_string(),
            _ => format!("{self}; {what} resumes when that is possible"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_that_ended_says_once_when_it_resumes() {
        let name = || "eth0".to_owned();
        assert_eq!(
            CaptureError::Gone { name: name() }.ended("help"),
            "interface eth0 has disappeared; help resumes when that is possible"
        );
        assert_eq!(
            CaptureError::Renamed { name: name(), now: "wan0".to_owned() }.ended("help"),
            "interface eth0 is called wan0 now: nothing is captured there until an interface has \
             the name eth0; rename it back, or write wan0 into the configuration and restart"
        );
    }
}
