//! `h3-upload-server`: stores files that clients upload over HTTP/3, and returns them.
//!
//! It knows nothing of Sidekick, and its stack is quinn, h3 and rustls, not the client's. So it
//! shows that a helped client needs nothing special of its server.
//!
//! | file | what it does |
//! |---|---|
//! | `cli.rs` | the command line |
//! | `identity.rs` | certificate and key, from files or generated for a test |
//! | `limits.rs` | limits on what clients may use, together and each |
//! | `endpoint.rs` | the QUIC endpoint, the admission of connections, an orderly end |
//! | `connection.rs` | one connection, from its handshake to the end of its last request |
//! | `transport.rs`, `frames.rs` | h3's interface to quinn, which bounds what h3 keeps |
//! | `request.rs`, `refusal.rs` | one HTTP request, from headers to answer |
//! | `download.rs`, `digests.rs` | the answer with a file, and the hashes of files |
//! | `name.rs`, `../text.rs` | which names a client's file may have |
//! | `store.rs` | a directory in which only complete files appear |
//! | `leftovers.rs` | the unfinished files of a killed server |

mod cli;
mod connection;
mod digests;
mod download;
mod endpoint;
mod frames;
mod identity;
mod leftovers;
mod limits;
mod name;
mod refusal;
mod request;
mod store;
#[path = "../text.rs"]
mod text;
mod transport;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    match run(cli::Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("h3-upload-server: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: cli::Cli) -> anyhow::Result<()> {
    let filter = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new("warn,h3_upload_server=info"));
    let ansi = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(ansi)
        .with_writer(std::io::stderr)
        .init();
    cli.limits.provide_descriptors()?;
    let store = store::Store::new(&cli.dir, &cli.limits)?;
    let (identity, root) = identity::load(&cli)?;
    let runtime =
        tokio::runtime::Runtime::new().context("cannot start the asynchronous runtime")?;
    // Dropping the runtime drops every unfinished upload, which removes its temporary file.
    let idle = Duration::from_secs(cli.idle_timeout.into());
    runtime.block_on(endpoint::serve(
        cli.listen,
        identity,
        root,
        idle,
        connection::Service::new(cli.limits, store),
    ))
}
