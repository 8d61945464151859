//! The settings of an agent, independent of how the operator gives them.

use std::net::SocketAddr;
use std::time::Duration;

use sidekick_protocol::PublicKey;
use thiserror::Error;

use super::filter::Selector;
use crate::capture::settings::{Backend, Settings};
use crate::config::{LogLevel, MAX_INTERFACES};
use crate::monitor::listener::MetricsAddress;
use crate::size::Size;

/// The settings of an agent.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// The interfaces whose leaving flows are helped: 1 to [`MAX_INTERFACES`] different names.
    pub interfaces: Vec<String>,
    /// The proxy's address, or `None` to look for proxies on the path of each flow.
    pub proxy: Option<SocketAddr>,
    /// The key that the proxy must hold, or `None` to accept any proxy on the path.
    pub proxy_key: Option<PublicKey>,
    /// Help these flows alone; if empty, all.
    pub only: Vec<Selector>,
    /// Never help these flows.
    pub except: Vec<Selector>,
    /// Help a flow from this packet on: 1 to 1,000,000.
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
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            interfaces: Vec::new(),
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
    /// Checks what no single setting shows.
    ///
    /// # Errors
    /// [`AgentConfigError`] says which settings contradict each other.
    pub fn check(&self) -> Result<(), AgentConfigError> {
        match self.interfaces.len() {
            0 => Err(AgentConfigError::NoInterface),
            number if number > MAX_INTERFACES => Err(AgentConfigError::TooManyInterfaces(number)),
            _ => Ok(()),
        }
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
