//! The agent's configuration file, whose keys are the names of the flags.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use sidekick_protocol::{ParseKeyError, PublicKey};

use crate::agent::config::{AgentConfig, DEFAULT_METRICS, TunName};
use crate::agent::filter::Selector;
use crate::capture::settings::Backend;
use crate::cli::file::types::{Bytes, Interface, Listed, Metrics, Number, ValueList, from_text};
use crate::cli::file::{Keys, distinct, put};
use crate::cli::values::proxy;
use crate::config::LogLevel;

/// The values of a file, `None` for each key that it does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct File {
    interfaces: Option<ValueList<Interface>>,
    tun: Option<Tun>,
    proxy: Option<Proxy>,
    proxy_key: Option<Key>,
    only: Option<ValueList<Selected>>,
    except: Option<ValueList<Selected>>,
    min_packets: Option<Number<1, 1_000_000>>,
    max_flows: Option<Number<1, 65_536>>,
    memory: Option<Bytes>,
    idle_timeout: Option<Number<1, 86_400>>,
    capture: Option<Backend>,
    buffer: Option<Number<1, 1024>>,
    metrics: Option<Metrics<{ DEFAULT_METRICS.port() }>>,
    log: Option<LogLevel>,
}

impl Keys for File {
    type Config = AgentConfig;

    fn apply(self, config: &mut AgentConfig, is_set: impl Fn(&str) -> bool) {
        let interfaces = self.interfaces.map(|names| names.0.into_iter().map(|it| it.0).collect());
        let selectors = |list: Option<ValueList<Selected>>| {
            list.map(|list| list.0.into_iter().map(|it| it.0).collect())
        };
        let u32 = |number: u64| u32::try_from(number).ok();
        let buffer = self.buffer.and_then(|n| u16::try_from(n.0).ok());
        let idle_timeout = self.idle_timeout.map(|n| Duration::from_secs(n.0));
        let min_packets = self.min_packets.and_then(|n| u32(n.0));
        put(&mut config.interfaces, interfaces.map(distinct), is_set("interfaces"));
        put(&mut config.tun, self.tun.map(|it| Some(it.0)), is_set("tun"));
        put(&mut config.proxy, self.proxy.map(|it| Some(it.0)), is_set("proxy"));
        put(&mut config.proxy_key, self.proxy_key.map(|it| Some(it.0)), is_set("proxy_key"));
        put(&mut config.only, selectors(self.only), is_set("only"));
        put(&mut config.except, selectors(self.except), is_set("except"));
        put(&mut config.min_packets, min_packets, is_set("min_packets"));
        put(&mut config.max_flows, self.max_flows.and_then(|n| u32(n.0)), is_set("max_flows"));
        put(&mut config.memory, self.memory.map(|it| it.0), is_set("memory"));
        put(&mut config.idle_timeout, idle_timeout, is_set("idle_timeout"));
        put(&mut config.backend, self.capture, is_set("capture"));
        put(&mut config.buffer, buffer, is_set("buffer"));
        put(&mut config.metrics, self.metrics.map(|it| Some(it.0)), is_set("metrics"));
        put(&mut config.log, self.log, is_set("verbose"));
    }

    fn advice(_name: &str) -> Option<String> {
        None
    }
}

/// The TUN device.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tun(TunName);

impl<'de> Deserialize<'de> for Tun {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, "a name in quotes, like \"sidekick0\", or \"off\"", str::parse)
            .map(Self)
    }
}

/// The address and port of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Proxy(SocketAddr);

impl<'de> Deserialize<'de> for Proxy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wanted = "an address and port in quotes, like \"192.0.2.1:5252\"";
        from_text(deserializer, wanted, proxy).map(Self)
    }
}

/// The public key of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key(PublicKey);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, "64 hexadecimal digits in quotes", |text| {
            text.parse().map(Self).map_err(|error: ParseKeyError| error.to_string())
        })
    }
}

/// A selector of flows: a text, or the number of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Selected(Selector);

