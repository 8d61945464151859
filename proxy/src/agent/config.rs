//! The settings of an agent, independent of how the operator gives them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::str::FromStr;

use clap::{Args, value_parser};
use nix::sys::sysinfo::sysinfo;
use serde::{Serialize, Serializer};
use sidekick_protocol::PublicKey;
use thiserror::Error;

use super::filter::{Filter, Selector};
use super::flow::flow_bytes;
use crate::capture::settings::{Backend, Settings, interface_name};
use crate::cli::values::{metrics_or_off, proxy};
use crate::config::{Log, MAX_INTERFACES, lines};
use crate::monitor::listener::MetricsAddress;
use crate::size::Size;

/// Where an agent serves metrics by default: beside a proxy on the same machine.
pub(crate) const DEFAULT_METRICS: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9253);

pub(crate) const DEFAULT_TUN: &str = "sidekick0";

/// Captures on each interface: of what leaves, and of what arrives.
const DIRECTIONS: u64 = 2;

/// The TUN device by which this host gets copies of datagrams that were lost on their way to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TunName {
    /// None: no help for what arrives.
    Off,
    /// The agent creates the device with this name.
    Named(String),
}

impl FromStr for TunName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        // The kernel accepts these names, but an operator who writes one wants no device.
        let lower = text.to_ascii_lowercase();
        if matches!(&*lower, "off" | "no" | "none" | "false" | "disable" | "disabled") {
            return Err("write off for no device".to_owned());
        }
        interface_name(text).map(Self::Named)
    }
}

impl fmt::Display for TunName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::Named(name) => name,
        })
    }
}

impl Serialize for TunName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The settings of an agent: the flags of its program, and the keys of its file.
#[derive(Args, Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct AgentConfig {
    /// Interface of a lossy link, by which packets leave. Repeat the flag, or separate names by
    /// commas, for several
    #[arg(
        short,
        long = "interface",
        alias = "interfaces",
        value_name = "IF",
        value_delimiter = ',',
        value_parser = interface_name
    )]
    pub interfaces: Vec<String>,

    /// TUN device by which this host receives copies of lost packets that have numbers, such as
    /// those of calls and WireGuard, or `off`. The agent creates it [default: sidekick0, or none if
    /// the agent cannot create it]
    #[arg(long, value_name = "IF|off")]
    pub tun: Option<TunName>,

    /// Put what arrives in order: hold the packets behind a lost one until its copy is here, in a
    /// netfilter queue. For QUIC, OpenVPN and other encrypted flows, and for MPEG-TS if --only
    /// names it. The agent sets up the rules of the firewall that this needs, and keeps
    /// CAP_NET_ADMIN
    #[arg(long)]
    pub in_order: bool,

    /// From a round trip of 10 ms to the proxy on, send it parity of QUIC and OpenVPN uploads that
    /// lose packets, up to 35 % more bytes. The proxy must put uploads in order. It rebuilds what
    /// was lost, so the flow's sender does not slow down
    #[arg(long)]
    pub upload_parity: bool,

    /// Interface of a second uplink to the same proxy, by which repairs go: what is lost by the
    /// first, and copies of what is lost on its way here. A route to the proxy must lead there
    #[arg(long, value_name = "IF", value_parser = interface_name)]
    pub second_uplink: Option<String>,

    /// Mbit/s of flows, each way, that the second uplink carries while the first is silent; 0 for
    /// repairs alone
    #[arg(long, value_name = "MBIT", default_value_t = Self::default().carry,
          value_parser = clap::value_parser!(u32).range(..=10_000))]
    pub carry: u32,

    /// The most that it carries so until the agent restarts
    #[arg(long, value_name = "SIZE", default_value_t = Self::default().carry_budget)]
    pub carry_budget: Size,

    /// Number of that queue. Two agents on a machine need two
    #[arg(long, value_name = "N", default_value_t = Self::default().queue)]
    pub queue: u16,

    /// Address and UDP port of the proxy of all flows. For flows with another source address than
    /// this host's, the agent must find this proxy on their path [default: search the path of each
    /// flow for a proxy]
    #[arg(long, value_name = "ADDR:PORT", value_parser = proxy)]
    pub proxy: Option<SocketAddr>,

    /// Accept only the proxy with this public key: 64 hexadecimal digits, which the proxy prints
    /// when it starts [default: accept any proxy on the path]
    #[arg(long, value_name = "KEY")]
    #[serde(serialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub proxy_key: Option<PublicKey>,

    /// Help only these flows, by their destination or source. Repeat the flag, or separate
    /// selectors by commas, for several [default: all flows whose packets are encrypted, or of a
    /// protocol that bears them twice or out of order]
    #[arg(long, value_name = "SELECTOR", value_delimiter = ',')]
    pub only: Vec<Selector>,

    /// Never help these flows. This flag overrides --only
    #[arg(long, value_name = "SELECTOR", value_delimiter = ',')]
    pub except: Vec<Selector>,

    /// Help a flow from this packet on. QUIC gets help from its first or second packet
    #[arg(
        long,
        value_name = "N",
        default_value_t = Self::default().min_packets,
        value_parser = value_parser!(u32).range(1..=1_000_000)
    )]
    pub min_packets: u32,

    /// Most flows helped at once
    #[arg(
        long,
        value_name = "N",
        default_value_t = Self::default().max_flows,
        value_parser = value_parser!(u32).range(1..=65_536)
    )]
    pub max_flows: u32,

    /// Memory for copies of the last packets that left, of all flows together, such as 64M
    #[arg(long, value_name = "BYTES", default_value_t = Self::default().memory)]
    pub memory: Size,

    /// Forget a flow this many seconds after its last packet
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = Self::default().idle_timeout,
        value_parser = value_parser!(u64).range(1..=86_400)
    )]
    pub idle_timeout: u64,

    /// How to capture packets
    #[arg(long = "capture", value_name = "HOW", value_enum, default_value_t)]
    #[serde(rename = "capture")]
    pub backend: Backend,

    /// Mebibytes of packets that may wait on each interface, for each direction (4 hold 2048
    /// packets)
    #[arg(
        long,
        value_name = "MIB",
        default_value_t = Self::default().buffer,
        value_parser = value_parser!(u16).range(1..=1024)
    )]
    pub buffer: u16,

    /// Address and TCP port of metrics, health and status over HTTP, or `off`. Everyone who can
    /// reach it can read them [default: 127.0.0.1:9253, or nowhere if that port is in use]
    #[arg(long, value_name = "ADDR:PORT|off", value_parser = metrics_or_off(DEFAULT_METRICS))]
    pub metrics: Option<MetricsAddress>,

    /// How much to log to stderr.
    #[command(flatten)]
    #[serde(flatten)]
    pub log: Log,

    /// Print the final summary as one JSON object
    #[arg(long)]
    #[serde(skip)]
    pub json: bool,
}

