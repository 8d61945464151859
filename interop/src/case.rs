//! The cases to try with each peer, the senders, and the criteria of success.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A sender: a congestion controller alone, or with a mode of the plugin and a proxy on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sender {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// Its name for users, and quiche's name.
    pub(crate) controller: Option<(&'static str, &'static str)>,
    /// Whether a proxy helps it.
    pub(crate) helped: bool,
    runs: Runs,
}

/// The cases that a client runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runs {
    All,
    /// All but the case for download, where help for the client's own packets changes little.
    AllButDownload,
    Upload,
    /// Those in which the file goes down.
    Down,
}

const fn alone(name: &'static str, quiche: &'static str, about: &'static str) -> Sender {
    Sender { name, about, controller: Some((name, quiche)), helped: false, runs: Runs::All }
}

const fn helped(name: &'static str, about: &'static str) -> Sender {
    Sender { name, about, controller: None, helped: true, runs: Runs::AllButDownload }
}

/// The client without help, to which tables compare the others.
pub(crate) const PLAIN: Sender =
    alone("cubic-rfc9438", "cubic-rfc9438", "CUBIC of RFC 9438, no proxy");

/// The mode to start with. It helps both directions.
pub(crate) const AUTO: Sender =
    Sender { runs: Runs::All, ..helped("auto", "Sidekick, whichever fits, up and down") };

/// The client that requests from the proxy what it did not receive, over stock CUBIC.
pub(crate) const RECEIVE: Sender = Sender {
    runs: Runs::Down,
    ..helped("receive", "Sidekick, copies of what the near segment lost; for downloads")
};

/// All clients, by how they send, and two of them also by how they receive.
pub(crate) const SENDERS: [Sender; 7] = [
    PLAIN,
    Sender {
        runs: Runs::Upload,
        ..alone("bbr2", "bbr2_gcongestion", "BBR2, no proxy; of the cases for upload alone")
    },
    helped("pacubic", "Sidekick, PACUBIC"),
    helped("path-aware-bbr", "Sidekick, path-aware BBR2"),
    helped("reinject", "Sidekick, re-injection over stock CUBIC"),
    AUTO,
    RECEIVE,
];

impl Sender {
    /// Whether it requests copies of what it did not receive.
    pub(crate) fn receives(&self) -> bool {
        self.helped && self.takes(Case::Download)
    }

    /// Whether it runs a case.
    pub(crate) fn takes(&self, case: Case) -> bool {
        match self.runs {
            Runs::All => true,
            Runs::AllButDownload => case != Case::Download,
            Runs::Upload => case == Case::Upload,
            Runs::Down => !case.is_upload(),
        }
    }
}

/// The task of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Case {
    Upload,
    Download,
    Small,
    Requests,
    EarlyData,
    KeyUpdate,
    Migration,
    #[serde(rename = "payload-1200")]
    Payload1200,
    #[serde(rename = "payload-1400")]
    Payload1400,
    Aes,
    #[serde(rename = "chacha20")]
    ChaCha20,
    #[serde(rename = "cid-0")]
    Cid0,
    #[serde(rename = "cid-20")]
    Cid20,
    Ipv6,
    HttpsRecord,
}

