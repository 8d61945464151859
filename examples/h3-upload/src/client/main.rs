//! `h3-upload`: uploads a file to an HTTP/3 server, with or without a Sidekick proxy's help.
//!
//! Copy from this example. The application is tokio-quiche's stock HTTP/3 client. `connect.rs` adds
//! the help by `quic_sidekick::tokio_quiche::assist` and `Handle::connect`.
//!
//! | file | what it does |
//! |---|---|
//! | `cli.rs` | the command line, and its checks |
//! | `discover.rs` | the addresses in HTTPS records (RFC 9460) |
//! | `resolver.rs` | queries to name servers |
//! | `connect.rs` | sockets, QUIC settings, the handshake, `assist` |
//! | `tls.rs` | the check of the server's certificate |
//! | `watch.rs` | a wrapper that records why a connection ended, and lets it end at once |
//! | `patience.rs` | when to abort because of a stalled server |
//! | `qlog.rs` | the connection's qlog file |
//! | `body.rs` | reads and hashes the file on a thread of its own |
//! | `upload.rs` | one request: headers, body, the server's answer |
//! | `report.rs`, `../text.rs` | progress, the summary, the JSON object, safe characters |

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

/// Exit status after Ctrl-C: 128 + SIGINT.
const INTERRUPTED: u8 = 130;
/// Exit status after SIGTERM: 128 + SIGTERM.
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
    // Silent by default, because the progress bar and the summary inform the user.
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("off"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    let plan = cli.plan()?;
    // One thread keeps the handshake's datagrams in order. tokio-quiche sends each from a task of
    // its own, and some servers drop a ClientHello whose second datagram arrives first.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the asynchronous runtime")?;
    let outcome = runtime.block_on(upload_or_interrupt(&plan));
    // The thread that reads the file may wait for a pipe. It must not delay the end.
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
    // The upload closes its connection and returns an error, which the signal explains.
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
