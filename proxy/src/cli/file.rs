//! The configuration file, whose keys are the names of the flags.

mod error;
pub(crate) mod types;

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::capture::settings::Backend;
use crate::config::{Config, LogLevel, ParityPolicy};
use crate::monitor::listener::DEFAULT_ADDRESS;
pub(crate) use error::FileError;
use types::{Announced, Bytes, Interface, KeyFile, Listen, Metrics, Number, ValueList};

/// The keys of a program's configuration file, with their values.
pub(crate) trait Keys: DeserializeOwned {
    /// The settings of the program.
    type Config: Default;

    /// Puts the values of this file into `config`, except those that a flag has set. `is_set` is
    /// asked with the name of a flag's field in the options.
    fn apply(self, config: &mut Self::Config, is_set: impl Fn(&str) -> bool);

    /// What to write in place of a name that is not a key, if this program knows it.
    fn advice(name: &str) -> Option<String>;
}

/// Reads a file.
///
/// # Errors
/// [`FileError`] says what is wrong with the file.
pub(crate) fn read<K: Keys>(path: &Path) -> Result<K, FileError> {
    let text = std::fs::read_to_string(path)
        .map_err(|cause| FileError::Unreadable { path: path.to_owned(), cause })?;
    parse(path, &text)
}

/// The settings of a file alone, without flags.
///
/// # Errors
/// [`FileError`] says what is wrong with the file.
pub(crate) fn settings<K: Keys>(path: &Path) -> Result<K::Config, FileError> {
    let mut config = K::Config::default();
    read::<K>(path)?.apply(&mut config, |_| false);
    Ok(config)
}

/// Reads the text of the file at `path`.
///
/// # Errors
/// [`FileError`] says what is wrong with the text.
pub(crate) fn parse<K: Keys>(path: &Path, text: &str) -> Result<K, FileError> {
    toml::from_str(text).map_err(|error| FileError::wrong::<K>(path, text, &error))
}

/// Puts the value of a key into `field`, unless the file has none or a flag has set the field.
pub(crate) fn put<T>(field: &mut T, value: Option<T>, is_set: bool) {
    if let (Some(value), false) = (value, is_set) {
        *field = value;
    }
}

/// The same names in their order, each once.
pub(crate) fn distinct(names: Vec<String>) -> Vec<String> {
    let mut distinct = Vec::new();
    for name in names {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    distinct
}

/// The values of a file, `None` for each key that it does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct File {
    pub(super) interfaces: Option<ValueList<Interface>>,
    pub(super) listen: Option<Listen>,
    pub(super) max_sessions: Option<Number<1, 1_000_000>>,
    pub(super) max_sessions_per_source: Option<Number<1, 1_000_000>>,
    pub(super) max_threshold: Option<Number<1, 255>>,
    pub(super) idle_timeout: Option<Number<1, 86_400>>,
    pub(super) keep: Option<Bytes>,
    pub(super) keep_per_session: Option<Bytes>,
    pub(super) parity: Option<ParityPolicy>,
    pub(super) parity_percent: Option<Number<1, 100>>,
    pub(super) key: Option<KeyFile>,
    pub(super) discovery: Option<bool>,
    pub(super) announce: Option<ValueList<Announced>>,
    pub(super) promiscuous: Option<bool>,
    pub(super) capture: Option<Backend>,
    pub(super) buffer: Option<Number<1, 1024>>,
    pub(super) threads: Option<Number<1, 64>>,
    pub(super) metrics: Option<Metrics<{ DEFAULT_ADDRESS.port() }>>,
    pub(super) log: Option<LogLevel>,
}

impl Keys for File {
    type Config = Config;