impl Case {
    pub(crate) const ALL: [Self; 15] = [
        Self::Upload,
        Self::Download,
        Self::Small,
        Self::Requests,
        Self::EarlyData,
        Self::KeyUpdate,
        Self::Migration,
        Self::Payload1200,
        Self::Payload1400,
        Self::Aes,
        Self::ChaCha20,
        Self::Cid0,
        Self::Cid20,
        Self::Ipv6,
        Self::HttpsRecord,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Upload => "upload",
            Self::Download => "download",
            Self::Small => "small",
            Self::Requests => "requests",
            Self::EarlyData => "early-data",
            Self::KeyUpdate => "key-update",
            Self::Migration => "migration",
            Self::Payload1200 => "payload-1200",
            Self::Payload1400 => "payload-1400",
            Self::Aes => "aes",
            Self::ChaCha20 => "chacha20",
            Self::Cid0 => "cid-0",
            Self::Cid20 => "cid-20",
            Self::Ipv6 => "ipv6",
            Self::HttpsRecord => "https-record",
        }
    }

    /// The description in tables.
    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::Upload => "10 MiB up, h3-upload",
            Self::Download => "4 MiB down",
            Self::Small => "1 KiB up",
            Self::Requests => "200 times 1 KiB down, 50 at once",
            Self::EarlyData => "1 KiB down, requested in 0-RTT",
            Self::KeyUpdate => "2 MiB up, the server updates the keys",
            Self::Migration => "2 MiB up, the client changes its port in the middle",
            Self::Payload1200 => "1 MiB up, UDP payloads of 1200 bytes",
            Self::Payload1400 => "1 MiB up, UDP payloads of 1400 bytes",
            Self::Aes => "1 MiB up, AES-GCM",
            Self::ChaCha20 => "1 MiB up, ChaCha20-Poly1305",
            Self::Cid0 => "1 MiB up, connection IDs of no length at both ends",
            Self::Cid20 => "1 MiB up, connection IDs of 20 bytes at both ends",
            Self::Ipv6 => "1 MiB up over IPv6; all others are over IPv4",
            Self::HttpsRecord => "1 MiB up to the server that an HTTPS record names, h3-upload",
        }
    }

    /// The bytes of the file.
    pub(crate) fn bytes(self) -> u64 {
        match self {
            Self::Upload => 10 << 20,
            // At 10 % loss, a server alone needs minutes for more.
            Self::Download => 4 << 20,
            Self::Small | Self::Requests | Self::EarlyData => 1024,
            Self::KeyUpdate | Self::Migration => 2 << 20,
            _ => 1 << 20,
        }
    }

    /// The losses on the near segment, in percent, unless the user names others.
    pub(crate) fn near_losses(self) -> &'static [f64] {
        if self == Self::Download { &[0.0, 2.0, 10.0] } else { &[0.0, 2.0] }
    }

    /// How often the client transfers it.
    pub(crate) fn times(self) -> u64 {
        if self == Self::Requests { 200 } else { 1 }
    }

    /// The options of interop-client, in addition to the server's address.
    pub(crate) fn client_options(self) -> &'static [&'static str] {
        match self {
            Self::EarlyData => &["--resume"],
            Self::KeyUpdate => &["--count-key-updates"],
            Self::Migration => &["--migrate"],
            Self::Payload1200 => &["--payload", "1200"],
            Self::Payload1400 => &["--payload", "1400"],
            Self::Cid0 => &["--cid-length", "0"],
            Self::Cid20 => &["--cid-length", "20"],
            _ => &[],
        }
    }

    /// The options of the server, in addition to its address and its files.
    pub(crate) fn server_options(self) -> &'static [&'static str] {
        match self {
            Self::KeyUpdate => &["--key-update"],
            Self::Aes => &["--cipher", "aes128"],
            Self::ChaCha20 => &["--cipher", "chacha20"],
            Self::Cid0 => &["--cid-length", "0"],
            Self::Cid20 => &["--cid-length", "20"],
            _ => &[],
        }
    }

    /// Whether the client is h3-upload instead of interop-client.
    pub(crate) fn is_for_h3_upload(self) -> bool {
        matches!(self, Self::Upload | Self::HttpsRecord)
    }

    /// Whether it uploads the file.
    pub(crate) fn is_upload(self) -> bool {
        !matches!(self, Self::Download | Self::Requests | Self::EarlyData)
    }

    /// Whether a helped sender must report assistance. In a shorter transfer it may not discover
    /// the proxy in time.
    pub(crate) fn has_to_be_assisted(self) -> bool {
        self.bytes() >= 1 << 20
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|case| case.name() == name)
            .ok_or_else(|| format!("choose one of {}", Self::ALL.map(Self::name).join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_has_one_name() {
        for case in Case::ALL {
            assert_eq!(case.name().parse(), Ok(case));
            assert_eq!(serde_json::to_string(&case).unwrap(), format!("{:?}", case.name()));
        }
    }

    #[test]
    fn a_case_is_tried_with_the_senders_that_concern_it() {
        let tried = |case| -> Vec<&str> {
            let takes = SENDERS.iter().filter(|sender| sender.takes(case));
            takes.map(|sender| sender.name).collect()
        };
        assert_eq!(tried(Case::Download), ["cubic-rfc9438", "auto", "receive"]);
        let receiving: Vec<_> = SENDERS.iter().filter(|sender| sender.receives()).collect();
        assert_eq!(receiving, [&AUTO, &RECEIVE]);
        assert!(!tried(Case::Upload).contains(&"receive"));
        assert_eq!(
            [Case::Upload, Case::Small, Case::Requests].map(|case| tried(case).len()),
            [6, 5, 6]
        );
    }
}