impl Listed for Selected {
    const EXAMPLE: &'static str = "443, \"10.0.0.0/8\"";
}

impl<'de> Deserialize<'de> for Selected {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Destination;

        impl Visitor<'_> for Destination {
            type Value = Selected;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a port like 443, or a text like \"10.0.0.0/8:443\"")
            }

            fn visit_i64<E: Error>(self, port: i64) -> Result<Selected, E> {
                let selector = port.to_string().parse();
                selector
                    .map(Selected)
                    .map_err(|_| E::invalid_value(Unexpected::Signed(port), &self))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Selected, E> {
                text.parse()
                    .map(Selected)
                    .map_err(|error| E::custom(format!("invalid value {text:?}: {error}")))
            }
        }
        deserializer.deserialize_any(Destination)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::file::parse;
    use proptest::prelude::*;

    fn wrong(text: &str) -> String {
        parse::<File>("a.toml".as_ref(), text).unwrap_err().to_string()
    }

    #[test]
    fn an_error_names_its_place_and_says_what_to_write() {
        for (text, said) in [
            (
                "interfaces = [\"a\"]\nmax-flows = 0\n",
                "a.toml:2: max-flows: invalid value: integer `0`, expected a whole number from 1 \
                 to 65536",
            ),
            (
                "proxy = \"192.0.2.1\"",
                "a.toml:1: proxy: invalid value \"192.0.2.1\": add a port to it, like \
                 192.0.2.1:5252",
            ),
            ("tun = \"none\"", "a.toml:1: tun: invalid value \"none\": write off for no device"),
            (
                "tun = false",
                "a.toml:1: tun: invalid type: boolean `false`, expected a name in quotes, like \
                 \"sidekick0\", or \"off\"",
            ),
            (
                "proxy-key = \"12\"",
                "a.toml:1: proxy-key: invalid value \"12\": expected 64 hexadecimal digits, as \
                 the proxy shows its public key",
            ),
            (
                "only = [443, 0]",
                "a.toml:1: only: invalid value: integer `0`, expected a port like 443, or a text \
                 like \"10.0.0.0/8:443\"",
            ),
            (
                "only = [443, \"10.0.0.1/8\"]",
                "a.toml:1: only: invalid value \"10.0.0.1/8\": the address has bits behind its \
                 prefix: write 10.0.0.0/8",
            ),
            (
                "only = 443",
                "a.toml:1: only: invalid type: integer `443`, expected a list, like [443, \
                 \"10.0.0.0/8\"]",
            ),
            ("except = \"443\"", "a.toml:1: except: a list is needed: write [\"443\"]"),
            (
                "metrics = \"on\"",
                "a.toml:1: metrics: invalid value \"on\": write an address and port like \
                 127.0.0.1:9253, or off",
            ),
            (
                "metrics = 9253",
                "a.toml:1: metrics: invalid type: integer `9253`, expected an address and port in \
                 quotes, like \"127.0.0.1:9253\", or \"off\"",
            ),
            (
                "min-packet = 3",
                "a.toml:1: min-packet: this is not a key: did you mean min-packets?",
            ),
            (
                "json = true",
                "a.toml:1: json: this is a flag, and no key of a file: add --json to the command \
                 line",
            ),
            ("verbose = true", "a.toml:1: verbose: this is not a key: write log = \"info\""),
        ] {
            assert_eq!(wrong(text), said);
        }
    }

    #[test]
    fn every_key_is_optional() {
        assert_eq!(parse::<File>("a.toml".as_ref(), "").unwrap(), File::default());
    }

    proptest! {
        #[test]
        fn any_text_is_a_configuration_or_an_error_of_one_line(
            text in "(only = |except = )?[a-z =\\[\\]\"\n0-9.:#/-]{0,60}",
        ) {
            if let Err(error) = parse::<File>("a.toml".as_ref(), &text) {
                prop_assert_eq!(error.to_string().lines().count(), 1);
            }
        }
    }
}
