//! The `sidekick-proxy` program.

use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use sidekick_proxy::cli::{Instead, Options};
use sidekick_proxy::monitor::ask::{ask, show};
use sidekick_proxy::monitor::{self, Place};
use sidekick_proxy::{daemon, key, replay};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let options = Options::read(std::env::args_os()).unwrap_or_else(|complaint| complaint.exit());
    match options.instead.clone() {
        Some(Instead::Check { file }) => return check(options, &file),
        Some(Instead::Status { json, all, metrics, config }) => {
            let place = match config {
                Some(file) => options.with_file(&file).map_err(anyhow::Error::from).and_then(
                    |(with_file, _)| match with_file.metrics {
                        Some(Place::At(address)) => Ok(address),
                        None => Ok(monitor::DEFAULT),
                        Some(Place::Off) => {
                            bail!(
                                "{} has metrics off: a proxy of it cannot be asked",
                                file.display()
                            )
                        }
                    },
                ),
                None => Ok(metrics),
            };
            return end(place.and_then(|address| status(address, json, all)));
        }
        Some(Instead::Replay(options)) => return end(replay::program::run(&options)),
        None => {}
    }
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(options.log_filter()));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        // Its complaint that a line cannot be written would go to stderr as well, and panic there:
        // a full disk is no end.
        .log_internal_errors(false)
        .with_filter_reloading();
    let level = log.reload_handle();
    log.init();

    // A proxy with a dead thread would still look alive; end it, and let the service manager start
    // another.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::exit(101);
    }));

    let reread = || {
        let options = Options::read(std::env::args_os()).map_err(|complaint| {
            // Its first line says what is wrong, the others how the program is used.
            let text = complaint.to_string();
            let line = text.lines().next().unwrap_or_default();
            anyhow::Error::msg(line.strip_prefix("error: ").unwrap_or(line).to_owned())
        })?;
        if std::env::var_os(EnvFilter::DEFAULT_ENV).is_none() {
            level.reload(EnvFilter::new(options.log_filter()))?;
        }
        Ok(options)
    };
    end(daemon::run(&options, &reread))
}

/// The exit status of this outcome, after the sentence on stderr that it may take.
fn end(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // It may be closed, or a full disk.
            let _ = writeln!(std::io::stderr(), "sidekick-proxy: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Shows how the proxy stands that serves its status here.
fn status(address: SocketAddr, json: bool, all: bool) -> anyhow::Result<()> {
    let (text, status) = ask(address, all)?;
    print(&if json { text } else { show(&status) })
}

fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        // Who reads on has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.context("cannot write to standard output"),
    }
}

/// Looks a configuration file over: what it comes to goes to standard output, what deserves a
/// second look to standard error.
fn check(options: Options, file: &Path) -> ExitCode {
    match options.with_file(file) {
        Ok((options, remarks)) => {
            for remark in remarks {
                eprintln!("sidekick-proxy: {}: {remark}", file.display());
            }
            let key = options.key.as_deref().map_or(Ok(()), key::look_over);
            end(print(&options.to_file()).and(key))
        }
        Err(error) => {
            eprintln!("sidekick-proxy: {error}");
            ExitCode::FAILURE
        }
    }
}
