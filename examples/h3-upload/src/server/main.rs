//! `h3-upload-server`: stores files that clients upload over HTTP/3, and returns them.
//!
//! It does not use Sidekick, and its stack is quinn, h3 and rustls, not the client's. So it shows
//! that a helped client needs nothing special of its server.
//!
//! | file | what it does |
//! |---|---|
//! | `../../../h3-server/` | what it shares with other servers: identity, endpoint, HTTP/3 |
//! | `limits.rs` | limits on what clients may use, together and each |
//! | `request.rs`, `refusal.rs` | one HTTP request, from headers to answer |
//! | `download.rs`, `digests.rs` | the answer with a file, and the hashes of files |
//! | `name.rs`, `../text.rs` | which names a client's file may have, and what its header says |
//! | `store.rs` | a directory in which only complete files appear |

mod digests;
mod download;
mod limits;
mod name;
mod request;
mod store;
#[path = "../text.rs"]
mod text;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use h3_server::connection::{handshake, serve_requests};
use h3_server::quota::{Client, Place, Quota};
use h3_server::{endpoint, identity};

use limits::Limits;
use store::Store;

const PROGRAM: &str = "h3-upload-server";

/// Store files that are uploaded over HTTP/3 (PUT or POST /NAME), and return them (GET /NAME).
#[derive(Debug, Parser)]
#[command(
    name = "h3-upload-server",
    version,
    override_usage = "h3-upload-server --dir <DIR> --cert <FILE> --key <FILE> [OPTIONS]\n       \
                      h3-upload-server --dir <DIR> --self-signed <NAME_OR_IP> [OPTIONS]"
)]
struct Cli {
    /// The directory for the files; it must exist
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// The address to listen on (UDP)
    #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:4433")]
    listen: SocketAddr,
    #[command(flatten)]
    identity: identity::Options,
    /// Drop a connection after this time without a packet
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..))]
    idle_timeout: u16,
    #[command(flatten)]
    limits: Limits,
}

/// The state that all connections share.
#[derive(Clone, Debug)]
struct Service {
    limits: Arc<Limits>,
    store: Store,
    transfers: Arc<Quota>,
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{PROGRAM}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<()> {
    h3_server::log("h3_upload_server");
    cli.limits.provide_descriptors()?;
    let store = Store::new(&cli.dir, &cli.limits)?;
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
    let transfers = Quota::new("transfers", limits.max_uploads, limits.max_uploads_per_client);
    let service = Service { limits: Arc::new(limits.clone()), store, transfers };
    // Dropping the runtime drops every unfinished upload, which removes its temporary file.
    runtime.block_on(endpoint::serve(
        settings,
        identity,
        root,
        &connections,
        |incoming, client, place| serve(incoming, service.clone(), client, place),
    ))
}

/// Serves one connection, which keeps its `place` until it ends.
async fn serve(incoming: quinn::Incoming, service: Service, client: Client, place: Place) {
    let peer = incoming.remote_address();
    let patience = service.limits.request_timeout();
    let Some(quic) = handshake(incoming, patience).await else { return };
    let mut requests = serve_requests(quic, patience, move |request, stream| {
        request::serve(request, stream, service.clone(), client, peer)
    })
    .await;
    // The server still stores complete bodies. Incomplete ones fail now.
    while requests.join_next().await.is_some() {}
    drop(place);
}