    fn apply(self, config: &mut Config, is_set: impl Fn(&str) -> bool) {
        let interfaces = self.interfaces.map(|names| names.0.into_iter().map(|it| it.0).collect());
        let announce = self.announce.map(|list| list.0.into_iter().map(|it| it.0).collect());
        // Both flags decide about discovery, so either overrides both keys.
        let discovery = is_set("no_discovery") || is_set("announce");
        let u16 = |number: u64| u16::try_from(number).ok();
        let threshold = self.max_threshold.and_then(|n| u8::try_from(n.0).ok());
        let per_source = self.max_sessions_per_source.map(|n| n.0);
        let idle_timeout = self.idle_timeout.map(|n| Duration::from_secs(n.0));
        put(&mut config.interfaces, interfaces.map(distinct), is_set("interfaces"));
        put(&mut config.listen, self.listen.map(|address| Some(address.0)), is_set("listen"));
        put(&mut config.max_sessions, self.max_sessions.map(|n| n.0), is_set("max_sessions"));
        put(&mut config.max_sessions_per_source, per_source, is_set("max_sessions_per_source"));
        put(&mut config.max_threshold, threshold, is_set("max_threshold"));
        put(&mut config.idle_timeout, idle_timeout, is_set("idle_timeout"));
        // Both flags decide about copies, so either overrides the key.
        let keep = is_set("no_keep") || is_set("keep");
        let per_session = self.keep_per_session.map(|it| it.0);
        put(&mut config.keep, self.keep.map(|it| Some(it.0)), keep);
        put(&mut config.keep_per_session, per_session, is_set("keep_per_session"));
        let percent = self.parity_percent.and_then(|n| u8::try_from(n.0).ok());
        put(&mut config.parity, self.parity, is_set("parity"));
        put(&mut config.parity_percent, percent, is_set("parity_percent"));
        put(&mut config.key, self.key.map(|file| Some(file.0)), is_set("key"));
        put(&mut config.discovery, self.discovery, discovery);
        put(&mut config.announce, announce, discovery);
        put(&mut config.promiscuous, self.promiscuous, is_set("promiscuous"));
        put(&mut config.backend, self.capture, is_set("capture"));
        put(&mut config.buffer, self.buffer.and_then(|n| u16(n.0)), is_set("buffer"));
        put(&mut config.threads, self.threads.and_then(|n| u16(n.0)), is_set("threads"));
        put(&mut config.metrics, self.metrics.map(|it| Some(it.0)), is_set("metrics"));
        put(&mut config.log, self.log, is_set("verbose"));
    }

