//! Section `flow`: what is carried, and how the endpoints behave.

use std::time::Duration;

use super::setting::{MILLISECONDS, Setting, milliseconds, switch, whole};

/// What is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowKind {
    /// One HTTP/3 request with a large body, from the sender to the receiver.
    Upload,
    /// One HTTP/3 request with a large answer, from the receiver to the sender.
    Download,
    /// One after another, HTTP/3 requests with an answer.
    Requests,
    /// Small messages at a constant rate from the sender to the receiver, in one HTTP/3 request: no
    /// message is had before those ahead of it.
    Messages,
    /// Small datagrams at a constant rate from the sender to the receiver, repaired by NACKs.
    Audio,
}

impl FlowKind {
    const ALL: [Self; 5] =
        [Self::Upload, Self::Download, Self::Requests, Self::Messages, Self::Audio];

    /// The name in scenarios and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Upload => "upload",
            Self::Download => "download",
            Self::Requests => "requests",
            Self::Messages => "messages",
            Self::Audio => "audio",
        }
    }
}

/// A congestion controller of a data sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CongestionControl {
    /// CUBIC as quiche ships it, with its rollback.
    Cubic,
    /// CUBIC as RFC 9438 has it.
    CubicRfc9438,
    /// NewReno.
    Reno,
    /// BBR version 2.
    Bbr2,
}

impl CongestionControl {
    pub(super) const ALL: [Self; 4] = [Self::Cubic, Self::CubicRfc9438, Self::Reno, Self::Bbr2];
    pub(super) const TAKES: &str = "cubic, cubic-rfc9438, reno or bbr2";

    /// The name in scenarios, on command lines and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::CubicRfc9438 => "cubic-rfc9438",
            Self::Reno => "reno",
            Self::Bbr2 => "bbr2",
        }
    }

    pub(super) fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cc| cc.name() == name)
    }
}

/// A TLS 1.3 cipher suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cipher {
    /// TLS_AES_128_GCM_SHA256.
    Aes,
    /// TLS_CHACHA20_POLY1305_SHA256.
    Chacha20,
}

impl Cipher {
    const ALL: [Self; 2] = [Self::Aes, Self::Chacha20];

    /// The name in scenarios and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Aes => "aes",
            Self::Chacha20 => "chacha20",
        }
    }
}

/// What is carried, and how the endpoints behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// What is carried.
    pub kind: FlowKind,
    /// Size of an upload, a download, or each answer to a request.
    pub bytes: u64,
    /// Ends a transfer after this time, done or not; how long a flow of messages and an audio flow
    /// last.
    pub limit: Option<Duration>,
    /// The data sender's congestion controller; `None` takes what the Sidekick mode goes with.
    pub cc: Option<CongestionControl>,
    /// Largest UDP payload that an endpoint sends, in bytes.
    pub payload_bytes: u16,
    /// Whether the data sender looks for a larger payload.
    pub pmtud: bool,
    /// The cipher suite.
    pub cipher: Cipher,
    /// Whether the data sender waits for room for a whole packet in its window.
    pub whole_packets: bool,
    /// How long the receiver of data may hold back an acknowledgement.
    pub ack_delay: Duration,
    /// Packets after which the receiver of data acknowledges at once.
    pub ack_packets: u16,
    /// Whether the client resumes a session and may send early data.
    pub zero_rtt: bool,
    /// How many requests, of kind [`FlowKind::Requests`].
    pub requests: u32,
    /// Whether these requests may be replayed (GET) or not (POST); only those that may go into
    /// early data.
    pub replayable: bool,
    /// Whether the proxy terminates the connection and relays the bytes, as a performance-enhancing
    /// proxy does.
    pub split: bool,
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
    #[must_use]
    pub fn length(&self) -> Duration {
        self.limit.unwrap_or(DEFAULT_LENGTH)
    }

    /// Messages of the flow, or packets of a call: as many as there are intervals in its time, and
    /// at least one.
    #[must_use]
    pub fn frames(&self) -> u32 {
        let frames = self.length().as_nanos() / self.frame_interval.as_nanos().max(1);
        u32::try_from(frames).unwrap_or(u32::MAX).max(1)
    }

    /// Bytes that the application carries from end to end, without headers and repetitions.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        match self.kind {
            FlowKind::Upload | FlowKind::Download => self.bytes,
            FlowKind::Requests => self.bytes.saturating_mul(self.requests.into()),
            FlowKind::Messages | FlowKind::Audio => {
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
            payload_bytes: 1350,
            pmtud: false,
            cipher: Cipher::Aes,
            whole_packets: false,
            ack_delay: Duration::from_millis(25),
            ack_packets: 2,
            zero_rtt: false,
            requests: 1,
            replayable: true,
            split: false,
            sample: None,
            frame_interval: Duration::from_millis(20),
            frame_bytes: 240,
        }
    }
}

