//! The configuration file, whose keys are the names of the flags.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::{Error as _, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use thiserror::Error;

use super::announced::announced;
use crate::capture::settings::Backend;
use crate::config::{Config, LogLevel};
use crate::monitor::listener::MetricsAddress;
use crate::size::Size;

/// Why a configuration file cannot be used, as a sentence for the operator.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum FileError {
    /// The file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The file has an error.
    #[error(
        "{}:{line}: {}{message}",
        path.display(),
        key.as_ref().map(|key| format!("{key}: ")).unwrap_or_default()
    )]
    Wrong {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The key on that line, if there is one.
        key: Option<String>,
        /// What is wrong, and what was expected.
        message: String,
    },
}

/// The values of a file, `None` for each key that it does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct File {
    pub(super) interfaces: Option<Vec<String>>,
    pub(super) listen: Option<Address>,
    pub(super) max_sessions: Option<Number<1, 1_000_000>>,
    pub(super) max_sessions_per_source: Option<Number<1, 1_000_000>>,
    pub(super) max_threshold: Option<Number<1, 255>>,
    pub(super) idle_timeout: Option<Number<1, 86_400>>,
    pub(super) keep: Option<Bytes>,
    pub(super) keep_per_session: Option<Bytes>,
    pub(super) key: Option<PathBuf>,
    pub(super) discovery: Option<bool>,
    pub(super) announce: Option<Vec<Announced>>,
    pub(super) promiscuous: Option<bool>,
    pub(super) capture: Option<Backend>,
    pub(super) buffer: Option<Number<1, 1024>>,
    pub(super) threads: Option<Number<1, 64>>,
    pub(super) metrics: Option<Metrics>,
    pub(super) log: Option<LogLevel>,
}

/// A whole number from `LEAST` to `MOST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number<const LEAST: u64, const MOST: u64>(pub(super) u64);

/// A number of bytes, as a number or a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bytes(pub(super) Size);

/// An address and a port to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address(pub(super) SocketAddr);

/// An address and a port that the proxy can announce to senders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Announced(pub(super) SocketAddr);

/// Where to serve metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Metrics(pub(super) MetricsAddress);

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

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Amount;

        impl Visitor<'_> for Amount {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes like \"64M\", \"512K\" or 1000000, up to \"1024G\"")
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Bytes, E> {
                let size = number.to_string().parse();
                size.map(Bytes).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Bytes, E> {
                let size = text.parse();
                size.map(Bytes).map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_any(Amount)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(|_| {
            D::Error::invalid_value(
                Unexpected::Str(&text),
                &"an address and port like 0.0.0.0:5252",
            )
        })
    }
}

impl<'de> Deserialize<'de> for Announced {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        announced(&text).map(Self).map_err(|_| {
            let wanted = "an address of this machine and a port, like 192.0.2.1:5252";
            D::Error::invalid_value(Unexpected::Str(&text), &wanted)
        })
    }
}

impl<'de> Deserialize<'de> for Metrics {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(|_| {
            let wanted = "an address and port like 127.0.0.1:9252, or off";
            D::Error::invalid_value(Unexpected::Str(&text), &wanted)
        })
    }
}