    fn advice(name: &str) -> Option<String> {
        Some(match name {
            "compat" | "quack-to" | "quack-every" | "threshold" => {
                "this is a flag, and no key of a file: with --compat, use flags alone".to_owned()
            }
            "no-discovery" => "this is not a key: write discovery = false".to_owned(),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wrong(text: &str) -> String {
        parse::<File>("p.toml".as_ref(), text).unwrap_err().to_string()
    }

    #[test]
    fn an_error_names_its_place_and_says_what_to_write() {
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
                "p.toml:3: listen: invalid value \"nowhere\": write an address and port like \
                 [::]:5252",
            ),
            (
                "listen = 5252",
                "p.toml:1: listen: invalid type: integer `5252`, expected an address and port in \
                 quotes, like \"[::]:5252\"",
            ),
            (
                "announce = [\"0.0.0.0:1\"]",
                "p.toml:1: announce: invalid value \"0.0.0.0:1\": write an address of this \
                 machine and a port, like 192.0.2.1:5252",
            ),
            (
                "announce = \"192.0.2.1:5252\"",
                "p.toml:1: announce: a list is needed: write [\"192.0.2.1:5252\"]",
            ),
            (
                "log = \"loud\"",
                "p.toml:1: log: unknown variant `loud`, expected one of `warn`, `info`, `debug`, \
                 `trace`",
            ),
            (
                "metrics = \"on\"",
                "p.toml:1: metrics: invalid value \"on\": write an address and port like \
                 127.0.0.1:9252, or off",
            ),
            ("interfaces = \"near\"", "p.toml:1: interfaces: a list is needed: write [\"near\"]"),
            (
                "interfaces = 7",
                "p.toml:1: interfaces: invalid type: integer `7`, expected a list, like \
                 [\"eth0\"]",
            ),
            (
                "interfaces = [\"near\", \"\"]",
                "p.toml:1: interfaces: invalid value \"\": the name is empty: leave it out",
            ),
            (
                "key = 5",
                "p.toml:1: key: invalid type: integer `5`, expected a file name in quotes, like \
                 \"/var/lib/sidekick-proxy/key\"",
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
        let broken = wrong("interfaces = [\"a\"\nlisten");
        assert!(broken.starts_with("p.toml:"), "{broken}");
        let missing = read::<File>("/nonexistent/p.toml".as_ref()).unwrap_err().to_string();
        assert!(missing.starts_with("cannot read /nonexistent/p.toml: "), "{missing}");
    }

    #[test]
    fn an_unknown_key_is_answered_by_the_one_that_was_meant() {
        for (text, said) in [
            (
                "# ours\nmax-session = 3",
                "p.toml:2: max-session: this is not a key: did you mean max-sessions?",
            ),
            (
                "max_sessions = 3",
                "p.toml:1: max_sessions: this is not a key: did you mean max-sessions?",
            ),
            (
                "interface = [\"eth0\"]",
                "p.toml:1: interface: this is not a key: did you mean interfaces?",
            ),
            (
                "compat = \"nsdi24\"",
                "p.toml:1: compat: this is a flag, and no key of a file: with --compat, use flags \
                 alone",
            ),
            (
                "quack-to = \"10.0.0.2:5103\"",
                "p.toml:1: quack-to: this is a flag, and no key of a file: with --compat, use \
                 flags alone",
            ),
            (
                "no-discovery = true",
                "p.toml:1: no-discovery: this is not a key: write discovery = false",
            ),
            ("verbose = true", "p.toml:1: verbose: this is not a key: write log = \"info\""),
            (
                "json = true",
                "p.toml:1: json: this is a flag, and no key of a file: add --json to the command \
                 line",
            ),
        ] {
            assert_eq!(wrong(text), said);
        }
        let said = wrong("[package]\nname = \"x\"");
        assert!(
            said.starts_with("p.toml:1: package: this is not a key: the keys are interfaces, ")
                && said.contains(", max-sessions, "),
            "{said}"
        );
    }

    #[test]
    fn a_text_without_quotes_is_answered_by_the_quoted_one() {
        for (text, said) in [
            ("interfaces = [near0]", "interfaces: this text needs quotes: write \"near0\""),
            (
                "interfaces = [\"lan\", eth0.7] # ours",
                "interfaces: this text needs quotes: write \"eth0.7\"",
            ),
            ("log = info", "log: this text needs quotes: write \"info\""),
            ("key = /etc/key", "key: this text needs quotes: write \"/etc/key\""),
            ("listen = 192.0.2.1:5252", "listen: this text needs quotes: write \"192.0.2.1:5252\""),
            ("listen = [::]:5252", "listen: this text needs quotes: write \"[::]:5252\""),
            ("discovery = yes", "discovery: write true or false"),
            // Other faults keep the message of the parser.
            ("log = \"info", "log: invalid basic string, expected `\"`"),
            ("interfaces", "key with no value, expected `=`"),
            ("threads = 01", "threads: unexpected leading zero, expected nothing"),
            ("interfaces = [\"lo\"", "interfaces: unclosed array, expected `]`"),
        ] {
            assert_eq!(wrong(text), format!("p.toml:1: {said}"));
        }
        assert_eq!(
            wrong("interfaces = [\n    near0,\n]"),
            "p.toml:2: this text needs quotes: write \"near0\""
        );
    }

    #[test]
    fn every_key_is_optional() {
        assert_eq!(parse::<File>("p.toml".as_ref(), "").unwrap(), File::default());
    }

    proptest! {
        #[test]
        fn any_text_is_a_configuration_or_an_error_of_one_line(
            text in "[a-z =\\[\\]\"\n0-9.:#-]{0,80}",
        ) {
            if let Err(error) = parse::<File>("p.toml".as_ref(), &text) {
                prop_assert_eq!(error.to_string().lines().count(), 1);
            }
        }
    }
}
