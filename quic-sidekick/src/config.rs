//! What the application chooses.

use sidekick_protocol::{PublicKey, SenderConfig, Terms};
use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;

/// What is done with the packets that a proxy did not see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Their frames are resent at once; congestion control reacts as to any loss.
    EarlyLoss,
    /// Early loss, and CUBIC reacts in proportion to the near segment's share of the round-trip time.
    Pacubic,
    /// Early loss, and BBR2 does not hear of it: losses on the near segment are not held to be congestion.
    PathAwareBbr,
}

impl Mode {
    /// The congestion controller that the mode is made for, as `quiche::Config::set_cc_algorithm_name` wants it, or
    /// `None` if any will do.
    #[must_use]
    pub fn congestion_control(self) -> Option<&'static str> {
        match self {
            Self::EarlyLoss => None,
            Self::Pacubic => Some("cubic-rfc9438"),
            Self::PathAwareBbr => Some("bbr2_gcongestion"),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::EarlyLoss => "early-loss",
            Self::Pacubic => "pacubic",
            Self::PathAwareBbr => "path-aware-bbr",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text names no mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("expected one of early-loss, pacubic, path-aware-bbr")]
pub struct ParseModeError;

impl FromStr for Mode {
    type Err = ParseModeError;

    fn from_str(text: &str) -> Result<Self, ParseModeError> {
        let modes = [Self::EarlyLoss, Self::Pacubic, Self::PathAwareBbr];
        modes.into_iter().find(|mode| mode.name() == text).ok_or(ParseModeError)
    }
}

/// Which proxy to ask for what.
#[derive(Clone, Debug)]
pub struct Config {
    /// The proxy's address; `None` to find proxies by markers on the connection's own path.
    pub proxy: Option<SocketAddr>,
    /// The key of the proxy that is believed; `None` to believe any that is on the path.
    pub key: Option<PublicKey>,
    /// What is done with its reports.
    pub mode: Mode,
    /// A quACK after this many packets, if any.
    pub every_packets: Option<NonZeroU16>,
    /// A quACK this long after the first unreported packet, if any; whole microseconds. If both are `None` the proxy
    /// refuses.
    pub every: Option<Duration>,
    /// Power sums in a quACK: as many missing packets can be told from one. At least 1.
    pub threshold: u8,
    /// Whether to poll for the last packets of a burst.
    pub poll: bool,
}

impl Config {
    /// The usual terms of the proxy at this address: a quACK of 20 sums every 30 ms, and polls.
    #[must_use]
    pub fn new(proxy: SocketAddr, mode: Mode) -> Self {
        Self { proxy: Some(proxy), ..Self::discover(mode) }
    }

    /// The usual terms of whatever proxy is found on the connection's path.
    #[must_use]
    pub fn discover(mode: Mode) -> Self {
        let terms = Terms::default();
        Self {
            proxy: None,
            key: None,
            mode,
            every_packets: terms.every_packets,
            every: terms.every,
            threshold: terms.threshold,
            poll: true,
        }
    }

    pub(crate) fn sender(&self) -> SenderConfig {
        let terms = Terms {
            threshold: self.threshold.max(1),
            every_packets: self.every_packets,
            every: self.every,
            ..Terms::default()
        };
        SenderConfig { proxy: self.proxy, key: self.key, terms, poll: self.poll, ..SenderConfig::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_controllers_exist() {
        for mode in [Mode::EarlyLoss, Mode::Pacubic, Mode::PathAwareBbr] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
            let mut config = quiche::Config::new(quiche::PROTOCOL_VERSION).unwrap();
            if let Some(name) = mode.congestion_control() {
                config.set_cc_algorithm_name(name).unwrap();
            }
        }
        assert_eq!("cubic".parse::<Mode>(), Err(ParseModeError));
    }
}
