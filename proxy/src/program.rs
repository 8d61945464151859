//! The program: reads the command line, and does what it asks for.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::cli::{Action, Run, read, read_file};
use crate::config::Config;
use crate::monitor::status::Status;
use crate::replay::report;
use crate::terminal::{exit_code, first_sentence, metrics_address, print, print_status, start_log};
use crate::{daemon, key};

/// Runs the program with the arguments of this process.
pub fn main() -> ExitCode {
    let action = read(std::env::args_os()).unwrap_or_else(|error| error.exit());
    let outcome = match action {
        Action::Run(run) => run_proxy(*run),
        Action::Check { file } => check(&file),
        Action::Replay(settings) => report::run(&settings),
        Action::Status { json, all, metrics, config } => config
            .map_or(Ok(metrics), |file| {
                metrics_address::<Status>(&file, read_file(&file)?.0.metrics)
            })
            .and_then(|address| print_status::<Status>(address, all, json)),
    };
    exit_code("sidekick-proxy", &outcome)
}

/// Runs a proxy until a signal ends it.
fn run_proxy(run: Run) -> Result<()> {
    let set_level = start_log(run.config.log);
    let reread = || {
        let config = reread()?;
        set_level(config.log)?;
        Ok(config)
    };
    daemon::run(&run.config, run.has_file.then_some(&reread))
}

/// Reads the command line and the file that it names again.
fn reread() -> Result<Config> {
    match read(std::env::args_os()) {
        Ok(Action::Run(run)) => Ok(run.config),
        Ok(_) => bail!("the command line does not run a proxy"),
        Err(error) => Err(first_sentence(&error)),
    }
}

/// Checks a configuration file and its key. Prints the effective settings to standard output, and
/// remarks to standard error. What would keep a proxy from starting on any machine is an error;
/// what may differ when it starts, such as a missing interface, is a remark.
fn check(file: &Path) -> Result<()> {
    let (config, remarks) = read_file(file)?;
    for remark in remarks {
        eprintln!("sidekick-proxy: {}: {remark}", file.display());
    }
    let key = config.key.as_deref().map_or(Ok(()), key::check);
    let settings = config.check().with_context(|| file.display().to_string());
    print(&config.to_toml()).and(settings).and(key)
}