/// Writes a value as its text.
fn text<S: Serializer>(value: &Option<PublicKey>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&value.map(|value| value.to_string()).unwrap_or_default())
}

/// Why an agent cannot run with an [`AgentConfig`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AgentConfigError {
    /// There is no interface.
    #[error(
        "no interface to help on: name one with --interface IF, or interfaces = [\"IF\"] in the \
         file of --config"
    )]
    NoInterface,
    /// The second uplink is the first.
    #[error("{0} is named both as an interface to help on and as the second uplink: change one")]
    SameUplink(String),
    /// Only a second uplink carries anything.
    #[error("carry needs a second uplink: set second-uplink, or remove carry")]
    CarryWithoutUplink,
    /// There are too many interfaces.
    #[error("{0} interfaces: the limit is {MAX_INTERFACES}")]
    TooManyInterfaces(usize),
    /// Copies reach the host by the TUN device.
    #[error("in-order needs a TUN device, by which copies arrive: remove tun = \"off\"")]
    OrderWithoutDevice,
    /// The agent creates the TUN device by itself, and helps nothing that leaves by it.
    #[error(
        "{0} is named both as an interface to help on and as the agent's TUN device, which the \
         agent creates: change one of them"
    )]
    OwnInterface(String),
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            interfaces: Vec::new(),
            tun: None,
            in_order: false,
            upload_parity: false,
            second_uplink: None,
            carry: 0,
            carry_budget: Size::mebibytes(1024),
            queue: 5252,
            proxy: None,
            proxy_key: None,
            only: Vec::new(),
            except: Vec::new(),
            min_packets: 8,
            max_flows: 256,
            memory: Size::mebibytes(32),
            idle_timeout: 30,
            backend: Backend::default(),
            buffer: 4,
            metrics: None,
            json: false,
            log: Log::default(),
        }
    }
}

