//! Items for the tests, benchmarks and fuzz targets of this workspace. They may change at any time.

pub use crate::addresses::HostNetwork;
pub use crate::capture::BATCH;
pub use crate::compat::nsdi24::wire::Quack as Nsdi24Quack;
pub use crate::engine::ProtocolEngine;
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

/// An agent.
pub mod agent {
    pub use crate::agent::replay::AgentReplay;
    pub use crate::agent::status::AgentStatus;
}

/// Frames into which the kernel merged several datagrams.
pub mod offload {
    pub use crate::offload::*;
}

/// Parsing captured frames.
pub mod packet {
    pub use crate::packet::{Datagram, Link, Skip, parse};
}
