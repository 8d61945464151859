//! The logs, the output and the end of this crate's programs.

use std::fmt;
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;

use anyhow::{Context, Error, Result};
use sd_notify::NotifyState;
use tracing::{Level, warn};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::LogLevel;

/// Begins to log to standard error. From then on, a panic of any thread ends the process.
///
/// Returns what changes the level. The environment overrides both levels.
pub(crate) fn start_log(level: LogLevel) -> impl Fn(LogLevel) -> Result<()> {
    let asked: Option<Targets> =
        std::env::var("RUST_LOG").ok().and_then(|asked| asked.parse().ok());
    let filtered = |level| {
        Targets::new().with_default(match level {
            LogLevel::Warn => Level::WARN,
            LogLevel::Info => Level::INFO,
            LogLevel::Debug => Level::DEBUG,
            LogLevel::Trace => Level::TRACE,
        })
    };
    let overridden = asked.is_some();
    let (filter, handle) = reload::Layer::new(asked.unwrap_or_else(|| filtered(level)));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_timer(Timestamps { omitted: is_journal() })
        // An internal error also goes to stderr, and the write would panic on a full disk. That is
        // no reason to end.
        .log_internal_errors(false);
    tracing_subscriber::registry().with(filter).with(lines).init();

    // A daemon with a dead thread would still look alive. Exit, so that the service manager starts
    // another.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::exit(101);
    }));
    move |level| {
        if !overridden {
            handle.reload(filtered(level))?;
        }
        Ok(())
    }
}

/// The time at the beginning of a line. The space after it stays.
struct Timestamps {
    omitted: bool,
}

impl FormatTime for Timestamps {
    fn format_time(&self, line: &mut Writer<'_>) -> fmt::Result {
        if self.omitted { Ok(()) } else { SystemTime.format_time(line) }
    }
}

/// Whether standard error goes to the journal, which gives each line a time of its own: then
/// `JOURNAL_STREAM` is its device and inode (systemd.exec(5)). A redirected program inherits the
/// variable, too.
fn is_journal() -> bool {
    let journal = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    std::fs::metadata("/proc/self/fd/2")
        .is_ok_and(|stderr| journal == format!("{}:{}", stderr.dev(), stderr.ino()))
}

/// Prints text to standard output.
pub(crate) fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        // The reader closed the pipe.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.context("cannot write to standard output"),
    }
}

/// Prints a line to standard output at once. The program continues if standard output is closed.
pub(crate) fn print_line(line: &str) {
    let mut stdout = std::io::stdout().lock();
    if writeln!(stdout, "{line}").and_then(|()| stdout.flush()).is_err() {
        warn!("stdout is closed; this line is lost: {line}");
    }
}

/// The names of interfaces for a line to the operator. A program starts without some of them.
pub(crate) fn interface_names<'a>(interfaces: impl Iterator<Item = (&'a str, bool)>) -> String {
    let (present, absent): (Vec<_>, Vec<_>) = interfaces.partition(|(_, is_present)| *is_present);
    let names = |of: &[(&str, bool)]| of.iter().map(|of| of.0).collect::<Vec<_>>().join(", ");
    match &absent[..] {
        [] => names(&present),
        absent => format!("{} (there is no {} yet)", names(&present), names(absent)),
    }
}

/// Notifies systemd, or another service manager with the same protocol, if there is one.
pub(crate) fn notify_manager(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!("cannot notify the service manager: {error}");
    }
}

/// The exit code of a program. Prints an error to standard error.
pub(crate) fn exit_code(program: &str, outcome: &Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Stderr may be closed, or a full disk.
            let _ = writeln!(std::io::stderr(), "{program}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The sentence of an error in a command line that was correct when the program started.
pub(crate) fn first_sentence(error: &clap::Error) -> Error {
    // The first line states the error. The others explain the usage.
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    Error::msg(line.strip_prefix("error: ").unwrap_or(line).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_interfaces_are_named_apart() {
        let names = |of: &[(&str, bool)]| interface_names(of.iter().copied());
        assert_eq!(names(&[("eth0", true), ("eth1", true)]), "eth0, eth1");
        let said = "eth1 (there is no eth0, eth2 yet)";
        assert_eq!(names(&[("eth0", false), ("eth1", true), ("eth2", false)]), said);
    }
}
