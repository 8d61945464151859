//! Section `flow`: what is carried, and how the endpoints behave.

use std::time::Duration;

use quic_sidekick::tune::Network;

use super::setting::{MILLISECONDS, SWITCH, milliseconds, named, settings, switch, whole};

named! {
    /// The kind of data that a flow carries.
    pub enum FlowKind {
        /// One HTTP/3 request with a large body, from the sender to the receiver.
        Upload = "upload",
        /// One HTTP/3 request with a large answer, from the receiver to the sender.
        Download = "download",
        /// HTTP/3 requests with an answer, one after another.
        Requests = "requests",
        /// A page: an HTTP/3 request for its document, then requests for its objects, several at a
        /// time.
        Page = "page",
        /// Small messages at a constant rate from the sender to the receiver, in one HTTP/3
        /// request. Each waits for the earlier ones.
        Messages = "messages",
        /// Small datagrams at a constant rate from the sender to the receiver. NACKs repair losses.
        Audio = "audio",
        /// The same datagrams from the receiver to the sender. So the listener is behind the near
        /// segment.
        Listen = "listen",
    }
}

impl FlowKind {
    /// Whether the data flows from the receiver of a path to its sender.
    pub fn is_download(self) -> bool {
        matches!(self, Self::Download | Self::Requests | Self::Page | Self::Listen)
    }

    /// Whether it is an audio call.
    pub fn is_call(self) -> bool {
        matches!(self, Self::Audio | Self::Listen)
    }
}

named! {
    /// A congestion controller of a data sender.
    pub enum CongestionControl {
        /// CUBIC as quiche ships it, with its rollback.
        Cubic = "cubic",
        /// CUBIC of RFC 9438.
        CubicRfc9438 = "cubic-rfc9438",
        /// NewReno.
        Reno = "reno",
        /// BBR version 2.
        Bbr2 = "bbr2",
        /// TCP Hybla, for satellites.
        Hybla = "hybla",
    }
}

named! {
    /// A TLS 1.3 cipher suite.
    pub enum Cipher {
        /// TLS_AES_128_GCM_SHA256.
        Aes = "aes",
        /// TLS_CHACHA20_POLY1305_SHA256.
        Chacha20 = "chacha20",
    }
}

named! {
    /// The proxies that terminate the connection and relay its bytes, as performance-enhancing
    /// proxies do.
    pub enum Split {
        /// No proxy.
        Off = "off",
        /// The first proxy.
        Near = "near",
        /// The proxies at both ends of the middle segment.
        Both = "both",
    }
}

named! {
    /// The order of a tunnel over the near segment, which sends lost packets again.
    pub enum Tunnel {
        /// The path has no tunnel.
        Off = "off",
        /// The tunnel delivers packets as they arrive.
        Unordered = "unordered",
        /// Packets wait for earlier ones. At most 32 packets wait.
        Ordered = "ordered",
    }
}

/// The data of a flow, and the behaviour of its endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The kind of the flow.
    pub kind: FlowKind,
    /// Size of an upload, a download, each answer to a request, or a whole page.
    pub bytes: u64,
    /// For a transfer, the time after which it ends, finished or not. For messages and calls, their
    /// length.
    pub limit: Option<Duration>,
    /// The data sender's congestion controller. `None` uses the one of the Sidekick mode.
    pub cc: Option<CongestionControl>,
    /// The flow-control window of a stream at either end, in bytes. The window of a connection is
    /// four times as large.
    pub window_bytes: u32,
    /// Largest UDP payload that an endpoint sends, in bytes.
    pub payload_bytes: u16,
    /// Whether the data sender searches for a larger payload (path MTU discovery).
    pub pmtud: bool,
    /// The cipher suite.
    pub cipher: Cipher,
    /// Whether the data sender waits until a whole packet fits its window.
    pub whole_packets: bool,
    /// Whether both ends use the settings that `quic_sidekick::tune` chooses. They replace the
    /// payload and its discovery, the delay of acknowledgements, and the window.
    pub tune: bool,
    /// The network that the client is attached to, for `tune`.
    pub network: Network,
    /// The longest time that the receiver of data may delay an acknowledgement.
    pub ack_delay: Duration,
    /// The number of packets after which the receiver of data acknowledges at once.
    pub ack_packets: u16,
    /// Whether the client resumes a session and may send early data.
    pub zero_rtt: bool,
    /// The number of requests, for [`FlowKind::Requests`].
    pub requests: u32,
    /// The number of objects of a page without its document, for [`FlowKind::Page`].
    pub objects: u16,
    /// The number of objects that are requested at a time.
    pub in_flight: u16,
    /// Whether requests may be replayed (GET) or not (POST). Only requests that may be replayed use
    /// early data.
    pub replayable: bool,
    /// The proxies that terminate the connection and relay its bytes.
    pub split: Split,
    /// The controller of the proxies of [`Split::Both`] over the middle segment. `None` uses that
    /// of the data sender.
    pub split_cc: Option<CongestionControl>,
    /// The tunnel over the near segment, if there is one.
    pub tunnel: Tunnel,
    /// The interval between records of the congestion window. `None` records nothing.
    pub sample: Option<Duration>,
    /// The time between two messages, or between two packets of a call.
    pub frame_interval: Duration,
    /// The bytes of a message, or of the media in a packet of a call.
    pub frame_bytes: u16,
}

/// The length of messages and calls if the scenario does not set it.
const DEFAULT_LENGTH: Duration = Duration::from_secs(60);

impl Flow {
    /// The length of a flow of messages or a call.
    pub fn length(&self) -> Duration {
        self.limit.unwrap_or(DEFAULT_LENGTH)
    }

