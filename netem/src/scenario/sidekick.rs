//! Section `sidekick`: what the sender does with quACKs, which ones it requests, and where the
//! proxy is.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::time::Duration;

use super::setting::{SWITCH, named, settings, switch, whole};
use crate::topology::{PROXY_NEAR, PROXY_PORT, SECOND_PROXY, UNUSED_ADDRESS};

named! {
    /// What the sender does with a quACK.
    pub enum Mode {
        /// Nothing: a plain QUIC sender.
        Off = "off",
        /// Losses on the near segment are repaired at once.
        EarlyLoss = "early-loss",
        /// Early loss, and CUBIC scaled to where the loss happened.
        Pacubic = "pacubic",
        /// Early loss, and near-segment losses kept out of BBR2's loss signal.
        PathAwareBbr = "path-aware-bbr",
        /// Packets lost on the near segment are sent again as they were, with the same ciphertext.
        Reinject = "reinject",
        /// Packets that reached the proxy free the window, without the receiver's acknowledgement.
        AckReduction = "ack-reduction",
        /// What fits the path, over BBR2.
        Auto = "auto",
        /// Help for what is received: the proxy repeats what its near segment lost.
        Receive = "receive",
    }
}

named! {
    /// How a proxy repairs what is received.
    pub enum Repair {
        /// As the path suggests.
        Auto = "auto",
        /// The receiver requests what it lacks.
        Requests = "requests",
        /// The proxy adds parity.
        Parity = "parity",
        /// Parity, and requests for what it cannot rebuild.
        Both = "both",
    }
}

/// The Sidekick settings of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sidekick {
    /// What it does with quACKs.
    pub mode: Mode,
    /// Whether it may ask for a quACK.
    pub poll: bool,
    /// A quACK after this many packets; `None` for quACKs by time alone.
    pub every_packets: Option<u16>,
    /// A quACK every this many milliseconds; 0 for none by time.
    pub every_ms: u32,
    /// The most missing packets that a quACK identifies.
    pub threshold: u8,
    /// Whether the sender asks for a quACK when a packet stays away, and for few others.
    pub steady: bool,
    /// Whether the client sends the datagrams of its handshake more than once.
    pub repeat_handshake: bool,
    /// How the proxy repairs what is received.
    pub repair: Repair,
    /// The most bytes of parity, in percent of the bytes that it protects.
    pub parity_percent: u8,
    /// Whether the sender finds the proxy, and for how long it is there.
    pub proxy: ProxyFate,
    /// Which of the proxies of a path with three segments observe.
    pub at: ProxyPlace,
}

named! {
    /// Where the proxy is that the sender asks, and how long.
    pub enum ProxyFate {
        /// On the path, from beginning to end.
        OnPath = "on-path",
        /// On the path. The sender must discover it.
        Found = "found",
        /// Nowhere: nothing listens on the host between the segments.
        Absent = "absent",
        /// The sender has a wrong address, at which there is no host.
        WrongAddress = "wrong-address",
        /// On the path, until it is killed when half of the file has passed.
        Dies = "dies",
    }
}

named! {
    /// Which hosts between the segments have a proxy that observes.
    pub enum ProxyPlace {
        /// The one behind the near segment.
        First = "first",
        /// The one behind the middle segment.
        Second = "second",
        /// Both.
        Both = "both",
    }
}

impl Sidekick {
    /// A quACK after this many packets, if any.
    pub fn every_packets(&self) -> Option<NonZeroU16> {
        self.every_packets.and_then(NonZeroU16::new)
    }

    /// A quACK every so often, if any.
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

impl Default for Sidekick {
    fn default() -> Self {
        Self {
            mode: Mode::Off,
            poll: true,
            every_packets: None,
            every_ms: 30,
            threshold: 20,
            steady: false,
            repeat_handshake: false,
            repair: Repair::Auto,
            parity_percent: 35,
            proxy: ProxyFate::OnPath,
            at: ProxyPlace::First,
        }
    }
}

settings! { Sidekick, value;
    "mode", "off, early-loss, pacubic, path-aware-bbr, reinject, ack-reduction, auto or receive",
        "what the sender does with quACKs" => mode = Mode::of_name(value);
    "poll", SWITCH, "whether the sender may poll for a quACK" => poll = switch(value);
    "every_packets", "packets from 1 to 65535, or off", "packets per quACK" =>
        every_packets = every_packets(value);
    "every_ms", "milliseconds from 1 to 60000, or 0 for no quACKs by time",
        "interval between quACKs" => every_ms = whole(value, 0..=60_000);
    "threshold", "packets from 1 to 255", "the most missing packets that a quACK identifies" =>
        threshold = whole(value, 1..=255);
    "steady", SWITCH, "whether a quACK tells of a packet that stays away, and few others" =>
        steady = switch(value);
    "repeat_handshake", SWITCH,
        "whether the client sends the datagrams of its handshake more than once" =>
        repeat_handshake = switch(value);
    "repair", "auto, requests, parity or both", "how the proxy repairs what is received" =>
        repair = Repair::of_name(value);
    "parity_percent", "percent from 1 to 100",
        "the proxy's cap on parity, by bytes; the listener of a call asks for as much" =>
        parity_percent = whole(value, 1..=100);
    "proxy", "on-path, found, absent, wrong-address or dies",
        "whether the proxy is configured, must be discovered, is absent, is configured with a \
         wrong address, or is killed halfway" => proxy = ProxyFate::of_name(value);
    "at", "first, second or both", "which proxies at the ends of the middle segment observe" =>
        at = ProxyPlace::of_name(value);
}

fn every_packets(value: &str) -> Option<Option<u16>> {
    if value == "off" { Some(None) } else { whole(value, 1..=65_535).map(Some) }
}
