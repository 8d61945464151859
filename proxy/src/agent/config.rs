//! The settings of an agent, independent of how the operator gives them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use nix::sys::sysinfo::sysinfo;
use sidekick_protocol::PublicKey;
use thiserror::Error;

use super::filter::{Filter, Selector};
use super::flow;
use crate::capture::settings::{Backend, Settings, interface_name};
use crate::config::{LogLevel, MAX_INTERFACES};
use crate::monitor::listener::MetricsAddress;
use crate::size::Size;

/// Where an agent serves metrics by default: beside a proxy on the same machine.
pub(crate) const DEFAULT_METRICS: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9253);

/// The keys of a file that take effect only at a restart.
pub(crate) const AT_RESTART: [&str; 5] = ["interfaces", "tun", "capture", "buffer", "metrics"];

/// The TUN device by default.
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

/// The settings of an agent.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// The interfaces whose leaving flows are helped: 1 to [`MAX_INTERFACES`] different names.
    pub interfaces: Vec<String>,
    /// The TUN device. `None`: the default one, or none if that cannot be created.
    pub tun: Option<TunName>,
    /// The proxy's address, or `None` to look for proxies on the path of each flow.
    pub proxy: Option<SocketAddr>,
    /// The key that the proxy must hold, or `None` to accept any proxy on the path.
    pub proxy_key: Option<PublicKey>,
    /// Help these flows alone; if empty, all.
    pub only: Vec<Selector>,
    /// Never help these flows.
    pub except: Vec<Selector>,
    /// Help a flow from this packet on, and QUIC from its first or second: 1 to 1,000,000.
    pub min_packets: u32,
    /// Most flows that are helped at once: 1 to 65,536.
    pub max_flows: u32,
    /// Most memory for the copies of leaving packets, of all flows together.
    pub memory: Size,
    /// Forget a flow this long after its last packet: 1 second to 1 day.
    pub idle_timeout: Duration,
    /// How to capture packets.
    pub backend: Backend,
    /// Mebibytes of packets that may wait, for each interface and direction: 1 to 1024.
    pub buffer: u16,
    /// Where to serve metrics. `None`: at the default address, or nowhere if that is in use.
    pub metrics: Option<MetricsAddress>,
    /// Whether to print the final summary as JSON.
    pub json: bool,
    /// How much to log.
    pub log: LogLevel,
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
    /// There are too many interfaces.
    #[error("{0} interfaces: the limit is {MAX_INTERFACES}")]
    TooManyInterfaces(usize),
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
            proxy: None,
            proxy_key: None,
            only: Vec::new(),
            except: Vec::new(),
            min_packets: 8,
            max_flows: 256,
            memory: Size::mebibytes(32),
            idle_timeout: Duration::from_secs(30),
            backend: Backend::default(),
            buffer: 4,
            metrics: None,
            json: false,
            log: LogLevel::default(),
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
        let flows = u64::from(self.max_flows).saturating_mul(flow::bytes()) >> 20;
        [captures.saturating_mul(self.buffer.into()), self.memory.get() >> 20, flows]
    }

    /// The settings as the lines of a configuration file.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let list = |texts: Vec<String>| {
            texts.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(", ")
        };
        let selectors = |of: &[Selector]| list(of.iter().map(Selector::to_string).collect());
        let mut lines = vec![format!("interfaces = [{}]", list(self.interfaces.clone()))];
        lines.push(format!("tun = \"{}\"", self.tun_name()));
        lines.extend(self.proxy.map(|proxy| format!("proxy = \"{proxy}\"")));
        lines.extend(self.proxy_key.map(|key| format!("proxy-key = \"{key}\"")));
        let metrics = self.metrics.unwrap_or(MetricsAddress::At(DEFAULT_METRICS));
        lines.extend([
            format!("only = [{}]", selectors(&self.only)),
            format!("except = [{}]", selectors(&self.except)),
            format!("min-packets = {}", self.min_packets),
            format!("max-flows = {}", self.max_flows),
            format!("memory = \"{}\"", self.memory),
            format!("idle-timeout = {}", self.idle_timeout.as_secs()),
            format!("capture = \"{}\"", self.backend.as_str()),
            format!("buffer = {}", self.buffer),
            format!("metrics = \"{metrics}\""),
            format!("log = \"{}\"", self.log.as_str()),
        ]);
        lines.join("\n") + "\n"
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
    fn keys_of_a_restart_are_keys_of_a_file() {
        let config = AgentConfig::default().to_toml();
        for key in AT_RESTART {
            assert!(config.lines().any(|line| line.starts_with(&format!("{key} = "))), "{key}");
        }
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