impl AgentConfig {
    /// Checks the settings as a whole.
    ///
    /// # Errors
    /// [`AgentConfigError`] states the fault.
    pub fn check(&self) -> Result<(), AgentConfigError> {
        match self.interfaces.len() {
            0 => Err(AgentConfigError::NoInterface),
            number if number > MAX_INTERFACES => Err(AgentConfigError::TooManyInterfaces(number)),
            _ if self.interfaces.contains(&self.tun_name()) => {
                Err(AgentConfigError::OwnInterface(self.tun_name()))
            }
            _ if self.carry > 0 && self.second_uplink.is_none() => {
                Err(AgentConfigError::CarryWithoutUplink)
            }
            _ if self.second_uplink.as_ref().is_some_and(|it| self.interfaces.contains(it)) => {
                Err(AgentConfigError::SameUplink(self.second_uplink.clone().unwrap_or_default()))
            }
            _ if self.in_order && self.tun == Some(TunName::Off) => {
                Err(AgentConfigError::OrderWithoutDevice)
            }
            _ => Ok(()),
        }
    }

    /// The name of the TUN device, or `off`.
    fn tun_name(&self) -> String {
        self.tun.as_ref().map_or_else(|| DEFAULT_TUN.to_owned(), TunName::to_string)
    }

    /// Which flows get help.
    #[must_use]
    pub fn filter(&self) -> Filter {
        Filter { only: self.only.clone(), except: self.except.clone() }
    }

    /// A sentence if waiting packets, copies and flows could fill more than half of the machine's
    /// memory. A flow counts as it is before a proxy accepts. With a session, a fast flow can take
    /// eight times as much, but not all flows are fast at once.
    #[must_use]
    pub fn memory_shortage(&self) -> Option<String> {
        let memory = sysinfo().ok()?.ram_total() >> 20;
        let [buffers, copies, flows] = self.memory();
        (buffers.saturating_add(copies).saturating_add(flows) > memory / 2).then(|| {
            format!(
                "waiting packets can fill {buffers} MiB (buffer for each interface and direction), \
                 copies {copies} MiB (memory), flows {flows} MiB (max-flows), and this machine has \
                 {memory} MiB: reduce buffer, memory or max-flows"
            )
        })
    }

    /// A sentence if a selector is both in `only` and in `except`.
    #[must_use]
    pub fn contradiction(&self) -> Option<String> {
        let both = self.only.iter().find(|selector| self.except.contains(selector))?;
        Some(format!("{both} is both in only and in except: the agent does not help these flows"))
    }

    /// A sentence if a selector of `only` names a group, which the agent never helps.
    #[must_use]
    pub fn unhelped_group(&self) -> Option<String> {
        let group = self.only.iter().find(|selector| selector.is_group())?;
        Some(format!("only: {group} is multicast or broadcast, and the agent helps no such flow"))
    }

    /// A sentence if there is no memory for copies of what leaves.
    #[must_use]
    pub fn no_copies(&self) -> Option<String> {
        (self.memory == Size::default()).then(|| {
            "memory = 0 leaves no room for copies: the agent repairs no loss of what leaves"
                .to_owned()
        })
    }

    /// A sentence if the TUN device has the name of another kind of interface. `class` is a
    /// directory like `/sys/class/net`.
    #[must_use]
    pub fn other_device(&self, class: &Path) -> Option<String> {
        let name = self.tun_name();
        // "off" is a name, too, but no device has it here.
        let path = class.join(&name);
        let is_other =
            self.tun != Some(TunName::Off) && path.exists() && !path.join("tun_flags").exists();
        is_other.then(|| {
            format!(
                "{name} is an interface and no TUN device: name another one for tun, or \"off\""
            )
        })
    }

    /// The most mebibytes of waiting packets, of copies, and of flows beside them.
    fn memory(&self) -> [u64; 3] {
        let interfaces = u64::try_from(self.interfaces.len()).unwrap_or(u64::MAX);
        let captures = interfaces.saturating_mul(DIRECTIONS);
        let flows = u64::from(self.max_flows).saturating_mul(flow_bytes()) >> 20;
        [captures.saturating_mul(self.buffer.into()), self.memory.get() >> 20, flows]
    }

