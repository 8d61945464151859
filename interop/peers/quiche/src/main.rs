//! `stock-quiche-server`: the server of the matrix on the published quiche, without the hook.

#[path = "../../../src/endpoint/mod.rs"]
mod endpoint;
#[path = "../../../src/server/mod.rs"]
mod server;

use std::process::ExitCode;

use clap::Parser;

use server::Options;

/// An HTTP/3 server on stock quiche. It answers PUT and POST with the body's length and hash, and
/// GET with a file
#[derive(Debug, Parser)]
#[command(name = "stock-quiche-server", version)]
struct Cli {
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    match server::serve::serve(&Cli::parse().options, &|_| Ok(None)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stock-quiche-server: {error:#}");
            ExitCode::FAILURE
        }
    }
}
