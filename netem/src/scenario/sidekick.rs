//! Section `sidekick`: what the sender does with quACKs, which ones it asks for, and what is the
//! matter with the proxy.

use super::setting::{Setting, switch, whole};

/// What the sender does with a quACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nothing: a plain QUIC sender.
    Off,
    /// Losses on the near segment are repaired at once.
    EarlyLoss,
    /// Early loss, and CUBIC scaled to where the loss happened.
    Pacubic,
    /// Early loss, and near-segment losses kept out of BBR2's loss signal.
    PathAwareBbr,
    /// Packets lost on the near segment are sent again as they were, with the same ciphertext.
    Reinject,
    /// What has reached the proxy makes room for more, whatever the receiver acknowledges.
    AckReduction,
    /// What fits the path, over BBR2.
    Auto,
}

impl Mode {
    const ALL: [Self; 7] = [
        Self::Off,
        Self::EarlyLoss,
        Self::Pacubic,
        Self::PathAwareBbr,
        Self::Reinject,
        Self::AckReduction,
        Self::Auto,
    ];

    /// The name in scenarios, on command lines and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::EarlyLoss => "early-loss",
            Self::Pacubic => "pacubic",
            Self::PathAwareBbr => "path-aware-bbr",
            Self::Reinject => "reinject",
            Self::AckReduction => "ack-reduction",
            Self::Auto => "auto",
        }
    }
}

/// The Sidekick settings of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sidekick {
    /// What it does with quACKs.
    pub mode: Mode,
    /// Whether it may ask for a quACK.
    pub poll: bool,
    /// A quACK every so many packets; `None` leaves it to the time alone.
    pub every_packets: Option<u16>,
    /// A quACK every so many milliseconds; 0 for none by the clock.
    pub every_ms: u32,
    /// Missing packets that one quACK can tell.
    pub threshold: u8,
    /// Whether the client sends the datagrams of its handshake more than once.
    pub repeat_handshake: bool,
    /// What is the matter with the proxy.
    pub proxy: ProxyFate,
}

/// Where the proxy is that the sender asks, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyFate {
    /// On the path, from beginning to end.
    OnPath,
    /// On the path, and the sender is not told where: it has to find it.
    Found,
    /// Nowhere: nothing listens on the host between the segments.
    Absent,
    /// The sender has a wrong address, at which there is no host.
    WrongAddress,
    /// On the path, until it is killed when half of the file has passed.
    Dies,
}

impl ProxyFate {
    const ALL: [Self; 5] =
        [Self::OnPath, Self::Found, Self::Absent, Self::WrongAddress, Self::Dies];

    /// Its name in scenarios.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OnPath => "on-path",
            Self::Found => "found",
            Self::Absent => "absent",
            Self::WrongAddress => "wrong-address",
            Self::Dies => "dies",
        }
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
            repeat_handshake: false,
            proxy: ProxyFate::OnPath,
        }
    }
}

/// The settings of the section.
pub(super) const SETTINGS: &[Setting<Sidekick>] = &[
    Setting {
        key: "mode",
        takes: "off, early-loss, pacubic, path-aware-bbr, reinject, ack-reduction or auto",
        meaning: "what the sender does with quACKs",
        store: |sidekick, value| {
            sidekick.mode = Mode::ALL.into_iter().find(|mode| mode.name() == value)?;
            Some(())
        },
    },
    Setting {
        key: "poll",
        takes: "on or off",
        meaning: "whether the sender may ask for a quACK",
        store: |sidekick, value| {
            sidekick.poll = switch(value)?;
            Some(())
        },
    },
    Setting {
        key: "every_packets",
        takes: "packets from 1 to 65535, or off",
        meaning: "a quACK every so many packets",
        store: |sidekick, value| {
            sidekick.every_packets = match value {
                "off" => None,
                number => Some(u16::try_from(whole(number, 1, 65_535)?).ok()?),
            };
            Some(())
        },
    },
    Setting {
        key: "every_ms",
        takes: "milliseconds from 1 to 60000, or 0 for none by the clock",
        meaning: "a quACK every so many milliseconds",
        store: |sidekick, value| {
            sidekick.every_ms = u32::try_from(whole(value, 0, 60_000)?).ok()?;
            Some(())
        },
    },
    Setting {
        key: "threshold",
        takes: "packets from 1 to 255",
        meaning: "missing packets one quACK can tell",
        store: |sidekick, value| {
            sidekick.threshold = u8::try_from(whole(value, 1, 255)?).ok()?;
            Some(())
        },
    },
    Setting {
        key: "repeat_handshake",
        takes: "on or off",
        meaning: "whether the client sends the datagrams of its handshake more than once",
        store: |sidekick, value| {
            sidekick.repeat_handshake = switch(value)?;
            Some(())
        },
    },
    Setting {
        key: "proxy",
        takes: "on-path, found, absent, wrong-address or dies",
        meaning: "whether the proxy is there, has to be found, is asked at a wrong address, or is killed halfway",
        store: |sidekick, value| {
            sidekick.proxy = ProxyFate::ALL.into_iter().find(|proxy| proxy.name() == value)?;
            Some(())
        },
    },
];
