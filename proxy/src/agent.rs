//! An agent helps the UDP flows of unmodified programs.
//!
//! It captures the packets that leave by an interface, searches for a proxy on the path of each
//! flow, and sends what was lost before the proxy again, byte for byte.
//!
//! The walk of a packet: `captures` reads it, and `flows` finds its flow. `candidate` decides when
//! help begins. From then on, `flow` names the packet to a [`sidekick_protocol::Sender`] and keeps
//! a copy. When a proxy's quACK shows that it was lost, `frame` writes it again, and `outbox` holds
//! it until `daemon` sends it. `under_way` recognises it when a capture shows it on the wire, where
//! its place among the other packets is set.
//!
//! An arriving packet goes the same way to `flow`. If packets have numbers, `arriving` requests the
//! missing ones, whose copies reach this host by `outbox`, `daemon` and `tun`. By `gateway`,
//! packets wait for those before them.
//!
//! `cli` and `status` are for the operator, like those of the proxy, and so is `journal`, which
//! logs what happens to a flow. `holds` measures how long packets wait. When a flow's losses are
//! repaired decides [`sidekick_protocol::policy`].

mod arriving;
mod candidate;
mod captures;
pub(crate) mod cli;
pub(crate) mod config;
pub(crate) mod daemon;
pub(crate) mod filter;
mod flow;
mod flows;
mod frame;
pub(crate) mod holds;
mod host;
mod journal;
mod kind;
mod looks;
mod measure;
mod outbox;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod status;
pub(crate) mod tun;
mod under_way;
pub(crate) mod virtual_host;

use crate::gateway;
use crate::monitor::subject::AGENT;
use crate::program::{print_check, start};
use crate::queue::Exempt;
use anyhow::Result;
use cli::{Command, read, read_file};
use config::AgentConfig;
use sidekick_protocol::DEFAULT_PORT;
use std::process::ExitCode;

/// Runs the agent's program with the arguments of this process.
pub fn main() -> ExitCode {
    start(AGENT, read, |config: &AgentConfig| config.log.level(), daemon::run, execute)
}

/// Executes a command that does not run an agent.
fn execute(command: Command) -> Result<()> {
    match command {
        Command::Check { file } => {
            let (config, mut remarks) = read_file(&file)?;
            if config.in_order {
                let exempt = Exempt::From(DEFAULT_PORT);
                remarks.extend(gateway::lacks(&config.interfaces, config.queue, exempt));
            }
            print_check(AGENT, &file, &remarks, &config.to_toml(), config.check())
        }
        Command::Clean { file } => {
            let file = file.map(|file| read_file(&file)).transpose()?;
            gateway::clean(file.map(|(config, _)| (config.queue, config.in_order)))
        }
        Command::Measure(options) => options.run(),
        Command::Status(options) => options.print(|file| Ok(read_file(file)?.0.metrics)),
    }
}
