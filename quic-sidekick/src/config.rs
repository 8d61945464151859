//! The application's choices: the mode, the proxy, and the terms.

use crate::receive::ReceiveRepair;
use sidekick_protocol::policy::Carry;
use sidekick_protocol::{PublicKey, SenderConfig, Terms};
use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;

/// How the connection uses a proxy's reports. [`Auto`](Self::Auto) suits most connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// [`Reinject`](Self::Reinject) over BBR2. While a queue stands on the near segment, or nothing
    /// is measured yet, lost packets are early losses instead: the connection resends their frames
    /// at once, and congestion control reacts as to any loss. While congestion causes more than
    /// three tenths of the losses, in the mean over some sixteen reports, it also resends the
    /// frames of the others, and BBR2 does not hear of these. What the connection receives is
    /// helped as in [`Receive`](Self::Receive). A client also repeats its handshake
    /// ([`Config::repeat_handshake`]). [`Status::chosen`](crate::Status::chosen) judges the latest
    /// loss alone: it names early loss where more than half of the losses are congestion.
    Auto,
    /// Help for what a client receives. A proxy repeats the datagrams that the near segment lost.
    /// The connection holds acknowledgements until the gap is filled, so that the server detects no
    /// loss. What the client sends is helped as in [`Reinject`](Self::Reinject).
    /// [`Status::received`](crate::Status::received) has the counters.
    Receive,
    /// The connection re-injects the lost packets: it sends their datagrams another time, with the
    /// same ciphertext. Congestion control does not learn of the loss. While a queue stands on the
    /// near segment, the packets are early losses instead. The sender requests a quACK every 5 ms
    /// or more often, and fewer while nothing is lost ([`sparse`](field@Config::sparse)).
    Reinject,
    /// A mode that researchers published, for comparisons. Needs the feature `paper`.
    #[cfg_attr(not(feature = "paper"), doc(hidden))]
    Paper(Paper),
}

/// The modes that researchers published. Needs the feature `paper`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Paper {
    /// The connection resends the frames of lost packets at once. Congestion control reacts as to
    /// any loss.
    EarlyLoss,
    /// Early loss, and CUBIC reacts in proportion to the near segment's share of the round-trip
    /// time.
    Pacubic,
    /// Early loss, and BBR2 does not learn of it. Losses on the near segment count as congestion
    /// only while a queue stands there.
    PathAwareBbr,
    /// Packets that reached the proxy free the congestion window, so the receiver may acknowledge
    /// seldom. The connection keeps their data until it does. It requests fewer acknowledgements
    /// from a receiver that offers QUIC ACK frequency. A receiver on this quiche decides for
    /// itself. Packets that did not reach the proxy are early losses.
    ///
    /// Use it for paths whose bottleneck lies before the proxy, which only the application can
    /// know. With half of the round trip or less before the proxy, the mode does nothing. Do not
    /// use it over BBR2, which measures by acknowledgements.
    AckReduction,
}

impl Mode {
    /// All modes.
    pub const ALL: &[Self] = &[
        Self::Auto,
        Self::Receive,
        Self::Reinject,
        #[cfg(feature = "paper")]
        Self::Paper(Paper::EarlyLoss),
        #[cfg(feature = "paper")]
        Self::Paper(Paper::Pacubic),
        #[cfg(feature = "paper")]
        Self::Paper(Paper::PathAwareBbr),
        #[cfg(feature = "paper")]
        Self::ACK_REDUCTION,
    ];
    pub(crate) const ACK_REDUCTION: Self = Self::Paper(Paper::AckReduction);

