//! `h3-upload`: puts a file on an HTTP/3 server, with or without a Sidekick proxy's help.
//!
//! The example to copy from: the application is tokio-quiche's stock HTTP/3 client, and one call,
//! `quic_sidekick::tokio_quiche::assist`, in `connect.rs` is all that Sidekick asks of it.
//!
//! | file | what it does |
//! |---|---|
//! | `cli.rs` | the command line, checked as a whole before anything is sent |
//! | `discover.rs` | from HTTPS records (RFC 9460) to the addresses to try |
//! | `resolver.rs` | asks name servers |
//! | `connect.rs` | sockets, QUIC settings, the handshake, `assist` |
//! | `tls.rs` | which certificates are trusted, and for whom |
//! | `watch.rs` | a wrapper that keeps a connection's last words, and lets it end at once |
//! | `patience.rs` | when a server that does nothing is given up |
//! | `qlog.rs` | the connection's qlog file |
//! | `body.rs` | reads and hashes the file on a thread of its own |
//! | `upload.rs` | one request: headers, body, the server's answer |
//! | `report.rs`, `../text.rs` | progress, the summary, the JSON object, what a terminal may be shown |

mod body;
mod cli;
mod connect;
mod discover;
mod patience;
mod qlog;
mod report;
mod resolver;
#[path = "../text.rs"]
mod text;
mod tls;
mod upload;
mod watch;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tracing_subscriber::EnvFilter;

/// Exit status of a program that the user interrupted: 128 + SIGINT.
const INTERRUPTED: u8 = 130;
/// Exit status of a program that was asked to end: 128 + SIGTERM.
const TERMINATED: u8 = 143;

fn main() -> ExitCode {
    match run(cli::Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            report::complain(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(cli: cli::Cli) -> anyhow::Result<ExitCode> {
    // Silent unless RUST_LOG asks: the progress bar and the summary say what a user wants to know.
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("off"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    let plan = cli.plan()?;
    // One thread is enough for one connection, and keeps the handshake's datagrams in their order:
    // tokio-quiche sends each from a task of its own, and servers have been met that take two in
    // the wrong order for none.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the asynchronous runtime")?;
    let outcome = runtime.block_on(upload_or_interrupt(&plan));
    // The thread that reads the file may be waiting for a pipe; it must not hold up the end.
    runtime.shutdown_background();
    outcome
}

async fn upload_or_interrupt(plan: &cli::Plan) -> anyhow::Result<ExitCode> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let (stop, stopped) = oneshot::channel();
    let upload = upload::upload(plan, stopped);
    tokio::pin!(upload);

    let code = tokio::select! {
        outcome = &mut upload => return finish(plan, outcome?),
        _ = interrupt.recv() => INTERRUPTED,
        _ = terminate.recv() => TERMINATED,
    };
    // The upload closes its connection and returns; how it ended is no longer of interest.
    let _ = stop.send(());
    let _ = upload.await;
    eprintln!("h3-upload: interrupted");
    Ok(ExitCode::from(code))
}

fn finish(plan: &cli::Plan, outcome: upload::Outcome) -> anyhow::Result<ExitCode> {
    report::show(plan, &outcome)?;
    outcome.check()?;
    Ok(ExitCode::SUCCESS)
}
