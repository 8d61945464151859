//! Section `sidekick`: how the sender uses quACKs, which ones it requests, and where the proxy is.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::time::Duration;

use super::setting::{SWITCH, named, settings, switch, whole};
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

/// The Sidekick settings of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sidekick {
    /// How it uses quACKs.
    pub mode: Mode,
    /// Whether it may request a quACK.
    pub poll: bool,
    /// The number of packets between quACKs. `None` for quACKs by time alone.
    pub every_packets: Option<u16>,
    /// The interval between quACKs in milliseconds. 0 for no quACKs by time.
    pub every_ms: u32,
    /// The most missing packets that a quACK identifies.
    pub threshold: u8,
    /// Whether the sender requests a quACK when a packet does not arrive, and few other quACKs.
    pub steady: bool,
    /// Whether the client sends the datagrams of its handshake more than once.
    pub repeat_handshake: bool,
    /// How the proxy repairs packets for the receiver.
    pub repair: Repair,
    /// The most bytes of parity, in percent of the protected bytes.
    pub parity_percent: u8,
    /// How the sender finds the proxy, and how long the proxy runs.
    pub proxy: ProxyFate,
    /// The proxies that observe, on a path with three segments.
    pub at: ProxyPlace,
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
        "how the sender uses quACKs" => mode = Mode::of_name(value);
    "poll", SWITCH, "whether the sender may poll for a quACK" => poll = switch(value);
    "every_packets", "packets from 1 to 65535, or off", "packets per quACK" =>
        every_packets = every_packets(value);
    "every_ms", "milliseconds from 1 to 60000, or 0 for no quACKs by time",
        "interval between quACKs" => every_ms = whole(value, 0..=60_000);
    "threshold", "packets from 1 to 255", "the most missing packets that a quACK identifies" =>
        threshold = whole(value, 1..=255);
    "steady", SWITCH,
        "whether the sender polls when a packet does not arrive, and at few other times" =>
        steady = switch(value);
    "repeat_handshake", SWITCH,
        "whether the client sends the datagrams of its handshake more than once" =>
        repeat_handshake = switch(value);
    "repair", "auto, requests, parity or both",
        "how the proxy repairs packets for a receiver (modes receive and auto)" =>
        repair = Repair::of_name(value);
    "parity_percent", "percent from 1 to 100",
        "the proxy's cap on parity, by bytes; the listener of a call asks for up to the cap" =>
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
