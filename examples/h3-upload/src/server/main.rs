//! `h3-upload-server`: stores files that clients upload over HTTP/3, and returns them.
//!
//! It does not use Sidekick, and its stack is quinn, h3 and rustls, not the client's. So it shows
//! that a helped client needs nothing special of its server.
//!
//! | file | what it does |
//! |---|---|
//! | `cli.rs` | the command line |
//! | `../../../h3-server/` | what it shares with other servers: identity, endpoint, HTTP/3 |
//! | `limits.rs` | limits on what clients may use, together and each |
//! | `connection.rs` | one connection, from its handshake to the end of its last request |
//! | `request.rs`, `refusal.rs` | one HTTP request, from headers to answer |
//! | `download.rs`, `digests.rs` | the answer with a file, and the hashes of files |
//! | `name.rs`, `../text.rs` | which names a client's file may have |
//! | `store.rs` | a directory in which only complete files appear |
//! | `leftovers.rs` | the unfinished files of a killed server |

mod cli;
mod connection;
mod digests;
mod download;
mod leftovers;
mod limits;
mod name;
mod refusal;
mod request;
mod store;
#[path = "../text.rs"]
mod text;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;
use h3_server::quota::Quota;
use h3_server::{endpoint, identity};

const PROGRAM: &str = "h3-upload-server";

fn main() -> ExitCode {
    match run(cli::Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{PROGRAM}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: cli::Cli) -> anyhow::Result<()> {
    h3_server::log("h3_upload_server");
    cli.limits.provide_descriptors()?;
    let store = store::Store::new(&cli.dir, &cli.limits)?;
    let (identity, root) = identity::load(PROGRAM, &cli.identity)?;
    let runtime =
        tokio::runtime::Runtime::new().context("cannot start the asynchronous runtime")?;
    let limits = &cli.limits;
    let settings = endpoint::Settings {
        listen: cli.listen,
        protocols: &[b"h3"],
        receive_window: limits.window,
        send_window: limits.window,
        streams: limits.max_uploads_per_connection,
        idle: Duration::from_secs(cli.idle_timeout.into()),
    };
    let connections =
        Quota::new("connections", limits.max_connections, limits.max_connections_per_client);
    let service = connection::Service::new(cli.limits.clone(), store);
    // Dropping the runtime drops every unfinished upload, which removes its temporary file.
    runtime.block_on(endpoint::serve(
        settings,
        identity,
        root,
        &connections,
        |incoming, client, place| connection::serve(incoming, service.clone(), client, place),
    ))
}
