//! Section `sidekick`: how the sender uses quACKs, which ones it requests, and where the proxy is.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::time::Duration;

use super::setting::{SWITCH, Values, named, numbers, or_word, section, whole};
use crate::topology::{PROXY_NEAR, PROXY_PORT, SECOND_PROXY, UNUSED_ADDRESS};

named! {
    /// How the sender uses a quACK.
    pub enum Mode {
        /// It does not: a plain QUIC sender.
        Off = "off",
        /// It repairs losses on the near segment at once.
        EarlyLoss = "early-loss",
        /// Early loss. CUBIC also reacts by the place of the loss.
        Pacubic = "pacubic",
        /// Early loss. BBR2 also excludes losses on the near segment from its loss signal.
        PathAwareBbr = "path-aware-bbr",
        /// It sends packets lost on the near segment again unchanged, with the same ciphertext.
        Reinject = "reinject",
        /// Packets that reached the proxy free the window, without the receiver's acknowledgement.
        AckReduction = "ack-reduction",
        /// The repair that suits the path, over BBR2.
        Auto = "auto",
        /// Help for the receiver: the proxy repeats packets that its near segment lost.
        Receive = "receive",
        /// Plain QUIC, and an agent beside it that knows nothing of the connection.
        Agent = "agent",
        /// The same, and the agent puts in order what arrives.
        AgentInOrder = "agent-in-order",
        /// Plain QUIC, and an agent beside it that helps nothing and measures the near segment.
        Measure = "measure",
        /// Plain QUIC over a socket that gets help. The proxy puts what leaves in order.
        Socket = "socket",
    }
}

named! {
    /// How a proxy repairs packets for a receiver.
    pub enum Repair {
        /// As the path suggests.
        Auto = "auto",
        /// The receiver requests missing packets.
        Requests = "requests",
        /// The proxy adds parity.
        Parity = "parity",
        /// Parity, and requests for what it cannot rebuild.
        Both = "both",
    }
}

named! {
    /// How the sender finds its proxy, and how long the proxy runs.
    pub enum ProxyFate {
        /// On the path, during the whole run.
        OnPath = "on-path",
        /// On the path. The sender must discover it.
        Found = "found",
        /// Absent: no program listens on the host between the segments.
        Absent = "absent",
        /// On the path, but the sender has the address of no host.
        WrongAddress = "wrong-address",
        /// On the path, until the lab kills it after half of the file.
        Dies = "dies",
    }
}

named! {
    /// The hosts between the segments that have an observing proxy.
    pub enum ProxyPlace {
        /// The host behind the near segment.
        First = "first",
        /// The host behind the middle segment.
        Second = "second",
        /// Both hosts.
        Both = "both",
    }
}

section! {
    /// The Sidekick settings of the sender.
    Sidekick, SIDEKICK;
    mode: Mode = Mode::Off, Mode::VALUES, "how the sender uses quACKs";
    poll: bool = true, SWITCH, "whether the sender may poll for a quACK";
    /// `None` for quACKs by time alone.
    every_packets: Option<u16> = None, EVERY_PACKETS, "packets per quACK";
    /// 0 for no quACKs by time.
    every_ms: u32 = 30, EVERY_MS, "interval between quACKs";
    threshold: u8 = 20, numbers!(u8, "packets", 1..=255),
        "the most missing packets that a quACK identifies";
    steady: bool = false, SWITCH,
        "whether the sender polls when a packet does not arrive, and at few other times";
    repeat_handshake: bool = false, SWITCH,
        "whether the client sends the datagrams of its handshake more than once";
    repair: Repair = Repair::Auto, Repair::VALUES,
        "how the proxy repairs packets for a receiver (modes receive and auto)";
    parity_percent: u8 = 35, numbers!(u8, "percent", 1..=100),
        "the proxy's cap on parity, by bytes; the listener of a call asks for up to the cap";
    upload_parity: bool = false, SWITCH,
        "whether the agent sends parity of uploads to a far proxy (mode agent-in-order)";
    carry_mbit: u32 = 0, numbers!(u32, "Mbit/s", 0..=10_000), "what the sender's second uplink carries while the first is silent";
    proxy: ProxyFate = ProxyFate::OnPath, ProxyFate::VALUES,
        "whether the proxy is configured, must be discovered, is absent, is configured with a \
         wrong address, or is killed halfway";
    at: ProxyPlace = ProxyPlace::First, ProxyPlace::VALUES,
        "which proxies at the ends of the middle segment observe";
}

const EVERY_PACKETS: Values<Option<u16>> = Values {
    takes: "packets from 1 to 65535, or off",
    read: |value| or_word(value, "off", |value| whole(value, 1..=65_535)),
};
const EVERY_MS: Values<u32> = Values {
    takes: "milliseconds from 1 to 60000, or 0 for no quACKs by time",
    read: |value| whole(value, 0..=60_000),
};

impl Mode {
    /// Whether the connections are plain ones beside an agent.
    pub fn is_of_agent(self) -> bool {
        matches!(self, Self::Agent | Self::AgentInOrder | Self::Measure)
    }

    /// Whether a program itself uses the proxy.
    pub fn is_of_program(self) -> bool {
        self != Self::Off && !self.is_of_agent()
    }

    /// Whether the proxy puts what leaves in order.
    pub fn orders(self) -> bool {
        matches!(self, Self::AgentInOrder | Self::Socket)
    }

    /// Whether the connections are plain ones.
    pub fn is_plain(self) -> bool {
        matches!(self, Self::Off | Self::Socket) || self.is_of_agent()
    }
}

impl Sidekick {
    /// The number of packets between quACKs, if any.
    pub fn every_packets(&self) -> Option<NonZeroU16> {
        self.every_packets.and_then(NonZeroU16::new)
    }

    /// The interval between quACKs, if any.
    pub fn every(&self) -> Option<Duration> {
        (self.every_ms > 0).then(|| Duration::from_millis(self.every_ms.into()))
    }

    /// Whether a proxy runs on the host between the segments.
    pub fn has_proxy(&self) -> bool {
        self.mode != Mode::Off && self.proxy != ProxyFate::Absent
    }

    /// The address at which the sender expects the proxy, unless it must discover it.
    pub fn proxy_address(&self) -> SocketAddr {
        let host = match (self.proxy, self.at) {
            (ProxyFate::WrongAddress, _) => UNUSED_ADDRESS,
            (_, ProxyPlace::Second) => SECOND_PROXY,
            (_, ProxyPlace::First | ProxyPlace::Both) => PROXY_NEAR,
        };
        (host, PROXY_PORT).into()
    }
}
