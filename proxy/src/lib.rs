//! A Sidekick proxy as a library, and the agent for programs that cannot ask for help themselves.
//!
//! [`run`] runs a proxy with a [`Config`]. It reads copies of packets, counts those of flows whose
//! senders ask, and reports them by quACKs. Forwarding stays with the machine, so when the proxy
//! stops, traffic goes on without help.
//!
//! The path of a packet through the files of this crate:
//!
//! 1. `capture` lends the frame, as the kernel has put it into a ring. `offload` recognises a frame
//!    into which the kernel merged several datagrams.
//! 2. `packet` finds the UDP flow and the payload in it, without copying.
//! 3. `worker` is the loop of the thread that serves the packet's source. It passes the datagram to
//!    its own [`sidekick_protocol::Observer`], and sends the messages that this has ready.
//! 4. `port` is the UDP socket for messages of senders, and for messages to them.
//!
//! `replay` reads packets from a capture file instead. `packet_info` sends from a chosen address or
//! through a chosen interface, `raw_socket` answers senders that look for a proxy, and `key` keeps
//! the secret key. In `gateway`, packets wait for those before them, in a `queue` of the kernel.
//! `daemon` starts and ends all this, with `pool` for the workers and `privileges` to give up what
//! is no longer needed; `life` is what it shares with the agent's. `program`, `cli`, `summary`,
//! `counters`, `progress` and `monitor` are for the operator.
//!
//! [`run_agent`] runs the agent, in `agent`. It helps the flows of unmodified programs, and shares
//! the captures and the operator's pages with the proxy.

mod addresses;
mod agent;
mod capture;
mod cli;
mod config;
mod counters;
mod daemon;
mod gateway;
mod key;
mod life;
mod monitor;
mod offload;
mod packet;
mod packet_info;
mod pool;
mod port;
mod program;
mod queue;
mod raw_socket;
mod replay;
mod runtime;
mod size;
mod summary;
mod terminal;
#[doc(hidden)]
pub mod testing;
mod trace;
mod worker;

pub use agent::config::{AgentConfig, AgentConfigError};
pub use agent::filter::{NotASelector, Selector};
#[doc(hidden)]
pub use agent::main as agent_main;
pub use capture::settings::Backend;
pub use config::{Config, ConfigError, LogLevel, MAX_INTERFACES};
pub use monitor::listener::MetricsAddress;
#[doc(hidden)]
pub use program::main;
pub use size::{NotASize, Size};
pub use trace::{
    Change, Direction, DirectionSummary, Fate, NotATrace, Packet, RoundTrip, RoundTripSummary, Run,
    Summary, Trace,
};

/// Runs a proxy until SIGINT, SIGTERM or SIGHUP ends it, or its port fails.
///
/// Call this before the process starts any other thread. It blocks these signals, and gives up all
/// capabilities but CAP_NET_RAW. It prints its state to standard output, and logs by [`tracing`].
///
/// # Errors
/// One sentence for the operator: why the proxy cannot start or continue.
pub fn run(config: &Config) -> anyhow::Result<()> {
    daemon::run(config, None)
}

/// Runs an agent until SIGINT, SIGTERM or SIGHUP ends it.
///
/// Call this before the process starts any other thread, as [`run`].
///
/// # Errors
/// One sentence for the operator: why the agent cannot start or continue.
pub fn run_agent(config: &AgentConfig) -> anyhow::Result<()> {
    agent::daemon::run(config, None)
}
