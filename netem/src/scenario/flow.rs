//! Section `flow`: what is carried, and how the endpoints behave.

use std::time::Duration;

use quic_sidekick::tune::Network;

use super::setting::{MILLISECONDS, SWITCH, milliseconds, named, settings, switch, whole};

named! {
    /// What is carried.
    pub enum FlowKind {
        /// One HTTP/3 request with a large body, from the sender to the receiver.
        Upload = "upload",
        /// One HTTP/3 request with a large answer, from the receiver to the sender.
        Download = "download",
        /// One after another, HTTP/3 requests with an answer.
        Requests = "requests",
        /// A page: an HTTP/3 request for its document, then requests for its objects, several at a
        /// time.
        Page = "page",
        /// Small messages at a constant rate from the sender to the receiver, in one HTTP/3
        /// request: each waits for those ahead of it.
        Messages = "messages",
        /// Small datagrams at a constant rate from the sender to the receiver, repaired by NACKs.
        Audio = "audio",
        /// The same datagrams, from the receiver to the sender: the listener has the near segment.
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
        /// CUBIC as RFC 9438 has it.
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
    /// Which proxies terminate the connection and relay its bytes, as performance-enhancing proxies
    /// do.
    pub enum Split {
        /// None.
        Off = "off",
        /// The first.
        Near = "near",
        /// Those at both ends of the middle segment.
        Both = "both",
    }
}

named! {
    /// Whether a tunnel over the near segment resends what the segment loses.
    pub enum Tunnel {
        /// The path has no tunnel.
        Off = "off",
        /// It hands packets on as they come.
        Unordered = "unordered",
        /// Packets wait for those before them, 32 at most.
        Ordered = "ordered",
    }
}

/// What is carried, and how the endpoints behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// What is carried.
    pub kind: FlowKind,
    /// Size of an upload, a download, each answer to a request, or a whole page.
    pub bytes: u64,
    /// Ends a transfer after this time, done or not; how long a flow of messages and an audio flow
    /// last.
    pub limit: Option<Duration>,
    /// The data sender's congestion controller; `None` takes what the Sidekick mode goes with.
    pub cc: Option<CongestionControl>,
    /// Room for a stream at either end, in bytes: its flow-control window. A connection has
    /// room for four.
    pub window_bytes: u32,
    /// Largest UDP payload that an endpoint sends, in bytes.
    pub payload_bytes: u16,
    /// Whether the data sender looks for a larger payload.
    pub pmtud: bool,
    /// The cipher suite.
    pub cipher: Cipher,
    /// Whether the data sender waits for room for a whole packet in its window.
    pub whole_packets: bool,
    /// Whether both ends use the settings that `quic_sidekick::tune` chooses. They replace the
    /// payload and its discovery, the delay of acknowledgements, and the window.
    pub tune: bool,
    /// The network that the client is attached to, for `tune`.
    pub network: Network,
    /// How long the receiver of data may hold back an acknowledgement.
    pub ack_delay: Duration,
    /// Packets after which the receiver of data acknowledges at once.
    pub ack_packets: u16,
    /// Whether the client resumes a session and may send early data.
    pub zero_rtt: bool,
    /// How many requests, of kind [`FlowKind::Requests`].
    pub requests: u32,
    /// How many objects a page has beside its document, of kind [`FlowKind::Page`].
    pub objects: u16,
    /// How many of them are requested at a time.
    pub in_flight: u16,
    /// Whether requests may be replayed (GET) or not (POST); only those that may go into
    /// early data.
    pub replayable: bool,
    /// Which proxies terminate the connection and relay its bytes.
    pub split: Split,
    /// The controller of the two proxies of [`Split::Both`] over the middle segment; `None` takes
    /// that of the data sender.
    pub split_cc: Option<CongestionControl>,
    /// Whether a tunnel over the near segment resends what the segment loses.
    pub tunnel: Tunnel,
    /// How often the congestion window is written down; `None` for never.
    pub sample: Option<Duration>,
    /// Time between two messages, or two packets of an audio flow.
    pub frame_interval: Duration,
    /// Bytes of a message, or of what a packet of an audio flow carries.
    pub frame_bytes: u16,
}

/// How long a flow of messages or a call lasts of which the scenario does not say it.
const DEFAULT_LENGTH: Duration = Duration::from_secs(60);