    /// The number of messages of the flow, or of packets of a call: one for each interval, and at
    /// least one.
    pub fn frames(&self) -> u32 {
        let frames = self.length().as_nanos() / self.frame_interval.as_nanos().max(1);
        u32::try_from(frames).unwrap_or(u32::MAX).max(1)
    }

    /// The bytes that the application transfers, without headers and repetitions.
    pub fn total_bytes(&self) -> u64 {
        match self.kind {
            FlowKind::Upload | FlowKind::Download | FlowKind::Page => self.bytes,
            FlowKind::Requests => self.bytes.saturating_mul(self.requests.into()),
            FlowKind::Messages | FlowKind::Audio | FlowKind::Listen => {
                u64::from(self.frames()).saturating_mul(self.frame_bytes.into())
            }
        }
    }
}

impl Default for Flow {
    fn default() -> Self {
        Self {
            kind: FlowKind::Upload,
            bytes: 10 * 1024 * 1024,
            limit: None,
            cc: None,
            window_bytes: 16 * 1024 * 1024,
            payload_bytes: 1350,
            pmtud: false,
            cipher: Cipher::Aes,
            whole_packets: false,
            tune: false,
            network: Network::Unknown,
            ack_delay: Duration::from_millis(25),
            ack_packets: 2,
            zero_rtt: false,
            requests: 1,
            objects: 70,
            in_flight: 6,
            replayable: true,
            split: Split::Off,
            split_cc: None,
            tunnel: Tunnel::Off,
            sample: None,
            frame_interval: Duration::from_millis(20),
            frame_bytes: 240,
        }
    }
}

/// The values of a setting for a congestion controller, in words.
const CONTROLLERS: &str = "cubic, cubic-rfc9438, reno, bbr2 or hybla";

settings! { Flow, value;
    "kind", "upload, download, requests, page, messages, audio or listen",
        "what the flow transfers" =>
        kind = FlowKind::of_name(value);
    "bytes", "bytes from 1 to 10000000000",
        "size of an upload, a download, each answer to a request, or a whole page" =>
        bytes = whole(value, 1..=10_000_000_000);
    "seconds", "seconds from 0.1 to 3600",
        "the time after which a transfer ends, finished or not; the length of messages and calls" =>
        limit = seconds(value).map(Some);
    "cc", CONTROLLERS, "the data sender's congestion controller" =>
        cc = CongestionControl::of_name(value).map(Some);
    "window_bytes", "bytes from 4096 to 1000000000",
        "flow-control window of a stream; that of a connection is four times as large" =>
        window_bytes = whole(value, 4096..=1_000_000_000);
    "payload_bytes", "bytes from 1200 to 1452", "largest UDP payload that an endpoint sends" =>
        payload_bytes = whole(value, 1200..=1452);
    "pmtud", SWITCH, "whether the data sender searches for a larger payload" =>
        pmtud = switch(value);
    "cipher", "aes or chacha20", "the cipher suite" => cipher = Cipher::of_name(value);
    "whole_packets", SWITCH,
        "whether the data sender waits until a whole packet fits its window" =>
        whole_packets = switch(value);
    "tune", SWITCH,
        "whether quic_sidekick::tune chooses payload, pacing, windows, first round trip and ACK \
         delay" =>
        tune = switch(value);
    "network", "unknown, wired, wifi, cellular, leo or geo",
        "the network of the client, for tune" =>
        network = value.parse().ok();
    "ack_delay_ms", MILLISECONDS,
        "the longest time that the receiver of data may delay an acknowledgement" =>
        ack_delay = milliseconds(value);
    "ack_packets", "packets from 1 to 65535",
        "packets after which the receiver of data acknowledges at once" =>
        ack_packets = whole(value, 1..=65_535);
    "zero_rtt", SWITCH, "whether the client resumes a session and may send early data" =>
        zero_rtt = switch(value);
    "requests", "requests from 1 to 100000",
        "the number of requests, one after another (kind requests)" =>
        requests = whole(value, 1..=100_000);
    "objects", "objects from 0 to 10000",
        "the number of objects of a page, without its document (kind page)" =>
        objects = whole(value, 0..=10_000);
    "in_flight", "requests from 1 to 100",
        "the number of objects that are requested at a time (kind page)" =>
        in_flight = whole(value, 1..=100);
    "replayable", SWITCH,
        "whether requests may be replayed (GET), and so use early data, or not (POST)" =>
        replayable = switch(value);
    "split", "off, near (the first proxy) or both (those at the ends of the middle segment)",
        "which proxies terminate the connection and relay its bytes" =>
        split = Split::of_name(value);
    "split_cc", CONTROLLERS,
        "the controller between two proxies that split the connection (split both)" =>
        split_cc = CongestionControl::of_name(value).map(Some);
    "tunnel", "off, unordered or ordered (packets wait for earlier ones)",
        "a tunnel over the near segment, which sends lost packets again" =>
        tunnel = Tunnel::of_name(value);
    "sample_ms", "milliseconds from 1 to 60000, or 0 for never",
        "the interval between records of the congestion window" => sample = sample(value);
    "frame_ms", "milliseconds from 1 to 1000",
        "time between two messages or packets (kinds messages, audio and listen)" =>
        frame_interval = whole(value, 1..=1000).map(Duration::from_millis);
    "frame_bytes", "bytes from 32 to 1200",
        "size of a message, or of the media in a packet (kinds messages, audio and listen)" =>
        frame_bytes = whole(value, 32..=1200);
}

fn seconds(value: &str) -> Option<Duration> {
    let seconds: f64 = value.parse().ok()?;
    (0.1..=3600.0).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}

fn sample(value: &str) -> Option<Option<Duration>> {
    let ms = whole(value, 0..=60_000)?;
    Some((ms > 0).then(|| Duration::from_millis(ms)))
}
