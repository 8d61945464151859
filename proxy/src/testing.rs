//! Items for the tests, benchmarks and fuzz targets of this workspace. They may change at any time.

use std::os::fd::{AsFd, BorrowedFd};

use anyhow::Context as _;
use sidekick_protocol::Seen;

pub use crate::addresses::HostNetwork;
use crate::agent::config::AgentConfig;
pub use crate::capture::BATCH;
use crate::capture::{self, Batch, Capture, Captured, Frames};
use crate::config::Config;
use crate::life::Settings;
pub use crate::monitor::server::serve;
pub use crate::monitor::status::{Limits, ProxyInfo, Status, StatusReader};
pub use crate::monitor::subject::{Program, ProgramStatus, StatusSource};
pub use crate::packet_info::PacketInfo;
pub use crate::pool::WorkerPool;
pub use crate::port::{Arrival, Port};
pub use crate::raw_socket::RawSocket;
pub use crate::replay::counter::Replay;
pub use crate::summary::Summary;
pub use crate::worker::{Report, Sockets, WorkerEvent};

/// The command lines of the proxy and of the agent, for their man pages.
#[must_use]
pub fn commands() -> [clap::Command; 2] {
    [crate::cli::definition(), crate::agent::cli::definition()]
}

/// The settings of the proxy and of the agent that take effect only at a restart.
#[must_use]
pub fn at_restart() -> [&'static [&'static str]; 2] {
    [Config::AT_RESTART, AgentConfig::AT_RESTART]
}

/// The datagrams that arrive through an interface, as a proxy captures them.
#[derive(Debug)]
pub struct Arrivals(Capture);

impl Arrivals {
    /// Captures on the interface called `name`.
    ///
    /// # Errors
    /// A sentence for the operator: why this is impossible.
    pub fn open(name: &str) -> anyhow::Result<Self> {
        let settings = Config::default().capture();
        Ok(Self(capture::open(name, settings)?.pop().context("the capture has no thread")?))
    }

    /// Passes the datagrams that wait to `each`, in the order of their arrival.
    ///
    /// # Errors
    /// A sentence for the operator: why the capture has ended.
    pub fn read(&mut self, mut each: impl FnMut(&Seen<'_>)) -> anyhow::Result<()> {
        loop {
            let (mut frames, mut batch) = (Frames::default(), Batch::default());
            let mut datagrams = self.0.read(&mut frames)?;
            while let Some(captured) = datagrams.next(&mut batch) {
                if let Captured::Datagrams(seen) = captured {
                    seen.iter().for_each(&mut each);
                }
            }
            let read = datagrams.frames_read();
            self.0.release();
            if read == 0 {
                return Ok(());
            }
        }
    }
}

impl AsFd for Arrivals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// An agent.
pub mod agent {
    pub use crate::agent::replay::AgentReplay;
    pub use crate::agent::status::AgentStatus;
    pub use crate::agent::virtual_host::{HostAgent, Sent};
}

/// Packets that wait in a queue of netfilter until the agent lets them pass.
pub mod queue {
    pub use crate::agent::tun::Tun;
    pub use crate::queue::{Exempt, Program, Queue, QueueCounters, QueueError, Rules, RulesError};
}

/// Frames into which the kernel merged several datagrams.
pub mod offload {
    pub use crate::offload::*;
}

/// Parsing captured frames.
pub mod packet {
    pub use crate::packet::{Datagram, Link, Skip, parse};
}
