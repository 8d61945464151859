//! `h3-upload`: uploads a file to an HTTP/3 server, with or without a Sidekick proxy's help.
//!
//! | file | what it does |
//! |---|---|
//! | `../client/` | what it shares with `h3-download`: options, connection, help, report |
//! | `cli.rs` | the command line |
//! | `body.rs` | reads and hashes the file on a thread of its own |
//! | `request.rs` | one request: headers, body, the server's answer |

mod body;
mod cli;
mod request;

use std::process::ExitCode;

use clap::Parser as _;
use h3_client::program;
use h3_client::report::Transfer;

const PROGRAM: &str = "h3-upload";

fn main() -> ExitCode {
    program::exit(PROGRAM, run(cli::Cli::parse()))
}

fn run(cli: cli::Cli) -> anyhow::Result<ExitCode> {
    program::log();
    let (file, plan) = cli.plan()?;
    program::run(PROGRAM, async |stop| {
        let outcome = request::upload(&file, &plan, stop).await?;
        let request::Outcome { sent, receipt, measured } = &outcome;
        let server_sha256 = Some(receipt.sha256.as_str());
        Transfer::new(&plan, measured, file.display().to_string(), sent, server_sha256)
            .show_upload(&plan)?;
        outcome.check()
    })
}
