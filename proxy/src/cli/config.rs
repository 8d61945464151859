//! The configuration file: what the flags say, written down.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::de::{Error as _, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use thiserror::Error;

use crate::capture::Backend;
use crate::monitor::Place;

/// Why a configuration file cannot be used; a sentence for the operator, without the file's name.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FileError {
    /// It cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// Something in it is wrong.
    #[error("{}:{line}: {}{message}", path.display(), key.as_ref().map(|key| format!("{key}: ")).unwrap_or_default())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The key on that line, if there is one.
        key: Option<String>,
        /// What is wrong, and what was expected.
        message: String,
    },
}

/// What a file says; what it leaves out is `None`. Its keys are the flags' names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct File {
    pub(super) interfaces: Option<Vec<String>>,
    pub(super) listen: Option<Address>,
    pub(super) max_sessions: Option<Number<1, 1_000_000>>,
    pub(super) max_sessions_per_source: Option<Number<1, 1_000_000>>,
    pub(super) max_threshold: Option<Number<1, 255>>,
    pub(super) idle_timeout: Option<Number<1, 86_400>>,
    pub(super) key: Option<PathBuf>,
    pub(super) discovery: Option<bool>,
    pub(super) announce: Option<Vec<Announced>>,
    pub(super) promiscuous: Option<bool>,
    pub(super) capture: Option<Backend>,
    pub(super) buffer: Option<Number<1, 1024>>,
    pub(super) threads: Option<Number<1, 64>>,
    pub(super) metrics: Option<Metrics>,
    pub(super) log: Option<Log>,
}

/// A whole number from `LEAST` to `MOST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number<const LEAST: u64, const MOST: u64>(pub(super) u64);

/// An address and a port to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address(pub(super) SocketAddr);

/// An address and a port that a sender can speak to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Announced(pub(super) SocketAddr);

/// Where metrics are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Metrics(pub(super) Place);

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Log {
    Warn,
    Info,
    Debug,
    Trace,
}

impl Log {
    /// As many `-v` as that takes.
    pub(super) fn verbose(self) -> u8 {
        self as u8
    }
}

impl<'de, const LEAST: u64, const MOST: u64> Deserialize<'de> for Number<LEAST, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Range<const LEAST: u64, const MOST: u64>;

        impl<const LEAST: u64, const MOST: u64> Visitor<'_> for Range<LEAST, MOST> {
            type Value = Number<LEAST, MOST>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a whole number from {LEAST} to {MOST}")
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Self::Value, E> {
                u64::try_from(number)
                    .ok()
                    .filter(|number| (LEAST..=MOST).contains(number))
                    .map(Number)
                    .ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self))
            }
        }
        deserializer.deserialize_i64(Range)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(|_| {
            D::Error::invalid_value(
                Unexpected::Str(&text),
                &"an address and a port, like 0.0.0.0:5252",
            )
        })
    }
}

impl<'de> Deserialize<'de> for Announced {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        super::announced(&text).map(Self).map_err(|_| {
            let wanted = "the address of this machine and a port, like 192.0.2.1:5252";
            D::Error::invalid_value(Unexpected::Str(&text), &wanted)
        })
    }
}

impl<'de> Deserialize<'de> for Metrics {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(|_| {
            let wanted = "an address and a port, like 127.0.0.1:9252, or off";
            D::Error::invalid_value(Unexpected::Str(&text), &wanted)
        })
    }
}

impl File {
    /// Reads a file.
    pub(super) fn read(path: &Path) -> Result<Self, FileError> {
        let text = std::fs::read_to_string(path)
            .map_err(|cause| FileError::Unreadable { path: path.to_owned(), cause })?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, FileError> {
        toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count();
            let key = text.lines().nth(line).and_then(key);
            FileError::Wrong {
                path: path.to_owned(),
                line: line + 1,
                key,
                message: error.message().replace('\n', ", "),
            }
        })
    }
}

/// The key that a line gives a value to.
fn key(line: &str) -> Option<String> {
    let (key, _) = line.split_once('=')?;
    let key = key.trim();
    (!key.is_empty() && !key.starts_with('#')).then(|| key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wrong(text: &str) -> String {
        File::parse("p.toml".as_ref(), text).unwrap_err().to_string()
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place_and_what_was_expected() {
        for (text, said) in [
            (
                "interfaces = [\"a\"]\nmax-sessions = 0\n",
                "p.toml:2: max-sessions: invalid value: integer `0`, expected a whole number from 1 to 1000000",
            ),
            (
                "max-threshold = \"many\"",
                "p.toml:1: max-threshold: invalid type: string \"many\", expected a whole number from 1 to 255",
            ),
            (
                "\n\nlisten = \"nowhere\"",
                "p.toml:3: listen: invalid value: string \"nowhere\", expected an address and a port, like 0.0.0.0:5252",
            ),
            (
                "announce = [\"0.0.0.0:1\"]",
                "p.toml:1: announce: invalid value: string \"0.0.0.0:1\", expected the address of this machine and a port, \
                 like 192.0.2.1:5252",
            ),
            (
                "log = \"loud\"",
                "p.toml:1: log: unknown variant `loud`, expected one of `warn`, `info`, `debug`, `trace`",
            ),
            (
                "metrics = \"on\"",
                "p.toml:1: metrics: invalid value: string \"on\", expected an address and a port, like 127.0.0.1:9252, or off",
            ),
            ("discovery = 1", "p.toml:1: discovery: invalid type: integer `1`, expected a boolean"),
        ] {
            assert_eq!(wrong(text), said);
        }
        let unknown = wrong("# ours\nmax-session = 3");
        assert!(
            unknown
                .starts_with("p.toml:2: max-session: unknown field `max-session`, expected one of"),
            "{unknown}"
        );
        assert!(unknown.contains("`max-sessions`"), "{unknown}");
        let broken = wrong("interfaces = [\"a\"\nlisten");
        assert!(broken.starts_with("p.toml:"), "{broken}");
        let missing = File::read("/nonexistent/p.toml".as_ref()).unwrap_err().to_string();
        assert!(missing.starts_with("cannot read /nonexistent/p.toml: "), "{missing}");
    }

    #[test]
    fn nothing_need_be_said() {
        assert_eq!(File::parse("p.toml".as_ref(), "").unwrap(), File::default());
    }

    proptest! {
        #[test]
        fn any_text_is_a_configuration_or_an_error_of_one_line(text in "[a-z =\\[\\]\"\n0-9.:#-]{0,80}") {
            if let Err(error) = File::parse("p.toml".as_ref(), &text) {
                prop_assert_eq!(error.to_string().lines().count(), 1);
            }
        }
    }
}
