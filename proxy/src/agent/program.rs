//! The agent's program: reads the command line, and does what it asks for.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use super::cli::{Action, Run, read, read_file};
use super::config::AgentConfig;
use super::daemon;
use super::status::AgentStatus;
use crate::terminal::{exit_code, first_sentence, metrics_address, print, print_status, start_log};

/// Runs the program with the arguments of this process.
pub fn main() -> ExitCode {
    let action = read(std::env::args_os()).unwrap_or_else(|error| error.exit());
    let outcome = match action {
        Action::Run(run) => run_agent(*run),
        Action::Check { file } => check(&file),
        Action::Status { json, all, metrics, config } => config
            .map_or(Ok(metrics), |file| {
                metrics_address::<AgentStatus>(&file, read_file(&file)?.0.metrics)
            })
            .and_then(|address| print_status::<AgentStatus>(address, all, json)),
    };
    exit_code("sidekick-agent", &outcome)
}

/// Runs an agent until a signal ends it.
fn run_agent(run: Run) -> Result<()> {
    let set_level = start_log(run.config.log);
    let reread = || {
        let config = reread()?;
        set_level(config.log)?;
        Ok(config)
    };
    daemon::run(&run.config, run.has_file.then_some(&reread))
}

/// Reads the command line and the file that it names again.
fn reread() -> Result<AgentConfig> {
    match read(std::env::args_os()) {
        Ok(Action::Run(run)) => Ok(run.config),
        Ok(_) => bail!("the command line does not run an agent"),
        Err(error) => Err(first_sentence(&error)),
    }
}

/// Checks a configuration file. Prints the effective settings to standard output, and remarks to
/// standard error. What would keep an agent from starting on any machine is an error; what may
/// differ when it starts, such as a missing interface, is a remark.
fn check(file: &Path) -> Result<()> {
    let (config, remarks) = read_file(file)?;
    for remark in remarks {
        eprintln!("sidekick-agent: {}: {remark}", file.display());
    }
    let settings = config.check().with_context(|| file.display().to_string());
    print(&config.to_toml()).and(settings)
}