impl Flow {
    /// How long a flow of messages or a call lasts.
    pub fn length(&self) -> Duration {
        self.limit.unwrap_or(DEFAULT_LENGTH)
    }

    /// Messages of the flow, or packets of a call: as many as there are intervals in its time, and
    /// at least one.
    pub fn frames(&self) -> u32 {
        let frames = self.length().as_nanos() / self.frame_interval.as_nanos().max(1);
        u32::try_from(frames).unwrap_or(u32::MAX).max(1)
    }

    /// Bytes that the application carries from end to end, without headers and repetitions.
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

/// What a setting for a congestion controller takes, in words.
const CONTROLLERS: &str = "cubic, cubic-rfc9438, reno, bbr2 or hybla";

settings! { Flow, value;
    "kind", "upload, download, requests, page, messages, audio or listen", "what is carried" =>
        kind = FlowKind::of_name(value);
    "bytes", "bytes from 1 to 10000000000",
        "size of an upload, a download, each answer to a request, or a whole page" =>
        bytes = whole(value, 1..=10_000_000_000);
    "seconds", "seconds from 0.1 to 3600",
        "ends a transfer, done or not; how long messages and an audio flow last" =>
        limit = seconds(value).map(Some);
    "cc", CONTROLLERS, "the data sender's congestion controller" =>
        cc = CongestionControl::of_name(value).map(Some);
    "window_bytes", "bytes from 4096 to 1000000000",
        "flow-control window of a stream; a connection's is four times as large" =>
        window_bytes = whole(value, 4096..=1_000_000_000);
    "payload_bytes", "bytes from 1200 to 1452", "largest UDP payload that is sent" =>
        payload_bytes = whole(value, 1200..=1452);
    "pmtud", SWITCH, "whether the data sender looks for a larger payload" => pmtud = switch(value);
    "cipher", "aes or chacha20", "the cipher suite" => cipher = Cipher::of_name(value);
    "whole_packets", SWITCH,
        "whether the data sender waits for room for a whole packet in its window" =>
        whole_packets = switch(value);
    "tune", SWITCH,
        "whether quic_sidekick::tune chooses payload, pacing, windows, first round trip and ACK delay" =>
        tune = switch(value);
    "network", "unknown, wired, wifi, cellular, leo or geo",
        "the network that the client is attached to, as tune hears of it" =>
        network = value.parse().ok();
    "ack_delay_ms", MILLISECONDS,
        "how long the receiver of data may hold back an acknowledgement" =>
        ack_delay = milliseconds(value);
    "ack_packets", "packets from 1 to 65535",
        "packets after which the receiver of data acknowledges at once" =>
        ack_packets = whole(value, 1..=65_535);
    "zero_rtt", SWITCH, "whether the client resumes a session and may send early data" =>
        zero_rtt = switch(value);
    "requests", "requests from 1 to 100000",
        "how many requests, one after another (kind requests)" =>
        requests = whole(value, 1..=100_000);
    "objects", "objects from 0 to 10000", "how many a page has beside its document (kind page)" =>
        objects = whole(value, 0..=10_000);
    "in_flight", "requests from 1 to 100", "how many objects are requested at a time (kind page)" =>
        in_flight = whole(value, 1..=100);
    "replayable", SWITCH,
        "whether requests may be replayed, and so go into early data (GET) or not (POST)" =>
        replayable = switch(value);
    "split", "off, near (the first proxy) or both (those at the ends of the middle segment)",
        "which proxies terminate the connection and relay its bytes" => split = Split::of_name(value);
    "split_cc", CONTROLLERS, "the controller of proxies that split the connection twice, between them" =>
        split_cc = CongestionControl::of_name(value).map(Some);
    "tunnel", "off, unordered or ordered (packets wait for those before them)",
        "a tunnel over the near segment, which resends what the segment loses" =>
        tunnel = Tunnel::of_name(value);
    "sample_ms", "milliseconds from 1 to 60000, or 0 for never",
        "how often the congestion window is written down" => sample = sample(value);
    "frame_ms", "milliseconds from 1 to 1000",
        "time between two messages or packets (kinds messages, audio and listen)" =>
        frame_interval = whole(value, 1..=1000).map(Duration::from_millis);
    "frame_bytes", "bytes from 32 to 1200",
        "size of a message, or of what a packet carries (kinds messages, audio and listen)" =>
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
