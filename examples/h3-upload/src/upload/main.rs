//! `h3-upload`: uploads a file to an HTTP/3 server, with or without a Sidekick proxy's help.
//!
//! | file | what it does |
//! |---|---|
//! | `../client/` | what it shares with `h3-download`: options, connection, help, report |
//! | `cli.rs` | the command line |
//! | `body.rs` | reads and hashes the file on a thread of its own |
//! | `request.rs` | one request: headers, body, the server's answer |
//! | `report.rs` | the summary and the JSON object |

mod body;
mod cli;
mod report;
mod request;

use std::process::ExitCode;

use clap::Parser as _;
use h3_client::program;

const PROGRAM: &str = "h3-upload";

fn main() -> ExitCode {
    program::exit(PROGRAM, run(cli::Cli::parse()))
}

fn run(cli: cli::Cli) -> anyhow::Result<ExitCode> {
    program::log();
    let (file, plan) = cli.plan()?;
    program::run(PROGRAM, async |stop| {
        let outcome = request::upload(&file, &plan, stop).await?;
        report::show(&file, &plan, &outcome)?;
        outcome.check()
    })
}
