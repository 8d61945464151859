//! The agent's program.

use std::process::ExitCode;

use anyhow::Result;

use super::cli::{Command, read, read_file};
use super::config::AgentConfig;
use super::daemon;
use crate::monitor::subject::AGENT;
use crate::program::{print_check, start};

/// Runs the agent's program with the arguments of this process.
pub fn main() -> ExitCode {
    start(
        AGENT,
        read,
        |config| config.log.level(),
        AgentConfig::memory_shortage,
        daemon::run,
        execute,
    )
}

/// Executes a command that does not run an agent.
fn execute(command: Command) -> Result<()> {
    match command {
        Command::Check { file } => {
            let (config, remarks) = read_file(&file)?;
            print_check(AGENT, &file, &remarks, &config.to_toml(), config.check())
        }
        Command::Status(options) => options.print(|file| Ok(read_file(file)?.0.metrics)),
    }
}
