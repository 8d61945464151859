//! `h3-download`: downloads a file from an HTTP/3 server, with or without a Sidekick proxy's help.
//!
//! With `--sidekick receive`, a proxy that keeps copies repeats the packets that the near segment
//! lost. The server needs no change.
//!
//! | file | what it does |
//! |---|---|
//! | `../client/` | what it shares with `h3-upload`: options, connection, help, report |
//! | `cli.rs` | the command line |
//! | `limit.rs` | how long the file may be |
//! | `name.rs` | the file's name, from the URL |
//! | `output.rs` | the file, which has its name only once it is complete |
//! | `body.rs` | hashes and writes the file on a thread of its own |
//! | `digest.rs` | the server's hashes of the file |
//! | `request.rs` | one request: headers, the server's answer, the checks |

mod body;
mod cli;
mod digest;
mod limit;
mod name;
mod output;
mod request;

use std::process::ExitCode;

use clap::Parser as _;
use h3_client::program;
use h3_client::report::Transfer;

const PROGRAM: &str = "h3-download";

fn main() -> ExitCode {
    program::exit(PROGRAM, run(cli::Cli::parse()))
}

fn run(cli: cli::Cli) -> anyhow::Result<ExitCode> {
    program::log();
    let (output, plan) = cli.plan()?;
    program::run(PROGRAM, async |stop| {
        let outcome = request::download(&output, &plan, stop).await?;
        let request::Outcome { content, announced_digest, measured } = &outcome;
        // A download with another hash than the announced one fails.
        let server_sha256 = announced_digest.then_some(content.sha256.as_str());
        Transfer::new(&plan, measured, output.name(), content, server_sha256).show_download(&plan)
    })
}
