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
    /// Early loss, and CUBIC reacts in proportion to the near segment's share of the round-trip
    /// time.
    Pacubic,
    /// Early loss, and BBR2 does not hear of it: losses on the near segment are not held to be
    /// congestion, unless a queue grows there.
    PathAwareBbr,
    /// The packets themselves are sent again, with the same ciphertext; congestion control does not
    /// hear of it, unless a queue grows on the near segment: then they are early losses. A quACK is
    /// asked for every 5 ms at least.
    Reinject,
    /// What has reached the proxy makes room for more, so that the receiver need acknowledge only
    /// now and then; its data is kept until it does. A receiver that offers QUIC ACK frequency is
    /// asked for it, one on this quiche decides for itself. Packets that did not reach the proxy
    /// are early losses. For paths whose bottleneck lies before the proxy, which only the
    /// application can know; without at least half of the round trip there, it does nothing. Not
    /// over BBR2, which goes by acknowledgements.
    AckReduction,
    /// Whichever of [`Reinject`](Self::Reinject) and [`EarlyLoss`](Self::EarlyLoss) fits what is
    /// measured, over BBR2; and the handshake is repeated ([`Config::repeat_handshake`]).
    /// [`Status::chosen`](crate::Status::chosen) tells what is done, and why.
    Auto,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::EarlyLoss,
        Self::Pacubic,
        Self::PathAwareBbr,
        Self::Reinject,
        Self::AckReduction,
        Self::Auto,
    ];

    /// The congestion controller that the mode is made for, as
    /// `quiche::Config::set_cc_algorithm_name` wants it, or `None` if any will do.
    #[must_use]
    pub fn congestion_control(self) -> Option<&'static str> {
        match self {
            Self::EarlyLoss | Self::Reinject => None,
            Self::AckReduction => Some("cubic"),
            Self::Pacubic => Some("cubic-rfc9438"),
            Self::PathAwareBbr | Self::Auto => Some("bbr2_gcongestion"),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::EarlyLoss => "early-loss",
            Self::Pacubic => "pacubic",
            Self::PathAwareBbr => "path-aware-bbr",
            Self::Reinject => "reinject",
            Self::AckReduction => "ack-reduction",
            Self::Auto => "auto",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The longest time between two quACKs in the modes that send packets again.
const REINJECT_EVERY: Duration = Duration::from_millis(5);

/// The text names no mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("expected one of early-loss, pacubic, path-aware-bbr, reinject, ack-reduction, auto")]
pub struct ParseModeError;

impl FromStr for Mode {
    type Err = ParseModeError;

    fn from_str(text: &str) -> Result<Self, ParseModeError> {
        Self::ALL.into_iter().find(|mode| mode.name() == text).ok_or(ParseModeError)
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
    /// A quACK this long after the first unreported packet, if any; whole microseconds. If both are
    /// `None` the proxy refuses.
    pub every: Option<Duration>,
    /// Power sums in a quACK: as many missing packets can be told from one. At least 1.
    pub threshold: u8,
    /// Whether to poll for the last packets of a burst.
    pub poll: bool,
    /// Whether a client sends the datagrams of its handshake again, up to three times, as long as
    /// nothing says that they arrived: a first flight that is lost costs a second else. It takes no
    /// proxy.
    pub repeat_handshake: bool,
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
            repeat_handshake: false,
        }
    }

    /// Whether the handshake is repeated.
    pub(crate) fn repeats_handshake(&self) -> bool {
        self.repeat_handshake || self.mode == Mode::Auto
    }

    /// Whether packets may be sent again as they were.
    pub(crate) fn reinjects(&self) -> bool {
        matches!(self.mode, Mode::Reinject | Mode::Auto)
    }

    pub(crate) fn sender(&self) -> SenderConfig {
        // What is sent again has to arrive before the receiver's word, also when a quACK is lost.
        let every = match self.mode {
            Mode::Reinject | Mode::Auto => {
                Some(self.every.map_or(REINJECT_EVERY, |every| every.min(REINJECT_EVERY)))
            }
            _ => self.every,
        };
        let terms = Terms {
            threshold: self.threshold.max(1),
            every_packets: self.every_packets,
            every,
            ..Terms::default()
        };
        SenderConfig {
            proxy: self.proxy,
            key: self.key,
            terms,
            poll: self.poll,
            ..SenderConfig::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_controllers_exist() {
        for mode in Mode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
            let mut config = quiche::Config::new(quiche::PROTOCOL_VERSION).unwrap();
            if let Some(name) = mode.congestion_control() {
                config.set_cc_algorithm_name(name).unwrap();
            }
        }
        assert_eq!("cubic".parse::<Mode>(), Err(ParseModeError));
    }
}
