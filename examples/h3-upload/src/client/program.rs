//! The start and the end of a program, and the signals that end it early.

use std::future::Future;
use std::io::IsTerminal as _;
use std::process::ExitCode;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::words::{harmless, say};

/// Exit status after Ctrl-C: 128 + SIGINT.
const INTERRUPTED: u8 = 130;
/// Exit status after SIGTERM: 128 + SIGTERM.
const TERMINATED: u8 = 143;
/// Exit status after the terminal closed: 128 + SIGHUP.
const HUNG_UP: u8 = 129;

/// Exit status of `outcome`. An error becomes one sentence of `program` on standard error.
#[must_use]
pub fn exit(program: &str, outcome: anyhow::Result<ExitCode>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        say(&format!("{program}: {}", harmless(&format!("{error:#}"))));
        ExitCode::FAILURE
    })
}

/// Writes the log that `RUST_LOG` asks for to standard error. Silent by default, because the
/// progress bar and the summary inform the user.
pub fn log() {
    let filter: Targets = std::env::var("RUST_LOG").unwrap_or_default().parse().unwrap_or_default();
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    tracing_subscriber::registry().with(filter).with(lines).init();
}

/// Runs `transfer` to its end, or until a signal. `transfer` gets a receiver that fires at a
/// signal. It then closes its connection and returns an error, which the signal explains.
///
/// # Errors
/// Those of `transfer`, and a runtime that cannot start.
pub fn run<F: Future<Output = anyhow::Result<()>>>(
    program: &str,
    transfer: impl FnOnce(oneshot::Receiver<()>) -> F,
) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the asynchronous runtime")?;
    let code = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
        let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
        let mut hang_up = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
        let (stop, stopped) = oneshot::channel();
        let transfer = transfer(stopped);
        tokio::pin!(transfer);
        let code = tokio::select! {
            outcome = &mut transfer => return outcome.map(|()| ExitCode::SUCCESS),
            _ = interrupt.recv() => INTERRUPTED,
            _ = terminate.recv() => TERMINATED,
            _ = hang_up.recv() => HUNG_UP,
        };
        let _ = stop.send(());
        // It may have ended before the signal reached it.
        if transfer.await.is_ok() {
            return Ok(ExitCode::SUCCESS);
        }
        say(&format!("{program}: interrupted"));
        Ok(ExitCode::from(code))
    });
    // The thread that accesses the file may wait for a pipe. It must not delay the end.
    runtime.shutdown_background();
    code
}