    /// The name of the mode's congestion controller, for `quiche::Config::set_cc_algorithm_name`;
    /// `None` if the mode works with any.
    #[must_use]
    pub fn congestion_control(self) -> Option<&'static str> {
        match self {
            Self::Reinject | Self::Receive | Self::Paper(Paper::EarlyLoss) => None,
            Self::Auto | Self::Paper(Paper::PathAwareBbr) => Some("bbr2_gcongestion"),
            Self::Paper(Paper::Pacubic) => Some("cubic-rfc9438"),
            Self::ACK_REDUCTION => Some("cubic"),
        }
    }

    /// Whether the mode works as documented over this congestion controller, by the name that
    /// `quiche::Config::set_cc_algorithm_name` knows.
    #[must_use]
    pub fn suits(self, controller: &str) -> bool {
        if self == Self::ACK_REDUCTION {
            // BBR2 measures by the acknowledgements that this mode makes rare.
            return controller != "bbr2_gcongestion";
        }
        self.congestion_control().is_none_or(|own| own == controller)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Receive => "receive",
            Self::Reinject => "reinject",
            Self::Paper(Paper::EarlyLoss) => "early-loss",
            Self::Paper(Paper::Pacubic) => "pacubic",
            Self::Paper(Paper::PathAwareBbr) => "path-aware-bbr",
            Self::ACK_REDUCTION => "ack-reduction",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The longest interval between two quACKs in the modes that re-inject.
const REINJECT_EVERY: Duration = Duration::from_millis(5);

/// The longest interval between two quACKs while nothing is lost is a quarter of the path's round
/// trip, and at most this. It delays the repair of a first loss by no more.
const SPARSE: Duration = Duration::from_millis(20);
const SPARSE_ROUND: u32 = 4;

/// How long a proxy is asked to keep copies: for many near round trips.
const KEEP: Duration = Duration::from_millis(300);

/// The text is not the name of a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("expected one of {}", names())]
pub struct ParseModeError;

fn names() -> String {
    Mode::ALL.iter().map(|mode| mode.name()).collect::<Vec<_>>().join(", ")
}

impl FromStr for Mode {
    type Err = ParseModeError;

    fn from_str(text: &str) -> Result<Self, ParseModeError> {
        Self::ALL.iter().copied().find(|mode| mode.name() == text).ok_or(ParseModeError)
    }
}

/// The proxy, the mode, and the terms that the sender requests.
#[derive(Clone, Debug)]
pub struct Config {
    /// The proxy's address, of the IP version of the connection; `None` to discover proxies by
    /// markers on the connection's own path.
    pub proxy: Option<SocketAddr>,
    /// The public key that the proxy must have; `None` to accept any proxy on the path.
    pub key: Option<PublicKey>,
    /// How the connection uses its reports.
    pub mode: Mode,
    /// The number of packets per quACK; `None` for no limit.
    pub every_packets: Option<NonZeroU16>,
    /// The longest time from the first unreported packet to a quACK, in whole microseconds; `None`
    /// for no limit. In the modes `auto`, `reinject` and `receive` it is 5 ms at most while packets
    /// are lost. In the other modes, the proxy refuses if both limits are `None`.
    pub every: Option<Duration>,
    /// The number of power sums in a quACK: the most missing packets that it can identify. At least
    /// 1.
    pub threshold: u8,
    /// Whether the sender polls the proxy after the last packets of a burst.
    pub poll: bool,
    /// Whether the sender asks for fewer quACKs while nothing is lost. The mode `ack-reduction`
    /// never does: its quACKs stand for acknowledgements.
    pub sparse: bool,
    /// Whether a client repeats the datagrams of its handshake, up to three times, until something
    /// shows that they arrived. A lost first flight otherwise costs one second. Needs no proxy.
    pub repeat_handshake: bool,
    /// How a proxy repairs what the connection receives, in the modes that help it.
    pub receive_repair: ReceiveRepair,
    /// What a second uplink ([`Driver::attach_second`](crate::Driver::attach_second)) carries while
    /// the first is silent, in the modes `auto` and `receive`; by default nothing. The bytes are
    /// those of one connection. To notice the silence, the sender asks for more quACKs, so leave it
    /// out without a second uplink.
    pub carry: Carry,
}

impl Config {
    /// The default terms for the proxy at this address, which must be of the connection's IP
    /// version: a quACK of 20 sums every 30 ms, or 5 ms in the modes that re-inject, and polls.
    /// While nothing is lost, quACKs are fewer ([`sparse`](field@Config::sparse)).
    #[must_use]
    pub fn new(proxy: SocketAddr, mode: Mode) -> Self {
        Self { proxy: Some(proxy), ..Self::discover(mode) }
    }

    /// The default terms for any proxy that is discovered on the connection's path.
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
            sparse: true,
            repeat_handshake: false,
            receive_repair: ReceiveRepair::Auto,
            carry: Carry::default(),
        }
    }

    /// Whether a client repeats its handshake.
    pub(crate) fn repeats_handshake(&self) -> bool {
        self.repeat_handshake || matches!(self.mode, Mode::Auto | Mode::Receive)
    }

    /// Whether the connection may re-inject packets.
    pub(crate) fn reinjects(&self) -> bool {
        matches!(self.mode, Mode::Reinject | Mode::Auto | Mode::Receive)
    }

    /// Whether what the connection receives is helped.
    pub(crate) fn receives(&self) -> bool {
        matches!(self.mode, Mode::Receive | Mode::Auto)
    }

    /// Whether a second uplink may carry the connection.
    pub(crate) fn carries(&self) -> bool {
        self.receives() && self.carry.is_any()
    }

    /// The longest interval between two quACKs while nothing is lost, on a path with this round
    /// trip; `None` if quACKs always follow the terms.
    pub(crate) fn sparse(&self, round_trip: Duration) -> Option<Duration> {
        let may = self.sparse && self.mode != Mode::ACK_REDUCTION;
        may.then(|| SPARSE.min(round_trip / SPARSE_ROUND))
    }

    pub(crate) fn sender(&self) -> SenderConfig {
        // A re-injected datagram has to arrive before the receiver reports the loss, even if one
        // quACK is lost. The first loss after a time without losses may be reported later.
        let every = match self.mode {
            Mode::Reinject | Mode::Auto | Mode::Receive => {
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
            // Until the round trip is measured.
            sparse: None,
            keep: self.receives().then_some(KEEP),
            carries: self.carries(),
            ..SenderConfig::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_controllers_exist() {
        for &mode in Mode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
            let mut config = quiche::Config::new(quiche::PROTOCOL_VERSION).unwrap();
            if let Some(name) = mode.congestion_control() {
                config.set_cc_algorithm_name(name).unwrap();
                assert!(mode.suits(name));
            }
        }
        assert_eq!("cubic".parse::<Mode>(), Err(ParseModeError));
    }

    #[test]
    fn quacks_are_fewer_by_the_round_trip_and_never_in_place_of_acknowledgements() {
        let ms = Duration::from_millis;
        let config = Config::discover(Mode::Auto);
        assert_eq!([40, 400].map(|rtt| config.sparse(ms(rtt))), [10, 20].map(|at| Some(ms(at))));
        for config in [Config { sparse: false, ..config }, Config::discover(Mode::ACK_REDUCTION)] {
            assert_eq!((config.sparse(ms(400)), config.sender().sparse), (None, None));
        }
    }
}