impl File {
    /// Puts the values of this file into `config`, except those that a flag has set. `is_set` is
    /// asked with the name of a flag's field in the options.
    pub(super) fn apply(self, config: &mut Config, is_set: impl Fn(&str) -> bool) {
        fn put<T>(field: &mut T, value: Option<T>, is_set: bool) {
            if let (Some(value), false) = (value, is_set) {
                *field = value;
            }
        }
        let announce =
            self.announce.map(|addresses| addresses.into_iter().map(|it| it.0).collect());
        // Both flags decide about discovery, so either overrides both keys.
        let discovery = is_set("no_discovery") || is_set("announce");
        let u16 = |number: u64| u16::try_from(number).ok();
        let threshold = self.max_threshold.and_then(|n| u8::try_from(n.0).ok());
        let per_source = self.max_sessions_per_source.map(|n| n.0);
        let idle_timeout = self.idle_timeout.map(|n| Duration::from_secs(n.0));
        put(&mut config.interfaces, self.interfaces.map(distinct), is_set("interfaces"));
        put(&mut config.listen, self.listen.map(|address| address.0), is_set("listen"));
        put(&mut config.max_sessions, self.max_sessions.map(|n| n.0), is_set("max_sessions"));
        put(&mut config.max_sessions_per_source, per_source, is_set("max_sessions_per_source"));
        put(&mut config.max_threshold, threshold, is_set("max_threshold"));
        put(&mut config.idle_timeout, idle_timeout, is_set("idle_timeout"));
        // Both flags decide about copies, so either overrides the key.
        let keep = is_set("no_keep") || is_set("keep");
        let per_session = self.keep_per_session.map(|it| it.0);
        put(&mut config.keep, self.keep.map(|it| Some(it.0)), keep);
        put(&mut config.keep_per_session, per_session, is_set("keep_per_session"));
        put(&mut config.key, self.key.map(Some), is_set("key"));
        put(&mut config.discovery, self.discovery, discovery);
        put(&mut config.announce, announce, discovery);
        put(&mut config.promiscuous, self.promiscuous, is_set("promiscuous"));
        put(&mut config.backend, self.capture, is_set("capture"));
        put(&mut config.buffer, self.buffer.and_then(|n| u16(n.0)), is_set("buffer"));
        put(&mut config.threads, self.threads.and_then(|n| u16(n.0)), is_set("threads"));
        put(&mut config.metrics, self.metrics.map(|it| Some(it.0)), is_set("metrics"));
        put(&mut config.log, self.log, is_set("verbose"));
    }

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

/// The same names in their order, each once.
pub(super) fn distinct(names: Vec<String>) -> Vec<String> {
    let mut distinct = Vec::new();
    for name in names {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    distinct
}

/// The key to which a line assigns a value.
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
    fn an_error_names_its_place_and_the_expected_value() {
        for (text, said) in [
            (
                "interfaces = [\"a\"]\nmax-sessions = 0\n",
                "p.toml:2: max-sessions: invalid value: integer `0`, expected a whole number \
                 from 1 to 1000000",
            ),
            (
                "max-threshold = \"many\"",
                "p.toml:1: max-threshold: invalid type: string \"many\", expected a whole number \
                 from 1 to 255",
            ),
            (
                "\n\nlisten = \"nowhere\"",
                "p.toml:3: listen: invalid value: string \"nowhere\", expected an address and port \
                 like 0.0.0.0:5252",
            ),
            (
                "announce = [\"0.0.0.0:1\"]",
                "p.toml:1: announce: invalid value: string \"0.0.0.0:1\", expected an address of \
                 this machine and a port, like 192.0.2.1:5252",
            ),
            (
                "log = \"loud\"",
                "p.toml:1: log: unknown variant `loud`, expected one of `warn`, `info`, `debug`, \
                 `trace`",
            ),
            (
                "metrics = \"on\"",
                "p.toml:1: metrics: invalid value: string \"on\", expected an address and port \
                 like 127.0.0.1:9252, or off",
            ),
            (
                "keep = \"64MB\"",
                "p.toml:1: keep: invalid value: string \"64MB\", expected a number of bytes like \
                 \"64M\", \"512K\" or 1000000, up to \"1024G\"",
            ),
            (
                "keep = -1",
                "p.toml:1: keep: invalid value: integer `-1`, expected a number of bytes like \
                 \"64M\", \"512K\" or 1000000, up to \"1024G\"",
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
    fn every_key_is_optional() {
        assert_eq!(File::parse("p.toml".as_ref(), "").unwrap(), File::default());
    }

    proptest! {
        #[test]
        fn any_text_is_a_configuration_or_an_error_of_one_line(
            text in "[a-z =\\[\\]\"\n0-9.:#-]{0,80}",
        ) {
            if let Err(error) = File::parse("p.toml".as_ref(), &text) {
                prop_assert_eq!(error.to_string().lines().count(), 1);
            }
        }
    }
}
