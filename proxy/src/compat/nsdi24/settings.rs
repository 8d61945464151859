//! The operator's settings for the wire format of NSDI '24.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;

use thiserror::Error;

use crate::packet_info::is_unicast;

/// When the proxy sends a quACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interval {
    /// After this many counted datagrams.
    Packets(NonZeroU32),
    /// Once per this many milliseconds, from the first datagram after the start or a reset on.
    Millis(NonZeroU32),
}

/// The operator's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    pub(crate) quack_to: SocketAddr,
    pub(crate) interval: Interval,
    pub(crate) threshold: u8,
}

/// Why [`Settings`] contradict the other settings of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Conflict {
    /// There is more than one interface, or none.
    #[error(
        "--compat nsdi24 counts on exactly one interface, not on {0}: its wire format has one set \
         of sums"
    )]
    Interfaces(usize),
    /// The destination of quACKs is not a unicast address with a port.
    #[error("--quack-to {0} is not the address and port of one program on one machine")]
    NotUnicast(SocketAddr),
    /// The proxy listens on an address of the other IP version.
    #[error(
        "the proxy cannot send quACKs from {listen} to {quack_to}: choose an address of the same \
         IP version with --listen"
    )]
    OtherFamily {
        /// Where the proxy listens.
        listen: SocketAddr,
        /// The destination of quACKs.
        quack_to: SocketAddr,
    },
    /// The proxy would send quACKs to itself.
    #[error("--quack-to {0} is this proxy itself, and its own quACKs would reset it")]
    Itself(SocketAddr),
}

impl Settings {
    /// Settings for quACKs of `threshold` sums (1 to 255) to this destination.
    #[must_use]
    pub fn new(mut quack_to: SocketAddr, interval: Interval, threshold: u8) -> Self {
        // An IPv4 socket cannot send to an IPv6 address, even to one that maps an IPv4 address.
        if let IpAddr::V4(v4) = quack_to.ip().to_canonical() {
            quack_to.set_ip(v4.into());
        }
        Self { quack_to, interval, threshold }
    }

    /// Checks these settings for a proxy that listens at `listen` and captures on `interfaces`
    /// interfaces.
    ///
    /// # Errors
    /// [`Conflict`] says what is wrong.
    pub fn check(&self, listen: SocketAddr, interfaces: usize) -> Result<(), Conflict> {
        let quack_to = self.quack_to;
        if interfaces != 1 {
            return Err(Conflict::Interfaces(interfaces));
        }
        let to = quack_to.ip();
        if !is_unicast(quack_to) {
            return Err(Conflict::NotUnicast(quack_to));
        }
        // An IPv6 socket that listens on every address also sends and receives IPv4.
        let dual = listen.is_ipv6() && listen.ip().is_unspecified();
        if listen.ip().to_canonical().is_ipv4() != to.is_ipv4() && !dual {
            return Err(Conflict::OtherFamily { listen, quack_to });
        }
        let reaches_us =
            if listen.ip().is_unspecified() { to.is_loopback() } else { to == listen.ip() };
        if reaches_us && quack_to.port() == listen.port() {
            return Err(Conflict::Itself(quack_to));
        }
        Ok(())
    }
}