/// The settings of the section.
pub(super) const SETTINGS: &[Setting<Flow>] = &[
    Setting {
        key: "kind",
        takes: "upload, download, requests, messages or audio",
        meaning: "what is carried",
        store: |flow, value| {
            flow.kind = FlowKind::ALL.into_iter().find(|kind| kind.name() == value)?;
            Some(())
        },
    },
    Setting {
        key: "bytes",
        takes: "bytes from 1 to 10000000000",
        meaning: "size of an upload, a download, or each answer to a request",
        store: |flow, value| {
            flow.bytes = whole(value, 1, 10_000_000_000)?;
            Some(())
        },
    },
    Setting {
        key: "seconds",
        takes: "seconds from 0.1 to 3600",
        meaning: "ends a transfer, done or not; how long messages and an audio flow last",
        store: |flow, value| {
            let seconds: f64 = value.parse().ok()?;
            flow.limit =
                Some((0.1..=3600.0).contains(&seconds).then(|| Duration::from_secs_f64(seconds))?);
            Some(())
        },
    },
    Setting {
        key: "cc",
        takes: CongestionControl::TAKES,
        meaning: "the data sender's congestion controller",
        store: |flow, value| {
            flow.cc = Some(CongestionControl::of_name(value)?);
            Some(())
        },
    },
    Setting {
        key: "payload_bytes",
        takes: "bytes from 1200 to 1452",
        meaning: "largest UDP payload that is sent",
        store: |flow, value| {
            flow.payload_bytes = u16::try_from(whole(value, 1200, 1452)?).ok()?;
            Some(())
        },
    },
    Setting {
        key: "pmtud",
        takes: "on or off",
        meaning: "whether the data sender looks for a larger payload",
        store: |flow, value| {
            flow.pmtud = switch(value)?;
            Some(())
        },
    },
    Setting {
        key: "cipher",
        takes: "aes or chacha20",
        meaning: "the cipher suite",
        store: |flow, value| {
            flow.cipher = Cipher::ALL.into_iter().find(|cipher| cipher.name() == value)?;
            Some(())
        },
    },
    Setting {
        key: "whole_packets",
        takes: "on or off",
        meaning: "whether the data sender waits for room for a whole packet in its window",
        store: |flow, value| {
            flow.whole_packets = switch(value)?;
            Some(())
        },
    },
    Setting {
        key: "ack_delay_ms",
        takes: MILLISECONDS,
        meaning: "how long the receiver of data may hold back an acknowledgement",
        store: |flow, value| {
            flow.ack_delay = milliseconds(value)?;
            Some(())
        },
    },
    Setting {
        key: "ack_packets",
        takes: "packets from 1 to 65535",
        meaning: "packets after which the receiver of data acknowledges at once",
        store: |flow, value| {
            flow.ack_packets = u16::try_from(whole(value, 1, 65_535)?).ok()?;
            Some(())
        },
    },
    Setting {
        key: "zero_rtt",
        takes: "on or off",
        meaning: "whether the client resumes a session and may send early data",
        store: |flow, value| {
            flow.zero_rtt = switch(value)?;
            Some(())
        },
    },
    Setting {
        key: "requests",
        takes: "requests from 1 to 100000",
        meaning: "how many requests, one after another (kind requests)",
        store: |flow, value| {
            flow.requests = u32::try_from(whole(value, 1, 100_000)?).ok()?;
            Some(())
        },
    },
    Setting {
        key: "replayable",
        takes: "on or off",
        meaning: "whether requests may be replayed, and so go into early data (GET) or not (POST)",
        store: |flow, value| {
            flow.replayable = switch(value)?;
            Some(())
        },
    },
    Setting {
        key: "split",
        takes: "on or off",
        meaning: "whether the proxy terminates the connection and relays its bytes",
        store: |flow, value| {
            flow.split = switch(value)?;
            Some(())
        },
    },
    Setting {
        key: "sample_ms",
        takes: "milliseconds from 1 to 60000, or 0 for never",
        meaning: "how often the congestion window is written down",
        store: |flow, value| {
            let ms = whole(value, 0, 60_000)?;
            flow.sample = (ms > 0).then(|| Duration::from_millis(ms));
            Some(())
        },
    },
    Setting {
        key: "frame_ms",
        takes: "milliseconds from 1 to 1000",
        meaning: "time between two messages or packets (kinds messages and audio)",
        store: |flow, value| {
            flow.frame_interval = Duration::from_millis(whole(value, 1, 1000)?);
            Some(())
        },
    },
    Setting {
        key: "frame_bytes",
        takes: "bytes from 32 to 1200",
        meaning: "size of a message, or of what a packet carries (kinds messages and audio)",
        store: |flow, value| {
            flow.frame_bytes = u16::try_from(whole(value, 32, 1200)?).ok()?;
            Some(())
        },
    },
];