    /// The settings as the lines of a configuration file.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let metrics = self.metrics.unwrap_or(MetricsAddress::At(DEFAULT_METRICS));
        lines(&Self {
            tun: self.tun_name().parse().ok(),
            metrics: Some(metrics),
            log: self.log.level().into(),
            ..self.clone()
        })
    }

    /// How to capture on each interface.
    pub(crate) fn capture(&self) -> Settings {
        Settings {
            backend: self.backend,
            promiscuous: false,
            buffer: usize::from(self.buffer) << 20,
            threads: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_have_a_limit() {
        let with = |number: usize| AgentConfig {
            interfaces: (0..number).map(|number| format!("eth{number}")).collect(),
            ..AgentConfig::default()
        };
        assert_eq!(with(0).check(), Err(AgentConfigError::NoInterface));
        assert_eq!(with(MAX_INTERFACES).check(), Ok(()));
        let error = with(MAX_INTERFACES + 1).check().unwrap_err();
        assert_eq!(error.to_string(), "33 interfaces: the limit is 32");
    }

    #[test]
    fn the_agents_own_device_is_no_interface_to_help_on() {
        let interfaces = vec!["wlan0".to_owned(), DEFAULT_TUN.to_owned()];
        let own = AgentConfig { interfaces, ..AgentConfig::default() };
        let said = own.check().unwrap_err().to_string();
        assert!(said.starts_with("sidekick0 is named both as an interface"), "{said}");
        for other in ["tun9", "off"] {
            let tun = Some(other.parse().unwrap());
            assert_eq!(AgentConfig { tun, ..own.clone() }.check(), Ok(()), "{other}");
        }
        assert!("a/b".parse::<TunName>().is_err());
        for word in ["none", "None", "no", "false", "OFF", "disabled"] {
            assert_eq!(word.parse::<TunName>().unwrap_err(), "write off for no device", "{word}");
        }
        assert_eq!("none0".parse(), Ok(TunName::Named("none0".to_owned())));
    }

    #[test]
    fn a_selector_in_both_lists_is_named() {
        let list = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let with = |only, except| AgentConfig {
            only: list(only),
            except: list(except),
            ..AgentConfig::default()
        };
        assert_eq!(with(&["443", "10.0.0.0/8"], &["10.1.0.0/16"]).contradiction(), None);
        assert_eq!(
            with(&["443", "10.0.0.0/8"], &["443"]).contradiction().unwrap(),
            "443 is both in only and in except: the agent does not help these flows"
        );
    }

    #[test]
    fn settings_that_prevent_help_are_named() {
        assert_eq!(AgentConfig::default().no_copies(), None);
        let none = AgentConfig { memory: Size::default(), ..AgentConfig::default() };
        assert!(none.no_copies().unwrap().starts_with("memory = 0 "));

        let class = tempfile::tempdir().unwrap();
        std::fs::create_dir(class.path().join("eth0")).unwrap();
        std::fs::create_dir_all(class.path().join("tun9").join("tun_flags")).unwrap();
        for (tun, is_other) in [("eth0", true), ("tun9", false), ("new0", false), ("off", false)] {
            let tun = tun.parse().ok();
            let config = AgentConfig { tun, ..AgentConfig::default() };
            assert_eq!(config.other_device(class.path()).is_some(), is_other, "{:?}", config.tun);
        }
    }

    #[test]
    fn memory_that_the_machine_lacks_is_named() {
        let interfaces = ["wlan0".to_owned(), "eth0".to_owned()].to_vec();
        let usual = AgentConfig { interfaces, ..AgentConfig::default() };
        assert_eq!(usual.memory(), [2 * 2 * 4, 32, 14]);
        let many = AgentConfig { max_flows: 65_536, ..usual.clone() };
        assert_eq!(many.memory(), [2 * 2 * 4, 32, 3584]);
        let greedy = AgentConfig { memory: Size::mebibytes(1 << 20), ..usual };
        let sentence = greedy.memory_shortage().unwrap();
        let parts = "copies 1048576 MiB (memory), flows 14 MiB (max-flows)";
        assert!(sentence.contains(parts), "{sentence}");
    }
}
