//! The program: reads the command line, and does what it asks for.

use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Error, Result, bail};
use tracing_subscriber::EnvFilter;

use crate::cli::{Action, Run, read, read_file};
use crate::config::Config;
use crate::monitor::ask::{ask, show};
use crate::monitor::listener::{DEFAULT_ADDRESS, MetricsAddress};
use crate::replay::report;
use crate::{daemon, key};

/// Runs the program with the arguments of this process.
pub fn main() -> ExitCode {
    let action = read(std::env::args_os()).unwrap_or_else(|error| error.exit());
    let outcome = match action {
        Action::Run(run) => run_proxy(*run),
        Action::Check { file } => check(&file),
        Action::Replay(settings) => report::run(&settings),
        Action::Status { json, all, metrics, config } => {
            config.map_or(Ok(metrics), |file| metrics_address(&file)).and_then(|address| {
                let (text, status) = ask(address, all)?;
                print(&if json { text } else { show(&status) })
            })
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Stderr may be closed, or a full disk.
            let _ = writeln!(std::io::stderr(), "sidekick-proxy: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a proxy until a signal ends it.
fn run_proxy(run: Run) -> Result<()> {
    let filter = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new(run.config.log.as_str()));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        // An internal error also goes to stderr, and the write would panic on a full disk. That is
        // no reason to end.
        .log_internal_errors(false)
        .with_filter_reloading();
    let level = log.reload_handle();
    log.init();

    // A proxy with a dead thread would still look alive. Exit, so that the service manager starts
    // another.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::exit(101);
    }));

    let reread = || {
        let config = reread()?;
        if std::env::var_os(EnvFilter::DEFAULT_ENV).is_none() {
            level.reload(EnvFilter::new(config.log.as_str()))?;
        }
        Ok(config)
    };
    daemon::run(&run.config, run.has_file.then_some(&reread))
}

/// Reads the command line and the file that it names again.
fn reread() -> Result<Config> {
    match read(std::env::args_os()) {
        Ok(Action::Run(run)) => Ok(run.config),
        Ok(_) => bail!("the command line does not run a proxy"),
        Err(error) => {
            // The first line says what is wrong. The others explain the usage.
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            Err(Error::msg(line.strip_prefix("error: ").unwrap_or(line).to_owned()))
        }
    }
}

/// Where a proxy with this configuration file serves its metrics.
fn metrics_address(file: &Path) -> Result<SocketAddr> {
    let (config, _) = read_file(file)?;
    match config.metrics {
        Some(MetricsAddress::At(address)) => Ok(address),
        None => Ok(DEFAULT_ADDRESS),
        Some(MetricsAddress::Off) => {
            bail!("{} has metrics off: its proxy has no status to show", file.display())
        }
    }
}

/// Prints text to standard output.
fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        // The reader has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.context("cannot write to standard output"),
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
