//! The proxy's program: reads the command line, and executes it. The agent's program uses [`start`]
//! and [`print_check`], too.

use std::env::{ArgsOs, args_os};
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::cli::shared::Action;
use crate::cli::{Command, read, read_file};
use crate::config::{Config, LogLevel};
use crate::life::Settings;
use crate::monitor::subject::PROXY;
use crate::monitor::text::harmless;
use crate::queue::Exempt;
use crate::replay::report;
use crate::terminal::{exit_code, first_sentence, print, start_log};
use crate::{daemon, gateway, key};

/// Runs the proxy's program with the arguments of this process.
pub fn main() -> ExitCode {
    start(PROXY, read, |config: &Config| config.log.level(), daemon::run, execute)
}

/// Executes a command that does not run a proxy.
fn execute(command: Command) -> Result<()> {
    match command {
        Command::Check { file } => {
            let (config, mut remarks) = read_file(&file)?;
            if config.in_order {
                let exempt = Exempt::To(config.listen().port());
                remarks.extend(gateway::lacks(&config.interfaces, config.queue, exempt));
            }
            let key = config.key.as_deref().map_or(Ok(()), key::check);
            print_check(PROXY, &file, &remarks, &config.to_toml(), config.check()).and(key)
        }
        Command::Clean { file } => {
            let config = file.map(|file| read_file(&file)).transpose()?;
            gateway::clean(config.map(|(config, _)| (config.queue, config.in_order)))
        }
        Command::Replay(options) => report::run(&options),
        Command::Status(options) => options.print(|file| Ok(read_file(file)?.0.metrics)),
    }
}

/// Executes the command line of this process, and returns its exit code.
///
/// `read` reads a command line. `level` is how much to log by its settings, and `run` runs a daemon
/// with them until a signal ends it. If some of them come from a file, `run` also gets a function
/// that reads them again. That function refuses settings for which the machine has too little
/// memory. `execute` does anything else.
pub(crate) fn start<C: Settings, D>(
    name: &str,
    read: impl Fn(ArgsOs) -> Result<Action<C, D>, clap::Error>,
    level: impl Fn(&C) -> LogLevel,
    run: impl FnOnce(&C, Option<&dyn Fn() -> Result<C>>) -> Result<()>,
    execute: impl FnOnce(D) -> Result<()>,
) -> ExitCode {
    let outcome = match read(args_os()).unwrap_or_else(|error| error.exit()) {
        Action::Command(command) => execute(command),
        Action::Run { config, has_file } => {
            let set_level = start_log(level(&config));
            let reread = || match read(args_os()) {
                Ok(Action::Run { config, .. }) => {
                    if let Some(sentence) = config.memory_shortage() {
                        bail!("{sentence}");
                    }
                    set_level(level(&config))?;
                    Ok(config)
                }
                Ok(Action::Command(_)) => bail!("the command line does not run {name}"),
                Err(error) => Err(first_sentence(&error)),
            };
            run(&config, has_file.then_some(&reread))
        }
    };
    exit_code(name, &outcome)
}

/// Prints the result of a check of a configuration file: the effective settings to standard output,
/// and remarks to standard error. `check` is an error if these settings would keep the program from
/// starting on any machine. What may differ when it starts, such as a missing interface, is a
/// remark.
pub(crate) fn print_check(
    name: &str,
    file: &Path,
    remarks: &[String],
    settings: &str,
    check: Result<(), impl Error + Send + Sync + 'static>,
) -> Result<()> {
    for remark in remarks {
        eprintln!("{name}: {}: {}", file.display(), harmless(remark));
    }
    let check = check.with_context(|| file.display().to_string());
    print(&harmless(settings)).and(check)
}
