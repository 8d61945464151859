//! Section `flow`: what is carried, and how the endpoints behave.

use std::time::Duration;

use quic_sidekick::tune::Network;

use super::setting::{MILLISECONDS, SWITCH, Values, named, numbers, or_word, section, whole};

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
        /// The same datagrams from the receiver to the sender, so the listener is behind the near
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
    /// The near segments that packets of flows take.
    pub enum Uplinks {
        /// The first. The second is for repairs.
        First = "first",
        /// Both, in turn.
        Both = "both",
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

section! {
    /// The data of a flow, and the behaviour of its endpoints.
    Flow, FLOW;
    kind: FlowKind = FlowKind::Upload, FlowKind::VALUES, "what the flow transfers";
    bytes: u64 = 10 * 1024 * 1024, numbers!(u64, "bytes", 1..=10_000_000_000),
        "size of an upload, a download, each answer to a request, or a whole page";
    limit ("seconds"): Option<Duration> = None, SECONDS,
        "the time after which a transfer ends, finished or not; the length of messages and calls";
    /// `None` uses the one of the Sidekick mode.
    cc: Option<CongestionControl> = None, CongestionControl::VALUES,
        "the data sender's congestion controller";
    window_bytes: u32 = 16 * 1024 * 1024, numbers!(u32, "bytes", 4096..=1_000_000_000),
        "flow-control window of a stream; that of a connection is four times as large";
    payload_bytes: u16 = 1350, numbers!(u16, "bytes", 1200..=1452),
        "largest UDP payload that an endpoint sends";
    pmtud: bool = false, SWITCH, "whether the data sender searches for a larger payload";
    cipher: Cipher = Cipher::Aes, Cipher::VALUES, "the cipher suite";
    whole_packets: bool = false, SWITCH,
        "whether the data sender waits until a whole packet fits its window";
    /// Its settings replace the payload and its discovery, the delay of acknowledgements, and the
    /// window.
    tune: bool = false, SWITCH,
        "whether quic_sidekick::tune chooses payload, pacing, windows, first round trip and ACK \
         delay";
    network: Network = Network::Unknown, NETWORK, "the network of the client, for tune";
    ack_delay ("ack_delay_ms"): Duration = Duration::from_millis(25), MILLISECONDS,
        "the longest time that the receiver of data may delay an acknowledgement";
    ack_packets: u16 = 2, numbers!(u16, "packets", 1..=65_535),
        "packets after which the receiver of data acknowledges at once";
    zero_rtt: bool = false, SWITCH,
        "whether the client resumes a session and may send early data";
    requests: u32 = 1, numbers!(u32, "requests", 1..=100_000),
        "the number of requests, one after another (kind requests)";
    objects: u16 = 70, numbers!(u16, "objects", 0..=10_000),
        "the number of objects of a page, without its document (kind page)";
    in_flight: u16 = 6, numbers!(u16, "requests", 1..=100),
        "the number of objects that are requested at a time (kind page)";
    replayable: bool = true, SWITCH,
        "whether requests may be replayed (GET), and so use early data, or not (POST)";
    uplinks: Uplinks = Uplinks::First, Uplinks::VALUES,
        "the near segments that packets take in turn, if there is a second one";
    split: Split = Split::Off, SPLIT,
        "which proxies terminate the connection and relay its bytes";
    /// `None` uses that of the data sender.
    split_cc: Option<CongestionControl> = None, CongestionControl::VALUES,
        "the controller between two proxies that split the connection (split both)";
    tunnel: Tunnel = Tunnel::Off, TUNNEL,
        "a tunnel over the near segment, which sends lost packets again";
    sample ("sample_ms"): Option<Duration> = None, SAMPLE,
        "the interval between records of the congestion window";
    frame_interval ("frame_ms"): Duration = Duration::from_millis(20), FRAME_MS,
        "time between two messages or packets (kinds messages, audio and listen)";
    frame_bytes: u16 = 240, numbers!(u16, "bytes", 32..=1200),
        "size of a message, or of the media in a packet (kinds messages, audio and listen)";
    playout ("playout_ms"): Duration = Duration::from_secs(1), PLAYOUT_MS,
        "how long a listener waits for a missing packet before it is late (kinds audio and \
         listen)";
}

const SECONDS: Values<Duration> = Values {
    takes: "seconds from 0.1 to 3600",
    read: |value| {
        let seconds: f64 = value.parse().ok()?;
        (0.1..=3600.0).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
    },
};
const NETWORK: Values<Network> = Values {
    takes: "unknown, wired, wifi, cellular, leo or geo",
    read: |value| value.parse().ok(),
};
const SPLIT: Values<Split> = Values {
    takes: "off, near (the first proxy) or both (those at the ends of the middle segment)",
    ..Split::VALUES
};
const TUNNEL: Values<Tunnel> =
    Values { takes: "off, unordered or ordered (packets wait for earlier ones)", ..Tunnel::VALUES };
const SAMPLE: Values<Option<Duration>> = Values {
    takes: "milliseconds from 1 to 60000, or 0 for never",
    read: |value| {
        let ms = whole(value, 0..=60_000)?;
        Some((ms > 0).then(|| Duration::from_millis(ms)))
    },
};
const FRAME_MS: Values<Duration> = Values {
    takes: "milliseconds from 1 to 1000",
    read: |value| whole(value, 1..=1000).map(Duration::from_millis),
};

const PLAYOUT_MS: Values<Duration> = Values {
    takes: "milliseconds from 1 to 60000",
    read: |value| whole(value, 1..=60_000).map(Duration::from_millis),
};

section! {
    /// A second, plain flow of the same kind over the same path.
    Competitor, COMPETITOR;
    /// `None` means that there is no second flow.
    cc: Option<CongestionControl> = None, COMPETITOR_CC,
        "controller of a second, plain flow over the same path";
    /// When the first and the second flow begin, since the start of the run. One of them is zero.
    starts ("start_ms"): [Duration; 2] = [Duration::ZERO; 2], STARTS,
        "how long after the first flow the second one begins; before it, if negative";
}

const COMPETITOR_CC: Values<Option<CongestionControl>> = Values {
    takes: "none, cubic, cubic-rfc9438, reno, bbr2 or hybla",
    read: |value| or_word(value, "none", CongestionControl::VALUES.read),
};
const STARTS: Values<[Duration; 2]> =
    Values { takes: "milliseconds from -60000 to 60000", read: starts };

fn starts(value: &str) -> Option<[Duration; 2]> {
    let read = MILLISECONDS.read;
    match value.strip_prefix('-') {
        Some(before) => Some([read(before)?, Duration::ZERO]),
        None => Some([Duration::ZERO, read(value)?]),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_the_flows_begins_at_once() {
        let seconds = Duration::from_secs;
        assert_eq!(starts("2000"), Some([seconds(0), seconds(2)]));
        assert_eq!(starts("-2000"), Some([seconds(2), seconds(0)]));
        assert_eq!(starts("-0"), starts("0"));
        for wrong in ["--1", "-", "-60001", "60001", "soon"] {
            assert_eq!(starts(wrong), None, "{wrong}");
        }
    }
}
